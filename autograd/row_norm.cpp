#include "autograd/row_norm.h"

#include "autograd/ops.h"
#include "autograd/support.h"
#include "core/cpu/channel_kernels.h"

namespace trireme {
namespace {

Tensor numbers_of_rows(const Tensor& x) { return Tensor::empty({x.size(0)}, accumulate_dtype(x), x.device()); }
Tensor wide_rows(const Tensor& x) { return cast(x, accumulate_dtype(x)); }
Tensor as_column(const Tensor& numbers) { return view::reshape(numbers, {numbers.count(), 1}); }
bool on_cpu(const Tensor& x) { return x.device() == Device::cpu; }

}  // namespace

Tensor channel_rows(const Tensor& x) {
  const std::int64_t rows = x.size(0) * x.size(1);
  return view::reshape(contiguous(x), {rows, rows == 0 ? 0 : x.count() / rows});
}

Tensor for_each_row(const Tensor& numbers, std::int64_t samples, std::int64_t channels) {
  const std::int64_t groups = numbers.size(-1);
  const Tensor some = view::reshape(numbers, {numbers.dims() == 1 ? 1 : samples, groups, 1});
  return view::reshape(contiguous(view::expand(some, {samples, groups, channels / groups})), {samples * channels});
}

Tensor row_sums(const Tensor& x) {
  Tensor sums = numbers_of_rows(x);
  if (on_cpu(x)) {
    cpu::channel_kernels().row_sums(x, sums);
  } else {
    Tensor column = as_column(sums);
    kernels(x.device()).reduce(Reduction::sum, x, column);
  }
  return sums;
}

Tensor row_squares(const Tensor& x, const Tensor& centre) {
  if (!on_cpu(x)) return by_table::row_squares(x, centre);
  Tensor squares = numbers_of_rows(x);
  cpu::channel_kernels().row_squares(x, centre, squares);
  return squares;
}

std::pair<Tensor, Tensor> row_products(const Tensor& dy, const Tensor& x, const Tensor& centre) {
  if (!on_cpu(x)) return by_table::row_products(dy, x, centre);
  Tensor sums = numbers_of_rows(x), products = numbers_of_rows(x);
  cpu::channel_kernels().row_products(dy, x, centre, sums, products);
  return {sums, products};
}

Tensor scale_rows(const Tensor& x, const Tensor& centre, const Tensor& factor, const Tensor& shift) {
  if (!on_cpu(x)) return by_table::scale_rows(x, centre, factor, shift);
  Tensor y = empty_like(x);
  cpu::channel_kernels().scale_rows(x, centre, factor, shift, y);
  return y;
}

Tensor combine_rows(const Tensor& dy, const Tensor& x, const Tensor& centre, const Tensor& a, const Tensor& b,
                    const Tensor& c) {
  if (!on_cpu(x)) return by_table::combine_rows(dy, x, centre, a, b, c);
  Tensor dx = empty_like(x);
  cpu::channel_kernels().combine_rows(dy, x, centre, a, b, c, dx);
  return dx;
}

namespace by_table {

Tensor row_squares(const Tensor& x, const Tensor& centre) {
  return trireme::row_sums(square(wide_rows(x) - as_column(centre)));
}

std::pair<Tensor, Tensor> row_products(const Tensor& dy, const Tensor& x, const Tensor& centre) {
  const Tensor wide = wide_rows(dy);
  return {trireme::row_sums(wide), trireme::row_sums(wide * (wide_rows(x) - as_column(centre)))};
}

Tensor scale_rows(const Tensor& x, const Tensor& centre, const Tensor& factor, const Tensor& shift) {
  return cast((wide_rows(x) - as_column(centre)) * as_column(factor) + as_column(shift), x.dtype());
}

Tensor combine_rows(const Tensor& dy, const Tensor& x, const Tensor& centre, const Tensor& a, const Tensor& b,
                    const Tensor& c) {
  const Tensor of_x = (wide_rows(x) - as_column(centre)) * as_column(b);
  return cast(wide_rows(dy) * as_column(a) + of_x + as_column(c), x.dtype());
}

}  // namespace by_table
}  // namespace trireme
