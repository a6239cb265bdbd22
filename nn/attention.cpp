#include "nn/attention.h"

#include "nn/context_attention.h"
#include "nn/kv_cache.h"
#include "nn/positions.h"
#include "parallel/mesh/redistribute.h"

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
  const std::int64_t kv_heads = o.key_value_heads();
  if (o.heads % kv_heads != 0) {
    fail(ExitCode::usage, "attention", "--kv-heads {} does not divide --heads {}", kv_heads, o.heads);
  }
  if (kv_heads % tp != 0 && tp % kv_heads != 0) {
    fail(ExitCode::usage, "attention",
         "--kv-heads {} and tp={}: one must divide the other, so that ranks have or share whole heads; change "
         "--kv-heads or --mesh",
         kv_heads, tp);
  }
  if (!o.causal && mesh.size(Axis::cp) > 1) {
    fail(ExitCode::usage, "attention",
         "attention to all tokens needs whole sequences on a rank, got cp={}; expected cp=1; change --mesh",
         mesh.size(Axis::cp));
  }
  if (o.rotary && o.width / o.heads % 2 != 0) {
    fail(ExitCode::usage, "attention", "--positions rope rotates pairs, but a head has {} features, an odd number",
         o.width / o.heads);
  }
  return o;
}

}  // namespace

Attention::Attention(const Build& b, const AttentionOptions& o)
    : Module(b),
      heads_(checked(o, b.mesh()).heads / b.mesh().size(Axis::tp)),
      kv_heads_(std::max<std::int64_t>(o.key_value_heads() / b.mesh().size(Axis::tp), 1)),
      head_width_(o.width / o.heads),
      rotary_(o.rotary),
      causal_(o.causal) {
  const auto projection = [&](const char* child, const Shape& out, bool bias, std::int64_t parts) {
    return std::make_unique<Linear>(b / child, o.width, out, Split::out,
                                    LinearOptions{.bias = bias, .init_std = o.init_std, .parts = parts});
  };
  if (o.packed()) {
    qkv_ = projection("qkv", {3, o.width}, o.bias, 0);
  } else {
    const std::int64_t kv_heads = o.key_value_heads(), kv_width = kv_heads * head_width_;
    q_ = projection("q", {o.width}, o.bias, 0);
    k_ = projection("k", {kv_width}, o.bias && o.rotary, kv_heads);
    v_ = projection("v", {kv_width}, o.bias, kv_heads);
  }
  proj_ = std::make_unique<Linear>(b / "proj", o.width, Shape{o.width}, Split::in,
                                   LinearOptions{.bias = o.bias, .init_std = o.residual_init_std});
}

Tensor Attention::mixed(const Tensor& x) {
  const Tensor input = redistribute(x, mesh(), Axis::tp, residual(), placement::R);  // [B, T, D]
  const Tensor heads = qkv_ ? mix_packed(input) : mix_separate(input);               // [B, T, H/tp, Dh]
  return reshape(heads, {input.size(0), input.size(1), heads_ * head_width_});
}

// Calls mix() with the three parts of qkv; on whole sequences, uses attention_packed(), with one gradient for all of
// them.
Tensor Attention::mix_packed(const Tensor& input) {
  const Tensor qkv = reshape(qkv_->of_replicated(input),
                             {input.size(0), input.size(1), 3, heads_, head_width_});  // [B, T, 3, H/tp, Dh]
  if (mesh().size(Axis::cp) > 1 || run_state().cache)
    return mix(select(qkv, 2, 0), select(qkv, 2, 1), select(qkv, 2, 2));
  return attention_packed(qkv, causal_, 0, run_state().document_starts);  // [B, T, H/tp, Dh]
}

Tensor Attention::mix_separate(const Tensor& input) {
  const auto heads_of = [&](Linear& projection, std::int64_t heads) {
    return reshape(projection.of_replicated(input), {input.size(0), input.size(1), heads, head_width_});
  };
  const Tensor q = heads_of(*q_, heads_);                                   // [B, T, H/tp, Dh]
  const Tensor k = heads_of(*k_, kv_heads_), v = heads_of(*v_, kv_heads_);  // [B, T, Hkv/tp, Dh]
  if (!rotary_) return mix(q, k, v);
  const std::int64_t sequence = sequence_length(mesh(), {}, input.size(1)),
                     first = run_state().cache ? run_state().cache->first() : 0;
  const Tensor positions = position_ids(shifted(attention_positions(mesh(), sequence), first));  // [T]
  return mix(rope(q, positions), rope(k, positions), v);
}

// Attention between tokens: q [B, T, H/tp, Dh], k, v [B, T, Hkv/tp, Dh] -> [B, T, H/tp, Dh].
Tensor Attention::mix(const Tensor& q, const Tensor& k, const Tensor& v) {
  if (run_state().cache) {
    require(!run_state().training && causal_ && mesh().size(Axis::cp) == 1, "attention",
            "{}: a cache of keys and values is for evaluation with whole sequences on a rank, got {} with cp={}; leave "
            "RunState::cache empty",
            name(), run_state().training ? "training" : "evaluation", mesh().size(Axis::cp));
    const KvCache::Held held = run_state().cache->append(name(), k, v);  // [B, first + T, Hkv/tp, Dh]
    return attention(q, held.keys, held.values, true, 0, run_state().document_starts);
  }
  if (!causal_) return attention(q, k, v, false, 0, run_state().document_starts);
  return context_attention(q, k, v, mesh(), parallelism().context, run_state().document_starts);
}

}  // namespace trireme::nn
