// The CPU kernels behind core/kernels.h, which states their contracts. Each family has a file in this folder.
#pragma once

#include "core/kernels.h"

namespace trireme::cpu {

/// What kernels(Device::cpu) returns while nothing is profiled.
const KernelTable& kernel_table();

void fill(Tensor& y, double value);
void copy(const Tensor& x, Tensor& y);
void unary(Unary op, const Tensor& x, Tensor& y);
void unary_backward(Unary op, const Tensor& x, const Tensor& dy, Tensor& dx);
void binary(Binary op, const Tensor& a, const Tensor& b, Tensor& y);
void axpby(double a, const Tensor& x, double b, Tensor& y);
void dropout(const Tensor& x, double p, std::uint64_t seed, std::uint64_t stream, const Rectangle& where, Tensor& y);
void reduce(Reduction op, const Tensor& x, Tensor& y);
ExactSum sum_squares(std::span<const Tensor> xs);
void gemm(const Tensor& a, const Tensor& b, Tensor& c, const GemmOptions& options);
void grouped_gemm(const Tensor& x, const Tensor& matrices, const Tensor& bias, std::span<const std::int64_t> starts,
                  Tensor& y);
void grouped_gemm_tn(const Tensor& a, const Tensor& b, std::span<const std::int64_t> starts, bool accumulate,
                     Tensor& c);
void softmax(const Tensor& x, Tensor& y);
void softmax_backward(const Tensor& y, const Tensor& dy, Tensor& dx);
void top_k(const Tensor& x, Tensor& chosen);
void layer_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, double eps, Tensor& y, Tensor& mean,
                Tensor& rstd);
void layer_norm_backward(const Tensor& x, const Tensor& gamma, const Tensor& mean, const Tensor& rstd, const Tensor& dy,
                         Tensor& dx, Tensor& dgamma, Tensor& dbeta);
void rms_norm(const Tensor& x, const Tensor& gamma, double eps, Tensor& y, Tensor& rstd);
void rms_norm_backward(const Tensor& x, const Tensor& gamma, const Tensor& rstd, const Tensor& dy, Tensor& dx,
                       Tensor& dgamma);
void embedding(const Tensor& weight, const Tensor& ids, std::int64_t first, Tensor& y);
void embedding_backward(const Tensor& dy, const Tensor& ids, std::int64_t first, Tensor& dweight);
void attention(const Tensor& q, const Tensor& k, const Tensor& v, double scale, bool causal, const Tensor& first_key,
               Tensor& out, Tensor& lse);
void attention_backward(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& out, const Tensor& lse,
                        const Tensor& dout, double scale, bool causal, const Tensor& first_key, Tensor& dq, Tensor& dk,
                        Tensor& dv);
void attention_merge(const Tensor& part, const Tensor& part_lse, Tensor& out, Tensor& lse);
void rope(const Tensor& x, const Tensor& positions, double base, bool inverse, Tensor& y);
void swiglu(const Tensor& x, Tensor& y);
void swiglu_backward(const Tensor& x, const Tensor& dy, Tensor& dx);
void cross_entropy_stats(const Tensor& logits, const Tensor& targets, const VocabSlice& slice, Tensor& maximum,
                         Tensor& sum_exp, Tensor& target_logit, Tensor& logit_sum);
double cross_entropy_loss(const Tensor& targets, const Tensor& maximum, const Tensor& sum_exp,
                          const Tensor& target_logit, const Tensor& logit_sum, double smoothing, std::int64_t vocab);
void cross_entropy_backward(const Tensor& logits, const Tensor& targets, const VocabSlice& slice, const Tensor& maximum,
                            const Tensor& sum_exp, double smoothing, double scale, Tensor& dlogits);
void adamw(const AdamWOptions& options, std::span<const AdamWUpdate> updates);
void sgd(const SgdOptions& options, std::span<const SgdUpdate> updates);

}  // namespace trireme::cpu
