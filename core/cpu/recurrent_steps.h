// The elementwise part of a step of an LSTM or a GRU, which autograd/recurrent.cpp otherwise composes of about ten
// kernels. A step of a small layer takes less time than ten calls; a step of a large layer reads and writes each number
// once, and computes in the arithmetic type between. Bytes: each tensor once. FLOPs for an element of h: of an LSTM
// five exponentials and as many divisions, of a GRU three; backward about 20 and 15. Tensors T unless stated; A is T's
// arithmetic type. Rows [B, ..], last stride 1.
// Read next: autograd/recurrent.h, the formulas.
#pragma once

#include "core/tensor.h"

namespace trireme::cpu {

/// With sums = gates + product of [B, 4 H], product A: activated [4, B, H]: i, f, g, o; c_next, its tanh, and h_next.
/// Neither activated nor c_tanh is kept if activated is undefined.
void lstm_step(const Tensor& gates, const Tensor& product, const Tensor& c, const Tensor& activated,
               const Tensor& c_next, const Tensor& c_tanh, const Tensor& h_next);
/// What lstm_step() was given, and its results.
struct LstmStep {
  const Tensor &c, &activated, &c_tanh;
};
/// Writes dgates [B, 4 H], the gradient of the sums. The gradients of h_next and c_next are dh + dh_later and
/// dc + dc_later; dh_later and dc_later come from later steps and are in A. dc_later becomes the gradient of c.
void lstm_step_backward(const LstmStep& step, const Tensor& dh, const Tensor& dh_later, const Tensor& dc,
                        const Tensor& dc_later, const Tensor& dgates);

/// inputs and b [B, 3 H], h -> reset_update [2, B, H]: r, z; n, and h_next.
void gru_step(const Tensor& inputs, const Tensor& b, const Tensor& h, const Tensor& reset_update, const Tensor& n,
              const Tensor& h_next);
/// What gru_step() was given, and its results.
struct GruStep {
  const Tensor &b, &h, &reset_update, &n;
};
/// d [B, 4, H]: the gradients da0, da1, db2, da2. The gradient of h_next is dh + dh_later, the latter of A: from later
/// steps. dh_later becomes that part of the gradient of h which does not go through b.
void gru_step_backward(const GruStep& step, const Tensor& dh, const Tensor& dh_later, const Tensor& d);

}  // namespace trireme::cpu
