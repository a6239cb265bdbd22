// The f32 product against f64 sums: all forms, ragged, tiny and unaligned, alpha, beta and bias, batches with a shared
// operand, the same bits under every schedule.
#include <doctest/doctest.h>

#include <cmath>

#include "cuda/kernels/gemm_f32.h"
#include "tests/cuda/support.h"

using namespace trireme;
using namespace trireme::cuda;
using namespace cuda_test;

namespace gemm_f32_test {
namespace {

struct Case {
  Form form;
  int m, n, k;
  int extra = 0;   ///< elements between rows
  int offset = 0;  ///< elements before the first one
  float alpha = 1, beta = 0;
  bool bias = false;
  int batch = 1;
  bool one_b = false;  ///< one b for all of the batch
};

struct Problem {
  Case c;
  std::int64_t a_pitch, b_pitch, c_pitch, a_rows, b_rows;
  Buffer<float> a, b, bias, out, start;

  static std::size_t size(std::int64_t rows, std::int64_t pitch, int batch) {
    return static_cast<std::size_t>(rows * pitch * batch);
  }
  explicit Problem(const Case& which)
      : c(which),
        a_pitch((c.form == Form::tn ? c.m : c.k) + c.extra),
        b_pitch((c.form == Form::nt ? c.k : c.n) + c.extra),
        c_pitch(c.n + c.extra),
        a_rows(c.form == Form::tn ? c.k : c.m),
        b_rows(c.form == Form::nt ? c.n : c.k),
        a(size(a_rows, a_pitch, c.batch), static_cast<std::size_t>(c.offset)),
        b(size(b_rows, b_pitch, c.one_b ? 1 : c.batch), static_cast<std::size_t>(c.offset)),
        bias(static_cast<std::size_t>(c.n)),
        out(size(c.m, c_pitch, c.batch), static_cast<std::size_t>(c.offset)),
        start(out.size()) {
    a.fill_random(1);
    b.fill_random(2);
    bias.fill_random(3);
    start.fill_random(4);
    for (std::size_t i = 0; i < out.size(); ++i)
      out.set(i, c.beta == 0 && column(i) < c.n ? NAN : start.value(i));  // beta 0 must not read
  }
  std::int64_t column(std::size_t i) const { return static_cast<std::int64_t>(i) % c_pitch; }
  GemmF32 product() {
    return {c.form,
            c.m,
            c.n,
            c.k,
            a.data(),
            a_pitch,
            b.data(),
            b_pitch,
            out.data(),
            c_pitch,
            c.alpha,
            c.beta,
            c.bias ? bias.data() : nullptr,
            c.batch,
            a_rows * a_pitch,
            c.one_b ? 0 : b_rows * b_pitch,
            c.m * c_pitch};
  }
  double expected(int batch, int i, int j) const {
    const auto at = [](std::int64_t base, std::int64_t row, std::int64_t pitch, std::int64_t column) {
      return static_cast<std::size_t>(base + row * pitch + column);
    };
    const std::int64_t a0 = batch * a_rows * a_pitch, b0 = c.one_b ? 0 : batch * b_rows * b_pitch;
    double sum = 0;
    for (int l = 0; l < c.k; ++l)
      sum += a.at(c.form == Form::tn ? at(a0, l, a_pitch, i) : at(a0, i, a_pitch, l)) *
             b.at(c.form == Form::nt ? at(b0, j, b_pitch, l) : at(b0, l, b_pitch, j));
    const double before = start.at(at(batch * std::int64_t{c.m} * c_pitch, i, c_pitch, j));
    return static_cast<double>(c.alpha) * sum + static_cast<double>(c.beta) * before +
           (c.bias ? bias.at(static_cast<std::size_t>(j)) : 0);
  }
  /// The largest error. K roundings of sums below sqrt(K) cost less than 1e-7 K.
  double worst() const {
    double largest = 0;
    for (int q = 0; q < c.batch; ++q)
      for (int i = 0; i < c.m; ++i)
        for (int j = 0; j < c_pitch; ++j) {
          const auto at = static_cast<std::size_t>((q * std::int64_t{c.m} + i) * c_pitch + j);
          keep_largest(largest, std::abs(out.at(at) - (j < c.n ? expected(q, i, j) : start.at(at))));
        }
    return largest;
  }
};

void check(const Case& c) {
  CAPTURE(c.m);
  CAPTURE(c.n);
  CAPTURE(c.k);
  Problem problem(c);
  gemm_f32(problem.product());
  CHECK(problem.worst() < 4e-7 + 1e-7 * c.k);
}

constexpr Form kForms[] = {Form::nn, Form::nt, Form::tn};

}  // namespace

TEST_CASE("cuda gemm_f32: three forms, ragged, tiny and unaligned, equal f64") {
  under_schedules([] {
    for (const Form form : kForms) {
      CAPTURE(static_cast<int>(form));
      check({form, 64, 64, 64});
      check({form, 1, 1, 1});
      check({form, 72, 136, 100});
      check({form, 65, 33, 129, 0, 1});
      check({form, 40, 24, 48, 4, 4});
      check({form, 17, 70, 31, 3, 0});
    }
  });
}

TEST_CASE("cuda gemm_f32: alpha, beta and bias; nothing to sum; a NaN that beta 0 ignores") {
  under_schedules([] {
    for (const Form form : kForms) {
      check({form, 33, 50, 20, 2, 1, 0.5F, 0, true});
      check({form, 16, 64, 24, 0, 0, 1, 1, false});
      check({form, 5, 7, 9, 0, 0, -2, 0.25F, true});
      check({form, 5, 7, 0, 1, 0, 3, 0.5F, true});
      check({form, 5, 7, 0, 1, 0, 1, 0, false});
    }
  });
}

TEST_CASE("cuda gemm_f32: batches, also with one b for all") {
  under_schedules([] {
    for (const Form form : kForms) {
      check({form, 9, 20, 17, 3, 0, 1, 1, true, 3});
      check({form, 9, 20, 16, 0, 0, 1, 0, false, 3, true});
    }
  });
}

TEST_CASE("cuda gemm_f32: the large tile" * doctest::skip(cuda_test::under_asan)) {
  under_schedule(2, [] {
    for (const Form form : kForms) check({form, 40, 24, 36, 0, 0, 1, 0, false, 64});
    check({Form::nn, 130, 140, 20, 0, 0, 1, 0, false, 16});
  });
}

TEST_CASE("cuda gemm_f32: the same bits under every schedule") {
  Problem first({Form::nt, 70, 90, 100});
  gemm_f32(first.product());
  under_schedules([&] {
    Problem again({Form::nt, 70, 90, 100});
    gemm_f32(again.product());
    for (std::size_t i = 0; i < first.out.size(); ++i) CHECK(first.out.at(i) == again.out.at(i));
  });
}

}  // namespace gemm_f32_test
