#include "gaussians.h"

#include <trireme/autograd/op.h>

#include <cmath>

using namespace trireme;

namespace {

/// With d = x[n] - center[h] and g = dy[n, h] y[n, h]:
///   dx[n] = -2 sum_h g rate[h] d;  dcenter[h] = 2 sum_n g rate[h] d;  drate[h] = -sum_n g |d|^2
template <class T>
struct Gaussians : Op {
  static constexpr const char* name = "gaussians";
  Tensor x, center, rate, y;

  Tensor forward(const Tensor& input, const Tensor& centers, const Tensor& rates) {
    x = contiguous(input), center = contiguous(centers), rate = contiguous(rates);
    y = Tensor::empty({x.size(0), center.size(0)}, x.dtype());  // [N, H]
    T* to = y.data<T>();
    for_each_pair([&](std::int64_t n, std::int64_t h, const T* xs, const T* cs) {
      T squares = 0;
      for (std::int64_t i = 0; i < x.size(1); ++i) squares += (xs[i] - cs[i]) * (xs[i] - cs[i]);
      to[n * center.size(0) + h] = std::exp(-rate.data<T>()[h] * squares);
    });
    return y;
  }

  Gradients backward(const Tensor& gradient) {
    const Tensor dy = contiguous(gradient);
    Tensor dx = Tensor::zeros(x.shape(), x.dtype()), dcenter = Tensor::zeros(center.shape(), x.dtype()),
           drate = Tensor::zeros(rate.shape(), x.dtype());
    const std::int64_t dims = x.size(1);
    for_each_pair([&](std::int64_t n, std::int64_t h, const T* xs, const T* cs) {
      const std::int64_t at = n * center.size(0) + h;
      const T g = dy.data<T>()[at] * y.data<T>()[at], slope = 2 * g * rate.data<T>()[h];
      for (std::int64_t i = 0; i < dims; ++i) {
        const T d = xs[i] - cs[i];
        dx.data<T>()[n * dims + i] -= slope * d;
        dcenter.data<T>()[h * dims + i] += slope * d;
        drate.data<T>()[h] -= g * d * d;
      }
    });
    return {dx, dcenter, drate};
  }

 private:
  template <class Body>
  void for_each_pair(const Body& body) const {
    const std::int64_t dims = x.size(1);
    for (std::int64_t n = 0; n < x.size(0); ++n)
      for (std::int64_t h = 0; h < center.size(0); ++h) body(n, h, x.data<T>() + n * dims, center.data<T>() + h * dims);
  }
};

}  // namespace

Tensor gaussians(const Tensor& x, const Tensor& center, const Tensor& rate) {
  require(x.dims() == 2 && center.dims() == 2 && rate.dims() == 1 && x.size(1) == center.size(1) &&
              rate.size(0) == center.size(0),
          "gaussians", "expected x [N, D], center [H, D], rate [H], got {}, {}, {}", x.shape(), center.shape(),
          rate.shape());
  require_one_device("gaussians", {&x, &center, &rate});
  require(x.device() == Device::cpu && x.dtype() == center.dtype() && x.dtype() == rate.dtype() &&
              (x.dtype() == DType::f32 || x.dtype() == DType::f64),
          "gaussians", "expected f32 or f64 on the host, got {}, {}, {} on {}", name(x.dtype()), name(center.dtype()),
          name(rate.dtype()), name(x.device()));
  if (x.dtype() == DType::f64) return apply(Gaussians<double>{}, x, center, rate);
  return apply(Gaussians<float>{}, x, center, rate);
}
