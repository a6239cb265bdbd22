// Softmax cross-entropy against f64, with the vocabulary whole and in two slices, padded, smoothed, with ignored rows.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "cuda/kernels/cross_entropy.h"
#include "tests/cuda/support.h"

using namespace trireme;
using namespace trireme::cuda;
using namespace cuda_test;

namespace cross_entropy_test {
namespace {

constexpr int kRows = 3;

/// A rank's slice of the vocabulary: the first `valid` of `columns` columns are real. The gradient is written over the
/// logits, or to `beside`.
template <class T>
struct Slice {
  Buffer<T> logits, before, beside;
  Buffer<float> maximum, sum_exp, target_logit, logit_sum;
  Buffer<double> losses;
  CrossEntropy<T> problem;

  Slice(int columns, int valid, std::int64_t first, std::int64_t vocabulary, double smoothing,
        Buffer<std::int32_t>& targets, float size)
      : logits(static_cast<std::size_t>(kRows * columns)),
        before(logits.size()),
        beside(logits.size()),
        maximum(kRows),
        sum_exp(kRows),
        target_logit(kRows),
        logit_sum(kRows),
        losses(kRows),
        problem{.rows = kRows,
                .columns = columns,
                .valid = valid,
                .first = first,
                .vocabulary = vocabulary,
                .smoothing = smoothing,
                .logits = logits.data(),
                .targets = targets.data(),
                .maximum = maximum.data(),
                .sum_exp = sum_exp.data(),
                .target_logit = target_logit.data(),
                .logit_sum = logit_sum.data()} {
    logits.fill_random(static_cast<std::uint64_t>(first) + 1, size);
    before.fill_random(static_cast<std::uint64_t>(first) + 1, size);
  }
};

/// Combines the statistics of two slices, as ranks do between the passes.
template <class T>
void join(Slice<T>& a, Slice<T>& b) {
  for (std::size_t r = 0; r < kRows; ++r) {
    const float largest = std::max(a.maximum.value(r), b.maximum.value(r));
    const float sum = a.sum_exp.value(r) * std::exp(a.maximum.value(r) - largest) +
                      b.sum_exp.value(r) * std::exp(b.maximum.value(r) - largest);
    const float logit = a.target_logit.value(r) + b.target_logit.value(r);
    const float logits = a.logit_sum.value(r) + b.logit_sum.value(r);
    for (Slice<T>* const slice : {&a, &b}) {
      slice->maximum.set(r, largest);
      slice->sum_exp.set(r, sum);
      slice->target_logit.set(r, logit);
      slice->logit_sum.set(r, logits);
    }
  }
}

struct Expected {
  std::vector<double> gradient;  // of both slices' columns
  double loss;
};

/// Row r by the formulas, scaled by 0.5. The real columns are the first `real` columns of both slices together.
template <class T>
Expected expected(const Slice<T>& first, const Slice<T>& second, std::size_t r, std::int64_t target, double smoothing) {
  const auto columns = static_cast<std::size_t>(first.problem.columns);
  const auto real = columns + static_cast<std::size_t>(second.problem.valid);
  const auto x = [&](std::size_t j) {
    return j < columns ? first.before.at(r * columns + j) : second.before.at(r * columns + j - columns);
  };
  double largest = -1e30, sum_exp = 0, sum = 0;
  for (std::size_t j = 0; j < real; ++j) largest = std::max(largest, x(j));
  for (std::size_t j = 0; j < real; ++j) sum_exp += std::exp(x(j) - largest), sum += x(j);
  Expected result = {std::vector<double>(2 * columns, 0.0), 0};
  if (target < 0) return result;
  const double vocabulary = static_cast<double>(real);
  for (std::size_t j = 0; j < real; ++j)
    result.gradient[j] = 0.5 * (std::exp(x(j) - largest) / sum_exp - smoothing / vocabulary -
                                (static_cast<std::int64_t>(j) == target ? 1 - smoothing : 0));
  result.loss = std::log(sum_exp) + largest - (1 - smoothing) * x(static_cast<std::size_t>(target)) -
                smoothing * sum / vocabulary;
  return result;
}

template <class T>
void check(int columns, int padding, float size, double smoothing) {
  CAPTURE(columns);
  CAPTURE(smoothing);
  const int valid = columns - padding;
  const std::int64_t vocabulary = columns + valid;
  // Targets in the second slice, nowhere, and in the first.
  const std::vector<std::int32_t> targets = {padding == columns ? 0 : columns + valid - 1, -1, columns - 1};
  Buffer<std::int32_t> on_device(targets);
  Slice<T> first(columns, columns, 0, vocabulary, smoothing, on_device, size);
  Slice<T> second(columns, valid, columns, vocabulary, smoothing, on_device, size);
  for (Slice<T>* const slice : {&first, &second}) cross_entropy_statistics(slice->problem);
  if (valid == 0)
    CHECK((second.maximum.at(0) == -INFINITY && second.sum_exp.at(0) == 0 && second.logit_sum.at(0) == 0));
  join(first, second);
  for (Slice<T>* const slice : {&first, &second}) cross_entropy_losses(slice->problem, slice->losses.data());
  Buffer<float> dloss(std::vector<float>{2});  // multiplies the scale
  first.problem.dloss = dloss.data();
  cross_entropy_gradient(first.problem, 0.25, first.logits.data());
  cross_entropy_gradient(second.problem, 0.5, second.beside.data());
  CHECK(std::equal(second.logits.values().begin(), second.logits.values().end(), second.before.values().begin(),
                   [](T a, T b) { return static_cast<float>(a) == static_cast<float>(b); }));

  const double unit = std::is_same_v<T, float> ? 2e-6 : std::is_same_v<T, bf16> ? 1.0 / 256 : 1.0 / 2048;
  const auto width = static_cast<std::size_t>(columns);
  double total = 0;
  for (std::size_t r = 0; r < kRows; ++r) {
    const Expected row = expected(first, second, r, targets[r], smoothing);
    double worst = 0;
    for (std::size_t j = 0; j < 2 * width; ++j) {
      const double got = j < width ? first.logits.at(r * width + j) : second.beside.at(r * width + j - width);
      const double error = std::abs(got - row.gradient[j]) / (unit * std::abs(row.gradient[j]) + 1e-6);
      keep_largest(worst, error);
    }
    CHECK(worst < 1);
    for (const Slice<T>* const slice : {&first, &second})
      CHECK(slice->losses.value(r) == doctest::Approx(row.loss).epsilon(1e-5));
    total += row.loss;
  }
  Buffer<float> loss(1);
  cross_entropy_total(first.losses.data(), kRows, 0.25, loss.data());
  CHECK(loss.at(0) == doctest::Approx(0.25 * total).epsilon(1e-5));
}

}  // namespace

TEST_CASE_TEMPLATE("cuda cross-entropy: two padded slices of a vocabulary equal f64, gradient in place or beside", T,
                   float, bf16, f16) {
  under_schedules([] {
    check<T>(5, 2, 4.0F, 0.1);
    check<T>(520, 7, 4.0F, 0);
    check<T>(4203, 0, 1.0F, 0.3);
    check<T>(1000, 40, 1000.0F, 0);
    check<T>(70, 70, 4.0F, 0.2);  // the second slice is all padding
  });
}

TEST_CASE("cuda cross-entropy: the total of any number of losses, in f64 and in one order") {
  under_schedules([] {
    for (const std::size_t rows : {1, 1023, 1024, 2500}) {
      Buffer<double> losses(rows);
      double expected = 0;
      for (std::size_t r = 0; r < rows; ++r) {
        losses.set(r, 1e9 + static_cast<double>(r % 7));  // the sum has more digits than f32
        expected += losses.value(r);
      }
      Buffer<float> loss(1);
      cross_entropy_total(losses.data(), static_cast<int>(rows), 1e-9, loss.data());
      CHECK(loss.value(0) == static_cast<float>(1e-9 * expected));
    }
    Buffer<float> none(1);
    cross_entropy_total(nullptr, 0, 1.0, none.data());
    CHECK(none.value(0) == 0);
  });
}

TEST_CASE("cuda cross-entropy: logits of -infinity have probability 0, and NaN is not lost") {
  Buffer<std::int32_t> targets(std::vector<std::int32_t>{1, 1, 1});
  Slice<float> slice(4, 4, 0, 4, 0, targets, 1.0F);
  for (std::size_t i = 0; i < 12; ++i) slice.logits.set(i, i < 4 && i != 1 ? -INFINITY : 1.0F);
  slice.logits.set(10, NAN);
  cross_entropy_statistics(slice.problem);
  CHECK(slice.maximum.at(0) == 1);
  CHECK(slice.sum_exp.at(0) == 1);
  CHECK(slice.sum_exp.at(1) == 4);
  CHECK(std::isnan(slice.sum_exp.at(2)));
  cross_entropy_losses(slice.problem, slice.losses.data());
  CHECK(slice.losses.at(0) == 0);  // and not 0 * -infinity, of a sum of logits that smoothing would need
  cross_entropy_gradient(slice.problem, 1.0, slice.logits.data());
  for (std::size_t i = 0; i < 4; ++i) CHECK(slice.logits.at(i) == 0);
}

}  // namespace cross_entropy_test
