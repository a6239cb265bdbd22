// The global gradient norm, on any mesh. core/update_scale.h has the factor of clipping.
//
// On the CPU the norm is a function of the gradients' bits alone. Neither ZeRO's shards nor pipeline stages change it:
// squares of one row are added in f64 in a fixed order, no cut goes through a row (parallel/parameters/shard.h), and
// sums of rows are added without rounding (core/exact_sum.h), over tensors, ranks and stages. Between different sizes
// of tp it is equal only up to rounding, since tp cuts rows. On CUDA, too, it is equal only up to rounding: there
// squares_to() adds in an order that depends on the sizes of tensors, and ranks add in f64. The sum stays on the GPU:
// neither it nor an update that needs it makes the host wait.
// Read next: parallel/data_parallel/gradient_norm.cpp, optim/optimizer.h.
#pragma once

#include <vector>

#include "core/update_scale.h"
#include "parallel/mesh/mesh.h"
#include "parallel/parameters/parameter.h"

namespace trireme {

/// The summed gradient of a parameter, or this rank's piece of it.
struct GradientPart {
  const Parameter* parameter;
  Tensor gradient;                 ///< dense, f32; a piece consists of whole rows
  ProcessGroup* shards = nullptr;  ///< the ranks with the other pieces; null: this is the parameter's local gradient
};

/// sum = the sum of squares of all gradients of the whole model, each logical parameter counted once; the same bits on
/// every rank. sum: f64 [1], on the gradients' device.
///
/// Squares are added over exactly the axes on which a parameter is sharded and over the ranks with its pieces, and over
/// pp always (stages hold different parameters); a replicated parameter is counted once, a tied copy not at all. If a
/// gradient is not finite, the sum is not finite on any rank, even where only one rank's copy of it is damaged.
/// Collective over the mesh: all ranks of a stage give their parts of the same parameters in the same order; call it
/// after gradients have been summed.
void sum_squares(const std::vector<GradientPart>& parts, const DeviceMesh& mesh, Tensor& sum);
/// The 2-norm of whole local gradients, of parameters that are not frozen: without ZeRO. Waits for the device. Throws
/// ExitCode::usage before GradSync::finish(), and where no GradSync sums the gradients of several ranks.
double gradient_norm(const ParameterList& parameters, const DeviceMesh& mesh);
/// Multiplies the gradients by clip_factor(norm, most), so that their norm is at most about `most`; returns the norm
/// before. Without ZeRO; the optimizer can do the same without a pass over memory: step(lr, clip_factor(norm, most)).
/// Throws as gradient_norm(); and ExitCode::numerical, and changes nothing, if the norm is not finite.
double clip_gradients(const ParameterList& parameters, const DeviceMesh& mesh, double most);

}  // namespace trireme
