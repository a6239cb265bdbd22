#include "nn/attention.h"

#include <algorithm>
#include <cmath>

#include "nn/context_attention.h"
#include "nn/documents.h"
#include "nn/kv_cache.h"
#include "nn/positions.h"
#include "nn/sequence_order.h"
#include "parallel/mesh/redistribute.h"

namespace trireme::nn {
namespace {

const AttentionOptions& checked(const AttentionOptions& o, const DeviceMesh& mesh, const std::string& name) {
  if (o.width < 1 || o.heads < 1 || o.kv_heads < 0 || o.head_width < 0)
    fail(ExitCode::usage, "attention",
         "{}: width {}, heads {}, kv_heads {} and head_width {}; expected a width and heads of at least 1; set "
         "AttentionOptions::{}",
         name, o.width, o.heads, o.kv_heads, o.head_width,
         o.width < 1      ? "width"
         : o.heads < 1    ? "heads"
         : o.kv_heads < 0 ? "kv_heads"
                          : "head_width");
  if (o.head_width == 0 && o.width % o.heads != 0) {
    fail(ExitCode::usage, "attention",
         "{}: --width {} is not a multiple of --heads {}; set AttentionOptions::head_width (--head-width), or change "
         "one",
         name, o.width, o.heads);
  }
  const int tp = mesh.size(Axis::tp);
  if (o.heads % tp != 0) {
    fail(ExitCode::usage, "attention",
         "{}: --heads {} does not divide over tp={}: every rank needs whole heads; change AttentionOptions::heads "
         "(--heads) or the mesh (--mesh)",
         name, o.heads, tp);
  }
  const std::int64_t kv_heads = o.key_value_heads();
  if (o.heads % kv_heads != 0) {
    fail(ExitCode::usage, "attention",
         "{}: --kv-heads {} does not divide --heads {}; change AttentionOptions::kv_heads", name, kv_heads, o.heads);
  }
  if (kv_heads % tp != 0 && tp % kv_heads != 0) {
    fail(ExitCode::usage, "attention",
         "{}: --kv-heads {} and tp={}: one must divide the other, so that ranks have or share whole heads; change "
         "AttentionOptions::kv_heads (--kv-heads) or the mesh (--mesh)",
         name, kv_heads, tp);
  }
  if (!o.causal && mesh.size(Axis::cp) > 1) {
    fail(ExitCode::usage, "attention",
         "attention to all tokens needs whole sequences on a rank, got cp={}; expected cp=1; change the mesh (--mesh)",
         mesh.size(Axis::cp));
  }
  if (o.window < 0 || (o.window > 0 && !o.causal) || !(o.softcap >= 0))
    fail(ExitCode::usage, "attention",
         "{}: a window of {}{} and a softcap of {}; expected a window above 0 with causal attention, or 0, and a "
         "softcap "
         "above 0, or 0; set AttentionOptions::{}",
         name, o.window, o.causal ? "" : " for attention to all tokens", o.softcap,
         o.softcap >= 0 ? "window" : "softcap");
  if (!(o.scale >= 0))
    fail(ExitCode::usage, "attention",
         "{}: a scale of {}; expected a number above 0, or 0 for 1 / sqrt(Dh); set AttentionOptions::scale", name,
         o.scale);
  if (o.rope && o.head_features() % 2 != 0) {
    fail(ExitCode::usage, "attention",
         "{}: rotary positions (AttentionOptions::rope, --positions rope) rotate pairs, but a head has {} features, "
         "an odd number; change the width of a head",
         name, o.head_features());
  }
  return o;
}

}  // namespace

Attention::Attention(const Build& b, const AttentionOptions& o)
    : Module(b),
      heads_(checked(o, b.mesh(), b.name()).heads / b.mesh().size(Axis::tp)),
      kv_heads_(std::max<std::int64_t>(o.key_value_heads() / b.mesh().size(Axis::tp), 1)),
      head_width_(o.head_features()),
      causal_(o.causal),
      rope_(o.rope),
      window_(o.window),
      scale_((o.scale > 0 ? o.scale : 1 / std::sqrt(static_cast<double>(head_width_))) *
             (o.rope ? score_factor(*o.rope) : 1)),
      softcap_(o.softcap) {
  if (o.rope) frequencies_ = rope_frequencies(head_width_, *o.rope);
  if (frequencies_.defined()) frequencies_ = frequencies_.to(b.device());
  const auto projection = [&](const char* child, const Shape& out, bool bias, std::int64_t parts) {
    return std::make_unique<Linear>(b / child, o.width, out, Split::out,
                                    LinearOptions{.bias = bias, .init_std = o.init_std, .parts = parts});
  };
  const std::int64_t features = o.heads * head_width_;  // H Dh
  if (o.packed()) {
    qkv_ = projection("qkv", {3, features}, o.query_bias(), 0);
  } else {
    const std::int64_t kv_heads = o.key_value_heads(), kv_width = kv_heads * head_width_;
    q_ = projection("q", {features}, o.query_bias(), 0);
    k_ = projection("k", {kv_width}, o.key_bias(), kv_heads);
    v_ = projection("v", {kv_width}, o.query_bias(), kv_heads);
  }
  if (o.qk_norm) {
    q_norm_ = std::make_unique<HeadNorm>(b / "q_norm", head_width_, o.norm_eps, o.zero_centred_norm);
    k_norm_ = std::make_unique<HeadNorm>(b / "k_norm", head_width_, o.norm_eps, o.zero_centred_norm);
  }
  proj_ = std::make_unique<Linear>(b / "proj", features, Shape{o.width}, Split::in,
                                   LinearOptions{.bias = o.bias, .init_std = o.residual_init_std});
}

Tensor Attention::mixed(const Tensor& x) {
  require(x.dims() == 3, "attention", "expected an input [B, T, D], got {}", x.shape());
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
  const Tensor first = first_seen(input.size(0), input.size(1));
  return attention_packed(qkv, causal_, scale_, first, softcap_);  // [B, T, H/tp, Dh]
}

Tensor Attention::mix_separate(const Tensor& input) {
  const auto heads_of = [&](Linear& projection, std::int64_t heads) {
    return reshape(projection.of_replicated(input), {input.size(0), input.size(1), heads, head_width_});
  };
  Tensor q = heads_of(*q_, heads_);                                   // [B, T, H/tp, Dh]
  Tensor k = heads_of(*k_, kv_heads_), v = heads_of(*v_, kv_heads_);  // [B, T, Hkv/tp, Dh]
  if (q_norm_) q = (*q_norm_)(q), k = (*k_norm_)(k);
  if (!rope_) return mix(q, k, v);
  const Tensor positions = positions_of(input.size(1));
  return mix(rotated(q, positions), rotated(k, positions), v);
}

Tensor Attention::rotated(const Tensor& x, const Tensor& positions) const {
  return rope(x, positions, {.base = rope_->base, .frequencies = frequencies_, .interleaved = rope_->interleaved});
}

/// Of this rank's tokens: their places in the sequence, or what RunState says.
Tensor Attention::positions_of(std::int64_t tokens) const {
  const Tensor& given = run_state().positions;
  if (given.defined()) return contiguous(local_tokens(given, mesh()));
  const std::int64_t sequence = sequence_length(mesh(), {}, tokens);
  return position_ids(
      shifted(attention_positions(mesh(), sequence), run_state().cache ? run_state().cache->first() : 0));
}

/// The first token that each token of the whole sequences sees: of its document, and of its window.
Tensor Attention::first_seen(std::int64_t batch, std::int64_t tokens) const {
  const Tensor& starts = run_state().document_starts;
  const std::int64_t first = run_state().cache ? run_state().cache->first() : 0;
  const std::int64_t length = sequence_length(mesh(), {}, tokens);
  if (window_ == 0 || window_ >= first + length) return starts;
  return window_starts(starts, batch, first, length, window_);
}

namespace {

/// The least of the positions in first [B, T] i32; 0 if undefined.
std::int64_t least_of(const Tensor& first) {
  if (!first.defined()) return 0;
  const Tensor dense = contiguous(first);
  const std::span<const std::int32_t> all = dense.span<std::int32_t>();
  return *std::min_element(all.begin(), all.end());
}

/// The positions in first [B, T] as indices of keys, of which index 0 has position `start`.
Tensor counted_from(const Tensor& first, std::int64_t start) {
  if (!first.defined() || start == 0) return first;
  Tensor indices = clone(contiguous(first));
  for (std::int64_t i = 0; i < indices.count(); ++i) {
    std::int32_t& index = indices.data<std::int32_t>()[i];
    index = std::max<std::int32_t>(0, index - static_cast<std::int32_t>(start));
  }
  return indices;
}

}  // namespace

// Attention between tokens: q [B, T, H/tp, Dh], k, v [B, T, Hkv/tp, Dh] -> [B, T, H/tp, Dh].
Tensor Attention::mix(const Tensor& q, const Tensor& k, const Tensor& v) {
  const Tensor first = first_seen(q.size(0), q.size(1));
  if (run_state().cache) {
    require(!training() && causal_ && mesh().size(Axis::cp) == 1, "attention",
            "{}: a cache of keys and values is for evaluation with whole sequences on a rank, got {} with cp={}; leave "
            "RunState::cache empty",
            name(), training() ? "training" : "evaluation", mesh().size(Axis::cp));
    const KvCache::Held held = run_state().cache->append(name(), k, v, least_of(first), window_);  // [B, m, Hkv/tp, Dh]
    return attention(q, held.keys, held.values, true, scale_, counted_from(first, held.start), softcap_);
  }
  if (!causal_) return attention(q, k, v, false, scale_, first, softcap_);
  return context_attention(q, k, v, mesh(), parallelism().context, first, {scale_, softcap_});
}

}  // namespace trireme::nn
