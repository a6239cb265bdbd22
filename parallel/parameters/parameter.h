// Parameter: a weight with its gradient, its place in the global tensor, and a name that no mesh changes. Layers make
// parameters; parallel/ sums their gradients and cuts them into shards; optimizers update the shards.
// Read next: nn/build.h (who makes parameters), parallel/grad_sync.h (who sums gradients).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "autograd/node.h"
#include "parallel/mesh/placement.h"

namespace trireme {

/// The part of a unit (parallel/parameters/unit.h) that its parameters know.
struct UnitState {
  std::string name;
  bool in_use = false;  ///< a forward is inside one of the unit's uses
};

struct Parameter {
  std::string name;  ///< "blocks.3.attn.qkv.weight": the same on every mesh
  /// This rank's shard; a leaf of the tape. For code that stores or updates weights: optimizers, ZeRO, checkpoints,
  /// checks. A forward must read value(): under ZeRO the elements here may be released, or be those of the previous
  /// step.
  Tensor local;
  Shape global_shape;     ///< of the whole tensor, padding included
  Placements placements;  ///< R along an axis: gradients are summed over it; S: squared norms are
  Rectangle rectangle;    ///< where `local` lies in the global tensor
  /// Rows of dim 0 that are not padding; the rest (padded vocabulary) never gets a gradient.
  std::int64_t logical_rows = 0;
  bool decay = false;  ///< whether weight decay applies: matrices only
  /// A tied weight whose first copy lives on pipeline stage 0: not counted twice in norms or sizes.
  bool copy_of_earlier_stage = false;

  std::shared_ptr<const UnitState> unit;  ///< null: in no unit, and complete at any time

  /// `local`, for a forward. Throws ExitCode::internal outside the uses of the parameter's unit, on any mesh and with
  /// or without ZeRO. A backward may read it at any time: it repeats the reads of a forward.
  const Tensor& value() const;
  Leaf& leaf() const { return *leaf_of(local); }
  /// f32, of local's shape; set up by GradSync or ZeroGradients, or by a program without them.
  Tensor& grad() const { return leaf().grad(); }
};

using ParameterPtr = std::shared_ptr<Parameter>;
using ParameterList = std::vector<ParameterPtr>;  ///< in the order the model made them

}  // namespace trireme
