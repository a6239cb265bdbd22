// Have all ranks built the same model? Copies of a weight that differ at the beginning, by another seed or by layers
// made in another order, never become equal: ranks exchange gradients, and train silently apart. GradSync and Zero
// compare once, when they are made: a description of all parameters, and a hash of the values of those that several
// ranks hold. Each rank gathers 40 bytes of every other; texts are exchanged only if something differs. The hash reads
// each weight once: 0.1 s for 113 million f32 weights on each of two ranks of one thread; to draw these weights takes
// 12 s.
// Read next: parallel/data_parallel/verify.h, train/step/replica_check.h (the same during training).
#pragma once

#include "parallel/parameters/parameter.h"

namespace trireme {

/// Throws ExitCode::desync on all ranks, naming the first parameter and two ranks that differ, unless all ranks of a
/// stage give parameters of the same names, shapes, dtypes, placements and seeds in the same order, and all copies have
/// the same bits. Collective over the mesh.
void require_same_model(const ParameterList& parameters, const DeviceMesh& mesh);

}  // namespace trireme
