// Rotary positions of a head: the frequencies of its pairs, and the published ways to change them for texts that are
// longer than those of the training.
//
// Pair i of Dh/2 turns by position f[i], f[i] = base^(-2 i / Dh) (RoFormer, Su et al. 2021, section 3.2.2). A scaling
// by s lets a model of `original` tokens read s times as many:
//
//   linear   all frequencies are divided by s (Chen et al. 2023, "Position Interpolation", equation 4)
//   llama3   pairs that turn fewer than `low` times in `original` tokens are divided by s, those that turn more than
//            `high` times are kept, between the two the divisor changes smoothly (Llama 3.1, Grattafiori et al. 2024)
//   yarn     the same idea with a ramp over i; and scores are multiplied by (0.1 ln s + 1)^2 (Peng et al. 2023,
//            sections 3.2 and 3.3). The ramp is that of the authors' program and of Hugging Face: linear in i between the pair
//            that turns `high` times and the one that turns `low` times, both rounded outwards.
//
//   const nn::Rotary rotary = {.base = 500000, .scaling = nn::parse_rope_scaling("llama3:8,8192")};
//   const Tensor f = nn::rope_frequencies(128, rotary);  // [64] f64
// Read next: nn/attention.h.
#pragma once

#include "core/tensor.h"
#include "nn/rope_scaling.h"

namespace trireme::nn {

/// [Dh/2] f64, on the host; undefined if they are the powers of base, which the kernel knows.
Tensor rope_frequencies(std::int64_t head_width, const Rotary& rotary);
/// What scores are multiplied by: 1, or yarn's (0.1 ln s + 1)^2.
double score_factor(const Rotary& rotary);

}  // namespace trireme::nn
