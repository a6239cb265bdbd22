// Parameter: a weight with its gradient, its place in the global tensor, and a name that no mesh changes.
//
// Initial values are a pure function of (seed, name, global element index): every mesh starts from the same weights,
// with no broadcast. Read next: nn/build.h (who makes parameters), parallel/grad_sync.h (who sums gradients).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "autograd/node.h"
#include "parallel/mesh/placement.h"

namespace trireme::nn {

struct Init {
  enum class Kind : std::uint8_t { constant, normal };
  Kind kind = Kind::constant;
  double value = 0;  ///< the constant, or the standard deviation

  static Init zeros() { return {Kind::constant, 0}; }
  static Init ones() { return {Kind::constant, 1}; }
  static Init normal(double deviation) { return {Kind::normal, deviation}; }
};

struct Parameter {
  std::string name;       ///< "blocks.3.attn.qkv.weight": the same on every mesh
  Tensor value;           ///< the local shard; a leaf of the tape
  Shape global_shape;     ///< of the whole tensor, padding included
  Placements placements;  ///< R along an axis: gradients are summed over it; S: norms are
  Rectangle rectangle;    ///< where `value` lies in the whole
  std::int64_t logical_rows =
      0;               ///< rows of dim 0 that mean something; the rest (padded vocabulary) never gets a gradient
  bool decay = false;  ///< whether weight decay applies: matrices only
  bool copy_of_earlier_stage =
      false;  ///< a tied weight whose first copy lives on pipeline stage 0: not counted twice in norms or sizes

  Leaf& leaf() const { return *leaf_of(value); }
  Tensor& grad() const { return leaf().grad(); }  ///< f32, of value's shape; set up by allocate_gradients or grad_sync
};

using ParameterPtr = std::shared_ptr<Parameter>;
using ParameterList = std::vector<ParameterPtr>;  ///< in the order the model made them

/// Overwrites the local shard with its part of the initial global tensor.
void initialise(Parameter& parameter, const Init& init, std::uint64_t seed);

}  // namespace trireme::nn
