// Cross-entropy statistics and gradient, whole and in slices of the vocabulary.
#include <cmath>
#include <limits>

#include "support.h"

using namespace trireme;
using namespace trireme::testing;

namespace {

struct Stats {
  Tensor maximum, sum_exp, target_logit, logit_sum;
};

Stats stats(const Tensor& logits, const Tensor& targets, const VocabSlice& slice) {
  const Shape rows{targets.count()};
  const DType acc = acc_of(logits.dtype());
  Stats s{Tensor::empty(rows, acc), Tensor::empty(rows, acc), Tensor::empty(rows, acc), Tensor::empty(rows, acc)};
  table.cross_entropy_stats(logits, targets, slice, s.maximum, s.sum_exp, s.target_logit, s.logit_sum);
  return s;
}

// The gradient over the whole vocabulary, in f64: scale (softmax - (1 - smoothing) onehot - smoothing / V).
std::vector<double> gradient_reference(const Tensor& logits, const Tensor& targets, double smoothing, double scale) {
  std::vector<double> x = values(logits);
  const std::vector<double> target = values(targets);
  const auto vocab = static_cast<std::size_t>(logits.size(1));
  for (std::size_t r = 0; r < target.size(); ++r) {
    double* row = x.data() + r * vocab;
    const double top = *std::max_element(row, row + vocab);
    double sum = 0;
    for (std::size_t j = 0; j < vocab; ++j) sum += std::exp(row[j] - top);
    for (std::size_t j = 0; j < vocab; ++j) {
      const double onehot = target[r] == static_cast<double>(j) ? 1 : 0;
      const double p = std::exp(row[j] - top) / sum;
      row[j] = target[r] < 0 ? 0 : scale * (p - (1 - smoothing) * onehot - smoothing / static_cast<double>(vocab));
    }
  }
  return x;
}

}  // namespace

TEST_CASE("cross_entropy_stats: against f64, with ignored rows") {
  for (const DType dtype : floating_dtypes) {
    for (const std::int64_t vocab : {1, 17, 64, 1300}) {
      const Tensor logits = random({9, vocab}, 1, dtype, uniform(-8, 8)),
                   targets = random_ids({9}, 2, -1, static_cast<int>(vocab));
      const Stats s = stats(logits, targets, {0, vocab, vocab});
      const std::vector<double> x = values(logits), target = values(targets);
      std::vector<double> top, sum_exp, at_target, sum;
      for (std::size_t r = 0; r < 9; ++r) {
        const auto row = x.begin() + static_cast<std::ptrdiff_t>(r) * vocab;
        top.push_back(*std::max_element(row, row + vocab));
        sum_exp.push_back(0);
        sum.push_back(0);
        for (std::int64_t j = 0; j < vocab; ++j) {
          sum_exp.back() += std::exp(row[j] - top.back());
          sum.back() += row[j];
        }
        at_target.push_back(target[r] < 0 ? 0 : row[static_cast<std::ptrdiff_t>(target[r])]);
      }
      const double error = rounding(acc_of(dtype));
      check_close(s.maximum, top, 0, 0);
      check_close(s.target_logit, at_target, 0, 0);
      check_close(s.sum_exp, sum_exp, 2 * error, 0);
      check_close(s.logit_sum, sum, error, 30 * error);
    }
  }
}

TEST_CASE("cross_entropy: slices with padding merge to the whole; gradient in place too") {
  for (const DType dtype : floating_dtypes) {
    for (const double smoothing : {0.0, 0.1}) {
      const std::int64_t vocab = 50, rows = 13, columns = 20;  // slices of 20, 20, 10 (10 padding) and 0 (20 padding)
      const double scale = 0.125, lowest = -std::numeric_limits<double>::infinity();
      const Tensor whole = random({rows, vocab}, 1, dtype, uniform(-8, 8)), targets = random_ids({rows}, 2, -2, 50);
      const std::vector<double> all = values(whole);
      const Stats full = stats(whole, targets, {0, vocab, vocab});
      const std::vector<double> top = values(full.maximum), sum = values(full.sum_exp),
                                target = values(full.target_logit);
      std::vector<double> merged_sum(13, 0), merged_target(13, 0);
      Tensor gradient = Tensor::empty({rows, vocab}, dtype);
      const Tensor two = Tensor::full({}, 2, acc_of(dtype));  // the gradient of the loss, which multiplies the scale
      for (std::int64_t first = 0; first < 80; first += columns) {
        const std::int64_t valid = std::clamp<std::int64_t>(vocab - first, 0, columns);
        Tensor part = Tensor::full({rows, columns}, 1e4, dtype);  // large in the padding: it must not be read
        if (valid > 0) {
          Tensor real = view::slice(part, 1, 0, valid);
          copy(view::slice(whole, 1, first, valid), real);
        }
        const VocabSlice slice{first, valid, vocab};
        const Stats s = stats(part, targets, slice);
        const std::vector<double> local_top = values(s.maximum), local_sum = values(s.sum_exp),
                                  local_target = values(s.target_logit);
        for (std::size_t r = 0; r < 13; ++r) {
          if (valid == 0) CHECK(local_top[r] == lowest);
          merged_sum[r] += local_sum[r] * std::exp(local_top[r] - top[r]);
          merged_target[r] += local_target[r];
        }
        Tensor local = Tensor::empty({rows, columns}, dtype);
        table.cross_entropy_backward(part, targets, slice, full.maximum, full.sum_exp, smoothing, scale / 2, two,
                                     local);
        check_close(view::slice(local, 1, valid, columns - valid),
                    std::vector<double>(static_cast<std::size_t>(rows * (columns - valid)), 0), 0, 0);
        if (valid > 0) {
          Tensor to = view::slice(gradient, 1, first, valid);
          copy(view::slice(local, 1, 0, valid), to);
        }
        table.cross_entropy_backward(part, targets, slice, full.maximum, full.sum_exp, smoothing, scale / 2, two, part);
        check_close(part, values(local), 0, 0);
      }
      check_close(Tensor::from(std::span<const double>(merged_sum), {rows}), sum, 4 * rounding(acc_of(dtype)), 0);
      check_close(Tensor::from(std::span<const double>(merged_target), {rows}), target, 0, 0);
      const double error = 4 * rounding(dtype);
      check_close(gradient, gradient_reference(whole, targets, smoothing, scale), error,
                  scale * rounding(acc_of(dtype)));
    }
  }
}

TEST_CASE("cross_entropy: logits a thousand times too large stay finite") {
  const Tensor logits = random({6, 300}, 1, DType::f32, uniform(-8000, 8000)), targets = random_ids({6}, 2, 0, 300);
  const Stats s = stats(logits, targets, {0, 300, 300});
  Tensor gradient = Tensor::empty({6, 300});
  table.cross_entropy_backward(logits, targets, {0, 300, 300}, s.maximum, s.sum_exp, 0, 1, Tensor::full({}, 1),
                               gradient);
  for (const double v : values(s.sum_exp)) CHECK((std::isfinite(v) && v >= 1));
  check_close(gradient, gradient_reference(logits, targets, 0, 1), 1e-6, 1e-6);
}

TEST_CASE("cross_entropy_one_pass: the bits of the two passes, in place or beside") {
  for (const DType dtype : floating_dtypes) {
    for (const std::int64_t padding : {0, 7}) {
      const std::int64_t rows = 13, columns = 1111, valid = columns - padding;
      const VocabSlice slice{0, valid, valid};
      const Tensor logits = random({rows, columns}, 1, dtype, uniform(-8, 8)),
                   targets = random_ids({rows}, 2, -2, valid);
      const Stats two = stats(logits, targets, slice);
      Tensor gradient = Tensor::empty(logits.shape(), dtype), beside = Tensor::empty(logits.shape(), dtype);
      table.cross_entropy_backward(logits, targets, slice, two.maximum, two.sum_exp, 0.1, 0.25,
                                   Tensor::full({}, 1, accumulate_dtype(dtype)), gradient);
      Tensor in_place = clone(logits);
      for (const auto& [from, to] : {std::pair{logits, beside}, std::pair{in_place, in_place}}) {
        Stats one = stats(logits, targets, slice);
        for (Tensor* const x : {&one.maximum, &one.sum_exp, &one.target_logit, &one.logit_sum}) table.fill(*x, -1);
        Tensor result = to;
        table.cross_entropy_one_pass(from, targets, slice, 0.1, 0.25, one.maximum, one.sum_exp, one.target_logit,
                                     one.logit_sum, result);
        CHECK(same_bits(result, gradient));
        CHECK(same_bits(one.maximum, two.maximum));
        CHECK(same_bits(one.sum_exp, two.sum_exp));
        CHECK(same_bits(one.target_logit, two.target_logit));
        CHECK(same_bits(one.logit_sum, two.logit_sum));
      }
    }
  }
}

TEST_CASE("cross_entropy: the same for any number of threads") {
  const Tensor logits = random({37, 1111}, 1, DType::f32, uniform(-8, 8)), targets = random_ids({37}, 2, 0, 1111);
  const VocabSlice slice{0, 1111, 1111};
  check_same_for_any_threads([&] { return stats(logits, targets, slice).sum_exp; });
  check_same_for_any_threads([&] { return stats(logits, targets, slice).logit_sum; });
  const Stats s = stats(logits, targets, slice);
  check_same_for_any_threads([&] {
    Tensor gradient = Tensor::empty(logits.shape());
    table.cross_entropy_backward(logits, targets, slice, s.maximum, s.sum_exp, 0.1, 1, Tensor::full({}, 1), gradient);
    return gradient;
  });
}

TEST_CASE("cross_entropy_loss: the scaled sum in f64, rounded once, without ignored rows") {
  for (const DType dtype : {DType::f32, DType::f64}) {
    const Tensor logits = random({9, 17}, 1, dtype, uniform(-8, 8)), targets = random_ids({9}, 2, -1, 17);
    const Stats s = stats(logits, targets, {0, 17, 17});
    Tensor loss = Tensor::empty({}, dtype);
    table.cross_entropy_loss(targets, s.maximum, s.sum_exp, s.target_logit, s.logit_sum, 0.1, 17, 0.3, loss);
    const std::vector<double> top = values(s.maximum), sum_exp = values(s.sum_exp), target = values(targets);
    const std::vector<double> at_target = values(s.target_logit), sum = values(s.logit_sum);
    double expected = 0;
    for (std::size_t r = 0; r < 9; ++r) {
      if (target[r] < 0) continue;
      expected += std::log(sum_exp[r]) + top[r] - (1 - 0.1) * at_target[r] - 0.1 * (sum[r] / 17);
    }
    CHECK(loss.item() == Tensor::full({}, 0.3 * expected, dtype).item());
  }
}
