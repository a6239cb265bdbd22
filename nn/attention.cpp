#include "nn/attention.h"

namespace trireme::nn {
namespace {

const AttentionOptions& checked(const AttentionOptions& o, const DeviceMesh& mesh) {
  if (o.width % o.heads != 0) {
    fail(ExitCode::usage, "attention", "--width {} is not a multiple of --heads {}", o.width, o.heads);
  }
  const int tp = mesh.size(Axis::tp);
  if (o.heads % tp != 0) {
    fail(ExitCode::usage, "attention",
         "--heads {} does not divide over tp={}: every rank needs whole heads; change --heads or --mesh", o.heads, tp);
  }
  return o;
}

}  // namespace

Attention::Attention(const Build& b, const AttentionOptions& o)
    : Module(b),
      heads_(checked(o, b.mesh()).heads / b.mesh().size(Axis::tp)),
      head_width_(o.width / o.heads),
      qkv_(b / "qkv", o.width, {3, o.width}, Split::out, {.bias = o.bias, .deviation = o.deviation}),
      proj_(b / "proj", o.width, {o.width}, Split::in, {.bias = o.bias, .deviation = o.residual_deviation}) {}

Tensor Attention::forward(const Tensor& x) {
  const std::int64_t batch = x.size(0), length = x.size(1);
  const Tensor qkv = reshape(qkv_(x), {batch, length, 3, heads_, head_width_});  // [B, T, 3, H/tp, Dh]
  const Tensor mixed = attention_packed(qkv);                                    // [B, T, H/tp, Dh]
  return proj_(reshape(mixed, {batch, length, heads_ * head_width_}));           // [B, T, D]
}

}  // namespace trireme::nn
