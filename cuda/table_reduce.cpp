// Reductions of the kernel table, by cuda/kernels/reduce.cu.
#include "cuda/kernels/reduce.h"
#include "cuda/table_arguments.h"

namespace trireme::cuda {

void reduce(Reduction op, const Tensor& x, Tensor& y) {
  constexpr const char* entry = "reduce";
  if (y.count() == 0) return;
  const ReducePlan plan = reduce_plan(x.shape(), x.strides(), y.shape());
  visit_floating(x.dtype(), entry, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using A = accumulate_t<T>;
    const Tensor partials = plan.workspace() > 0 ? workspace({plan.workspace()}, dtype_of<A>) : Tensor();
    reduce<T>(op, address<T>(entry, x), dense<T>(entry, y), plan, dense<A>(entry, partials), stream());
  });
}

double sum_squares(const Tensor& x) {
  constexpr const char* entry = "sum_squares";
  if (x.count() == 0) return 0.0;
  const Tensor sums = workspace({(x.count() + kSquaresTile - 1) / kSquaresTile + 1}, DType::f64);  // [tiles + 1]
  visit_floating(x.dtype(), entry, [&](auto tag) {
    using T = typename decltype(tag)::type;
    auto* const total = dense<double>(entry, sums);
    sum_squares<T>(dense<T>(entry, x), x.count(), total + 1, total, stream());
  });
  return view::select(sums, 0, 0).item();
}

}  // namespace trireme::cuda
