// ZeroGradients: main gradients that end up sharded (Rajbhandari et al. 2020, "ZeRO", sections 5.1 and 5.2).
//
// A bucket cycles through three states. *Filling*: operations add to a full-size f32 gradient. *Sent*: all its
// gradients are ready, and it is packed and reduce-scattered in the background while backward goes on. *Added*: this
// rank's piece of the sum has arrived. Stage 1 always keeps the full-size gradients, sends them once, in the last
// backward, and then stores the arrived piece over them. From stage 2 on the full-size gradient exists only while
// the bucket fills. A bucket then cycles once per micro-batch, and each piece is added to an f32 shard that stays.
//
// Each addition to a gradient is sent exactly once, because a bucket is empty after it was sent. So the code need not
// know which micro-batch a gradient belongs to, and schedules may interleave them freely.
//
// Every rank of a group must send the same buckets in the same order, but gradients may become ready in any order. So
// the buckets of one chunk are sent in rounds, always in the same order: a bucket that is full early waits for those
// before it. A round ends when a sent bucket begins to fill again, or the step ends; buckets that are not full are then
// sent as they are.
//
// With hybrid sharding a piece is a sum over a shard group only. It is summed again over the ranks with copies of the
// shard: once a step, in the background, after as many pieces as the step has micro-batches. The rank counts pieces:
// their number is the same on all ranks, but which micro-batch is the last of a gradient may differ.
//
// The order in which collectives are launched must not depend on timing, also across groups: ranks with different
// orders deadlock under --verify, which compares each collective before it runs, and may deadlock under NCCL. So a sum
// over copies is launched, after waiting for its piece, when as many buckets as the largest unit has were sent after it,
// or by finish(). It is launched at once if the shard group is one rank, as no piece travels. Early arrival of a piece
// changes nothing.
// Read next: parallel/zero/gradients.cpp, parallel/data_parallel/grad_sync.h (stage 0).
#pragma once

#include <deque>
#include <map>

#include "parallel/data_parallel/grad_sync.h"
#include "parallel/zero/bucket.h"

namespace trireme {

class ZeroGradients {
 public:
  /// `tied`: from find_tied(). `each_microbatch`: stages 2 and 3. All arguments must outlive this object.
  ZeroGradients(const std::vector<ZeroBucket>& buckets, const ParameterList& tied, const DeviceMesh& mesh,
                bool each_microbatch);
  ~ZeroGradients();
  ZeroGradients(const ZeroGradients&) = delete;
  ZeroGradients& operator=(const ZeroGradients&) = delete;

  // As in GradSync. `microbatches` of the step that starts, each with a backward per chunk; 0: unknown, and sums over
  // copies wait for finish(). The terms of a sum do not depend on this number, even if it is wrong.
  void zero_grad(int microbatches = 0);
  void last_microbatch(bool last = true) { sending_ = last || each_microbatch_; }
  GradSyncReport finish();

  /// Throws ExitCode::usage, naming `where`, unless finish() has been called since the last zero_grad().
  void require_summed(std::string_view where) const;

  /// This rank's piece of the summed gradient: after finish(), until zero_grad().
  const Tensor& piece(std::size_t bucket) const { return states_[bucket].sum; }

 private:
  struct BucketGradients {
    Tensor full;               // [n] f32, the gradients one after the other; undefined when nothing was added
    std::vector<bool> ready;   // by shard, since the bucket was last sent
    std::size_t missing = 0;   // how many are not ready
    Tensor sum;                // [piece] f32; undefined: no piece has arrived
    int pieces = 0;            // that have arrived in this step
    bool summed = false;       // the sum of `sum` over copies has started: it must not be touched
    Tensor after_replica_sum;  // [piece] f32: pieces that arrived after that sum had begun
  };
  struct Round {
    std::vector<std::size_t> buckets;  // of one chunk, in sending order
    std::size_t sent = 0;              // how many of them, in this round
    bool over = false;                 // a sent bucket fills again: the rest is sent as soon as no operation runs
    int ended = 0;                     // rounds of this step
  };
  struct Sent {
    std::size_t bucket;
    Tensor piece;  // [piece], arriving
    Work work;
  };

  void start_filling(std::size_t bucket);
  void gradient_ready(std::size_t bucket, std::size_t shard);
  bool sent_this_round(std::size_t bucket);
  void send_full(Round& round);
  void end_round(Round& round);
  void send(std::size_t bucket);
  void receive_first();
  void sum_over_copies(std::size_t bucket);
  void sum_over(const Tensor& x, ProcessGroup& group, SumOrder order);
  std::vector<Tensor> views(std::size_t bucket, const Tensor& full) const;

  const std::vector<ZeroBucket>& buckets_;
  const ParameterList& tied_;
  const DeviceMesh& mesh_;
  const bool each_microbatch_;
  const std::size_t most_on_the_way_;  // buckets; also decides when a sum over copies is launched
  bool sending_ = false;               // ready buckets may be sent
  bool summed_ = false;                // finish() has been called since the last zero_grad()
  std::vector<BucketGradients> states_;
  std::vector<std::size_t> place_in_round_;  // by bucket
  std::map<int, Round> rounds_;              // by chunk
  std::deque<Sent> sent_;                    // oldest first
  std::vector<Work> over_copies_;            // sums over copies that are under way
  int expected_pieces_ = 0;                  // per bucket and step, before the sum over copies; 0: unknown
  GradSyncReport report_;
};

}  // namespace trireme
