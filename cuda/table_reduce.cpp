// Reductions of the kernel table, by cuda/kernels/reduce.cu and cumsum.cu.
#include <algorithm>
#include <vector>

#include "cuda/kernels/cumsum.h"
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

void cumsum(const Tensor& x, bool reverse, Tensor& y) {
  constexpr const char* entry = __func__;
  visit_training(entry, x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    cumsum<T>(dense<T>(entry, x), dense<T>(entry, y), x.size(0), x.size(1), x.size(2), reverse, stream());
  });
}

void squares_to(std::span<const Tensor> xs, Tensor& sum) {
  constexpr const char* entry = __func__;
  std::vector<SquaresOf> list;
  for (const Tensor& x : xs) {
    visit_floating(x.dtype(), entry, [&](auto tag) {
      list.push_back({dense<typename decltype(tag)::type>(entry, x), x.count(), x.dtype()});
    });
  }
  const Tensor partials = workspace({squares_partials(list)}, DType::f64);
  sum_squares(list, dense<double>(entry, partials), dense<double>(entry, sum), stream());
}

ExactSum sum_squares(std::span<const Tensor> xs) {
  ExactSum exact;
  if (std::all_of(xs.begin(), xs.end(), [](const Tensor& x) { return x.count() == 0; })) return exact;
  Tensor sum = workspace({1}, DType::f64);
  squares_to(xs, sum);
  exact.add(sum.item());
  return exact;
}

}  // namespace trireme::cuda
