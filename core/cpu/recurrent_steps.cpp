#include "core/cpu/recurrent_steps.h"

#include <array>

#include "core/cpu/vector_rows.h"

namespace trireme::cpu {
namespace {

// Elements of h worth a thread.
constexpr std::int64_t step_grain = 4096, backward_grain = 16384;

/// Calls body(TypeTag<T>{}, row) for all rows of x [B, H].
template <class Body>
void for_step_rows(const Tensor& x, std::int64_t grain, Body&& body) {
  visit_floating(x.dtype(), "step", [&](auto tag) {
    parallel_for(x.size(0), row_grain(x.size(1), grain), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) body(tag, row);
    });
  });
}

/// Row `row` of x [B, ..], or of part `part` of x [parts, B, H].
template <class T>
T* row_of(const Tensor& x, std::int64_t row) {
  return x.data<T>() + row * x.strides()[0];
}
template <class T>
T* row_of(const Tensor& x, std::int64_t part, std::int64_t row) {
  return x.data<T>() + part * x.strides()[0] + row * x.strides()[1];
}

}  // namespace

void lstm_step(const Tensor& gates, const Tensor& product, const Tensor& c, const Tensor& activated,
               const Tensor& c_next, const Tensor& c_tanh, const Tensor& h_next) {
  const std::int64_t n = c.size(1);
  for_step_rows(c, step_grain, [&](auto tag, std::int64_t row) {
    using T = typename decltype(tag)::type;
    const T *const gate = row_of<T>(gates, row), *const before = row_of<T>(c, row);
    const auto* const of_h = row_of<accumulate_t<T>>(product, row);
    T *const next = row_of<T>(c_next, row), *const h = row_of<T>(h_next, row);
    const bool keeps = activated.defined();
    T* const squashed = keeps ? row_of<T>(c_tanh, row) : nullptr;
    std::array<T*, 4> saved{};
    for (std::size_t k = 0; keeps && k < saved.size(); ++k)
      saved[k] = row_of<T>(activated, static_cast<std::int64_t>(k), row);
    for_parts<T>(n, [&](auto load, auto store) {
      const auto sum = [&](std::int64_t k) { return load(gate + k * n) + load(of_h + k * n); };
      const auto i = sigmoid_approx(sum(0)), f = sigmoid_approx(sum(1)), g = tanh_approx(sum(2)),
                 o = sigmoid_approx(sum(3));
      const auto cell = f * load(before) + i * g, cell_tanh = tanh_approx(cell);
      store(next, cell);
      store(h, o * cell_tanh);
      if (!keeps) return;
      store(saved[0], i);
      store(saved[1], f);
      store(saved[2], g);
      store(saved[3], o);
      store(squashed, cell_tanh);
    });
  });
}

void lstm_step_backward(const LstmStep& step, const Tensor& dh, const Tensor& dh_later, const Tensor& dc,
                        const Tensor& dc_later, const Tensor& dgates) {
  const std::int64_t n = dh.size(1);
  for_step_rows(dh, backward_grain, [&](auto tag, std::int64_t row) {
    using T = typename decltype(tag)::type;
    using A = accumulate_t<T>;
    const T *const before = row_of<T>(step.c, row), *const squashed = row_of<T>(step.c_tanh, row);
    const T* const saved[] = {row_of<T>(step.activated, 0, row), row_of<T>(step.activated, 1, row),
                              row_of<T>(step.activated, 2, row), row_of<T>(step.activated, 3, row)};
    const T *const of_h = row_of<T>(dh, row), *const of_c = row_of<T>(dc, row);
    const A* const h_later = row_of<A>(dh_later, row);
    A* const c_later = row_of<A>(dc_later, row);
    T* const of_gates = row_of<T>(dgates, row);
    for_parts<T>(n, [&](auto load, auto store) {
      const auto i = load(saved[0]), f = load(saved[1]), g = load(saved[2]), o = load(saved[3]), t = load(squashed);
      const auto h = load(of_h) + load(h_later), c = load(of_c) + load(c_later) + h * o * (1 - t * t);
      store(of_gates, c * g * i * (1 - i));
      store(of_gates + n, c * load(before) * f * (1 - f));
      store(of_gates + 2 * n, c * i * (1 - g * g));
      store(of_gates + 3 * n, h * t * o * (1 - o));
      store(c_later, c * f);
    });
  });
}

void gru_step(const Tensor& inputs, const Tensor& b, const Tensor& h, const Tensor& reset_update, const Tensor& n,
              const Tensor& h_next) {
  const std::int64_t width = h.size(1);
  for_step_rows(h, step_grain, [&](auto tag, std::int64_t row) {
    using T = typename decltype(tag)::type;
    const T *const input = row_of<T>(inputs, row), *const of_h = row_of<T>(b, row), *const last = row_of<T>(h, row);
    T *const r = row_of<T>(reset_update, 0, row), *const z = row_of<T>(reset_update, 1, row),
             *const candidate = row_of<T>(n, row), *const next = row_of<T>(h_next, row);
    for_parts<T>(width, [&](auto load, auto store) {
      const auto reset = sigmoid_approx(load(input) + load(of_h)),
                 update = sigmoid_approx(load(input + width) + load(of_h + width)),
                 state = tanh_approx(load(input + 2 * width) + reset * load(of_h + 2 * width));
      store(r, reset);
      store(z, update);
      store(candidate, state);
      store(next, state + update * (load(last) - state));
    });
  });
}

void gru_step_backward(const GruStep& step, const Tensor& dh, const Tensor& dh_later, const Tensor& d) {
  const std::int64_t width = dh.size(1);
  for_step_rows(dh, backward_grain, [&](auto tag, std::int64_t row) {
    using T = typename decltype(tag)::type;
    const T *const b2 = row_of<T>(step.b, row) + 2 * width, *const last = row_of<T>(step.h, row),
                   *const reset = row_of<T>(step.reset_update, 0, row),
                   *const update = row_of<T>(step.reset_update, 1, row), *const candidate = row_of<T>(step.n, row),
                   *const of_h = row_of<T>(dh, row);
    auto* const later = row_of<accumulate_t<T>>(dh_later, row);
    T* const to = row_of<T>(d, row);
    for_parts<T>(width, [&](auto load, auto store) {
      const auto r = load(reset), z = load(update), n = load(candidate), h = load(of_h) + load(later);
      const auto da2 = h * (1 - z) * (1 - n * n);
      store(to, da2 * load(b2) * r * (1 - r));
      store(to + width, h * (load(last) - n) * z * (1 - z));
      store(to + 2 * width, da2 * r);
      store(to + 3 * width, da2);
      store(later, h * z);
    });
  });
}

}  // namespace trireme::cpu
