// Finds the parameters that live on both ends of a pipeline: an embedding that is also the output head. Their gradients
// are summed between the two ends. This is the only sum that placements do not describe. Read next:
// parallel/data_parallel/grad_sync.h.
#pragma once

#include "parallel/parameters/parameter.h"

namespace trireme {

/// This rank's parameters that the other end of its pipeline has too, in one order on both. Collective over pp. Throws
/// ExitCode::usage, naming it, when two stages hold a parameter as their own.
ParameterList find_tied(const ParameterList& parameters, const DeviceMesh& mesh);

}  // namespace trireme
