// ZeroWeights: updates this rank's shards, and gathers whole parameters.
//
// Stages 1 and 2 keep every parameter whole. After a bucket's shards have been updated, an all-gather of the new values
// runs in the background while the next bucket is updated and the next forward begins. The unit that needs them waits
// for it right before it runs.
//
// Stage 3 keeps only the shards of buckets that are gathered on use, in a piece. The optimizer writes this piece, and
// it is also the input of the gather. Before a unit runs, forward or backward, its pieces are gathered into the
// parameters' own memory, which is freed when the next unit runs (Rajbhandari et al. 2020, section 5.3; Zhao et al.
// 2023, "PyTorch FSDP", section 3). Operations save views of that memory for backward, not copies: it is freed in
// between, and filled again before backward needs it. Gathers of the units that will probably run next start early.
//
// Which unit runs next depends only on the program, so all ranks gather in the same order.
// Read next: parallel/zero/weights.cpp, parallel/parameters/unit.h (who calls before_use).
#pragma once

#include <map>
#include <optional>

#include "parallel/data_parallel/data_parallel.h"
#include "parallel/zero/gradients.h"
#include "parallel/zero/shard_hashes.h"

namespace trireme {

class ZeroWeights final : public UnitObserver {
 public:
  /// Observes `units`, and frees the whole values of parameters that are gathered on use. All arguments must outlive
  /// this object.
  ZeroWeights(const std::vector<ZeroBucket>& buckets, Units& units, const ZeroOptions& options);
  ~ZeroWeights() override;
  ZeroWeights(const ZeroWeights&) = delete;
  ZeroWeights& operator=(const ZeroWeights&) = delete;

  /// Updates all weights with `gradients`: calls `update_shards` once for the places of each bucket. Before the first
  /// step and between zero_grad() and finish() the shards have no gradients.
  void update(const ZeroGradients& gradients, const DataParallel::UpdateShards& update_shards);
  void before_use(std::size_t use, bool backward) override;
  /// From now on, `state` and the shards are hashed between updates.
  void hash_shards(const ShardList& shards, const std::vector<StateTensor>& state) {
    shard_hashes_.start(shards, state);
  }
  void check_hashes();  ///< call between updates; calls finish_gathers() first
  void forget_hashes() override { shard_hashes_.forget(); }
  /// Waits for all gathers, and frees whole values of parameters that are gathered on use. Values may then be read and
  /// replaced.
  void finish_gathers() override;
  std::shared_ptr<const Shard> kept_piece(const Parameter& parameter) const override;

 private:
  struct BucketWeights {
    Tensor piece;   // [piece], this rank's values; not gathered on use: only while being gathered
    Tensor pieces;  // [n, piece], arriving
    Work arrival;
    bool gathered = false;  // on use: the parameters' own memory is filled
  };

  void gather(std::size_t bucket);    // start
  void complete(std::size_t bucket);  // wait, and fill the parameters
  void release(std::size_t bucket);
  bool is_gathering(std::size_t bucket) const { return states_[bucket].pieces.defined(); }
  void update_bucket(std::size_t bucket, const Tensor& gradients, const DataParallel::UpdateShards& update_shards);
  void record_frozen(const ZeroBucket& bucket);
  void check_hashes_of(const ZeroBucket& bucket) const;
  std::vector<const Unit*> wanted(std::size_t use, bool backward) const;

  const std::vector<ZeroBucket>& buckets_;
  Units& units_;
  ZeroOptions options_;
  std::vector<BucketWeights> states_;
  std::map<const Unit*, std::vector<std::size_t>> of_unit_;
  ShardHashes shard_hashes_;
  std::uint64_t updates_ = 0;  // the version (core/tensor.h) of values that are gathered on use
};

}  // namespace trireme
