// The copies of a model's parameters, compared bit by bit after every step of a --verify run: along data (edp for
// experts), along tp where a parameter is not cut over it, and the two ends of the pipeline for a tied embedding.
#pragma once

#include "nn/parameter.h"
#include "parallel/mesh/mesh.h"

namespace trireme {

/// Collective over the mesh; `parameters` as the model made them, `tied` as GradSync::tied() has them. Throws ExitCode::desync naming the parameter, two
/// ranks and their first elements that differ.
void verify_copies(const nn::ParameterList& parameters, const nn::ParameterList& tied, const DeviceMesh& mesh);

}  // namespace trireme
