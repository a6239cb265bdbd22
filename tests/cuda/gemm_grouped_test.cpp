// Grouped products against f64 sums over each group's rows: forward, input gradient and weight gradient of experts;
// groups that are empty, of one row, and of many. Rows that belong to no group are NaN and must not affect any result.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "cuda/kernels/gemm.h"
#include "tests/cuda/support.h"

using namespace trireme;
using namespace trireme::cuda;
using namespace cuda_test;

namespace gemm_grouped_test {
namespace {

struct Case {
  std::vector<int> lengths;  ///< rows of each group
  int in, out;
  int extra = 0;      ///< elements between rows, and between matrices
  int offset = 0;     ///< elements before the first one of each operand
  bool bias = false;  ///< and SiLU; the forward product only
  bool accumulate = false;
  int before = 0, after = 0;  ///< rows of no group
};

std::size_t index(std::int64_t row, std::int64_t pitch, std::int64_t column) {
  return static_cast<std::size_t>(row * pitch + column);
}

/// x [R, in], w [G, out, in], dy [R, out], and the three products of a layer of experts.
template <class T, class Out>
struct Experts {
  Case c;
  int groups, rows;
  std::int64_t in_pitch, out_pitch, matrix;  ///< elements between rows of x and w, rows of y, matrices
  Buffer<int> offsets;
  Buffer<T> x, w, dy, bias;
  Buffer<Out> y, dx, dw, y_before, dx_before, dw_before;

  static int sum(const std::vector<int>& lengths) { return std::accumulate(lengths.begin(), lengths.end(), 0); }
  explicit Experts(const Case& c_)
      : c(c_),
        groups(static_cast<int>(c.lengths.size())),
        rows(c.before + sum(c.lengths) + c.after),
        in_pitch(c.in + c.extra),
        out_pitch(c.out + c.extra),
        matrix(c.out * in_pitch + c.extra),
        offsets(c.lengths.size() + 1),
        x(index(rows, in_pitch, 0), static_cast<std::size_t>(c.offset)),
        w(index(groups, matrix, 0), static_cast<std::size_t>(c.offset)),
        dy(index(rows, out_pitch, 0), static_cast<std::size_t>(c.offset)),
        bias(index(groups, c.out, 0)),
        y(dy.size()),
        dx(x.size()),
        dw(w.size()),
        y_before(dy.size()),
        dx_before(x.size()),
        dw_before(w.size()) {
    offsets.set(0, c.before);
    for (std::size_t g = 0; g < c.lengths.size(); ++g) offsets.set(g + 1, offsets.value(g) + c.lengths[g]);
    x.fill_random(1);
    w.fill_random(2);
    dy.fill_random(3);
    bias.fill_random(4);
    for (Buffer<Out>* buffer : {&y, &y_before}) buffer->fill_random(5);
    for (Buffer<Out>* buffer : {&dx, &dx_before}) buffer->fill_random(6);
    for (Buffer<Out>* buffer : {&dw, &dw_before}) buffer->fill_random(7);
    for (int r = 0; r < rows; ++r) {
      if (r >= c.before && r < rows - c.after) continue;
      for (int i = 0; i < c.in; ++i) x.set(index(r, in_pitch, i), T(std::numeric_limits<float>::quiet_NaN()));
      for (int o = 0; o < c.out; ++o) dy.set(index(r, out_pitch, o), T(std::numeric_limits<float>::quiet_NaN()));
    }
  }

  GroupedGemm<T, Out> grouped(Gemm<T, Out> all) {
    all.epilogue.accumulate = c.accumulate;
    return {all, groups, offsets.data()};
  }
  GroupedGemm<T, Out> forward() {
    Gemm<T, Out> all{Form::nt, rows, c.out, c.in, x.data(), in_pitch, w.data(), in_pitch, y.data(), out_pitch};
    all.b_stride = matrix;
    if (c.bias) all.epilogue.bias = bias.data();
    if (c.bias) all.epilogue.activation = Activation::silu;
    return grouped(all);
  }
  GroupedGemm<T, Out> input_gradient() {
    Gemm<T, Out> all{Form::nn, rows, c.in, c.out, dy.data(), out_pitch, w.data(), in_pitch, dx.data(), in_pitch};
    all.b_stride = matrix;
    return grouped(all);
  }
  GroupedGemm<T, Out> weight_gradient() {
    Gemm<T, Out> all{Form::tn, c.out, c.in, rows, dy.data(), out_pitch, x.data(), in_pitch, dw.data(), in_pitch};
    all.c_stride = matrix;
    return grouped(all);
  }

  int group_of(int row) const {
    for (int g = 0; g < groups; ++g)
      if (row >= offsets.value(static_cast<std::size_t>(g)) && row < offsets.value(static_cast<std::size_t>(g) + 1))
        return g;
    return -1;
  }
  /// The error in units of one rounding to Out plus f32 noise. If `sum` is NaN, nothing must have been written.
  double error(const Buffer<Out>& values, const Buffer<Out>& start, std::size_t at, double sum) const {
    const double unit = std::is_same_v<Out, float> ? 1e-6 : std::is_same_v<Out, bf16> ? 1.0 / 256 : 1.0 / 2048;
    if (std::isnan(sum)) return values.at(at) == start.at(at) ? 0 : 1e9;
    const double expected = sum + (c.accumulate ? start.at(at) : 0);
    const double error = std::abs(values.at(at) - expected) / (unit * std::abs(expected) + 1e-5);
    return std::isnan(error) ? 1e9 : error;
  }
  /// The largest error of y or dx. Rows of a group must hold value(row, group, column); nothing else may have been
  /// written.
  template <class Value>
  double worst_rows(const Buffer<Out>& values, const Buffer<Out>& start, std::int64_t pitch, int columns,
                    const Value& value) const {
    double largest = 0;
    for (int r = 0; r < rows; ++r)
      for (int j = 0; j < pitch; ++j) {
        const int g = group_of(r);
        const double expected = g < 0 || j >= columns ? std::numeric_limits<double>::quiet_NaN() : value(r, g, j);
        largest = std::max(largest, error(values, start, index(r, pitch, j), expected));
      }
    return largest;
  }
  double worst_forward() const {
    return worst_rows(y, y_before, out_pitch, c.out, [&](int r, int g, int o) {
      double total = 0;
      for (int i = 0; i < c.in; ++i) total += x.at(index(r, in_pitch, i)) * w.at(index(g, matrix, o * in_pitch + i));
      if (!c.bias) return total;
      total += bias.at(index(g, c.out, o));
      return total / (1 + std::exp(-total));
    });
  }
  double worst_input_gradient() const {
    return worst_rows(dx, dx_before, in_pitch, c.in, [&](int r, int g, int i) {
      double total = 0;
      for (int o = 0; o < c.out; ++o) total += dy.at(index(r, out_pitch, o)) * w.at(index(g, matrix, o * in_pitch + i));
      return total;
    });
  }
  double worst_weight_gradient() const {
    double largest = 0;
    for (int g = 0; g < groups; ++g)
      for (std::int64_t at = 0; at < matrix; ++at) {
        const std::int64_t o = at / in_pitch, i = at % in_pitch;
        double total = o < c.out && i < c.in ? 0 : std::numeric_limits<double>::quiet_NaN();
        const auto group = static_cast<std::size_t>(g);
        for (int r = offsets.value(group); !std::isnan(total) && r < offsets.value(group + 1); ++r)
          total += dy.at(index(r, out_pitch, o)) * x.at(index(r, in_pitch, i));
        largest = std::max(largest, error(dw, dw_before, index(g, matrix, at), total));
      }
    return largest;
  }
};

/// Checks all three products, each run by start(GroupedGemm).
template <class T, class Out, class Start>
void check(const Case& c, const Start& start) {
  CAPTURE(c.lengths.size());
  CAPTURE(c.in);
  CAPTURE(c.out);
  Experts<T, Out> experts(c);
  start(experts.forward());
  CHECK(experts.worst_forward() < 1);
  start(experts.input_gradient());
  CHECK(experts.worst_input_gradient() < 1);
  start(experts.weight_gradient());
  CHECK(experts.worst_weight_gradient() < 1);
}

constexpr auto on_sm80 = [](const auto& products) { grouped_gemm_sm80(products); };
constexpr auto on_sm90(Tile90 tile) {
  return [tile](const auto& products) { grouped_gemm_sm90(products, nullptr, tile); };
}

}  // namespace

TEST_CASE("cuda grouped_gemm_sm80: ragged groups, empty ones, and rows of none, equal f64 in all three forms") {
  under_schedules([] {
    check<bf16, bf16>({{5, 0, 1, 40, 0}, 40, 24}, on_sm80);
    check<f16, float>({{70, 1, 0, 33}, 72, 136, 0, 0, false, false, 3, 9}, on_sm80);
    check<bf16, float>({{0, 2, 65}, 33, 17, 3, 1, false, true, 1, 2}, on_sm80);
    check<f16, f16>({{0, 0}, 8, 8, 0, 0, false, true, 0, 4}, on_sm80);
    check<bf16, float>({{1}, 1, 1}, on_sm80);
    check<bf16, bf16>({{12, 20}, 16, 40, 8, 8, true}, on_sm80);
  });
}

TEST_CASE("cuda grouped_gemm_sm80: no rows at all leave empty sums") {
  Experts<bf16, float> experts({{0, 0, 0}, 16, 8});
  grouped_gemm_sm80(experts.forward());
  grouped_gemm_sm80(experts.weight_gradient());
  CHECK(experts.worst_weight_gradient() < 1);
}

TEST_CASE("cuda grouped_gemm_sm80: the large tile" * doctest::skip(cuda_test::under_asan)) {
  under_schedule(2, [] {
    Experts<bf16, float> wide({{300, 0, 41, 171}, 24, 1160, 0, 0, true});
    grouped_gemm_sm80(wide.forward());
    CHECK(wide.worst_forward() < 1);
    Experts<f16, f16> deep({{1, 383, 128, 0}, 1160, 24, 0, 0, false, true});
    grouped_gemm_sm80(deep.input_gradient());
    CHECK(deep.worst_input_gradient() < 1);
    Experts<bf16, bf16> many({{1, 0, 7, 33, 64, 2, 0, 0, 19, 31, 32, 3, 1, 0, 5, 12}, 136, 136, 0, 0, false, true});
    grouped_gemm_sm80(many.weight_gradient());
    CHECK(many.worst_weight_gradient() < 1);
  });
}

TEST_CASE("cuda grouped_gemm_sm80: refuses batches") {
  Experts<bf16, float> experts({{3}, 8, 8});
  GroupedGemm<bf16, float> products = experts.forward();
  products.product.batch = 2;
  CHECK(cuda_test::error_of([&] { grouped_gemm_sm80(products); }).find("a batch of 2 grouped products") !=
        std::string::npos);
}

TEST_CASE("cuda grouped_gemm_sm90: ragged groups, empty ones, and rows of none, equal f64 in all three forms") {
  under_schedules([] {
    const auto small = on_sm90(Tile90::m64n64);
    check<bf16, bf16>({{5, 0, 1, 40, 0}, 40, 24}, small);
    check<f16, float>({{70, 1, 0, 33}, 72, 136, 0, 0, false, false, 3, 9}, small);
    check<bf16, float>({{0, 2, 65, 64}, 40, 16, 8, 8, false, true, 1, 2}, small);
    check<f16, f16>({{0, 0}, 8, 8, 0, 0, false, true, 0, 4}, small);
    check<bf16, bf16>({{12, 20}, 16, 40, 8, 8, true}, small);
  });
}

TEST_CASE("cuda grouped_gemm_sm90: the tiles of two consumers, several to a persistent block") {
  under_schedules([] {
    check<bf16, float>({{90, 1, 0, 200}, 136, 72, 0, 0, false, true, 0, 5}, on_sm90(Tile90::m128n128));
    check<f16, f16>({{0, 30, 131}, 72, 264}, on_sm90(Tile90::m128n256));
  });
}

TEST_CASE("cuda grouped_gemm_sm90: no rows at all leave empty sums; same bits on every schedule") {
  Experts<bf16, float> none({{0, 0, 0}, 16, 8});
  grouped_gemm_sm90(none.forward());
  grouped_gemm_sm90(none.weight_gradient());
  CHECK(none.worst_weight_gradient() < 1);

  const Case c = {{70, 3, 0, 91}, 72, 40};
  Experts<bf16, float> first(c), again(c);
  under_schedule(0, [&] { grouped_gemm_sm90(first.weight_gradient()); });
  under_schedule(2, [&] { grouped_gemm_sm90(again.weight_gradient()); });
  for (std::size_t i = 0; i < first.dw.size(); ++i) CHECK(first.dw.at(i) == again.dw.at(i));
}

TEST_CASE("cuda grouped_gemm_sm90: refuses what TMA cannot read") {
  Experts<bf16, float> experts({{3, 4}, 8, 8});
  GroupedGemm<bf16, float> products = experts.forward();
  products.product.b_stride = 68;
  CHECK(cuda_test::error_of([&] { grouped_gemm_sm90(products); }).find("the batch stride of b is 68 elements") !=
        std::string::npos);
}

}  // namespace gemm_grouped_test
