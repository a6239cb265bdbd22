// Softmax cross-entropy against f64, with the vocabulary whole and in two slices, padded, with rows that do not count.
#include <doctest/doctest.h>

#include <cmath>
#include <memory>

#include "cuda/kernels/cross_entropy.h"
#include "tests/cuda/support.h"

using namespace trireme;
using namespace trireme::cuda;
using cuda_test::Buffer;
using cuda_test::under_schedules;

namespace {

/// A rank's slice of the vocabulary: `valid` real columns of `columns`.
template <class T>
struct Slice {
  Buffer<T> logits, before;
  Buffer<float> maximum, sum_exp, target_logit, losses;
  CrossEntropy<T> problem;

  Slice(int rows, int columns, int valid, std::int64_t first, const std::int64_t* targets, float size)
      : logits(static_cast<std::size_t>(rows * columns)),
        before(logits.size()),
        maximum(static_cast<std::size_t>(rows)),
        sum_exp(maximum.size()),
        target_logit(maximum.size()),
        losses(maximum.size()),
        problem{
            rows, columns, valid, first, logits.data(), targets, maximum.data(), sum_exp.data(), target_logit.data()} {
    logits.fill_random(static_cast<std::uint64_t>(first) + 1, size);
    before.fill_random(static_cast<std::uint64_t>(first) + 1, size);
  }
};

/// What ranks do between the passes.
template <class T>
void join(Slice<T>& a, Slice<T>& b) {
  for (std::size_t r = 0; r < a.maximum.size(); ++r) {
    const float largest = std::max(a.maximum.value(r), b.maximum.value(r));
    const float sum = a.sum_exp.value(r) * std::exp(a.maximum.value(r) - largest) +
                      b.sum_exp.value(r) * std::exp(b.maximum.value(r) - largest);
    const float logit = a.target_logit.value(r) + b.target_logit.value(r);
    for (Slice<T>* const slice : {&a, &b}) {
      slice->maximum.set(r, largest);
      slice->sum_exp.set(r, sum);
      slice->target_logit.set(r, logit);
    }
  }
}

template <class T>
void check(int columns, int padding, float size) {
  CAPTURE(columns);
  constexpr int rows = 3;
  const int valid = columns - padding;
  const std::int64_t targets[rows] = {columns + 1, -1, valid - 1};  // in the second slice, nowhere, in the first
  Buffer<std::int64_t> on_device(std::vector<std::int64_t>(targets, targets + rows));
  Slice<T> first(rows, columns, columns, 0, on_device.data(), size);
  Slice<T> second(rows, columns, valid, columns, on_device.data(), size);
  for (Slice<T>* const slice : {&first, &second}) cross_entropy_statistics(slice->problem);
  join(first, second);
  for (Slice<T>* const slice : {&first, &second}) cross_entropy_gradient(slice->problem, 0.5F, slice->losses.data());

  const double unit = std::is_same_v<T, float> ? 2e-6 : std::is_same_v<T, bf16> ? 1.0 / 256 : 1.0 / 2048;
  for (int r = 0; r < rows; ++r) {
    const auto row = static_cast<std::size_t>(r);
    const auto x = [&](std::int64_t j) {
      return j < columns
                 ? first.before.at(row * static_cast<std::size_t>(columns) + static_cast<std::size_t>(j))
                 : second.before.at((row - 1) * static_cast<std::size_t>(columns) + static_cast<std::size_t>(j));
    };
    double largest = -1e30, sum = 0, worst = 0;
    for (int j = 0; j < columns + valid; ++j) largest = std::max(largest, x(j));
    for (int j = 0; j < columns + valid; ++j) sum += std::exp(x(j) - largest);
    for (int j = 0; j < 2 * columns; ++j) {
      double expected = 0;
      if (targets[r] >= 0 && j < columns + valid)
        expected = 0.5 * (std::exp(x(j) - largest) / sum - (j == targets[r] ? 1 : 0));
      const Slice<T>& slice = j < columns ? first : second;
      const double got =
          slice.logits.at(row * static_cast<std::size_t>(columns) + static_cast<std::size_t>(j % columns));
      worst = std::max(worst, std::abs(got - expected) / (unit * std::abs(expected) + 1e-6));
    }
    CHECK(worst < 1);
    const double loss = targets[r] < 0 ? 0.0 : std::log(sum) + largest - x(targets[r]);
    CHECK(first.losses.at(row) == doctest::Approx(loss).epsilon(1e-5));
    CHECK(second.losses.at(row) == doctest::Approx(loss).epsilon(1e-5));
  }
}

}  // namespace

TEST_CASE_TEMPLATE("cuda cross-entropy: two padded slices of a vocabulary equal f64, gradient in place", T, float, bf16,
                   f16) {
  under_schedules([] {
    check<T>(8, 0, 1.0F);
    check<T>(5, 2, 4.0F);
    check<T>(520, 7, 4.0F);
    check<T>(4203, 0, 1.0F);
    check<T>(1000, 40, 1000.0F);
  });
}
