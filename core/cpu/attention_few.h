// Attention of a few queries; see attention_few.cpp.
#pragma once

#include "core/kernels.h"

namespace trireme::cpu {

bool suits_few_queries(const Tensor& q);
/// The kernel table's attention, for a q with suits_few_queries(q).
void attention_few(const Tensor& q, const Tensor& k, const Tensor& v, const ScoreRule& rule, bool causal,
                   const Tensor& first_key, const Tensor& out, const Tensor& lse);

}  // namespace trireme::cpu
