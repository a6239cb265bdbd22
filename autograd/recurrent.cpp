// Both operations save what the gates became. On the CPU the elementwise part of a step is one kernel, forward and
// backward (core/cpu/recurrent_steps.h), and what passes from step to step in backward stays in f32 for 16-bit dtypes.
// Other devices compose it. Their backward first computes, for all steps at once, what a step's gradients are
// multiplied by; so a step itself is only a few products, and the product with the weight.
#include "autograd/recurrent.h"

#include <tuple>
#include <utility>

#include "autograd/linear_gradients.h"
#include "autograd/op.h"
#include "autograd/ops.h"
#include "autograd/support.h"
#include "core/cpu/channel_kernels.h"
#include "core/packed_weights.h"

namespace trireme {
namespace {

/// What the two operations share: sizes, the order of the steps, and the gradient of the weight.
struct Steps : Op {
  bool reverse = false;
  bool is_weight = false;
  std::int64_t steps = 0, batch = 0, width = 0;  // T, B, H
  Tensor weight;                                 // [gates * H, H]
  Tensor first;                                  // h0

  void set_sizes(const Tensor& gates, const Tensor& matrix, const Tensor& h0) {
    steps = gates.size(0);
    batch = gates.size(1);
    width = h0.size(1);
    weight = contiguous(matrix);
    is_weight = is_weight && weight.shares_storage_with(matrix);
    first = contiguous(h0);
  }
  /// The time of the n-th step.
  std::int64_t time(std::int64_t n) const { return reverse ? steps - 1 - n : n; }
  /// The states before each step [T, B, H]: `states` shifted by one step, with `initial` in the free place.
  Tensor before(const Tensor& states, const Tensor& initial) const {
    Tensor shifted = empty_like(states);
    Tensor at_start = view::select(shifted, 0, time(0));
    copy(initial, at_start);
    if (steps == 1) return shifted;
    Tensor later = view::slice(shifted, 0, reverse ? 0 : 1, steps - 1);
    copy(view::slice(states, 0, reverse ? 1 : 0, steps - 1), later);
    return shifted;
  }
  /// While it lives, products with the weight, which are all alike, share one packed copy of it. A caller's copies are
  /// used if they may be: of a parameter.
  PackedWeights packed_weight() const { return PackedWeights(!is_weight || PackedWeights::current() == nullptr); }
  /// weight^T as an operand [H, gates * H] of every step. For up to 8 rows, gemm reads a transposed view row by row,
  /// which is best for one product; many products that share a dense copy are about twice as fast. For more rows it
  /// packs the view, once for all steps.
  Tensor transposed_weight() const {
    constexpr std::int64_t few_steps = 8, few_rows = 3, many_rows = 9;
    const Tensor view = view::transpose(weight, 0, 1);
    return steps >= few_steps && batch >= few_rows && batch < many_rows ? clone(view) : view;
  }
  Tensor like_gates(std::initializer_list<std::int64_t> shape) const {
    return Tensor::empty(Shape(shape), first.dtype(), first.device());
  }
  /// Uninitialised memory for sums: f32 for 16-bit dtypes.
  Tensor sums_of(std::initializer_list<std::int64_t> shape) const {
    return Tensor::empty(Shape(shape), accumulate_dtype(first.dtype()), first.device());
  }
  /// Steps whose gates are kept: all for backward, else one, whose place all use.
  std::int64_t kept_steps() const { return needed != 0 ? steps : 1; }
};

/// [B, gates * H] of a step as [gates, B, H]
Tensor by_gate(const Tensor& row, std::int64_t gates, std::int64_t batch, std::int64_t width) {
  return row.as_strided({gates, batch, width}, {width, row.strides()[0], 1}, 0);
}

Tensor one_minus_square(const Tensor& x) { return square(x) * -1.0 + 1.0; }
Tensor sigmoid_slope(const Tensor& s) { return s - square(s); }  // of the sigmoid's value

/// With dh and dc the gradients of h' and c':  dc += dh o (1 - tanh(c')^2);  da0 = dc g i (1 - i),
/// da1 = dc c f (1 - f), da2 = dc i (1 - g^2), da3 = dh tanh(c') o (1 - o);  of the step before: dc f, and da weight
struct LstmSteps : Steps {
  static constexpr const char* name = "lstm_steps";
  Tensor first_cell;  // c0
  Tensor activated;   // [T, 4, B, H]: i, f, g, o
  Tensor states;      // [2, T, B, H]
  Tensor cells_tanh;  // [T, B, H]: tanh(c')

  Tensor forward(const Tensor& gates, const Tensor& matrix, const Tensor& h0, const Tensor& c0) {
    set_sizes(gates, matrix, h0);
    first_cell = contiguous(c0);
    states = like_gates({2, steps, batch, width});
    const bool on_cpu = first.device() == Device::cpu;
    if (needed != 0 || !on_cpu) {
      activated = like_gates({kept_steps(), 4, batch, width});
      cells_tanh = like_gates({kept_steps(), batch, width});
    }
    const Tensor inputs = on_cpu ? contiguous(gates) : clone(gates);            // [T, B, 4 H]
    Tensor product = on_cpu ? sums_of({batch, 4 * width}) : empty_like(first);  // of h and the weight; or of gates
    const PackedWeights packed = packed_weight();
    const Tensor matrix_t = transposed_weight();
    Tensor h = first, c = first_cell;
    for (std::int64_t n = 0; n < steps; ++n) {
      const std::int64_t t = time(n), kept = needed != 0 ? t : 0;
      Tensor input = view::select(inputs, 0, t), all, c_tanh;  // [B, 4 H], [4, B, H], [B, H]
      if (activated.defined()) all = view::select(activated, 0, kept), c_tanh = view::select(cells_tanh, 0, kept);
      Tensor h_next = view::select(view::select(states, 0, 0), 0, t),
             c_next = view::select(view::select(states, 0, 1), 0, t);
      if (on_cpu) {
        kernels(Device::cpu).gemm(h, matrix_t, product, {.b_is_weight = true});
        cpu::channel_kernels().lstm_step(input, product, c, all, c_next, c_tanh, h_next);
      } else {
        kernels(h.device()).gemm(h, matrix_t, input, {.beta = 1, .b_is_weight = true});
        composed_step(input, all, c, c_next, c_tanh, h_next, product);
      }
      h = h_next, c = c_next;
    }
    return states;
  }

  void composed_step(const Tensor& sum, Tensor& all, const Tensor& c, Tensor& c_next, Tensor& c_tanh, Tensor& h_next,
                     Tensor& product) const {
    const KernelTable& k = kernels(sum.device());
    k.copy(by_gate(sum, 4, batch, width), all);
    Tensor input_forget = view::slice(all, 0, 0, 2), g = view::select(all, 0, 2), o = view::select(all, 0, 3);
    k.unary(Unary::sigmoid, input_forget, input_forget);
    k.unary(Unary::tanh, g, g);
    k.unary(Unary::sigmoid, o, o);
    k.binary(Binary::multiply, view::select(all, 0, 1), c, c_next);
    k.binary(Binary::multiply, view::select(all, 0, 0), g, product);
    k.binary(Binary::add, c_next, product, c_next);
    k.unary(Unary::tanh, c_next, c_tanh);
    k.binary(Binary::multiply, o, c_tanh, h_next);
  }

  Gradients backward(const Tensor& dstates) const {
    const Tensor dgates = like_gates({steps, batch, 4 * width});
    Gradients gradients = {dgates, {}, {}, {}};
    std::tie(gradients[2], gradients[3]) =
        dstates.device() == Device::cpu ? steps_back(contiguous(dstates), dgates) : composed_back(dstates, dgates);
    if (needs(1))
      gradients[1] = weight_gradient(*this, 1, as_rows(before(view::select(states, 0, 0), first)), as_rows(dgates),
                                     weight.shape());
    return gradients;
  }

  /// Sets dgates, and returns the gradients of h0 and c0.
  std::pair<Tensor, Tensor> steps_back(const Tensor& dstates, const Tensor& dgates) const {
    Tensor dh_later = sums_of({batch, width}), dc_later = sums_of({batch, width});
    kernels(Device::cpu).fill(dh_later, 0);
    kernels(Device::cpu).fill(dc_later, 0);
    const Tensor cells = view::select(states, 0, 1), dh = view::select(dstates, 0, 0), dc = view::select(dstates, 0, 1);
    const PackedWeights packed = packed_weight();
    for (std::int64_t n = steps; n-- > 0;) {
      const std::int64_t t = time(n);
      const Tensor c = n > 0 ? view::select(cells, 0, time(n - 1)) : first_cell, all = view::select(activated, 0, t),
                   c_tanh = view::select(cells_tanh, 0, t), da = view::select(dgates, 0, t);
      cpu::channel_kernels().lstm_step_backward({c, all, c_tanh}, view::select(dh, 0, t), dh_later,
                                                view::select(dc, 0, t), dc_later, da);
      kernels(Device::cpu).gemm(da, weight, dh_later, {.b_is_weight = true});
    }
    return {cast(dh_later, first.dtype()), cast(dc_later, first.dtype())};
  }

  std::pair<Tensor, Tensor> composed_back(const Tensor& dstates, const Tensor& dgates) const {
    const KernelTable& k = kernels(dstates.device());
    const auto gate = [&](int i) { return view::select(activated, 1, i); };  // [T, B, H]
    const Tensor i = gate(0), f = gate(1), g = gate(2), o = gate(3);
    const Tensor h_to_c = o * one_minus_square(cells_tanh);          // [T, B, H]
    const Tensor h_to_o = cells_tanh * sigmoid_slope(o);             // [T, B, H]
    const Tensor c_to_gates = like_gates({steps, 3, batch, width});  // of i, f and g
    const auto set = [&](int index, const Tensor& value) {
      Tensor part = view::select(c_to_gates, 1, index);
      copy(value, part);
    };
    set(0, g * sigmoid_slope(i));
    set(1, before(view::select(states, 0, 1), first_cell) * sigmoid_slope(f));
    set(2, i * one_minus_square(g));

    const Tensor dh_all = clone(view::select(dstates, 0, 0)), dc_all = clone(view::select(dstates, 0, 1));  // [T, B, H]
    const Tensor parts = like_gates({4, batch, width});
    Tensor dh0 = Tensor::zeros({batch, width}, first.dtype(), first.device()), dc0 = clone(dh0);
    Tensor product = empty_like(first), c_parts = view::slice(parts, 0, 0, 3), o_part = view::select(parts, 0, 3);
    for (std::int64_t n = steps; n-- > 0;) {
      const std::int64_t t = time(n);
      const Tensor dh = view::select(dh_all, 0, t), da = view::select(dgates, 0, t);
      Tensor dc = view::select(dc_all, 0, t), dc_before = n > 0 ? view::select(dc_all, 0, time(n - 1)) : dc0;
      k.binary(Binary::multiply, dh, view::select(h_to_c, 0, t), product);
      k.binary(Binary::add, dc, product, dc);
      k.binary(Binary::multiply, view::expand(dc, c_parts.shape()), view::select(c_to_gates, 0, t), c_parts);
      k.binary(Binary::multiply, dh, view::select(h_to_o, 0, t), o_part);
      Tensor da_by_gate = by_gate(da, 4, batch, width);
      k.copy(parts, da_by_gate);
      k.binary(Binary::multiply, dc, view::select(f, 0, t), product);
      k.binary(Binary::add, dc_before, product, dc_before);
      Tensor dh_before = n > 0 ? view::select(dh_all, 0, time(n - 1)) : dh0;
      k.gemm(da, weight, dh_before, {.beta = 1, .b_is_weight = true});
    }
    return {dh0, dc0};
  }
};

/// With dh the gradient of h':  dn = dh (1 - z) (1 - n^2);  da0 = dn b2 r (1 - r), da1 = dh (h - n) z (1 - z),
/// da2 = dn; db = da0, da1, dn r;  of the step before: dh z, and db weight
struct GruSteps : Steps {
  static constexpr const char* name = "gru_steps";
  Shape bias_shape;
  Tensor reset_update;  // [T, 2, B, H]: r, z
  Tensor candidates;    // [T, B, H]: n
  Tensor recurrent;     // [T, B, 3 H]: b
  Tensor states;        // [T, B, H]

  Tensor forward(const Tensor& gates, const Tensor& matrix, const Tensor& bias, const Tensor& h0) {
    set_sizes(gates, matrix, h0);
    const KernelTable& k = kernels(gates.device());
    const Tensor inputs = contiguous(gates);
    reset_update = like_gates({kept_steps(), 2, batch, width});
    candidates = like_gates({kept_steps(), batch, width});
    states = like_gates({steps, batch, width});
    recurrent = like_gates({kept_steps(), batch, 3 * width});
    GemmOptions options{.b_is_weight = true};
    if (bias.defined()) options.bias = contiguous(bias);
    Tensor h = first;
    const PackedWeights packed = packed_weight();
    const Tensor matrix_t = transposed_weight();
    for (std::int64_t n = 0; n < steps; ++n) {
      const std::int64_t t = time(n), kept = needed != 0 ? t : 0;
      Tensor b = view::select(recurrent, 0, kept), next = view::select(states, 0, t);
      k.gemm(h, matrix_t, b, options);
      step(view::select(inputs, 0, t), b, kept, h, next);
      h = next;
    }
    return states;
  }

  void step(const Tensor& input, const Tensor& b, std::int64_t kept, const Tensor& h, Tensor& next) const {
    Tensor rz = view::select(reset_update, 0, kept), n = view::select(candidates, 0, kept);
    if (input.device() == Device::cpu) return cpu::channel_kernels().gru_step(input, b, h, rz, n, next);
    const KernelTable& k = kernels(input.device());
    const Tensor a_parts = by_gate(input, 3, batch, width), b_parts = by_gate(b, 3, batch, width);
    k.binary(Binary::add, view::slice(a_parts, 0, 0, 2), view::slice(b_parts, 0, 0, 2), rz);
    k.unary(Unary::sigmoid, rz, rz);
    k.binary(Binary::multiply, view::select(rz, 0, 0), view::select(b_parts, 0, 2), n);
    k.binary(Binary::add, n, view::select(a_parts, 0, 2), n);
    k.unary(Unary::tanh, n, n);
    k.binary(Binary::subtract, h, n, next);
    k.binary(Binary::multiply, next, view::select(rz, 0, 1), next);
    k.binary(Binary::add, next, n, next);
  }

  Gradients backward(const Tensor& dstates) const {
    const Tensor h_before = before(states, first), d = like_gates({steps, batch, 4, width});
    const Tensor dh0 = dstates.device() == Device::cpu ? steps_back(contiguous(dstates), h_before, d)
                                                       : composed_back(dstates, h_before, d);
    return gradients_of(d, h_before, dh0);
  }

  /// Sets d [T, B, 4, H], the gradients da0, da1, db2, da2 of all steps, and returns that of h0.
  Tensor steps_back(const Tensor& dstates, const Tensor& h_before, const Tensor& d) const {
    Tensor dh_later = sums_of({batch, width});
    kernels(Device::cpu).fill(dh_later, 0);
    const PackedWeights packed = packed_weight();
    for (std::int64_t n = steps; n-- > 0;) {
      const std::int64_t t = time(n);
      const Tensor b = view::select(recurrent, 0, t), h = view::select(h_before, 0, t), part = view::select(d, 0, t),
                   rz = view::select(reset_update, 0, t), candidate = view::select(candidates, 0, t);
      cpu::channel_kernels().gru_step_backward({b, h, rz, candidate}, view::select(dstates, 0, t), dh_later, part);
      kernels(Device::cpu)
          .gemm(part.as_strided({batch, 3 * width}, {4 * width, 1}, 0), weight, dh_later,
                {.beta = 1, .b_is_weight = true});
    }
    return cast(dh_later, first.dtype());
  }

  Tensor composed_back(const Tensor& dstates, const Tensor& h_before, const Tensor& d) const {
    const KernelTable& k = kernels(dstates.device());
    const Tensor r = view::select(reset_update, 1, 0), z = view::select(reset_update, 1, 1);  // [T, B, H]
    const Tensor b2 = view::slice(recurrent, 2, 2 * width, width);
    const Tensor to_n = (z * -1.0 + 1.0) * one_minus_square(candidates);  // [T, B, H]
    const Tensor factors = like_gates({steps, batch, 4, width});          // of da0, da1, dn r, da2
    const auto set = [&](int index, const Tensor& value) {
      Tensor part = view::select(factors, 2, index);
      copy(value, part);
    };
    set(0, to_n * b2 * sigmoid_slope(r));
    set(1, (h_before - candidates) * sigmoid_slope(z));
    set(2, to_n * r);
    set(3, to_n);

    const Tensor dh_all = clone(dstates);
    Tensor dh0 = Tensor::zeros({batch, width}, first.dtype(), first.device()), product = empty_like(first);
    for (std::int64_t n = steps; n-- > 0;) {
      const std::int64_t t = time(n);
      const Tensor dh = view::select(dh_all, 0, t);
      Tensor part = view::select(d, 0, t), dh_before = n > 0 ? view::select(dh_all, 0, time(n - 1)) : dh0;
      const Tensor dh_of_gates = dh.as_strided({batch, 4, width}, {width, 0, 1}, 0);
      k.binary(Binary::multiply, dh_of_gates, view::select(factors, 0, t), part);
      k.binary(Binary::multiply, dh, view::select(z, 0, t), product);
      k.binary(Binary::add, dh_before, product, dh_before);
      k.gemm(part.as_strided({batch, 3 * width}, {4 * width, 1}, 0), weight, dh_before,
             {.beta = 1, .b_is_weight = true});
    }
    return dh0;
  }

  /// From d [T, B, 4, H], the gradients da0, da1, db2, da2 of all steps.
  Gradients gradients_of(const Tensor& d, const Tensor& h_before, const Tensor& dh0) const {
    Gradients gradients = {{}, {}, {}, dh0};
    if (needs(0)) {
      const Tensor dgates = like_gates({steps, batch, 3, width});
      Tensor gates01 = view::slice(dgates, 2, 0, 2), gate2 = view::select(dgates, 2, 2);
      copy(view::slice(d, 2, 0, 2), gates01);
      copy(view::select(d, 2, 3), gate2);
      gradients[0] = view::reshape(dgates, {steps, batch, 3 * width});
    }
    const Tensor db = view::reshape(contiguous(view::slice(d, 2, 0, 3)), {steps * batch, 3 * width});
    layer_gradients(*this, 1, needs(1) ? as_rows(h_before) : Tensor(), db, weight.shape(), bias_shape, gradients);
    return gradients;
  }
};

/// Checks what both operations are given; `gates_each`: gates of a step.
void check_inputs(const char* where, const Tensor& gates, const Tensor& weight, const Tensor& h0,
                  std::int64_t gates_each) {
  for (const Tensor* x : {&gates, &weight, &h0}) require_floating(where, *x);
  require(gates.dims() == 3 && h0.dims() == 2 && gates.size(0) >= 1, where,
          "expected gates [T, B, {} H] with T at least 1 and a first state [B, H], got {} and {}", gates_each,
          gates.shape(), h0.shape());
  const std::int64_t width = h0.size(1);
  require(gates.size(2) == gates_each * width && h0.size(0) == gates.size(1) &&
              weight.shape() == Shape{gates_each * width, width},
          where, "expected gates [T, B, {0} H], a weight [{0} H, H] and a first state [B, H], got {1}, {2} and {3}",
          gates_each, gates.shape(), weight.shape(), h0.shape());
  require(gates.dtype() == weight.dtype() && gates.dtype() == h0.dtype(), where,
          "dtypes differ: gates {}, weight {}, first state {}; cast_to one of them", name(gates.dtype()),
          name(weight.dtype()), name(h0.dtype()));
}

}  // namespace

Tensor lstm_steps(const Tensor& inputs, const Tensor& matrix, const Tensor& first, const Tensor& first_cell,
                  bool reverse) {
  const Tensor gates = for_product(inputs), weight = for_product(matrix), h0 = for_product(first),
               c0 = for_product(first_cell);
  check_inputs(LstmSteps::name, gates, weight, h0, 4);
  require(c0.defined() && c0.shape() == h0.shape() && c0.dtype() == h0.dtype(), LstmSteps::name,
          "a first cell {}; expected one like the first state, {} {}", c0.shape(), name(h0.dtype()), h0.shape());
  LstmSteps op;
  op.reverse = reverse;
  op.is_weight = leaf_of(weight) != nullptr;
  return apply(std::move(op), gates, weight, h0, c0);
}

Tensor gru_steps(const Tensor& inputs, const Tensor& matrix, const Tensor& shift, const Tensor& first, bool reverse) {
  const Tensor gates = for_product(inputs), weight = for_product(matrix), bias = for_product(shift),
               h0 = for_product(first);
  check_inputs(GruSteps::name, gates, weight, h0, 3);
  check_bias_dtype(GruSteps::name, bias, gates);
  require(!bias.defined() || bias.count() == weight.size(0), GruSteps::name, "a bias {}; expected {} elements",
          bias.shape(), weight.size(0));
  GruSteps op;
  op.reverse = reverse;
  op.is_weight = leaf_of(weight) != nullptr;
  op.bias_shape = bias.shape();
  return apply(std::move(op), gates, weight, bias, h0);
}

}  // namespace trireme
