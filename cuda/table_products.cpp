// Matrix products of the kernel table: what core/kernels.h allows, as launches of what cuda/kernels/gemm.h and
// gemm_f32.h take. Leading dims with a common step become the batch of a launch; others take one launch each. If the
// rows of a and c continue evenly and b stays the same, as in a layer, all becomes one taller product. If both operands
// are transposed, one of them is first copied to a workspace. Row sums come from the product where its kernel gives
// them, and otherwise from reduce.
// Read next: cuda/implementations.h, which chooses the kernel.
#include <algorithm>
#include <optional>
#include <vector>

#include "core/gemm_steps.h"
#include "cuda/implementations.h"
#include "cuda/kernels/gemm.h"
#include "cuda/kernels/gemm_f32.h"
#include "cuda/table.h"
#include "cuda/table_arguments.h"

namespace trireme::cuda {
namespace {

constexpr const char* kEntry = "gemm";
constexpr std::int64_t kMostBatch = 65535;  ///< blocks along z of a launch

/// A matrix in memory: rows `pitch` elements apart, or, transposed, columns.
struct Operand {
  bool transposed;
  std::int64_t pitch;

  explicit Operand(const Tensor& x) {
    const std::int64_t row = x.strides()[-2], column = x.strides()[-1];
    transposed = column != 1 && x.size(-1) != 1;
    pitch = transposed ? column : row;
    require(!transposed || row == 1 || x.size(-2) == 1, kEntry, "{} with strides {}; expected 1 as one of the last two",
            x.shape(), x.strides());
  }
};

/// A run of leading dims of a, b and c, with its steps.
struct Run {
  std::int64_t count, a, b, c;
  bool continued_by(const Run& outer) const {
    return outer.a == a * count && outer.b == b * count && outer.c == c * count;
  }
};

/// The leading dims, innermost first; omits dims of 1, and merges neighbours if all three tensors step evenly.
std::vector<Run> leading_runs(const Tensor& a, const Tensor& b, const Tensor& c) {
  std::vector<Run> runs;
  for (int dim = c.dims() - 3; dim >= 0; --dim) {
    if (c.size(dim) == 1) continue;
    const Run next = {c.size(dim), a.strides()[dim], b.strides()[dim], c.strides()[dim]};
    if (!runs.empty() && runs.back().continued_by(next))
      runs.back().count *= next.count;
    else
      runs.push_back(next);
  }
  return runs;
}

/// A dense copy of x; leading dims with stride 0 in x keep stride 0.
Tensor dense_copy(const Tensor& x) {
  Shape shape = x.shape();
  for (int dim = 0; dim < x.dims() - 2; ++dim)
    if (x.strides()[dim] == 0) shape[dim] = 1;
  Tensor made = Tensor::empty(shape, x.dtype(), Device::cuda);
  cuda::copy(x.as_strided(shape, x.strides(), 0), made);
  return view::expand(made, x.shape());
}

/// The launches that make up one gemm.
struct Plan {
  Operand left, right;
  Form form;
  std::int64_t m, n, k, c_pitch;
  std::vector<Run> runs;

  Plan(const Tensor& a, const Tensor& b, const Tensor& c)
      : left(a),
        right(b),
        form(left.transposed    ? Form::tn
             : right.transposed ? Form::nt
                                : Form::nn),
        m(c.size(-2)),
        n(c.size(-1)),
        k(a.size(-1)),
        c_pitch(c.strides()[-2]),
        runs(leading_runs(a, b, c)) {
    require(c.strides()[-1] == 1 || c.size(-1) == 1, kEntry, "c with strides {}; expected 1 as the last", c.strides());
    if (!runs.empty() && rows_continue(runs.front())) {
      m *= runs.front().count;
      runs.erase(runs.begin());
    }
    if (runs.empty()) runs.push_back({1, 0, 0, 0});
  }
  bool rows_continue(const Run& run) const {
    return !left.transposed && run.b == 0 && run.a == m * left.pitch && run.c == m * c_pitch &&
           m * run.count <= std::numeric_limits<int>::max();
  }

  /// Sets everything except pointers and batch.
  template <class P>
  P product() const {
    P p{};
    p.form = form;
    p.m = size(kEntry, m);
    p.n = size(kEntry, n);
    p.k = size(kEntry, k);
    p.a_pitch = left.pitch;
    p.b_pitch = right.pitch;
    p.c_pitch = c_pitch;
    p.a_stride = runs.front().a;
    p.b_stride = runs.front().b;
    p.c_stride = runs.front().c;
    return p;
  }

  /// Calls launch(count, a, b, c) for every batch, with offsets of its first matrices.
  template <class F>
  void for_each_batch(F&& launch) const {
    std::int64_t outer = 1;
    for (std::size_t i = 1; i < runs.size(); ++i) outer *= runs[i].count;
    for (std::int64_t index = 0; index < outer; ++index) {
      std::int64_t rest = index, a = 0, b = 0, c = 0;
      for (std::size_t i = 1; i < runs.size(); ++i) {
        const std::int64_t at = rest % runs[i].count;
        rest /= runs[i].count;
        a += at * runs[i].a;
        b += at * runs[i].b;
        c += at * runs[i].c;
      }
      const Run& inner = runs.front();
      for (std::int64_t first = 0; first < inner.count; first += kMostBatch)
        launch(static_cast<int>(std::min(kMostBatch, inner.count - first)), a + first * inner.a, b + first * inner.b,
               c + first * inner.c);
    }
  }
};

void multiply_f32(const Tensor& a, const Tensor& b, Tensor& c, const GemmOptions& options) {
  const Plan plan(a, b, c);
  auto p = plan.product<GemmF32>();
  p.alpha = static_cast<float>(options.alpha);
  p.beta = static_cast<float>(options.beta);
  p.bias = dense<float>(kEntry, options.bias);
  plan.for_each_batch([&](int count, std::int64_t a_at, std::int64_t b_at, std::int64_t c_at) {
    p.batch = count;
    p.a = address<float>(kEntry, a) + a_at;
    p.b = address<float>(kEntry, b) + b_at;
    p.c = address<float>(kEntry, c) + c_at;
    gemm_f32(p, stream());
  });
}

/// The activation as the 16-bit kernels know it, if they do.
std::optional<Activation> activation_of(Unary op) {
  if (op == Unary::gelu_tanh) return Activation::gelu_tanh;
  if (op == Unary::gelu) return Activation::gelu;
  if (op == Unary::silu) return Activation::silu;
  return std::nullopt;
}

/// c = alpha a b + bias (+ c if beta = 1), the rest of the epilogue and the row sums: what the 16-bit kernels do in one
/// pass. It is the first product of a batch, with the batch of 1.
template <class T, class Out>
Gemm<T, Out> first_product(const Plan& plan, const Tensor& a, const Tensor& b, const Tensor& c,
                           const GemmOptions& options) {
  auto p = plan.product<Gemm<T, Out>>();
  p.a = address<T>(kEntry, a);
  p.b = address<T>(kEntry, b);
  p.c = address<Out>(kEntry, c);
  p.epilogue.alpha = static_cast<float>(options.alpha);
  p.epilogue.bias = dense<T>(kEntry, options.bias);
  p.epilogue.accumulate = options.beta == 1;
  if (options.activation) p.epilogue.activation = activation_of(*options.activation).value();
  p.epilogue.derivative = options.derivative;
  p.epilogue.pre_activation = dense<T>(kEntry, options.pre_activation);
  p.epilogue.residual = dense<T>(kEntry, options.residual);
  p.row_sums = dense<float>(kEntry, options.row_sums);
  return p;
}

template <class T, class Out>
void multiply(const Tensor& a, const Tensor& b, Tensor& c, const GemmOptions& options) {
  const Plan plan(a, b, c);
  const Gemm<T, Out> first = first_product<T, Out>(plan, a, b, c, options);
  plan.for_each_batch([&](int count, std::int64_t a_at, std::int64_t b_at, std::int64_t c_at) {
    Gemm<T, Out> p = first;
    p.batch = count;
    p.a += a_at;
    p.b += b_at;
    p.c += c_at;
    if (p.epilogue.pre_activation != nullptr) p.epilogue.pre_activation += c_at;
    if (p.epilogue.residual != nullptr) p.epilogue.residual += c_at;
    implementation_for(p).run(p, stream());
  });
}

/// True if the selected implementation supports this epilogue. cuBLASLt does not know every activation.
template <class T>
bool takes_epilogue(const Tensor& a, const Tensor& b, const Tensor& c, const GemmOptions& options) {
  if (options.activation && !activation_of(*options.activation)) return false;
  return implementation_taking(first_product<T, T>(Plan(a, b, c), a, b, c, options)) != nullptr;
}

/// True if the selected implementation gives row sums with this product.
bool gives_row_sums(const Tensor& a, const Tensor& b, const Tensor& c, const GemmOptions& options) {
  if (has_epilogue(options) || (options.beta != 0 && options.beta != 1) || c.count() == 0) return false;
  if (size_of(a.dtype()) != 2 || c.dtype() != DType::f32 || Operand(b).transposed) return false;
  bool gives = false;
  visit_training(kEntry, a.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (!std::is_same_v<T, float>)
      gives = implementation_taking(first_product<T, float>(Plan(a, b, c), a, b, c, options)) != nullptr;
  });
  return gives;
}

/// c = sum + beta c in f32, with one rounding; sum is dense f32.
void add_to(Tensor& sum, double beta, Tensor& c) {
  Tensor before = Tensor::empty(c.shape(), DType::f32, Device::cuda);
  cuda::copy(c, before);
  axpby(beta, before, 1, sum);
  cuda::copy(sum, c);
}

}  // namespace

void gemm(const Tensor& a, const Tensor& b, Tensor& c, const GemmOptions& options) {
  require_one_device(kEntry, {&c, &a, &b});
  if (has_epilogue(options)) check_epilogue(a, c, options);
  check_row_sums(a, options);
  if (options.row_sums.defined() && !gives_row_sums(a, b, c, options))
    return gemm(a, b, c, row_sums_apart(kernel_table(), a, options));
  if (c.count() == 0) return;
  const MemoryScope scope(MemoryCategory::workspace);
  if (Operand(a).transposed && Operand(b).transposed)
    return a.count() < b.count() ? gemm(dense_copy(a), b, c, options) : gemm(a, dense_copy(b), c, options);
  visit_training(kEntry, a.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (std::is_same_v<T, float>) {
      if (has_epilogue(options)) return gemm_in_steps(kernel_table(), a, b, c, options);
      multiply_f32(a, b, c, options);
    } else if (has_epilogue(options) && !takes_epilogue<T>(a, b, c, options)) {
      gemm_in_steps(kernel_table(), a, b, c, options);
    } else if (options.beta != 0 && options.beta != 1) {
      Tensor sum = Tensor::empty(c.shape(), DType::f32, Device::cuda);
      multiply<T, float>(a, b, sum, {.alpha = options.alpha, .bias = options.bias});
      add_to(sum, options.beta, c);
    } else if (c.dtype() == DType::f32) {
      multiply<T, float>(a, b, c, options);
    } else {
      multiply<T, T>(a, b, c, options);
    }
  });
}

}  // namespace trireme::cuda
