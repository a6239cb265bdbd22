// Autocast: products in bf16 or f16 and all else in f32, for a model with f32 parameters, as torch.autocast does.
//
//   Tensor loss;
//   {
//     const Autocast autocast(DType::bf16);
//     loss = nn::cross_entropy(model(x), targets, {.scale = 1.0 / count});
//   }
//   backward(loss);  // in the dtypes of the forward
//
// While it lives, operations of the calling thread cast their inputs first. Three lists say which, and to what dtype:
//
//   product   to the dtype of Autocast   matmul, linear, mlp, grouped_linear, einsum, conv1d, conv2d, lstm_steps,
//                                        gru_steps, attention, attention_packed, masked_attention
//   f32       16-bit inputs to f32       softmax, log_softmax, logsumexp, layer_norm, rms_norm, group_norm, sum, mean,
//                                        var, norm, cumsum, exp, log, pow, 1 / x; losses compute in f32 anyway
//   common    16-bit inputs to f32, if   + - * /, comparisons, where, maximum, minimum, concat, stack, losses of two
//             the input dtypes differ    tensors
//
// Other operations compute in the dtype of their input. f64 tensors stay as they are. The result and the gradients have
// the bits of the same casts written by hand (cast_to). The gradient of a parameter is f32 without a rounding to 16
// bits. A weight is cast once for all operations in an Autocast that record it, until it is written to.
//
// Like NoGrad, it is a property of the thread that records, which is one rank. It works with recompute(), which casts
// as the forward did, and with ZeRO. Cast weights are whole tensors, kept until backward has used them. If memory is
// short, give the model 16-bit parameters instead (nn::Build).
// Read next: autograd/ops.h.
#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "core/tensor.h"

namespace trireme {

struct AutocastState;

/// While it lives, operations of the calling thread cast their inputs as the lists above say.
class Autocast {
 public:
  /// bf16, f16, or nothing: operations then cast nothing, also inside another Autocast. Throws ExitCode::usage for
  /// other dtypes.
  [[nodiscard]] explicit Autocast(std::optional<DType> dtype);
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

  /// The dtype of products on the calling thread; none without Autocast.
  static std::optional<DType> current();

 private:
  std::unique_ptr<AutocastState> own_;  // null if it is off, or continues one of the same dtype
  AutocastState* previous_;
};

// For operations, at their beginning. Without an Autocast, and for undefined tensors, ids and f64, they return what
// they are given.
/// x in the dtype of products.
Tensor for_product(const Tensor& x);
/// x in f32, if it has 16 bits.
Tensor in_f32(const Tensor& x);
/// a and b, in f32 if their dtypes differ and they have 16 bits.
std::pair<Tensor, Tensor> in_common_dtype(const Tensor& a, const Tensor& b);
/// The same of a list.
std::vector<Tensor> in_common_dtype(const std::vector<Tensor>& tensors);

}  // namespace trireme
