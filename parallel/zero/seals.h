// ZeroSeals: hashes over what no other rank has a copy of.
//
// Copies of a weight can be compared with one another (parallel/verify.h). A shard cannot: what a bit of memory that
// fell over does to it, its owner passes on to everybody, and all ranks agree on the wrong weight. But between two
// updates nobody writes to a shard and to its part of the optimizer's state: their hash is taken right after an update,
// while they are in the cache, and again right before the next one. What differs was changed by the machine.
// Read next: parallel/zero/weights.cpp, which calls this around every update.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "optim/optimizer.h"

namespace trireme {

class ZeroSeals {
 public:
  /// `shards` in the order of their places, and what of the optimizer's state of them is to be sealed: what of it is in
  /// host memory.
  void watch(const optim::ShardList& shards, const std::vector<optim::StateTensor>& state);
  bool watching() const { return !sealed_.empty(); }

  /// After the update of the shard of this place. `weights`: what its owner will go on from; undefined: the master,
  /// which is part of the state.
  void close(std::size_t place, const Tensor& weights);
  /// Before the next. Throws ExitCode::retryable naming the tensor; nothing when it was not closed.
  void check(std::size_t place, const Tensor& weights) const;
  /// Everything may have been written to: as when a checkpoint was loaded.
  void open();

 private:
  struct Sealed {
    std::string name;  ///< of the parameter
    std::vector<std::pair<std::string, Tensor>> state;
    bool closed = false;
    std::uint64_t weights = 0;
    std::vector<std::uint64_t> of_state;
  };
  std::vector<Sealed> sealed_;  // by place
};

}  // namespace trireme
