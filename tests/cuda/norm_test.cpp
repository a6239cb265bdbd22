// LayerNorm and RMSNorm with fused residual, forward and backward, against f64.
#include <doctest/doctest.h>

#include <cmath>

#include <fmt/core.h>

#include "cuda/kernels/norm.h"
#include "tests/cuda/support.h"

using namespace trireme;
using namespace trireme::cuda;
using namespace cuda_test;

namespace norm_test {
namespace {

constexpr double room = 2e-5;  // sums in f32

template <class T>
struct Problem {
  Norm kind;
  std::size_t rows, width;
  bool fused;
  Buffer<T> x, residual, sum, gamma, beta, y, dy, dsum, dx;
  Buffer<float> mean, rstd, dgamma, dbeta, partials;

  Problem(Norm kind_, std::size_t r, std::size_t w, bool fused_, std::size_t offset)
      : kind(kind_),
        rows(r),
        width(w),
        fused(fused_),
        x(r * w, offset),
        residual(r * w, offset),
        sum(r * w, offset),
        gamma(w, offset),
        beta(w, offset),
        y(r * w, offset),
        dy(r * w, offset),
        dsum(r * w, offset),
        dx(r * w, offset),
        mean(r),
        rstd(r),
        dgamma(w),
        dbeta(w),
        partials(2 * w * static_cast<std::size_t>(norm_backward_blocks(static_cast<int>(r)))) {
    x.fill_random(1, 2);
    residual.fill_random(2);
    gamma.fill_random(3);
    beta.fill_random(4);
    dy.fill_random(5);
    dsum.fill_random(6);
  }
  void run() {
    const int r = static_cast<int>(rows), w = static_cast<int>(width);
    const bool layer = kind == Norm::layer;
    norm_forward<T>({kind, r, w, x.data(), fused ? residual.data() : nullptr, sum.data(), gamma.data(),
                     layer ? beta.data() : nullptr, 1e-5F, y.data(), layer ? mean.data() : nullptr, rstd.data()});
    norm_backward<T>({kind, r, w, sum.data(), gamma.data(), layer ? mean.data() : nullptr, rstd.data(), dy.data(),
                      fused ? dsum.data() : nullptr, dx.data(), dgamma.data(), layer ? dbeta.data() : nullptr,
                      partials.data()});
  }
  double worst() const {
    const bool layer = kind == Norm::layer;
    const auto n = static_cast<double>(width);
    double largest = 0;
    std::vector<double> dgamma_sum(width), dbeta_sum(width);
    for (std::size_t r = 0; r < rows; ++r) {
      const auto h = [&](std::size_t c) { return sum.at(r * width + c); };
      const auto g = [&](std::size_t c) { return dy.at(r * width + c) * gamma.at(c); };
      double average = 0, squares = 0, mean_g = 0, mean_gn = 0;
      for (std::size_t c = 0; c < width && layer; ++c) average += h(c) / n;
      for (std::size_t c = 0; c < width; ++c) squares += (h(c) - average) * (h(c) - average) / n;
      const double scale = 1 / std::sqrt(squares + 1e-5);
      for (std::size_t c = 0; c < width; ++c) {
        mean_g += layer ? g(c) / n : 0;
        mean_gn += g(c) * (h(c) - average) * scale / n;
      }
      for (std::size_t c = 0; c < width; ++c) {
        const std::size_t at = r * width + c;
        const double added = x.at(at) + (fused ? residual.at(at) : 0), normal = (h(c) - average) * scale;
        const double dh = scale * (g(c) - mean_g - normal * mean_gn) + (fused ? dsum.at(at) : 0);
        largest = std::max({largest, error<T>(h(c), added, room), error<T>(dx.at(at), dh, room) / (1 + scale),
                            error<T>(y.at(at), normal * gamma.at(c) + (layer ? beta.at(c) : 0), room)});
        dgamma_sum[c] += dy.at(at) * normal;
        dbeta_sum[c] += dy.at(at);
      }
    }
    for (std::size_t c = 0; c < width; ++c) {
      largest = std::max(largest, error<float>(dgamma.at(c), dgamma_sum[c], room));
      if (layer) largest = std::max(largest, error<float>(dbeta.at(c), dbeta_sum[c], room));
    }
    return largest;
  }
};

}  // namespace

TEST_CASE_TEMPLATE("cuda norms: forward and backward, fused or not, ragged and unaligned, equal f64", T, float, bf16,
                   f16) {
  under_schedules([] {
    for (const Norm kind : {Norm::layer, Norm::rms})
      for (const auto& [rows, width, offset] : std::vector<std::array<std::size_t, 3>>{{1, 1, 0},
                                                                                       {3, 64, 0},
                                                                                       {2, 37, 0},
                                                                                       {9, 768, 1},
                                                                                       {19, 300, 0},
                                                                                       {5, 1600, 0},
                                                                                       {2, 2056, 0},
                                                                                       {3, 4100, 0}}) {
        CAPTURE(width);
        Problem<T> problem(kind, rows, width, rows != 2, offset);
        problem.run();
        CHECK(problem.worst() < 1);
      }
  });
}

// The backward pass has 264 blocks. With a warp for a row they work on 2112 rows at once, with two warps on 1056.
TEST_CASE("cuda norms: every team takes several rows" * doctest::skip(cuda_test::under_asan)) {
  cuda_test::under_schedule(3, [] {
    Problem<bf16> one_warp(Norm::layer, 4230, 8, true, 0);
    one_warp.run();
    CHECK(one_warp.worst() < 1);
    Problem<float> two_warps(Norm::layer, 1060, 516, false, 0);
    two_warps.run();
    CHECK(two_warps.worst() < 1);
  });
}

// Without the opt-in a block has 48 KB: 12,256 floats beside the 128 bytes that reductions need.
TEST_CASE("cuda norms: widths about the 48 KB of shared memory that need no opt-in, and the widest") {
  cuda_test::under_schedule(2, [] {
    std::vector<std::size_t> widths = {8184, 8192, 8193, 6128, 6129, 6144, 6145, 12256, 12257, 12288, 12289};
    widths.push_back(static_cast<std::size_t>(norm_max_width()));
    for (const std::size_t width : widths) {
      CAPTURE(width);
      Problem<bf16> problem(Norm::layer, 1, width, true, 0);
      problem.run();
      CHECK(problem.worst() < 1);
    }
  });
}

TEST_CASE("cuda norms: a row that does not fit is refused with the limit") {
  const int most = norm_max_width();
  NormForward<float> norm{};
  norm.rows = 1;
  norm.width = most + 1;
  const std::string expected = fmt::format("width {}; expected 1 to {}", most + 1, most);
  CHECK(cuda_test::error_of([&] { norm_forward(norm); }).find(expected) != std::string::npos);
  NormBackward<float> backward{};
  backward.rows = 1;
  backward.width = most + 1;
  CHECK(cuda_test::error_of([&] { norm_backward(backward); }).find(expected) != std::string::npos);
}

}  // namespace norm_test
