// ZeroGradients: main gradients that end up sharded (Rajbhandari et al. 2020, "ZeRO", sections 5.1 and 5.2).
//
// A bucket goes round: *filling*, while operations add to a full-size f32 gradient; *sent*, when all its gradients are
// ready: it is packed and reduce-scattered in the background while backward goes on; *added*, when this rank's piece of
// the sum has come. Stage 1 keeps the full-size gradients all along, sends them once, in the last backward, and puts
// the piece that comes back where the sent gradient was. From stage 2 on the full-size gradient is there only while the
// bucket fills, and a bucket goes round once per micro-batch, each piece added to an f32 shard that stays.
//
// What is added to a gradient is sent exactly once, whenever that happens to be: a bucket that was sent is empty.
// So nothing here asks which micro-batch a gradient belongs to, and schedules may interleave them as they like.
//
// Every rank of a group must send the same buckets in the same order, whatever order gradients become ready in. So the
// buckets of one chunk are sent in rounds, each in one order: a bucket that is full early waits for those before it,
// and the round ends (buckets that are not full are sent as they are) when one that was sent begins to fill again, or
// the step ends.
//
// With hybrid sharding a piece is a sum over a shard group only, and is summed once more, over the ranks with copies of
// the shard: once a step, after as many pieces as the step has micro-batches, and in the background too. A rank counts
// what it sent, which is the same on all; not what it thinks is the last micro-batch of a gradient, which need not be.
//
// When a collective is launched never depends on timing, also across groups: ranks whose orders differ deadlock under
// --verify, which compares each collective before it runs, and may deadlock under NCCL. So a sum over copies is
// launched when the second bucket after it has been sent, or by finish(), and its piece is waited for then; at once
// where a shard group is one rank and no piece travels. That a piece has arrived earlier changes nothing. Read next:
// parallel/zero/gradients.cpp, parallel/grad_sync.h (stage 0).
#pragma once

#include <chrono>
#include <deque>
#include <map>

#include "parallel/grad_sync.h"
#include "parallel/zero/bucket.h"

namespace trireme {

class ZeroGradients {
 public:
  /// `tied` as find_tied() gives it. `each_microbatch`: stages 2 and 3. All arguments must outlive this object.
  ZeroGradients(const std::vector<ZeroBucket>& buckets, const nn::ParameterList& tied, const DeviceMesh& mesh,
                bool each_microbatch);
  ~ZeroGradients();
  ZeroGradients(const ZeroGradients&) = delete;
  ZeroGradients& operator=(const ZeroGradients&) = delete;

  // As in GradSync. `microbatches` of the step that starts, each with a backward per chunk; 0: not known, and sums over
  // copies wait for finish(). Neither it nor what comes in a step changes which terms a sum has.
  void zero(int microbatches = 0);
  void last_microbatch(bool last = true) { sending_ = last || each_microbatch_; }
  GradSyncReport finish();

  /// This rank's piece of the summed gradient: after finish(), until zero().
  const Tensor& piece(std::size_t bucket) const { return states_[bucket].sum; }

 private:
  using Clock = std::chrono::steady_clock;

  struct State {
    Tensor full;              // [n] f32, the gradients one behind the other; undefined when nothing was added
    std::vector<bool> ready;  // by shard, since the bucket was last sent
    std::size_t missing = 0;  // how many are not
    Tensor sum;               // [piece] f32; undefined: nothing has come
    int pieces = 0;           // that have come in this step
    bool summed = false;      // the sum of `sum` over copies has started: it must not be touched
    Tensor late;              // [piece] f32: what came after that, to be summed by itself
  };
  struct Round {
    std::vector<std::size_t> buckets;  // of one chunk, in the order in which they are sent
    std::size_t sent = 0;              // how many of them, in this round
    bool over = false;                 // one of those sent fills again: the rest follows as soon as no operation runs
    int ended = 0;                     // rounds of this step
  };
  struct Sent {
    std::size_t bucket;
    Tensor piece;  // [piece], arriving
    Work work;
    Clock::time_point when;
  };
  struct OverCopies {
    Work work;
    Clock::time_point when;
  };

  void start_filling(std::size_t bucket);
  void gradient_ready(std::size_t bucket, std::size_t shard);
  bool sent_this_round(std::size_t bucket);
  void send_full(Round& round);
  void end_round(Round& round);
  void send(std::size_t bucket);
  void receive_first();
  void sum_over_copies(std::size_t bucket);
  void note_summed(bool wait);
  void sum_over(const Tensor& x, ProcessGroup& group);
  std::vector<Tensor> views(std::size_t bucket, const Tensor& full) const;

  const std::vector<ZeroBucket>& buckets_;
  const nn::ParameterList& tied_;
  const DeviceMesh& mesh_;
  const bool each_microbatch_;
  bool sending_ = false;  // what is ready may be sent
  std::vector<State> states_;
  std::vector<std::size_t> place_in_round_;  // by bucket
  std::map<int, Round> rounds_;              // by chunk
  std::deque<Sent> sent_;                    // oldest first
  std::deque<OverCopies> over_copies_;       // as sent_, of the sums over copies
  int expected_pieces_ = 0;                  // per bucket and step, after which it is summed over copies; 0: unknown
  Clock::time_point last_arrival_, last_sum_;
  GradSyncReport report_;
};

}  // namespace trireme
