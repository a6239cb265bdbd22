// Kernels of Llama's blocks: rotary positions and SwiGLU, forward and backward, against loops in f64.
#include <cmath>

#include "support.h"

using namespace trireme;
using namespace trireme::testing;

namespace {

Tensor positions_of(const std::vector<std::int32_t>& positions) {
  return Tensor::from(std::span(positions), {static_cast<std::int64_t>(positions.size())});
}

std::vector<double> rope_reference(const Tensor& x, const std::vector<std::int32_t>& positions, double base) {
  std::vector<double> y = values(x);
  const auto heads = static_cast<std::size_t>(x.size(2)), width = static_cast<std::size_t>(x.size(3)), half = width / 2;
  for (std::size_t row = 0; row < y.size() / width; ++row) {
    const double position = positions[row / heads % positions.size()];
    for (std::size_t i = 0; i < half; ++i) {
      const double angle = position * std::pow(base, -2 * static_cast<double>(i) / static_cast<double>(width));
      double &a = y[row * width + i], &b = y[row * width + i + half];
      const double old = a;
      a = old * std::cos(angle) - b * std::sin(angle);
      b = b * std::cos(angle) + old * std::sin(angle);
    }
  }
  return y;
}

}  // namespace

TEST_CASE("rope turns pairs by their token's position, and back") {
  const std::vector<std::int32_t> some = {0, 1, 5, 4096, 100000, 7, 2};  // in no order, as under context parallelism
  for (const DType dtype : floating_dtypes) {
    for (const Shape& shape : {Shape{1, 1, 1, 2}, Shape{2, 7, 3, 6}, Shape{3, 5, 1, 64}, Shape{2, 4, 5, 34}}) {
      const std::vector<std::int32_t> positions(some.begin(), some.begin() + shape[1]);
      const Tensor x = random(shape, 1, dtype, uniform(-2, 2));
      Tensor y = Tensor::empty(shape, dtype);
      table.rope(x, positions_of(positions), {10000}, false, y);
      check_close(y, rope_reference(x, positions, 10000), 4 * rounding(dtype), 4 * rounding(dtype));
      table.rope(y, positions_of(positions), {10000}, true, y);  // in place
      check_close(y, values(x), 8 * rounding(dtype), 8 * rounding(dtype));
    }
  }
  check_same_for_any_threads([&] {
    const Tensor x = random({4, 7, 9, 64}, 2, DType::f32, uniform(-2, 2));
    Tensor y = Tensor::empty(x.shape(), x.dtype());
    table.rope(x, positions_of(some), {500000}, false, y);
    return y;
  });
}

TEST_CASE("rope of neighbours, with other frequencies, and with positions of each sequence") {
  const std::vector<std::int32_t> places = {0, 1, 5, 4096, 100000, 7, 2, 3};
  const Tensor positions = view::reshape(positions_of(places), {2, 4});
  const Tensor frequencies = random({5}, 3, DType::f64, uniform(0.1, 1));
  for (const DType dtype : floating_dtypes) {
    const Tensor x = random({2, 4, 3, 10}, 1, dtype, uniform(-2, 2));
    for (const bool interleaved : {false, true}) {
      const RopeOptions options = {.base = 1, .frequencies = frequencies, .interleaved = interleaved};
      std::vector<double> expected = values(x);
      for (std::size_t row = 0; row < expected.size() / 10; ++row)
        for (std::size_t i = 0; i < 5; ++i) {
          double &a = expected[row * 10 + (interleaved ? 2 * i : i)],
                 &b = expected[row * 10 + (interleaved ? 2 * i + 1 : i + 5)];
          const double angle = places[row / 3] * frequencies.data<double>()[i], old = a;
          a = old * std::cos(angle) - b * std::sin(angle);
          b = b * std::cos(angle) + old * std::sin(angle);
        }
      Tensor y = Tensor::empty(x.shape(), dtype);
      table.rope(x, positions, options, false, y);
      check_close(y, expected, 4 * rounding(dtype), 4 * rounding(dtype));
      table.rope(y, positions, options, true, y);  // in place
      check_close(y, values(x), 8 * rounding(dtype), 8 * rounding(dtype));
    }
  }
}

TEST_CASE("swiglu and its gradient") {
  for (const DType dtype : floating_dtypes) {
    for (const Shape& shape : {Shape{1, 1}, Shape{3, 5}, Shape{19, 65}, Shape{300, 33}}) {
      const Tensor x = random(shape.with(1, 2 * shape[1]), 1, dtype, uniform(-2, 2)),
                   dy = random(shape, 2, dtype, uniform(-2, 2));
      const std::vector<double> in = values(x), d = values(dy);
      const auto width = static_cast<std::size_t>(shape[1]);
      std::vector<double> expected, gradient(in.size());
      for (std::size_t r = 0; r < d.size() / width; ++r) {
        for (std::size_t i = 0; i < width; ++i) {
          const double g = in[r * 2 * width + i], u = in[r * 2 * width + width + i], s = 1 / (1 + std::exp(-g));
          const double out = d[r * width + i];
          expected.push_back(g * s * u);
          gradient[r * 2 * width + i] = out * u * (s + g * s * (1 - s));
          gradient[r * 2 * width + width + i] = out * g * s;
        }
      }
      Tensor y = Tensor::empty(shape, dtype), dx = clone(x);
      table.swiglu(x, y);
      check_close(y, expected, 4 * rounding(dtype), 4 * rounding(dtype));
      table.swiglu_backward(dx, dy, dx);  // in place
      check_close(dx, gradient, 8 * rounding(dtype), 8 * rounding(dtype));
    }
  }
}
