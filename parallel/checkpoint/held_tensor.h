// HeldTensor: the part of a stored tensor that one rank holds, and which of the ranks that hold the same part writes
// it.
//
// A stored tensor is global: it has a name, a dtype and a shape without padding, independent of the mesh. A rank holds
// a rectangle of it, which other ranks may hold too: dp and cp ranks without ZeRO, tp ranks of a norm's weight. When
// saving, the ranks with copies share the work: each writes a part. When loading, each reads all it holds.
// Read next: parallel/checkpoint/saver.h, parallel/checkpoint/checkpoint.h.
#pragma once

#include <string>
#include <vector>

#include "parallel/parameters/buffer.h"
#include "parallel/parameters/shard.h"

namespace trireme::checkpoint {

struct HeldTensor {
  std::string name;                       ///< "blocks.0.mlp.up.weight", "optimizer.m.blocks.0.mlp.up.weight"
  Tensor value;                           ///< this rank's elements, without padding; a view that may be written to
  Shape global, start;                    ///< the whole tensor's shape, and where `value` begins in it
  int copies = 1;                         ///< ranks that hold these same elements
  int copy_index = 0;                     ///< which of them this one is
  bool written_by_earlier_stage = false;  ///< a tied weight
};

/// All that this rank holds, in this order: `tensors`, which are weights and optimizer state (masters and moments), and
/// buffers.
std::vector<HeldTensor> held_tensors(const std::vector<StateTensor>& tensors, const BufferList& buffers,
                                     const DeviceMesh& mesh);

/// The parts of them that this rank writes. Over all ranks, each element of each tensor comes exactly once. Ranks with
/// copies share a large tensor evenly by rows; small tensors go whole to one of them in turn.
std::vector<HeldTensor> owned_parts(const std::vector<HeldTensor>& held);

}  // namespace trireme::checkpoint
