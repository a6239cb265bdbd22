// Reductions of the kernel table, by cuda/kernels/reduce.cu.
#include <vector>

#include "cuda/kernels/reduce.h"
#include "cuda/table_arguments.h"

namespace trireme::cuda {

void reduce(Reduction op, const Tensor& x, Tensor& y) {
  constexpr const char* entry = __func__;
  if (y.count() == 0) return;
  const ReducePlan plan = reduce_plan(x.shape(), x.strides(), y.shape());
  visit_floating(x.dtype(), entry, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using A = accumulate_t<T>;
    const Tensor partials = plan.workspace() > 0 ? workspace({plan.workspace()}, dtype_of<A>) : Tensor();
    const auto reduce_into = [&](auto* to) {
      reduce(op, address<T>(entry, x), to, plan, dense<A>(entry, partials), stream());
    };
    if (y.dtype() == dtype_of<A>) return reduce_into(dense<A>(entry, y));
    reduce_into(dense<T>(entry, y));
  });
}

ExactSum sum_squares(std::span<const Tensor> xs) {
  constexpr const char* entry = __func__;
  std::vector<SquaresOf> list;
  for (const Tensor& x : xs) {
    visit_floating(x.dtype(), entry, [&](auto tag) {
      list.push_back({dense<typename decltype(tag)::type>(entry, x), x.count(), x.dtype()});
    });
  }
  const std::int64_t partials = squares_partials(list);
  ExactSum sum;
  if (partials == 0) return sum;
  const Tensor sums = workspace({1 + partials}, DType::f64);
  auto* const total = dense<double>(entry, sums);
  sum_squares(list, total + 1, total, stream());
  sum.add(view::select(sums, 0, 0).item());
  return sum;
}

}  // namespace trireme::cuda
