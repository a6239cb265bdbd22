// Shard: the part of a parameter that one rank updates. Without ZeRO that is all of it; with ZeRO the ranks that hold
// copies of a parameter share the work, each updating one piece. StateTensor: a tensor that belongs to a piece.
//
// The parameter is cut evenly along one dim, so a piece is a rectangle of it. The first ranks may have one row more; a
// rank may have none. A gathered tensor is the pieces side by side. Read next: optim/optimizer.h, parallel/zero/zero.h,
// parallel/checkpoint/held_tensor.h.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "parallel/parameters/parameter.h"

namespace trireme {

/// Indices start .. start + length - 1 of a dim.
struct DimRange {
  std::int64_t start = 0, length = 0;
};

/// What rank `rank` of `ranks` gets of `extent` rows.
DimRange even_share(std::int64_t extent, int ranks, int rank);

/// The dim along which a tensor is cut: the first that has at least 16 rows for each rank, so that no piece is much
/// larger than another; if none has, the longest. Usually that is dim 0, but not for tensors like qkv, [3, D, D]. The
/// last dim is cut only if it is the only one: a piece consists of whole rows, so that the gradient's norm does not
/// depend on the cut (parallel/data_parallel/gradient_norm.h).
int dim_to_cut(const Shape& shape, int ranks);

struct Shard {
  ParameterPtr parameter;
  ProcessGroup* group = nullptr;  ///< the ranks with the pieces, in their order; null: this is the whole parameter
  int dim = 0;                    ///< the dim of the parameter's local tensor that is cut

  /// Dense tensors of the piece's shape while a step runs: the weights that are updated, and the f32 gradient.
  /// `gradient` undefined: use the parameter's.
  Tensor weights, gradient;

  int ranks() const { return group == nullptr ? 1 : group->size(); }
  DimRange range(int rank) const {
    return even_share(parameter->local.size(dim), ranks(), rank);
  }  ///< the rows of that rank
  DimRange range() const { return range(group == nullptr ? 0 : group->rank()); }
  /// A rank's part of a tensor of the parameter's local shape.
  Tensor part(const Tensor& local, int rank) const;
  Tensor part(const Tensor& local) const { return part(local, group == nullptr ? 0 : group->rank()); }
  /// Of that rank's piece.
  Shape shape(int rank) const { return parameter->local.shape().with(dim, range(rank).length); }
  Shape shape() const { return parameter->local.shape().with(dim, range().length); }
  Rectangle rectangle() const;  ///< where the piece lies in the whole parameter
};

using ShardPtr = std::shared_ptr<Shard>;  ///< shared by optimizers and ZeRO
using ShardList = std::vector<ShardPtr>;  ///< in the order of the parameters

/// Each parameter as one shard.
ShardList whole_shards(const ParameterList& parameters);

/// A tensor that belongs to a parameter, and which piece of the parameter it is: a weight, a moment or a master of an
/// optimizer, a gradient. Checkpoints, hashes and comparisons of ranks take lists of them.
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
