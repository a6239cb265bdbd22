// Are the replicas of weights and of optimizer state still equal? Memory and processors can fail silently: one bit of
// one rank's weights flips, nothing crashes, and the run continues with two different models. In bf16 and f16, the f32
// masters and moments may differ long before a weight does. Every few steps, and before every save, each rank hashes
// the tensors that other ranks hold too, and each group of such ranks exchanges 8 bytes per rank. Only if these differ,
// all hashes go to one rank, which names the tensor and, by majority, the rank that differs.
// Read next: parallel/data_parallel/verify.h (which ranks hold the same), parallel/zero/shard_hashes.h (tensors without
// replicas).
#pragma once

#include <string>
#include <vector>

#include "parallel/data_parallel/verify.h"

namespace trireme {

/// Throws ExitCode::retryable on all ranks if replicas differ. Nothing since the last check can be trusted, but a
/// restart from a checkpoint can. Collective over the mesh.
void check_replicas(const std::vector<ReplicatedTensor>& copies, const DeviceMesh& mesh);

/// One rank's hash of its copy of a tensor.
struct CopyHash {
  std::string tensor;  ///< with its position in the whole tensor
  int rank = 0;
  std::string hash;
};
/// Which tensor differs, and on which rank: with three or more copies, the rank in the minority. Empty if all hashes of
/// each tensor are equal.
std::string describe_difference(const std::vector<CopyHash>& hashes);

}  // namespace trireme
