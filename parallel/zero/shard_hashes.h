// ShardHashes: hashes that detect a bit flip in data that no other rank holds.
//
// Copies of a weight can be compared with one another (parallel/data_parallel/verify.h). A shard has no copy: if a bit
// flips in memory, its owner sends the wrong weight to all ranks, and all agree on it. But between two updates nothing
// writes to a shard or to its part of the optimizer's state. So they are hashed right after an update, while they are
// in the cache, and again right before the next. If the hashes differ, the hardware changed the data. Frozen weights
// are hashed at the first update, and compared when check_hashes() is called.
// Read next: parallel/zero/weights.cpp, which calls this around every update.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "parallel/parameters/shard.h"

namespace trireme {

class ShardHashes {
 public:
  /// `shards` in the order of their places; `state`: the optimizer's state to hash. Hashes only tensors in
  /// host memory.
  void start(const ShardList& shards, const std::vector<StateTensor>& state);
  bool started() const { return !shards_.empty(); }

  /// Call after the update of the shard at this place. `weights`: the values its owner continues from; undefined: the
  /// master, which is part of the state.
  void record(std::size_t place, const Tensor& weights);
  bool recorded(std::size_t place) const { return shards_[place].valid; }
  /// Call before the next update. Throws ExitCode::retryable naming the tensor if it changed. Does nothing if it is
  /// not hashed.
  void check(std::size_t place, const Tensor& weights) const;
  /// Call after anything was written to, such as by loading a checkpoint.
  void forget();

 private:
  struct Hashed {
    std::string name;                                   ///< of the parameter
    std::vector<std::pair<std::string, Tensor>> state;  ///< tensors by kind, such as "m"
    bool valid = false;  ///< the hashes are those of the data, which was not written to since
    std::uint64_t weights_hash = 0;
    std::vector<std::uint64_t> state_hashes;
  };
  std::vector<Hashed> shards_;  // by place
};

}  // namespace trireme
