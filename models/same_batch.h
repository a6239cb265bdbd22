// Do the ranks have the samples that they should have? Ranks with the same place on dp compute parts of the same
// samples: other samples on one of them, from a shuffle with a seed of its own or a file that is read in another order,
// give plausible losses and wrong gradients. Two ranks with other places on dp that have the same samples, because
// nobody passed on the place, train on a fraction of the batch. Trainer asks this of the first micro-batch of a run. A
// loop of your own calls it once:
//
//   if (step == 0) require_right_batches(batch, *mesh);   // whole samples, before a model's local_part()
//
// Each rank hashes its batch, and gathers 24 bytes of every other.
// Read next: parallel/parameters/same_model.h (the same of weights).
#pragma once

#include "data/batch.h"
#include "parallel/mesh/mesh.h"

namespace trireme {

/// Throws ExitCode::desync on all ranks, naming two of them, unless all ranks with the same place on dp give the same
/// tensors, and ranks with other places on dp give others. Equal tensors with different sample_ids are allowed: a small
/// data set may have a sample twice. Collective over the mesh.
void require_right_batches(const Batch& batch, const DeviceMesh& mesh);

}  // namespace trireme
