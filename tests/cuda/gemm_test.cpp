// Products against f64 sums over the same rounded inputs: all forms, ragged and unaligned shapes, every epilogue.
#include <doctest/doctest.h>

#include <cmath>
#include <memory>

#include "cuda/kernels/gemm_store.h"
#include "tests/cuda/support.h"

using namespace trireme;
using namespace trireme::cuda;
using cuda_test::Buffer;
using cuda_test::under_schedule;
using cuda_test::under_schedules;

namespace gemm_test {
namespace {

/// Steps of an epilogue.
constexpr unsigned kBias = 1, kBefore = 2, kResidual = 4, kAccumulate = 8;

struct Case {
  Form form;
  int m, n, k;
  int extra = 0;   ///< elements between rows
  int offset = 0;  ///< elements before the first one
  bool full_epilogue = false;
  int batch = 1;
  float alpha = 1.0F;
  bool derivative = false;  ///< the epilogue of a backward pass
  unsigned without = 0;     ///< steps that a full epilogue does not have; with derivative, it has kBefore
  bool has(unsigned step) const { return full_epilogue && (without & step) == 0; }
};

double activated(Activation activation, double x) {
  if (activation == Activation::gelu) return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
  if (activation == Activation::gelu_tanh)
    return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
  return activation == Activation::silu ? x / (1 + std::exp(-x)) : x;
}

/// By central differences: their error at this step is below 1e-9.
double derivative(Activation activation, double x) {
  constexpr double h = 1e-5;
  return (activated(activation, x + h) - activated(activation, x - h)) / (2 * h);
}

template <class T, class Out>
struct Problem {
  Case c;
  std::int64_t a_pitch, b_pitch, c_pitch, a_rows, b_rows;
  Buffer<T> a, b, bias, residual, before;
  Buffer<Out> out, start;

  static std::size_t size(std::int64_t rows, std::int64_t pitch, int batch) {
    return static_cast<std::size_t>(rows * pitch * batch);
  }
  explicit Problem(const Case& c_)
      : c(c_),
        a_pitch((c.form == Form::tn ? c.m : c.k) + c.extra),
        b_pitch((c.form == Form::nt ? c.k : c.n) + c.extra),
        c_pitch(c.n + c.extra),
        a_rows(c.form == Form::tn ? c.k : c.m),
        b_rows(c.form == Form::nt ? c.n : c.k),
        a(size(a_rows, a_pitch, c.batch), static_cast<std::size_t>(c.offset)),
        b(size(b_rows, b_pitch, c.batch), static_cast<std::size_t>(c.offset)),
        bias(static_cast<std::size_t>(c.n)),
        residual(size(c.m, c_pitch, c.batch), static_cast<std::size_t>(c.offset)),
        before(residual.size()),
        out(residual.size(), static_cast<std::size_t>(c.offset)),
        start(residual.size()) {
    a.fill_random(1);
    b.fill_random(2);
    bias.fill_random(3);
    residual.fill_random(4);
    out.fill_random(5);
    start.fill_random(5);
    before.fill_random(6, 3.0F);
  }
  Gemm<T, Out> product(Activation activation) {
    Gemm<T, Out> p{c.form, c.m, c.n, c.k, a.data(), a_pitch, b.data(), b_pitch, out.data(), c_pitch};
    p.batch = c.batch;
    p.a_stride = a_rows * a_pitch;
    p.b_stride = b_rows * b_pitch;
    p.c_stride = c.m * c_pitch;
    p.epilogue.alpha = c.alpha;
    if (c.full_epilogue)
      p.epilogue = {c.alpha,
                    c.has(kBias) ? bias.data() : nullptr,
                    c.has(kBefore) ? before.data() : nullptr,
                    activation,
                    c.derivative,
                    c.has(kResidual) ? residual.data() : nullptr,
                    c.has(kAccumulate)};
    return p;
  }
  double sum(int batch, int i, int j) const {
    const auto at = [](std::int64_t base, std::int64_t row, std::int64_t pitch, std::int64_t column) {
      return static_cast<std::size_t>(base + row * pitch + column);
    };
    const std::int64_t a0 = batch * a_rows * a_pitch, b0 = batch * b_rows * b_pitch;
    double total = 0;
    for (int l = 0; l < c.k; ++l)
      total += a.at(c.form == Form::tn ? at(a0, l, a_pitch, i) : at(a0, i, a_pitch, l)) *
               b.at(c.form == Form::nt ? at(b0, j, b_pitch, l) : at(b0, l, b_pitch, j));
    return total;
  }
  /// The error in units of one rounding to V plus f32 noise.
  template <class V>
  static double error(const Buffer<V>& values, std::size_t at, double expected) {
    const double unit = std::is_same_v<V, float> ? 1e-6 : std::is_same_v<V, bf16> ? 1.0 / 256 : 1.0 / 2048;
    const double error = std::abs(values.at(at) - expected) / (unit * std::abs(expected) + 1e-5);
    return std::isnan(error) ? 1e9 : error;
  }
  /// The largest error in c and in what was stored before the activation.
  double worst(Activation activation) const {
    double largest = 0;
    for (int q = 0; q < c.batch; ++q)
      for (int i = 0; i < c.m; ++i)
        for (int j = 0; j < c_pitch; ++j) {
          const auto at = static_cast<std::size_t>((q * std::int64_t{c.m} + i) * c_pitch + j);
          double expected = start.at(at);  // between the rows nothing is written
          if (j < c.n) {
            expected = static_cast<double>(c.alpha) * sum(q, i, j);
            if (c.has(kBias)) expected += bias.at(static_cast<std::size_t>(j));
            if (c.has(kBefore) && !c.derivative) largest = std::max(largest, error(before, at, expected));
            expected = c.derivative ? expected * derivative(activation, before.at(at))
                                    : activated(activation, c.has(kBefore) ? before.at(at) : expected);
            if (c.has(kResidual)) expected += residual.at(at);
            if (c.has(kAccumulate)) expected += start.at(at);
          }
          largest = std::max(largest, error(out, at, expected));
        }
    return largest;
  }
};

template <class T, class Out>
void check(const Case& c, Activation activation = Activation::none) {
  CAPTURE(c.m);
  CAPTURE(c.n);
  CAPTURE(c.k);
  Problem<T, Out> problem(c);
  gemm_sm80(problem.product(activation));
  CHECK(problem.worst(activation) < 1);
}

template <class T, class Out>
void check_sm90(const Case& c, Tile90 tile = Tile90::m64n64, Activation activation = Activation::none) {
  CAPTURE(c.m);
  CAPTURE(c.n);
  CAPTURE(c.k);
  Problem<T, Out> problem(c);
  gemm_sm90(problem.product(activation), nullptr, tile);
  CHECK(problem.worst(activation) < 1);
}

constexpr Form kForms[] = {Form::nn, Form::nt, Form::tn};
constexpr Activation kActivations[] = {Activation::gelu_tanh, Activation::gelu, Activation::silu};

}  // namespace

TEST_CASE("cuda gemm_sm80: three forms, ragged, tiny and unaligned, equal f64") {
  under_schedules([] {
    for (const Form form : {Form::nn, Form::nt, Form::tn}) {
      CAPTURE(static_cast<int>(form));
      check<bf16, bf16>({form, 64, 64, 64});
      check<bf16, float>({form, 1, 1, 1});
      check<f16, f16>({form, 72, 136, 200});
      check<f16, float>({form, 65, 33, 129, 0, 1});
      check<bf16, float>({form, 40, 24, 48, 8, 8});
      check<bf16, bf16>({form, 17, 70, 31, 3, 0, false, 3});
    }
  });
}

TEST_CASE("cuda gemm_sm80: bias, stored pre-activation, GELU, residual and accumulation, in one epilogue") {
  under_schedules([] {
    check<bf16, bf16>({Form::nn, 48, 72, 40, 0, 0, true}, Activation::gelu);
    check<bf16, float>({Form::nt, 33, 50, 64, 2, 1, true}, Activation::gelu_tanh);
    check<f16, float>({Form::tn, 16, 64, 96, 0, 0, true, 2});
    check<f16, f16>({Form::tn, 1, 5, 3, 0, 0, true});
    check<bf16, bf16>({Form::nt, 24, 40, 16, 0, 0, true}, Activation::silu);
  });
}

TEST_CASE("cuda gemm_sm80: derivatives of activations at what a forward product stored") {
  under_schedules([] {
    for (const Activation activation : kActivations) {
      CAPTURE(static_cast<int>(activation));
      check<bf16, bf16>({Form::nn, 40, 24, 24, 0, 0, true, 1, 1.0F, true}, activation);
      check<f16, float>({Form::nt, 17, 9, 32, 3, 1, true, 2, 0.5F, true}, activation);
    }
  });
}

TEST_CASE("cuda gemm: an epilogue with derivative needs a pre_activation") {
  Problem<bf16, float> problem({Form::nn, 8, 16, 8});
  Gemm<bf16, float> product = problem.product(Activation::none);
  product.epilogue.derivative = true;
  CHECK(cuda_test::error_of([&] { gemm_sm80(product); }).find("no pre_activation; expected [8, 16]") !=
        std::string::npos);
  CHECK(cuda_test::error_of([&] { gemm_sm90(product); }).find("no pre_activation") != std::string::npos);
}

TEST_CASE("cuda gemm_sm80: alpha multiplies the sum, and neither bias, residual nor what c holds") {
  under_schedules([] {
    check<bf16, bf16>({Form::nn, 40, 72, 40, 0, 0, false, 1, -0.25F});
    check<f16, float>({Form::tn, 17, 24, 33, 2, 1, true, 2, 3.0F}, Activation::gelu_tanh);
    check<bf16, float>({Form::nt, 24, 40, 48, 0, 0, true, 1, 0.0F});
  });
}

TEST_CASE("cuda gemm_sm80: the large tile" * doctest::skip(cuda_test::under_asan)) {
  under_schedule(2, [] {
    for (const Form form : {Form::nn, Form::nt, Form::tn}) check<bf16, float>({form, 40, 24, 72, 0, 0, false, 64});
  });
}

// Ragged in M, N and K. TMA needs pitches of a and b that are multiples of 8 elements, so the odd sizes of each form
// are not the row lengths of a and b.
TEST_CASE("cuda gemm_sm90: three forms, ragged and tiny, equal f64") {
  under_schedules([] {
    for (const Form form : kForms) {
      CAPTURE(static_cast<int>(form));
      check_sm90<bf16, bf16>({form, 64, 64, 64});
      check_sm90<f16, float>({form, 8, 8, 8});
      check_sm90<f16, f16>({form, 72, 136, 200});
      check_sm90<bf16, float>({form, 40, 24, 328, 8, 8});
    }
    check_sm90<bf16, float>({Form::nt, 65, 33, 136});
    check_sm90<f16, f16>({Form::nt, 1, 1, 320});
    check_sm90<bf16, float>({Form::tn, 72, 40, 77});
    check_sm90<bf16, bf16>({Form::nn, 77, 40, 72});
  });
}

TEST_CASE("cuda gemm_sm90: the tiles of two consumers, several to a persistent block") {
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    CAPTURE(seed);
    under_schedule(seed, [seed] {
      const Form form = kForms[seed % 3];
      check_sm90<bf16, float>({form, 200, 264, 136}, Tile90::m128n128);
      check_sm90<f16, f16>({form, 136, 520, 72}, Tile90::m128n256);
      check_sm90<bf16, bf16>({kForms[(seed + 1) % 3], 264, 72, 328}, Tile90::m128n256);
      check_sm90<bf16, bf16>({form, 264, 200, 200}, Tile90::m256n192);
      check_sm90<f16, float>({kForms[(seed + 2) % 3], 520, 72, 72, 8, 8}, Tile90::m256n192);
      check_sm90<bf16, bf16>({form, 264, 200, 200}, Tile90::m256n192);
      check_sm90<f16, float>({kForms[(seed + 2) % 3], 520, 72, 72, 8, 8}, Tile90::m256n192);
    });
  }
}

TEST_CASE("cuda gemm_sm90: batches, also with one operand for all; bias, GELU, residual, accumulation") {
  under_schedules([] {
    for (const Form form : kForms) check_sm90<bf16, float>({form, 72, 40, 136, 0, 0, false, 5});
    check_sm90<bf16, bf16>({Form::nn, 48, 72, 40, 0, 0, true}, Tile90::m64n64, Activation::gelu);
    check_sm90<bf16, float>({Form::nt, 33, 50, 64, 8, 8, true, 2}, Tile90::m64n64, Activation::gelu_tanh);
    check_sm90<f16, float>({Form::tn, 136, 72, 96, 0, 0, true, 2}, Tile90::m128n128);
    check_sm90<f16, f16>({Form::tn, 8, 264, 3, 0, 0, true}, Tile90::m128n256);
    check_sm90<bf16, bf16>({Form::nt, 200, 203, 72, 0, 0, true}, Tile90::m256n192, Activation::silu);

    Problem<bf16, float> shared({Form::nt, 40, 24, 72, 0, 0, false, 3}), alone({Form::nt, 120, 24, 72});
    Gemm<bf16, float> product = shared.product(Activation::none);
    product.b_stride = 0;  // three times the first b: the same as one product with three times the rows
    gemm_sm90(product);
    Gemm<bf16, float> tall = alone.product(Activation::none);
    tall.a = shared.a.data();
    tall.b = shared.b.data();
    gemm_sm80(tall);
    for (std::size_t i = 0; i < alone.out.size(); ++i)
      CHECK(shared.out.at(i) == doctest::Approx(alone.out.at(i)).epsilon(1e-5));
  });
}

TEST_CASE("cuda gemm_sm90: alpha multiplies the sum, and neither bias, residual nor what c holds") {
  under_schedules([] {
    check_sm90<f16, f16>({Form::nn, 40, 72, 40, 0, 0, false, 1, -0.25F});
    check_sm90<bf16, float>({Form::tn, 24, 40, 33, 8, 0, true, 2, 3.0F}, Tile90::m64n64, Activation::gelu_tanh);
    check_sm90<bf16, bf16>({Form::nt, 72, 40, 136, 0, 0, true, 1, 0.5F}, Tile90::m128n128, Activation::gelu);
  });
}

TEST_CASE("cuda gemm_sm90: SiLU, and derivatives of activations at what a forward product stored") {
  under_schedules([] {
    check_sm90<bf16, float>({Form::nt, 24, 40, 16, 0, 0, true}, Tile90::m64n64, Activation::silu);
    for (const Activation activation : kActivations) {
      CAPTURE(static_cast<int>(activation));
      check_sm90<bf16, bf16>({Form::nn, 40, 24, 24, 0, 0, true, 1, 1.0F, true}, Tile90::m64n64, activation);
      check_sm90<f16, float>({Form::nt, 17, 41, 32, 8, 0, true, 2, 0.5F, true}, Tile90::m128n128, activation);
    }
  });
}

/// Every choice of steps; c with whole pieces of 16 bytes in each row, and without.
template <class Check>
void every_epilogue(const Check& check) {
  for (unsigned without = 0; without < 16; ++without)
    for (const bool derivative : {false, true}) {
      if (derivative && (without & kBefore) != 0) continue;
      CAPTURE(without);
      CAPTURE(derivative);
      const Activation activation = without % 2 == 0 && !derivative ? Activation::none : Activation::silu;
      for (const int n : {72, 77}) check({Form::nt, 40, n, 72, 0, 0, true, 1, 0.5F, derivative, without}, activation);
    }
}

TEST_CASE("cuda gemm_sm80: every choice of an epilogue's steps") {
  under_schedule(2, [] {
    every_epilogue([](const Case& c, Activation activation) {
      check<bf16, bf16>(c, activation);
      check<f16, float>(c, activation);
    });
  });
}

TEST_CASE("cuda gemm_sm90: every choice of an epilogue's steps") {
  under_schedule(2, [] {
    every_epilogue([](const Case& c, Activation activation) {
      check_sm90<bf16, bf16>(c, Tile90::m64n64, activation);
      check_sm90<f16, float>(c, Tile90::m64n64, activation);
    });
    for (const unsigned without :
         {kBefore | kResidual, kBefore | kAccumulate, kBias | kBefore | kAccumulate | kResidual}) {
      CAPTURE(without);
      check_sm90<bf16, bf16>({Form::nt, 150, 200, 72, 0, 0, true, 1, 1.0F, false, without}, Tile90::m256n192);
      check_sm90<f16, float>({Form::tn, 264, 64, 40, 0, 0, true, 1, 1.0F, false, without}, Tile90::m256n192);
      check_sm90<bf16, bf16>({Form::nt, 150, 328, 72, 0, 0, true, 1, 1.0F, false, without}, Tile90::m128n256);
    }
  });
}

TEST_CASE("cuda gemm_sm90: both GELUs and their derivatives in tiles of 256 x 192, in the form that has a kernel") {
  constexpr unsigned kAdds = kResidual | kAccumulate;
  const auto wide = [](const Case& c) {
    CAPTURE(c.n);
    CAPTURE(c.without);
    for (const Activation activation : {Activation::gelu_tanh, Activation::gelu}) {
      CAPTURE(static_cast<int>(activation));
      Problem<bf16, bf16> problem(c);
      const Epilogues epilogues = epilogues_of(problem.product(activation));
      CHECK((c.derivative ? differentiates(epilogues) : activates(epilogues)));
      check_sm90<bf16, bf16>(c, Tile90::m256n192, activation);
      check_sm90<f16, f16>(c, Tile90::m256n192, activation);
    }
  };
  for (const std::uint64_t seed : {0, 2})
    under_schedule(seed, [&] {
      for (const unsigned without : {kAdds, kAdds | kBias, kAdds | kBefore})
        wide({Form::nt, 264, 200, 72, 0, 0, true, 1, 0.5F, false, without});
      wide({Form::nt, 150, 72, 136, 8, 8, true, 1, 1.0F, false, kAdds});
      wide({Form::nn, 264, 200, 72, 0, 0, true, 1, 0.5F, true, kAdds});
      wide({Form::nn, 70, 328, 72, 0, 0, true, 1, 1.0F, true, kAdds | kBias});
    });
  // Others have no such kernel, and 128 x 256 takes their place.
  const Activation activation = Activation::gelu_tanh;
  check_sm90<bf16, bf16>({Form::tn, 72, 200, 72, 0, 0, true, 1, 1.0F, false, kAdds}, Tile90::m256n192, activation);
  check_sm90<bf16, bf16>({Form::nt, 72, 200, 72, 0, 0, true, 1, 1.0F, true, kAdds}, Tile90::m256n192, activation);
}

TEST_CASE("cuda gemm_sm90: same bits on every run, whatever the schedule") {
  for (const Tile90 tile : {Tile90::automatic, Tile90::m64n64, Tile90::m128n128, Tile90::m128n256, Tile90::m256n192}) {
    Problem<bf16, float> first({Form::nn, 72, 136, 328}), again({Form::nn, 72, 136, 328});
    under_schedule(0, [&] { gemm_sm90(first.product(Activation::none), nullptr, tile); });
    under_schedule(2, [&] { gemm_sm90(again.product(Activation::none), nullptr, tile); });
    for (std::size_t i = 0; i < first.out.size(); ++i) CHECK(first.out.at(i) == again.out.at(i));
  }
}

/// Multiplies with a workspace, which must be asked for once; its size must be what the kernels use, because a Buffer
/// has guarded zones.
template <class T, class Out>
void divided_product(const Gemm<T, Out>& product, Tile90 tile) {
  std::unique_ptr<Buffer<float>> workspace;
  gemm_sm90(product, nullptr, tile, [&](std::int64_t floats) {
    REQUIRE(workspace == nullptr);
    workspace = std::make_unique<Buffer<float>>(static_cast<std::size_t>(floats));
    return workspace->data();
  });
  CHECK(workspace != nullptr);
}

template <class T, class Out>
void check_divided(const Case& c, Tile90 tile, Activation activation = Activation::none) {
  CAPTURE(c.m);
  CAPTURE(c.n);
  CAPTURE(c.k);
  Problem<T, Out> problem(c);
  divided_product(problem.product(activation), tile);
  CHECK(problem.worst(activation) < 1);
}

TEST_CASE("cuda gemm_sm90: tiles divided among blocks, alone and after whole waves, equal f64") {
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    CAPTURE(seed);
    under_schedule(seed, [seed] {
      const Form form = kForms[seed % 3], other = kForms[(seed + 1) % 3];
      check_divided<bf16, float>({form, 72, 40, 1096}, Tile90::m128n128);  // one tile, three sharers
      check_divided<f16, f16>({other, 136, 264, 1992}, Tile90::m128n256);  // four: one wave of three, and one divided
      check_divided<bf16, bf16>({other, 136, 72, 3000}, Tile90::m256n192);
      check_divided<bf16, bf16>({form, 64, 200, 2504, 8, 8}, Tile90::m64n64);
      check_divided<bf16, bf16>({other, 40, 56, 4096, 0, 0, false, 2}, Tile90::m64n64);  // a tile of each product
    });
  }
}

TEST_CASE("cuda gemm_sm90: divided tiles have every epilogue") {
  for (const Activation activation : kActivations) {
    CAPTURE(static_cast<int>(activation));
    check_divided<bf16, float>({Form::nt, 33, 50, 1600, 8, 8, true}, Tile90::m64n64, activation);
    check_divided<f16, f16>({Form::tn, 72, 136, 1603, 0, 0, true, 1, 0.5F, true}, Tile90::m128n256, activation);
  }
}

TEST_CASE("cuda gemm_sm90: divided tiles have the same bits on every run, whatever the schedule") {
  Problem<bf16, float> first({Form::tn, 72, 40, 2000}), again({Form::tn, 72, 40, 2000});
  under_schedule(0, [&] { divided_product(first.product(Activation::none), Tile90::m128n128); });
  under_schedule(2, [&] { divided_product(again.product(Activation::none), Tile90::m128n128); });
  for (std::size_t i = 0; i < first.out.size(); ++i) CHECK(first.out.at(i) == again.out.at(i));
}

TEST_CASE("cuda gemm_sm90: refuses what TMA cannot read, and names the constraint") {
  const auto refusal = [](const Case& c) {
    Problem<bf16, float> problem(c);
    return cuda_test::error_of([&] { gemm_sm90(problem.product(Activation::none)); });
  };
  CHECK(refusal({Form::nt, 16, 16, 70}).find("the pitch of a is 70 elements, 140 bytes") != std::string::npos);
  CHECK(refusal({Form::nn, 16, 20, 64}).find("pad it to 24 elements, or use gemm_sm80") != std::string::npos);
  CHECK(refusal({Form::nn, 16, 16, 64, 0, 1}).find("a begins 2 bytes after a multiple of 16") != std::string::npos);
  CHECK(refusal({Form::nn, 16, 16, 0, 8}).find("k is 0") != std::string::npos);

  Problem<bf16, float> problem({Form::nn, 8, 8, 8, 0, 0, false, 2});
  Gemm<bf16, float> product = problem.product(Activation::none);
  product.b_stride = 60;
  const std::string message = cuda_test::error_of([&] { gemm_sm90(product); });
  CHECK(message.find("the batch stride of b is 60 elements") != std::string::npos);
}

}  // namespace gemm_test
