// The copies of a model's tensors: which ranks hold the same weights, masters, moments and buffers. Copies are along
// data (edp for experts), along tp if the parameter is not cut over it, and at both pipeline ends for a tied embedding.
// With ZeRO a shard has copies along tp, and with --dp-shard on the ranks at the same place of the other shard groups.
// A --verify run compares summed gradients and, after every step, all copies bit by bit. Every run compares hashes of
// the copies at intervals (train/step/replica_check.h). Read next: parallel/mesh/verify.h, which compares.
#pragma once

#include <functional>

#include "parallel/parameters/buffer.h"
#include "parallel/parameters/shard.h"

namespace trireme {

/// A tensor of this rank that other ranks hold too.
struct ReplicatedTensor {
  std::string name;     ///< as in a checkpoint: "blocks.0.mlp.up.weight", "optimizer.m.blocks.0.mlp.up.weight"
  std::string kind;     ///< "parameter", "state", "shard of gradient", "tied parameter", ..: for messages
  Tensor value;         ///< this rank's copy
  Rectangle rectangle;  ///< where it lies in the whole: copies have the same
  ProcessGroup* group;  ///< the ranks that hold it too; a tensor may be listed for several groups
};

/// The ranks with copies of a shard that is only part of its parameter; null: none.
using ShardReplicas = std::function<ProcessGroup*(const Shard&)>;

/// The copies of this rank, in the same order on all ranks of each group. Leaves out groups of one rank. `tensors`:
/// weights and state as an optimizer lists them; `tied`: see GradSync::tied().
std::vector<ReplicatedTensor> copies_of(const std::vector<StateTensor>& tensors, const ParameterList& tied,
                                        const DeviceMesh& mesh, const ShardReplicas& replicas = {});
std::vector<ReplicatedTensor> copies_of(const BufferList& buffers, const DeviceMesh& mesh);

/// Compares them bit by bit, and throws ExitCode::desync naming the tensor, two ranks and their first elements that
/// differ. Collective over the mesh.
void verify_copies(const std::vector<ReplicatedTensor>& copies);

}  // namespace trireme
