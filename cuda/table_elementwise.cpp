// Elementwise entries of the kernel table, by cuda/kernels/elementwise.cu and dropout.cu.
// Read next: cuda/table_rows.cpp.
#include "cuda/kernels/dropout.h"
#include "cuda/kernels/elementwise.h"
#include "cuda/kernels/round_at_random.h"
#include "cuda/table_arguments.h"

namespace trireme::cuda {

void unary(Unary op, const Tensor& x, Tensor& y) {
  constexpr const char* entry = __func__;
  visit_training(entry, x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    unary(op, static_cast<const T*>(dense<T>(entry, x)), dense<T>(entry, y), x.count(), stream());
  });
}

void unary_backward(Unary op, const Tensor& x, const Tensor& dy, Tensor& dx) {
  constexpr const char* entry = __func__;
  visit_training(entry, x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    unary_backward<T>(op, dense<T>(entry, x), dense<T>(entry, dy), dense<T>(entry, dx), x.count(), stream());
  });
}

void binary(Binary op, const Tensor& a, const Tensor& b, Tensor& y) {
  constexpr const char* entry = __func__;
  visit_floating(y.dtype(), entry, [&](auto tag) {
    using T = typename decltype(tag)::type;
    binary<T>(op, address<T>(entry, a), address<T>(entry, b), dense<T>(entry, y),
              strided<2>(y.shape(), {a.strides(), b.strides()}), stream());
  });
}

void where(const Tensor& mask, const Tensor& a, const Tensor& b, Tensor& y) {
  constexpr const char* entry = __func__;
  visit_floating(y.dtype(), entry, [&](auto tag) {
    using T = typename decltype(tag)::type;
    where<T>(address<T>(entry, mask), address<T>(entry, a), address<T>(entry, b), dense<T>(entry, y),
             strided<3>(y.shape(), {mask.strides(), a.strides(), b.strides()}), stream());
  });
}

void axpby(double a, const Tensor& x, double b, Tensor& y) {
  constexpr const char* entry = __func__;
  visit_floating(x.dtype(), entry, [&](auto x_tag) {
    visit_floating(y.dtype(), entry, [&](auto y_tag) {
      using X = typename decltype(x_tag)::type;
      using Y = typename decltype(y_tag)::type;
      using A = accumulate_t<Y>;
      axpby<X, Y>(static_cast<A>(a), dense<X>(entry, x), static_cast<A>(b), dense<Y>(entry, y), y.count(), stream());
    });
  });
}

void multiply_by(const Tensor& factor, Tensor& x) {
  constexpr const char* entry = __func__;
  visit_training(entry, x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    multiply_by(static_cast<const float*>(dense<float>(entry, factor)), dense<T>(entry, x), x.count(), stream());
  });
}

void dropout(const Tensor& x, double p, std::uint64_t seed, std::uint64_t stream_id, const Rectangle& where,
             Tensor& y) {
  constexpr const char* entry = __func__;
  const DropoutPlace place = dropout_place(y.shape(), where.global, where.start);
  visit_training(entry, x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    dropout<T>(dense<T>(entry, x), dense<T>(entry, y), p, seed, stream_id, place, stream());
  });
}

void round_at_random(const Tensor& x, std::uint64_t seed, std::uint64_t stream_id, const Rectangle& where, Tensor& y) {
  constexpr const char* entry = __func__;
  const DropoutPlace place = dropout_place(y.shape(), where.global, where.start);
  round_at_random(dense<float>(entry, x), dense<bf16>(entry, y), seed, stream_id, place, stream());
}

void swiglu(const Tensor& x, Tensor& y) {
  constexpr const char* entry = __func__;
  visit_training(entry, x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    swiglu<T>(dense<T>(entry, x), dense<T>(entry, y), x.size(0), x.size(1) / 2, stream());
  });
}

void swiglu_backward(const Tensor& x, const Tensor& dy, Tensor& dx) {
  constexpr const char* entry = __func__;
  visit_training(entry, x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    swiglu_backward<T>(dense<T>(entry, x), dense<T>(entry, dy), dense<T>(entry, dx), x.size(0), x.size(1) / 2,
                       stream());
  });
}

}  // namespace trireme::cuda
