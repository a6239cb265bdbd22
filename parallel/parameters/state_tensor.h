// StateTensor: a tensor that belongs to a parameter, and which piece of the parameter it is: a weight, a moment or a
// master of an optimizer, a gradient. Checkpoints, hashes and comparisons of ranks take lists of them.
// Read next: parallel/parameters/shard.h, parallel/checkpoint/held_tensor.h.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "parallel/parameters/shard.h"

namespace trireme {

struct StateTensor {
  std::string name;                    ///< "m", "v", "momentum", "master", "ema" or "gradient"; "" for a weight
  const Parameter* parameter;          ///< gives the global name and shape
  Tensor value;                        ///< of the shard's shape; f32, or a moment in bf16; a weight: its own dtype
  std::shared_ptr<const Shard> shard;  ///< which piece this is; null: the whole of the parameter's local tensor

  Rectangle rectangle() const { return shard ? shard->rectangle() : parameter->rectangle; }
  std::string full_name() const;  ///< as in a checkpoint: "optimizer.m.NAME", or for a weight NAME
};

/// The weights, without an optimizer. Each parameter must be whole on this rank.
std::vector<StateTensor> whole_weights(const ParameterList& parameters);

}  // namespace trireme
