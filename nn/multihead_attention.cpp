#include "nn/multihead_attention.h"

#include "core/ids.h"
#include "parallel/mesh/redistribute.h"

namespace trireme::nn {
namespace {

using placement::I, placement::R;

MultiheadAttentionOptions checked(MultiheadAttentionOptions o, const Build& b) {
  const auto refuse = [&](const std::string& what, const char* remedy) {
    fail(ExitCode::usage, "multihead_attention", "{}: {}; set MultiheadAttentionOptions::{}", b.name(), what, remedy);
  };
  if (o.key_width == 0) o.key_width = o.width;
  if (o.value_width == 0) o.value_width = o.width;
  if (o.width < 1 || o.key_width < 1 || o.value_width < 1)
    refuse(fmt::format("widths {}, {} and {}; expected each to be at least 1", o.width, o.key_width, o.value_width),
           "width");
  const int tp = b.mesh().size(Axis::tp), cp = b.mesh().size(Axis::cp);
  if (o.heads < 1 || o.width % o.heads != 0 || o.heads % tp != 0)
    refuse(fmt::format("{} heads; expected a divisor of the width {}, and a multiple of tp={}", o.heads, o.width, tp),
           "heads");
  if (cp > 1)
    fail(ExitCode::usage, "multihead_attention",
         "{}: attention to all tokens needs whole sequences on a rank, got cp={}; expected cp=1; change the mesh",
         b.name(), cp);
  return o;
}

LinearOptions projection(const MultiheadAttentionOptions& o, bool in) {
  // PyTorch draws q, k and v as one matrix [3 D, D] if their inputs have one width.
  const bool packed = o.key_width == o.width && o.value_width == o.width;
  const Init init =
      in ? Init::xavier_uniform(packed ? 0.7071067811865476 : 1) : Init::kaiming_uniform(0.5773502691896258);
  return {.bias = o.bias, .weight_init = init};
}

}  // namespace

Tensor length_mask(const Tensor& lengths, std::int64_t keys) {
  require(lengths.defined() && lengths.dims() == 1 && lengths.dtype() == DType::i32, "length_mask",
          "expected lengths i32 [B], got {} {}", lengths.defined() ? trireme::name(lengths.dtype()) : "undefined",
          lengths.shape());
  const Tensor here = contiguous(lengths.to(Device::cpu));
  check_ids("length_mask", "length", here, {.first = 0, .end = keys + 1}, "expected no more than there are keys");
  Tensor mask = Tensor::zeros({here.count(), 1, 1, keys}, DType::u8);
  for (std::int64_t b = 0; b < here.count(); ++b)
    for (std::int64_t key = 0; key < std::as_const(here).data<const std::int32_t>()[b]; ++key)
      mask.data<std::uint8_t>()[b * keys + key] = 1;
  return mask;
}

MultiheadAttention::MultiheadAttention(const Build& b, const MultiheadAttentionOptions& options)
    : ModuleBase(b),
      all_heads_(checked(options, b).heads),
      heads_(all_heads_ / b.mesh().size(Axis::tp)),
      head_width_(options.width / options.heads),
      q_(b / "q", options.width, {options.width}, Split::out, projection(checked(options, b), true)),
      k_(b / "k", checked(options, b).key_width, {options.width}, Split::out, projection(checked(options, b), true)),
      v_(b / "v", checked(options, b).value_width, {options.width}, Split::out, projection(checked(options, b), true)),
      out_(b / "out", options.width, {options.width}, Split::in, projection(checked(options, b), false)) {}

Tensor MultiheadAttention::heads_of(Linear& projection, const Tensor& x) const {
  return reshape(projection.of_replicated(x), {x.size(0), x.size(1), heads_, head_width_});
}

// Each tp rank uses a mask for its own heads, so the gradients of a mask are summed.
AttentionMask MultiheadAttention::own_part(AttentionMask mask) const {
  if (!mask.mask.defined() || mesh().size(Axis::tp) == 1) return mask;
  if (mask.mask.requires_grad()) mask.mask = redistribute(mask.mask, mesh(), Axis::tp, I, R);
  if (mask.mask.dims() == 4 && mask.mask.size(1) == all_heads_ && all_heads_ > 1)
    mask.mask = slice(mask.mask, 1, mesh().coord(Axis::tp) * heads_, heads_);
  return mask;
}

Tensor MultiheadAttention::whole(const Tensor& x) const {
  require(x.defined() && x.dims() == 3, "multihead_attention", "expected inputs [B, T, features], got {}",
          x.defined() ? to_string(x.shape()) : "an undefined one");
  return redistribute(x, mesh(), Axis::tp, residual(), R);
}

Tensor MultiheadAttention::attend(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionMask& mask) {
  require(k.size(0) == q.size(0) && v.size(0) == q.size(0) && v.size(1) == k.size(1), "multihead_attention",
          "query {}, key {} and value {}; expected one batch size, and as many keys as values", q.shape(), k.shape(),
          v.shape());
  const Tensor mixed = masked_attention(heads_of(q_, q), heads_of(k_, k), heads_of(v_, v), own_part(mask));
  return out_(reshape(mixed, {q.size(0), q.size(1), heads_ * head_width_}));
}

Tensor MultiheadAttention::operator()(const Tensor& query, const Tensor& key, const Tensor& value,
                                      const AttentionMask& mask) {
  return call([&] { return attend(whole(query), whole(key), whole(value), mask); });
}

Tensor MultiheadAttention::operator()(const Tensor& x, const Tensor& memory, const AttentionMask& mask) {
  return call([&] {
    const Tensor all = whole(memory);  // moved once
    return attend(whole(x), all, all, mask);
  });
}

}  // namespace trireme::nn
