#include "core/cpu/row_norm.h"

#include <cmath>
#include <tuple>
#include <utility>
#include <vector>

#include "core/cpu/loops.h"

namespace trireme::cpu {
namespace {

constexpr std::int64_t row_norm_grain = 1 << 14;  // elements worth a thread

/// Calls body(TypeTag<T>{}, row, offset of its first element, elements) for all rows of x.
template <class Body>
void for_norm_rows(const Tensor& x, Body&& body) {
  const std::int64_t columns = x.size(1);
  visit_floating(x.dtype(), "norm", [&](auto tag) {
    parallel_for(x.size(0), row_grain(columns, row_norm_grain), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) body(tag, row, row * columns, columns);
    });
  });
}

/// The sums of dy and of dy (x - middle) over a row.
template <class T, class A = accumulate_t<T>>
std::pair<A, A> sum_and_product(const T* dy, const T* x, A middle, std::int64_t n) {
  return sums_of<A>(
      n, [](auto d, auto) { return d; }, [middle](auto d, auto v) { return d * (v - middle); }, dy, x);
}

}  // namespace

void row_sums(const Tensor& x, Tensor& sums) {
  const Tensor to = sums.detach();
  sums.mark_written();
  for_norm_rows(x, [&x, &to](auto tag, std::int64_t row, std::int64_t at, std::int64_t n) {
    using T = typename decltype(tag)::type;
    to.data<accumulate_t<T>>()[row] = sum(x.data<T>() + at, n);
  });
}

void row_squares(const Tensor& x, const Tensor& centre, Tensor& squares) {
  const Tensor to = squares.detach();
  squares.mark_written();
  for_norm_rows(x, [&](auto tag, std::int64_t row, std::int64_t at, std::int64_t n) {
    using T = typename decltype(tag)::type;
    using A = accumulate_t<T>;
    const A middle = centre.data<A>()[row];
    to.data<A>()[row] = sum_of<A>(
        n, [middle](auto v) { return (v - middle) * (v - middle); }, x.data<T>() + at);
  });
}

void row_products(const Tensor& dy, const Tensor& x, const Tensor& centre, Tensor& sums, Tensor& products) {
  const Tensor to_sums = sums.detach(), to_products = products.detach();
  sums.mark_written();
  products.mark_written();
  for_norm_rows(x, [&](auto tag, std::int64_t row, std::int64_t at, std::int64_t n) {
    using T = typename decltype(tag)::type;
    using A = accumulate_t<T>;
    const A middle = centre.data<A>()[row];
    std::tie(to_sums.data<A>()[row], to_products.data<A>()[row]) =
        sum_and_product(dy.data<T>() + at, x.data<T>() + at, middle, n);
  });
}

void scale_rows(const Tensor& x, const Tensor& centre, const Tensor& factor, const Tensor& shift, Tensor& y) {
  const Tensor to = y.detach();
  y.mark_written();
  for_norm_rows(x, [&](auto tag, std::int64_t row, std::int64_t at, std::int64_t n) {
    using T = typename decltype(tag)::type;
    using A = accumulate_t<T>;
    const A middle = centre.data<A>()[row], a = factor.data<A>()[row], b = shift.data<A>()[row];
    map<A>(
        n, [=](A v) { return (v - middle) * a + b; }, to.data<T>() + at, x.data<T>() + at);
  });
}

void combine_rows(const Tensor& dy, const Tensor& x, const Tensor& centre, const Tensor& a, const Tensor& b,
                  const Tensor& c, Tensor& dx) {
  const Tensor to = dx.detach();
  dx.mark_written();
  for_norm_rows(x, [&](auto tag, std::int64_t row, std::int64_t at, std::int64_t n) {
    using T = typename decltype(tag)::type;
    using A = accumulate_t<T>;
    const A middle = centre.data<A>()[row], of_dy = a.data<A>()[row], of_x = b.data<A>()[row], more = c.data<A>()[row];
    map<A>(
        n, [=](A d, A v) { return d * of_dy + (v - middle) * of_x + more; }, to.data<T>() + at, dy.data<T>() + at,
        x.data<T>() + at);
  });
}

namespace {

/// a b, rounded: the compiler may not add to it in the same instruction. The operations of a group then round like
/// those that other devices do one after the other.
template <class A>
[[gnu::noinline]] A product(A a, A b) {
  return a * b;
}

/// Calls body(TypeTag<T>{}, group, numbers) for all groups; numbers: `count` numbers in acc for the body's use.
template <class Body>
void for_groups(const Tensor& x, std::int64_t each, std::int64_t count, Body&& body) {
  visit_floating(x.dtype(), "group_norm", [&](auto tag) {
    using A = accumulate_t<typename decltype(tag)::type>;
    parallel_for(x.size(0) / each, row_grain(each * x.size(1), row_norm_grain),
                 [&](std::int64_t begin, std::int64_t end) {
                   std::vector<A> numbers(static_cast<std::size_t>(count));
                   for (std::int64_t group = begin; group < end; ++group) body(tag, group, numbers.data());
                 });
  });
}

}  // namespace

void group_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, std::int64_t each, double eps, Tensor& y,
                Tensor& mean, Tensor& rstd) {
  const Tensor to_y = y.detach(), to_mean = mean.detach(), to_rstd = rstd.detach();
  for (Tensor* written : {&y, &mean, &rstd}) written->mark_written();
  const std::int64_t n = x.size(1), channels = gamma.size(0);
  for_groups(x, each, each, [&](auto tag, std::int64_t group, auto* numbers) {
    using T = typename decltype(tag)::type;
    using A = accumulate_t<T>;
    const T* const from = x.data<T>() + group * each * n;
    const auto one_over_size = static_cast<A>(1 / static_cast<double>(each * n));
    for (std::int64_t r = 0; r < each; ++r) numbers[r] = sum(from + r * n, n);
    const A middle = product(sum(numbers, each), one_over_size);
    for (std::int64_t r = 0; r < each; ++r)
      numbers[r] = sum_of<A>(
          n, [middle](auto v) { return (v - middle) * (v - middle); }, from + r * n);
    const A variance = product(sum(numbers, each), one_over_size),
            scale = 1 / std::sqrt(variance + static_cast<A>(eps));
    to_mean.data<A>()[group] = middle;
    to_rstd.data<A>()[group] = scale;
    for (std::int64_t r = 0; r < each; ++r) {
      const std::int64_t row = group * each + r, channel = row % channels;
      const A a = scale * gamma.data<A>()[channel], b = beta.data<A>()[channel];
      map<A>(
          n, [=](A v) { return (v - middle) * a + b; }, to_y.data<T>() + row * n, from + r * n);
    }
  });
}

void group_norm_backward(const Tensor& dy, const Tensor& x, const Tensor& gamma, const Tensor& mean, const Tensor& rstd,
                         std::int64_t each, Tensor& dx, Tensor& sums, Tensor& products) {
  const Tensor to_dx = dx.detach(), to_sums = sums.detach(), to_products = products.detach();
  for (Tensor* written : {&dx, &sums, &products}) written->mark_written();
  const std::int64_t n = x.size(1), channels = gamma.size(0);
  for_groups(x, each, 2 * each, [&](auto tag, std::int64_t group, auto* numbers) {
    using T = typename decltype(tag)::type;
    using A = accumulate_t<T>;
    const std::int64_t first = group * each;
    const T *const of_y = dy.data<T>() + first * n, *const from = x.data<T>() + first * n;
    const A middle = mean.data<A>()[group], scale = rstd.data<A>()[group];
    const auto one_over_size = static_cast<A>(1 / static_cast<double>(each * n));
    const A* const gain = gamma.data<A>() + first % channels;
    for (std::int64_t r = 0; r < each; ++r) {
      const auto [row_sum, row_product] = sum_and_product(of_y + r * n, from + r * n, middle, n);
      to_sums.data<A>()[first + r] = row_sum;
      to_products.data<A>()[first + r] = row_product;
      numbers[r] = row_sum * gain[r];
      numbers[each + r] = row_product * gain[r];
    }
    const A mean_e = product(sum(numbers, each), one_over_size),
            mean_en = product(sum(numbers + each, each), one_over_size) * scale;
    const A of_x = -(scale * scale * mean_en), more = -(scale * mean_e);
    for (std::int64_t r = 0; r < each; ++r) {
      const A of_dy = scale * gain[r];
      map<A>(
          n, [=](A d, A v) { return d * of_dy + (v - middle) * of_x + more; }, to_dx.data<T>() + (first + r) * n,
          of_y + r * n, from + r * n);
    }
  });
}

}  // namespace trireme::cpu
