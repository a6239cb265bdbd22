// The steps of recurrent layers. One operation computes all steps of one layer in one direction, because a step is
// small: as an operation of its own, each would cost more to record than to compute. The products with the input are
// not part of it: one linear() computes them for all steps.
//
//   const Tensor gates = linear(x, weight_ih, bias_ih + bias_hh);  // [T, B, 4 H]
//   const Tensor states = lstm_steps(gates, weight_hh, h0, c0);    // [2, T, B, H]
//   const Tensor h = select(states, 0, 0);                         // [T, B, H]
//
// All tensors have one floating dtype. With `reverse` the steps run from T - 1 to 0: h0 is the state before step T - 1,
// and the result of step t is stored at index t. The formulas and the order of the gates are those of PyTorch and
// cuDNN; s is the sigmoid.
// Read next: nn/recurrent.h, autograd/recurrent.cpp.
#pragma once

#include "core/tensor.h"

namespace trireme {

/// LSTM (Hochreiter and Schmidhuber 1997, with the forget gate of Gers et al. 2000). With a = gates[t] + weight h:
///   i = s(a0), f = s(a1), g = tanh(a2), o = s(a3);  c' = f c + i g;  h' = o tanh(c')
/// gates [T, B, 4 H], weight [4 H, H], h0 and c0 [B, H] -> [2, T, B, H]: h' and c' after each step.
Tensor lstm_steps(const Tensor& gates, const Tensor& weight, const Tensor& h0, const Tensor& c0, bool reverse = false);

/// GRU (Cho et al. 2014), with the reset gate after the product, as in cuDNN. With b = weight h + bias:
///   r = s(gates0 + b0), z = s(gates1 + b1), n = tanh(gates2 + r b2);  h' = (1 - z) n + z h
/// gates [T, B, 3 H], weight [3 H, H], bias [3 H] or undefined, h0 [B, H] -> [T, B, H]: h' after each step.
Tensor gru_steps(const Tensor& gates, const Tensor& weight, const Tensor& bias, const Tensor& h0, bool reverse = false);

}  // namespace trireme
