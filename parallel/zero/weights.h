// ZeroWeights: updates this rank's shards, and brings whole parameters back together.
//
// Stages 1 and 2 keep every parameter whole. After a bucket's shards have been updated, an all-gather of the new values
// starts in the background, while the next bucket is updated and the next forward begins; it is waited for right before
// the unit that needs it runs.
//
// Stage 3 keeps only the shards of *paged* buckets, in a piece that is at once what the optimizer writes and what is
// gathered. Before a unit runs, forward or backward, its pieces are gathered into the parameters' own memory, which is
// given back when the next unit takes its turn (Rajbhandari et al. 2020, section 5.3; Zhao et al. 2023, "PyTorch FSDP",
// section 3). What operations saved for backward are views of that memory, not copies: it is empty in between and
// filled again in time. Gathers of the units that will probably come next start early.
//
// Which unit comes next depends on the program alone, so all ranks gather in one order.
// Read next: parallel/zero/weights.cpp, nn/unit.h (who calls before_use).
#pragma once

#include <map>
#include <optional>

#include "optim/optimizer.h"
#include "parallel/zero/gradients.h"
#include "parallel/zero/seals.h"

namespace trireme {

class ZeroWeights final : public nn::UnitObserver {
 public:
  /// Watches `units`, and lets go of the whole values of paged parameters. All arguments must outlive this object.
  ZeroWeights(const std::vector<ZeroBucket>& buckets, nn::Units& units, const ZeroOptions& options);
  ~ZeroWeights() override;
  ZeroWeights(const ZeroWeights&) = delete;
  ZeroWeights& operator=(const ZeroWeights&) = delete;

  /// One step of `optimizer`, whose shards are the buckets', with the gradients of `gradients`.
  void update(optim::Optimizer& optimizer, const ZeroGradients& gradients, double lr, double gradient_scale);
  void before_use(std::size_t use, bool backward) override;
  /// From here on, `state` and the shards are sealed between updates.
  void seal(const optim::ShardList& shards, const std::vector<optim::StateTensor>& state) {
    seals_.watch(shards, state);
  }
  void check_seals();  ///< between updates; settles first
  void open_seals() { seals_.open(); }
  /// Waits for all gathers, and lets go of whole values that are kept in pieces. Values may then be read and replaced.
  void settle();

 private:
  struct State {
    Tensor piece;   // [piece], paged: this rank's values; otherwise only while they are sent
    Tensor pieces;  // [n, piece], arriving
    Work arrival;
    bool gathered = false;  // paged: the parameters' own memory is filled
  };

  void gather(std::size_t bucket);    // start
  void complete(std::size_t bucket);  // wait, and fill the parameters
  void let_go(std::size_t bucket);
  bool on_the_way(std::size_t bucket) const { return states_[bucket].pieces.defined(); }
  void update_bucket(std::size_t bucket, optim::Optimizer& optimizer, const Tensor& gradients, double lr,
                     double gradient_scale);
  std::vector<const nn::Unit*> wanted(std::size_t use, bool backward) const;

  const std::vector<ZeroBucket>& buckets_;
  nn::Units& units_;
  ZeroOptions options_;
  std::vector<State> states_;
  std::map<const nn::Unit*, std::vector<std::size_t>> of_unit_;
  ZeroSeals seals_;
};

}  // namespace trireme
