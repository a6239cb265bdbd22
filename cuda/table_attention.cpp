// Attention of the kernel table. The kernels need a token's heads side by side, and sequences one after the other, with
// k and v laid out alike (cuda/kernels/attention.h), as in one projection of q, k and v. Other tensors go through a
// dense copy in workspace memory, in which 16-bit head dims are padded with zeros to a multiple of 8. These zeros
// change no result. Bytes of such a copy: each element read once and written once.
// Read next: cuda/implementations.h.
#include <type_traits>

#include "cuda/choices.h"
#include "cuda/implementations.h"
#include "cuda/kernels/attention.h"
#include "cuda/table_arguments.h"

namespace trireme::cuda {
namespace {

/// Elements from token to token of [B, T, H, D].
std::int64_t token_pitch(const Tensor& x) {
  return x.size(1) > 1 ? x.strides()[1] : x.size(0) > 1 ? x.strides()[0] : x.size(2) * x.size(3);
}

/// The layout that a call's tensors must have.
struct Layout {
  std::int64_t head_dim;  ///< padded
  bool aligned;           ///< to 16 bytes

  explicit Layout(const Tensor& q) : head_dim(q.size(3)), aligned(q.dtype() != DType::f32) {
    if (aligned) head_dim = (head_dim + 7) / 8 * 8;
  }
  bool fits(const Tensor& x) const {
    const Shape& s = x.strides();
    const std::int64_t pitch = token_pitch(x);
    if (x.size(3) != head_dim || (x.size(3) > 1 && s[3] != 1) || (x.size(2) > 1 && s[2] != x.size(3))) return false;
    if (x.size(0) > 1 && s[0] != x.size(1) * pitch) return false;
    return !aligned || (pitch % 8 == 0 && reinterpret_cast<std::uintptr_t>(x.device_address()) % 16 == 0);
  }
  Tensor room(const Tensor& x) const {  // [B, T, H, padded]
    return Tensor::empty({x.size(0), x.size(1), x.size(2), head_dim}, x.dtype(), Device::cuda);
  }
};

Tensor copied(const Tensor& x, const Layout& layout) {
  Tensor room = layout.room(x), part = view::slice(room, 3, 0, x.size(3));
  if (layout.head_dim != x.size(3)) fill(room, 0);
  cuda::copy(x, part);
  return room;
}

Tensor input(const Tensor& x, const Layout& layout) { return layout.fits(x) ? x : copied(x, layout); }

/// Two inputs, or two outputs, with the same pitch.
struct Pair {
  Tensor k, v;
};
Pair inputs(const Tensor& k, const Tensor& v, const Layout& layout) {
  if (layout.fits(k) && layout.fits(v) && token_pitch(k) == token_pitch(v)) return {k, v};
  return {copied(k, layout), copied(v, layout)};
}
Pair outputs(const Tensor& k, const Tensor& v, const Layout& layout) {
  if (layout.fits(k) && layout.fits(v) && token_pitch(k) == token_pitch(v)) return {k, v};
  return {layout.room(k), layout.room(v)};
}
Tensor output(const Tensor& x, const Layout& layout) { return layout.fits(x) ? x : layout.room(x); }

/// Copies what a kernel wrote to its destination.
void deliver(const Tensor& made, Tensor& to) {
  if (!made.shares_storage_with(to)) cuda::copy(view::slice(made, 3, 0, to.size(3)), to);
}

void check(const char* entry, const Tensor& q, const Tensor& k, const Tensor& v, const ScoreRule& rule) {
  require_one_device(entry, {&q, &k, &v});
  if (q.size(3) > kMostHeadDims)
    no_kernel(entry, "head dims of {}: a head's row must fit a block's registers, up to {}", q.size(3), kMostHeadDims);
  if (rule.softcap != 0) no_kernel(entry, "a softcap of scores, {}; the kernels have none", rule.softcap);
}

template <class T>
AttentionForward<T> forward_call(const char* entry, const Tensor& q, const Pair& kv, double scale, bool causal,
                                 const Tensor& first_key, const Tensor& out, const Tensor& lse) {
  return {.batch = size(entry, q.size(0)),
          .heads = size(entry, q.size(2)),
          .kv_heads = size(entry, kv.k.size(2)),
          .head_dim = size(entry, q.size(3)),
          .queries = size(entry, q.size(1)),
          .keys = size(entry, kv.k.size(1)),
          .causal = causal,
          .scale = static_cast<float>(scale),
          .q = address<T>(entry, q),
          .q_pitch = token_pitch(q),
          .k = address<T>(entry, kv.k),
          .v = address<T>(entry, kv.v),
          .kv_pitch = token_pitch(kv.k),
          .out = address<T>(entry, out),
          .out_pitch = token_pitch(out),
          .lse = dense<float>(entry, lse),
          .first_key = dense<std::int32_t>(entry, first_key)};
}

/// Runs the selected implementation, or, in f32, the only one.
template <class T>
void run(const AttentionForward<T>& call) {
  if constexpr (std::is_same_v<T, float>)
    attention_forward_f32(call, stream());
  else
    implementation_for(call).run(call, stream());
}
template <class T>
void run(const AttentionBackward<T>& call) {
  if constexpr (std::is_same_v<T, float>)
    attention_backward_f32(call, stream());
  else
    implementation_for(call).run(call, stream());
}

}  // namespace

void attention(const Tensor& q, const Tensor& k, const Tensor& v, const ScoreRule& rule, bool causal,
               const Tensor& first_key, Tensor& out, Tensor& lse) {
  constexpr const char* entry = __func__;
  check(entry, q, k, v, rule);
  const MemoryScope scope(MemoryCategory::workspace);
  const Layout layout(q);
  const Tensor made = output(out, layout);
  visit_training(entry, q.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    run(forward_call<T>(entry, input(q, layout), inputs(k, v, layout), rule.scale, causal, first_key, made, lse));
  });
  deliver(made, out);
}

void attention_backward(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& out, const Tensor& lse,
                        const Tensor& dout, const ScoreRule& rule, bool causal, const Tensor& first_key, Tensor& dq,
                        Tensor& dk, Tensor& dv) {
  constexpr const char* entry = __func__;
  check(entry, q, k, v, rule);
  const MemoryScope scope(MemoryCategory::workspace);
  const Layout layout(q);
  const Tensor dout_in = input(dout, layout), made_q = output(dq, layout);
  const Pair made_kv = outputs(dk, dv, layout);
  const Tensor delta = Tensor::empty({q.size(0), q.size(2), q.size(1)}, DType::f32, Device::cuda);
  const Tensor first_tile =
      first_key.defined() ? Tensor::empty({q.size(0), (q.size(1) + 63) / 64}, DType::i32, Device::cuda) : Tensor();
  visit_training(entry, q.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    // Inputs stay in scope until the launches are queued; afterwards their memory may be reused.
    const Tensor q_in = input(q, layout), out_in = input(out, layout);
    const Pair kv = inputs(k, v, layout);
    run(AttentionBackward<T>{.forward = forward_call<T>(entry, q_in, kv, rule.scale, causal, first_key, out_in, lse),
                             .dout = address<T>(entry, dout_in),
                             .dout_pitch = token_pitch(dout_in),
                             .dlse = nullptr,
                             .dq = address<T>(entry, made_q),
                             .dq_pitch = token_pitch(made_q),
                             .dk = address<T>(entry, made_kv.k),
                             .dv = address<T>(entry, made_kv.v),
                             .dkv_pitch = token_pitch(made_kv.k),
                             .delta = address<float>(entry, delta),
                             .first_tile = address<std::int32_t>(entry, first_tile)});
  });
  deliver(made_q, dq);
  deliver(made_kv.k, dk);
  deliver(made_kv.v, dv);
}

}  // namespace trireme::cuda
