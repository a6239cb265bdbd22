// Convolution on the CPU as products whose packing reads patches (an implicit GEMM): the matrix of all patches, R S
// times as large as the input, is never in memory.
//
//   forward            y  [O, N P]    = W [O, C R S] patches(x) [C R S, N P]
//   gradient of x      dx [C, N P']   = W^T [C, O R' S'] patches(dy) [O R' S', N P'], for each residue of (h, w) by the
//                                       stride: P' are the positions of that residue, R' S' the kernel positions that
//                                       reach them. So no product multiplies zeros between strided positions.
//   gradient of W      dW [O, R S C]  = dy [O, N P] patches(x)^T [N P, R S C]
//
// P = OH OW output positions of a sample. FLOPs: 2 N P O (C / groups) R S each. Besides the products, each call copies
// x or dy with zeros around it, a few samples at a time, so that packing needs no checks of bounds. The gradient of W
// also reorders dW. Results do not depend on the number of threads.
// All tensors are dense, of one floating dtype T, with the shapes of core/conv_geometry.h.
// Read next: core/cpu/pack_gathered.h, core/cpu/gemm_packed.cpp.
#pragma once

#include "core/conv_geometry.h"
#include "core/tensor.h"

namespace trireme::cpu {

/// y = conv(x, weight) + bias; bias [O] T or undefined.
void conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias, const ConvGeometry& g, Tensor& y);
/// dx is overwritten.
void conv2d_input_gradient(const Tensor& dy, const Tensor& weight, const ConvGeometry& g, Tensor& dx);
/// dw is overwritten; T or accumulate_t<T>.
void conv2d_weight_gradient(const Tensor& x, const Tensor& dy, const ConvGeometry& g, Tensor& dw);

}  // namespace trireme::cpu
