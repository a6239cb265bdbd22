// Cross-entropy of the kernel table, by cuda/kernels/cross_entropy.cu.
#include "cuda/kernels/cross_entropy.h"
#include "cuda/table_arguments.h"

namespace trireme::cuda {
namespace {

template <class T>
CrossEntropy<T> problem_of(const char* entry, const Tensor& logits, const Tensor& targets, const VocabSlice& slice) {
  return {.rows = size(entry, targets.count()),
          .columns = size(entry, logits.size(-1)),
          .valid = size(entry, slice.valid),
          .first = slice.first,
          .vocabulary = slice.global,
          .smoothing = 0,
          .logits = dense<T>(entry, logits),
          .targets = dense<std::int32_t>(entry, targets),
          .maximum = nullptr,
          .sum_exp = nullptr,
          .target_logit = nullptr,
          .logit_sum = nullptr};
}

/// Sets where the first pass writes.
template <class T>
void set_statistics(const char* entry, Tensor& maximum, Tensor& sum_exp, Tensor& target_logit, Tensor& logit_sum,
                    CrossEntropy<T>& p) {
  p.maximum = dense<float>(entry, maximum);
  p.sum_exp = dense<float>(entry, sum_exp);
  p.target_logit = dense<float>(entry, target_logit);
  p.logit_sum = dense<float>(entry, logit_sum);
}

}  // namespace

void cross_entropy_stats(const Tensor& logits, const Tensor& targets, const VocabSlice& slice, Tensor& maximum,
                         Tensor& sum_exp, Tensor& target_logit, Tensor& logit_sum) {
  constexpr const char* entry = __func__;
  visit_training(entry, logits.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    CrossEntropy<T> p = problem_of<T>(entry, logits, targets, slice);
    set_statistics(entry, maximum, sum_exp, target_logit, logit_sum, p);
    cross_entropy_statistics(p, stream());
  });
}

void cross_entropy_loss(const Tensor& targets, const Tensor& maximum, const Tensor& sum_exp, const Tensor& target_logit,
                        const Tensor& logit_sum, double smoothing, std::int64_t vocab, double scale, Tensor& loss) {
  constexpr const char* entry = __func__;
  const CrossEntropy<float> p = {.rows = size(entry, targets.count()),
                                 .columns = 0,
                                 .valid = 0,
                                 .first = 0,
                                 .vocabulary = vocab,
                                 .smoothing = smoothing,
                                 .logits = nullptr,
                                 .targets = dense<std::int32_t>(entry, targets),
                                 .maximum = dense<float>(entry, maximum),
                                 .sum_exp = dense<float>(entry, sum_exp),
                                 .target_logit = dense<float>(entry, target_logit),
                                 .logit_sum = dense<float>(entry, logit_sum)};
  const Tensor losses = workspace({targets.count()}, DType::f64);
  auto* const each = dense<double>(entry, losses);
  cross_entropy_losses(p, each, stream());
  cross_entropy_total(each, p.rows, scale, dense<float>(entry, loss), stream());
}

void cross_entropy_backward(const Tensor& logits, const Tensor& targets, const VocabSlice& slice, const Tensor& maximum,
                            const Tensor& sum_exp, double smoothing, double scale, const Tensor& dloss,
                            Tensor& dlogits) {
  constexpr const char* entry = __func__;
  visit_training(entry, logits.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    CrossEntropy<T> p = problem_of<T>(entry, logits, targets, slice);
    p.smoothing = smoothing;
    p.maximum = dense<float>(entry, maximum);
    p.sum_exp = dense<float>(entry, sum_exp);
    p.dloss = dense<float>(entry, dloss);
    cross_entropy_gradient(p, scale, dense<T>(entry, dlogits), stream());
  });
}

void cross_entropy_one_pass(const Tensor& logits, const Tensor& targets, const VocabSlice& slice, double smoothing,
                            double scale, Tensor& maximum, Tensor& sum_exp, Tensor& target_logit, Tensor& logit_sum,
                            Tensor& dlogits) {
  constexpr const char* entry = __func__;
  visit_training(entry, logits.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    CrossEntropy<T> p = problem_of<T>(entry, logits, targets, slice);
    p.smoothing = smoothing;
    set_statistics(entry, maximum, sum_exp, target_logit, logit_sum, p);
    cross_entropy_one_pass(p, scale, dense<T>(entry, dlogits), stream());
  });
}

}  // namespace trireme::cuda
