// Are the copies of weights and of optimizer state still copies? Memory and processors fail silently: one bit of one
// rank's weights flips, nothing crashes, and the run goes on with two models. In bf16 and f16 the f32 masters and
// moments may differ long before a weight does. Every few steps, and before every save, each rank hashes what other
// ranks hold too, and each group of such ranks exchanges 8 bytes a rank. Only when these differ is more said: all
// ranks' hashes of all tensors go to one rank, which names the tensor and, by majority, the rank that parted.
// Read next: parallel/verify.h (which ranks hold the same), parallel/zero/seals.h (what nobody else holds).
#pragma once

#include <string>
#include <vector>

#include "parallel/verify.h"

namespace trireme {

/// Throws ExitCode::retryable on all ranks when copies differ: nothing since the last check can be trusted, but a start
/// from a checkpoint can. Collective over the mesh.
void check_replicas(const std::vector<Copied>& copies, const DeviceMesh& mesh);

/// One rank's hash of its copy of a tensor.
struct CopyHash {
  std::string tensor;  ///< with its place in the whole
  int rank = 0;
  std::string hash;
};
/// Which tensor differs, and on which rank: of three copies or more the one that the majority is against. Empty when
/// all hashes of each tensor are equal.
std::string describe_parted(const std::vector<CopyHash>& hashes);

}  // namespace trireme
