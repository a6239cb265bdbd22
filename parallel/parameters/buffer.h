// Buffer: a layer's tensor that is not a weight (it gets no gradient, and no optimizer updates it) but is needed to
// resume a run, such as a router's bias. Build::buffer() registers it. It is then saved with the run under its name and
// loaded on any mesh, as parameters are; no other code is needed.
//
// The ranks that hold copies of a buffer must hold the same bits when it is saved: each writes a part of it.
// Read next: nn/build.h, parallel/checkpoint/held_tensor.h.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "parallel/mesh/placement.h"

namespace trireme {

struct Buffer {
  std::string name;  ///< "blocks.3.mlp.router.bias": the same on every mesh
  Tensor value;      ///< the local shard; written to by its layer, and when a run is resumed
  Shape global_shape;
  Placements placements;
  Rectangle rectangle;  ///< where `value` lies in the global tensor
};

using BufferPtr = std::shared_ptr<Buffer>;  ///< shared by the model and what saves it
using BufferList = std::vector<BufferPtr>;  ///< in the order the model made them

}  // namespace trireme
