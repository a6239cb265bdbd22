// The global gradient norm, on any mesh, and what clipping does with it.
#pragma once

#include "nn/parameter.h"

namespace trireme::optim {

/// The 2-norm of all gradients of the whole model, each logical parameter counted once; the same bits on every rank.
///
/// Squares are added over exactly the axes on which a parameter is sharded: over tp where it is S, over pp always
/// (stages hold different parameters); a replicated one is counted on one rank's behalf, a tied copy not at all.
/// Collective over tp and pp; call it after gradients have been summed.
double gradient_norm(const nn::ParameterList& parameters, const DeviceMesh& mesh);

/// The factor that brings `norm` down to `max_norm`; 1 when it is below, or when max_norm is 0 (clipping off).
double clip_factor(double norm, double max_norm);

}  // namespace trireme::optim
