// The translation of a row-major product into cuBLASLt's column-major terms. A naive loop computes the translated
// product as the library's documentation defines it; the result must equal the row-major product of gemm.h. Needs no
// toolkit.
#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <vector>

#include "core/random.h"
#include "cuda/libraries/lt_translate.h"
#include "tests/support/largest.h"
#include "tests/support/text.h"

using namespace trireme;
using namespace trireme::cuda;
using testing::contains;
using testing::keep_largest;

namespace cublaslt_problem_test {
namespace {

double gelu_tanh(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::acos(-1.0)) * (x + 0.044715 * x * x * x)));
}
double gelu_tanh_slope(double x) {
  const double root = std::sqrt(2 / std::acos(-1.0)), t = std::tanh(root * (x + 0.044715 * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * root * (1 + 3 * 0.044715 * x * x);
}

template <class T>
double number(T value) {
  return static_cast<double>(static_cast<float>(value));
}

template <class T>
std::vector<T> random_values(std::size_t count, std::uint64_t seed) {
  std::vector<T> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = T(2.0F * static_cast<float>(random_uniform(seed, 1, i)) - 1.0F);
  return values;
}

/// The offset of element (i, j) of matrix q of a batch in column-major memory.
std::int64_t place(const LtMatrix& matrix, int q, std::int64_t i, std::int64_t j) {
  return q * matrix.stride + i + j * matrix.ld;
}

/// d = epilogue(alpha op(a) op(b) + beta c). Writes d and aux.
template <class T, class Out>
void carry_out(const LtCall& call) {
  const LtProblem& p = call.problem;
  const auto* a = static_cast<const T*>(call.a);
  const auto* b = static_cast<const T*>(call.b);
  const auto* c = static_cast<const Out*>(call.c);
  const auto* bias = static_cast<const Out*>(call.bias);
  auto* d = static_cast<Out*>(call.d);
  auto* aux = static_cast<Out*>(call.aux);
  const std::int64_t inner = p.transpose_a ? p.a.rows : p.a.columns;
  REQUIRE(inner == (p.transpose_b ? p.b.columns : p.b.rows));
  REQUIRE(p.d.rows == (p.transpose_a ? p.a.columns : p.a.rows));
  REQUIRE(p.d.columns == (p.transpose_b ? p.b.rows : p.b.columns));
  for (const LtMatrix* m : {&p.a, &p.b, &p.c, &p.d}) REQUIRE(m->ld >= m->rows);  // the library's own condition
  for (int q = 0; q < p.batch; ++q)
    for (std::int64_t j = 0; j < p.d.columns; ++j)
      for (std::int64_t i = 0; i < p.d.rows; ++i) {
        double sum = 0;
        for (std::int64_t l = 0; l < inner; ++l)
          sum += number(a[p.transpose_a ? place(p.a, q, l, i) : place(p.a, q, i, l)]) *
                 number(b[p.transpose_b ? place(p.b, q, j, l) : place(p.b, q, l, j)]);
        double x = call.alpha * sum;
        if (call.beta != 0) x += call.beta * number(c[place(p.c, q, i, j)]);
        if (adds_bias(p.epilogue)) x += number(bias[i]);
        const std::int64_t at = q * p.aux_stride + i + j * p.aux_ld;
        if (p.epilogue == LtEpilogue::dgelu)
          x *= gelu_tanh_slope(number(aux[at]));
        else if (uses_aux(p.epilogue))
          aux[at] = Out(static_cast<float>(x));
        if (p.epilogue >= LtEpilogue::gelu && p.epilogue != LtEpilogue::dgelu) x = gelu_tanh(x);
        d[place(p.d, q, i, j)] = Out(static_cast<float>(x));
      }
}

struct Case {
  Form form;
  int m, n, k, batch = 1, extra = 0;
  bool bias = false, gelu = false, store = false, residual = false, accumulate = false, shared_b = false;
  bool derivative = false;
  float alpha = 1;
};

/// Operands of a case, with 1, 2 and 3 times `extra` elements between the rows of a, b and c, and eight between the
/// matrices of a batch.
template <class T, class Out>
struct Operands {
  Case c;
  int a_rows, b_rows;
  std::int64_t a_pitch, b_pitch, c_pitch;
  std::vector<T> a, b, bias, residual;
  std::vector<Out> out, start;
  std::vector<T> before;

  static std::size_t size(std::int64_t rows, std::int64_t pitch, int batch) {
    return static_cast<std::size_t>((rows * pitch + 8) * batch);
  }
  explicit Operands(const Case& c_)
      : c(c_),
        a_rows(c.form == Form::tn ? c.k : c.m),
        b_rows(c.form == Form::nt ? c.n : c.k),
        a_pitch((c.form == Form::tn ? c.m : c.k) + c.extra),
        b_pitch((c.form == Form::nt ? c.k : c.n) + 2 * c.extra),
        c_pitch(c.n + 3 * c.extra),
        a(random_values<T>(size(a_rows, a_pitch, c.batch), 1)),
        b(random_values<T>(size(b_rows, b_pitch, c.batch), 2)),
        bias(random_values<T>(static_cast<std::size_t>(c.n), 3)),
        residual(random_values<T>(size(c.m, c_pitch, c.batch), 4)),
        out(random_values<Out>(residual.size(), 5)),
        start(out),
        before(random_values<T>(residual.size(), 6)) {}

  Gemm<T, Out> product() {
    Gemm<T, Out> p{c.form, c.m, c.n, c.k, a.data(), a_pitch, b.data(), b_pitch, out.data(), c_pitch};
    p.batch = c.batch;
    p.a_stride = a_rows * a_pitch + 8;
    p.b_stride = c.shared_b ? 0 : b_rows * b_pitch + 8;
    p.c_stride = c.m * c_pitch + 8;
    if (c.bias) p.epilogue.bias = bias.data();
    if (c.gelu) p.epilogue.activation = Activation::gelu_tanh;
    p.epilogue.derivative = c.derivative;
    if (c.store || c.derivative) p.epilogue.pre_activation = before.data();
    if (c.residual) p.epilogue.residual = residual.data();
    p.epilogue.accumulate = c.accumulate;
    p.epilogue.alpha = c.alpha;
    return p;
  }

  /// Compares `out` with the row-major product, element by element.
  void check(const Gemm<T, Out>& p) const {
    const double unit = std::is_same_v<Out, float> ? 1e-6 : std::is_same_v<Out, bf16> ? 1.0 / 256 : 1.0 / 2048;
    double worst = 0;
    std::vector<bool> written(out.size());
    for (int q = 0; q < c.batch; ++q)
      for (int i = 0; i < c.m; ++i)
        for (int j = 0; j < c.n; ++j) {
          double x = 0;
          for (int l = 0; l < c.k; ++l)
            x += number(p.a[q * p.a_stride + (c.form == Form::tn ? l * a_pitch + i : i * a_pitch + l)]) *
                 number(p.b[q * p.b_stride + (c.form == Form::nt ? j * b_pitch + l : l * b_pitch + j)]);
          x *= static_cast<double>(c.alpha);
          const auto at = static_cast<std::size_t>(q * p.c_stride + i * c_pitch + j);
          if (c.bias) x += number(bias[static_cast<std::size_t>(j)]);
          const auto error = [&](double got) { return std::abs(got - x) / (unit * std::abs(x) + 1e-6); };
          if (c.store) keep_largest(worst, error(number(before[at])));
          if (c.gelu) x = c.derivative ? x * gelu_tanh_slope(number(before[at])) : gelu_tanh(x);
          if (c.residual) x += number(residual[at]);
          if (c.accumulate) x += number(start[at]);
          keep_largest(worst, error(number(out[at])));
          written[at] = true;
        }
    CHECK(worst < 1);
    for (std::size_t i = 0; i < out.size(); ++i)
      if (!written[i]) REQUIRE(number(out[i]) == number(start[i]));  // between rows and matrices
  }
};

template <class T, class Out>
void check_case(const Case& c) {
  CAPTURE(static_cast<int>(c.form));
  CAPTURE(c.m);
  CAPTURE(c.n);
  CAPTURE(c.k);
  Operands<T, Out> operands(c);
  const Gemm<T, Out> p = operands.product();
  REQUIRE(cublaslt_cannot(p) == "");
  carry_out<T, Out>(translate(p));
  operands.check(p);
}

/// Why a product like this one, changed by `change`, is refused.
template <class T, class Out, class Change>
std::string refusal(Change&& change) {
  Operands<T, Out> operands({.form = Form::nt, .m = 4, .n = 8, .k = 3, .batch = 2});
  Gemm<T, Out> p = operands.product();
  REQUIRE(cublaslt_cannot(p) == "");
  change(p, operands);
  return cublaslt_cannot(p);
}

}  // namespace

TEST_CASE("cublaslt translation: forms, pitches, batches") {
  for (const Form form : {Form::nn, Form::nt, Form::tn}) {
    check_case<bf16, bf16>({.form = form, .m = 5, .n = 7, .k = 3});
    check_case<bf16, float>({.form = form, .m = 9, .n = 4, .k = 6, .extra = 3});
    check_case<f16, f16>({.form = form, .m = 6, .n = 11, .k = 5, .batch = 3, .extra = 5});
    check_case<f16, float>({.form = form, .m = 3, .n = 2, .k = 8, .batch = 2, .extra = 1, .shared_b = true});
    check_case<bf16, bf16>({.form = form, .m = 1, .n = 7, .k = 4});
    check_case<bf16, bf16>({.form = form, .m = 5, .n = 1, .k = 1, .extra = 2});
  }
}

TEST_CASE("cublaslt translation: epilogues") {
  for (const Form form : {Form::nn, Form::nt, Form::tn}) {
    Case c{.form = form, .m = 6, .n = 8, .k = 5, .batch = 2, .extra = 8};
    c.bias = true;
    check_case<bf16, bf16>(c);
    c.residual = true;
    check_case<bf16, bf16>(c);
    c.bias = false;
    check_case<f16, f16>(c);
    c.residual = false;
    c.accumulate = true;
    c.alpha = 0.75F;
    check_case<bf16, float>(c);
    check_case<f16, f16>(c);
    c.accumulate = false;
    c.gelu = true;
    check_case<bf16, bf16>(c);
    check_case<bf16, float>(c);
    c.store = true;
    check_case<f16, f16>(c);
    c.bias = true;
    check_case<bf16, bf16>(c);
    c.bias = c.store = false;
    c.derivative = true;
    check_case<bf16, bf16>(c);
    check_case<f16, f16>(c);
  }
}

TEST_CASE("cublaslt translation: the key of a plan") {
  Operands<bf16, bf16> operands({.form = Form::nn, .m = 4, .n = 8, .k = 3, .batch = 2});
  Gemm<bf16, bf16> p = operands.product();
  const LtProblem first = translate(p).problem;
  CHECK(translate(p).problem == first);
  ++p.a;  // now aligned to two bytes only
  CHECK(translate(p).problem.b.alignment == 2);
  CHECK(translate(p).problem != first);
  --p.a;
  p.b_stride += 8;
  CHECK(translate(p).problem != first);
  CHECK(lt_alignment(nullptr) == 0);
  CHECK(lt_alignment(reinterpret_cast<const void*>(std::uintptr_t{0x1010})) == 16);
  CHECK(lt_alignment(reinterpret_cast<const void*>(std::uintptr_t{0x10000})) == 256);
  // The pitch of a single row is not used as a leading dimension.
  Operands<bf16, bf16> row({.form = Form::nn, .m = 1, .n = 8, .k = 3});
  Gemm<bf16, bf16> one = row.product();
  one.a_pitch = one.c_pitch = 0;
  CHECK(translate(one).problem.b.ld == 3);
  CHECK(translate(one).problem.d.ld == 8);
}

TEST_CASE("cublaslt: what it cannot do is named") {
  CHECK(contains(refusal<bf16, bf16>([](auto& p, auto&) { p.epilogue.activation = Activation::gelu; }), "tanh"));
  CHECK(contains(refusal<bf16, bf16>([](auto& p, auto&) { p.k = 0; }), "K = 0"));
  CHECK(contains(refusal<bf16, float>([](auto& p, auto& o) { p.epilogue.bias = o.bias.data(); }), "bias"));
  CHECK(contains(refusal<bf16, float>([](auto& p, auto& o) { p.epilogue.residual = o.residual.data(); }), "residual"));
  CHECK(contains(refusal<bf16, bf16>([](auto& p, auto& o) {
                   p.epilogue.residual = o.residual.data();
                   p.epilogue.accumulate = true;
                 }),
                 "one matrix"));
  CHECK(contains(refusal<bf16, bf16>([](auto& p, auto& o) {
                   p.epilogue.residual = o.residual.data();
                   p.epilogue.activation = Activation::gelu_tanh;
                 }),
                 "before it"));
  CHECK(contains(refusal<bf16, bf16>([](auto& p, auto& o) { p.epilogue.pre_activation = o.before.data(); }),
                 "without an activation"));
  CHECK(contains(refusal<bf16, bf16>([](auto& p, auto& o) {
                   p.epilogue.pre_activation = o.before.data();
                   p.epilogue.activation = Activation::gelu_tanh;
                   p.c_pitch = 9;
                 }),
                 "multiples of 8"));
  CHECK(contains(refusal<bf16, bf16>([](auto& p, auto& o) {
                   p.epilogue.pre_activation = o.before.data();
                   p.epilogue.activation = Activation::gelu_tanh;
                   p.epilogue.derivative = true;
                   p.epilogue.bias = o.bias.data();
                 }),
                 "adds none there"));
  CHECK(contains(refusal<bf16, bf16>([](auto& p, auto&) {
                   p.epilogue.activation = Activation::gelu_tanh;
                   p.epilogue.derivative = true;
                 }),
                 "derivative without"));
  CHECK(contains(refusal<bf16, bf16>([](auto& p, auto&) { p.epilogue.activation = Activation::silu; }), "GELU"));
  CHECK(contains(refusal<bf16, bf16>([](auto& p, auto&) { p.a_pitch = 0; }), "overlap"));
}

}  // namespace cublaslt_problem_test
