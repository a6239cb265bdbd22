#include "models/gpt.h"

#include <cmath>
#include <utility>

#include "models/gpt_text.h"
#include "nn/cross_entropy.h"
#include "nn/documents.h"
#include "nn/kv_cache.h"
#include "nn/lora.h"
#include "nn/moe.h"
#include "nn/positions.h"
#include "nn/sequence_order.h"
#include "parallel/mesh/redistribute.h"

namespace trireme {
namespace {

constexpr double init_std = 0.02;  // initial weights, as in GPT-2

/// Layers that write into the residual stream start smaller, so that its variance does not grow with depth.
double residual_init_std(const GptConfig& c) { return init_std / std::sqrt(2.0 * static_cast<double>(c.layers)); }

std::unique_ptr<nn::Module> make_norm(const nn::Build& b, const GptConfig& c) {
  if (c.norm == Norm::rms) return std::make_unique<nn::RmsNorm>(b, c.width, c.norm_eps, c.zero_centred_norms);
  return std::make_unique<nn::LayerNorm>(b, c.width, c.bias, c.norm_eps, c.zero_centred_norms);
}

std::unique_ptr<nn::Module> make_post_norm(const nn::Build& b, const GptConfig& c) {
  return c.post_norms ? make_norm(b, c) : nullptr;
}

std::int64_t norm_count(const GptConfig& c) { return c.norm == Norm::layer && c.bias ? 2 * c.width : c.width; }

nn::AttentionOptions attention_options(const GptConfig& c, std::int64_t block) {
  return {.width = c.width,
          .heads = c.heads,
          .bias = c.bias,
          .init_std = init_std,
          .residual_init_std = residual_init_std(c),
          .head_width = c.head_width.value_or(0),
          .kv_heads = c.key_value_heads(),
          .rope = c.positions == PositionEncoding::rope ? std::optional(c.rotary(block)) : std::nullopt,
          .scale = c.query_pre_attn_scalar ? 1 / std::sqrt(*c.query_pre_attn_scalar) : 0,
          .qkv_bias = c.qkv_bias,
          .qk_norm = c.qk_norm,
          .norm_eps = c.norm_eps,
          .zero_centred_norm = c.zero_centred_norms,
          .window = c.has_window(block) ? *c.window : 0,
          .softcap = c.attention_softcap.value_or(0)};
}

nn::MlpOptions mlp_options(const GptConfig& c, std::int64_t hidden) {
  return {.width = c.width,
          .hidden = hidden,
          .activation = c.activation == Activation::gelu_tanh ? Unary::gelu_tanh
                        : c.activation == Activation::relu2   ? Unary::relu2
                                                              : Unary::gelu,
          .bias = c.bias,
          .init_std = init_std,
          .residual_init_std = residual_init_std(c),
          .gate = c.activation == Activation::geglu    ? std::optional(Unary::gelu_tanh)
                  : c.activation == Activation::swiglu ? std::optional(Unary::silu)
                                                       : std::nullopt};
}

/// What follows attention in block `index`: an Mlp, or a mixture of experts.
std::unique_ptr<nn::Module> make_mlp(const nn::Build& b, const GptConfig& c, int index) {
  if (!c.has_experts(index)) return std::make_unique<nn::Mlp>(b, mlp_options(c, c.hidden()));
  return std::make_unique<nn::Moe>(b, nn::MoeOptions{mlp_options(c, c.expert_hidden()), c.experts});
}

}  // namespace

GptBlock::GptBlock(const nn::Build& b, const GptConfig& c, int index)
    : Module(b),
      norm1_(make_norm(b / "norm1", c)),
      attn_(b / "attn", attention_options(c, index)),
      post_norm1_(make_post_norm(b / "post_norm1", c)),
      attn_dropout_(b / "attn_dropout", c.dropout),
      norm2_(make_norm(b / "norm2", c)),
      mlp_(make_mlp(b / "mlp", c, index)),
      post_norm2_(make_post_norm(b / "post_norm2", c)),
      mlp_dropout_(b / "mlp_dropout", c.dropout) {}

Tensor GptBlock::forward(const Tensor& x) {
  const Tensor h = add(x, attn_, post_norm1_.get(), attn_dropout_, (*norm1_)(x));  // [B, T, D]
  return add(h, *mlp_, post_norm2_.get(), mlp_dropout_, (*norm2_)(h));             // [B, T, D]
}

Tensor GptBlock::add(const Tensor& residual, nn::Module& layer, nn::Module* post_norm, nn::Dropout& dropout,
                     const Tensor& input) {
  if (post_norm == nullptr && !dropout.drops()) return layer.forward_add(residual, input);
  const Tensor y = layer(input);
  return residual + dropout(post_norm == nullptr ? y : (*post_norm)(y));
}

namespace {

pipeline::StagePlan plan_or_default(const nn::Build& b, const GptConfig& c, pipeline::StagePlan plan) {
  if (!plan.empty()) return plan;
  return pipeline::stage_plan(static_cast<int>(c.layers), b.mesh().size(Axis::pp), stage_costs(c));
}

}  // namespace

Gpt::Gpt(const nn::Build& plain, const GptConfig& c, pipeline::StagePlan plan)
    : LanguageModel(c.lora.rank > 0 ? plain.with_lora(c.lora) : plain, plan_or_default(plain, c, std::move(plan))),
      config_(c) {
  const nn::Build& b = build();
  require(total_blocks() == c.layers, "gpt", "a plan of {} layers; expected {}", total_blocks(), c.layers);
  const nn::Build tables = b.unit(holds_front() ? 0 : chunks() - 1);  // both tables of a stage, or the head's own
  const auto make_tokens = [&](const char* name, bool copy) {
    return std::make_unique<nn::VocabEmbedding>(tables / name, c.vocab, c.width, init_std, copy);
  };
  if (holds_front()) {
    use_embedding_ = tables.use_unit();
    embedding_ = make_tokens("wte", false);
    if (c.positions == PositionEncoding::learned) {
      positions_ = (tables / "wpe")
                       .parameter("weight", {c.context, c.width}, {.tp = b.per_position_placement()},
                                  nn::Init::normal(init_std), {.decay = true});
    }
    dropout_ = std::make_unique<nn::Dropout>(b / "dropout", c.dropout);
  }
  make_blocks([&c](const nn::Build& block, int index) { return std::make_unique<GptBlock>(block, c, index); });
  if (holds_end()) {
    norm_ = make_norm(end_unit("norm"), c);
    use_head_ = tables.use_unit();
    head_ = !c.tied ? make_tokens("head", false) : holds_front() ? embedding_ : make_tokens("wte", true);
    // Each stage is a backward of its own: the shared weight's gradient is complete after the second.
    if (holds_front() && c.tied && stages() > 1) embedding_->weight()->leaf().run_hooks_after(2);
  }
  if (c.lora.rank > 0) {
    if (adapter_parameter_count(c) == 0)
      fail(ExitCode::usage, "lora",
           "no linear layer of a block has a name like '{}'; expected patterns of names such as blocks.0.attn.{}; "
           "change --lora-targets (GptConfig::lora)",
           c.lora.targets, attention_options(c, 0).packed() ? "qkv" : "q");
    nn::train_adapters_only(parameters());
  }
}

Batch Gpt::local_part(const Batch& batch) {
  const std::optional<std::int64_t> separator = config_.document_separator;
  run_state().document_starts = batch.has("documents") ? batch["documents"]
                                : separator            ? nn::document_starts(batch["inputs"], *separator)
                                                       : Tensor();
  run_state().positions = batch.tensors.contains("positions")      ? batch["positions"]
                          : config_.restart_positions && separator ? nn::document_positions(run_state().document_starts)
                                                                   : Tensor();
  Batch local = batch;
  local.tensors.erase("positions");
  local.tensors.erase("documents");
  for (auto& [name, ids] : local.tensors) ids = nn::local_tokens(ids, mesh()).to(device());  // [B, T/cp]
  return local;
}

Tensor Gpt::front(const Batch& batch) {
  return use_embedding_(batch["inputs"], [this](const Tensor& tokens) { return embed(tokens); });
}

Tensor Gpt::embed(const Tensor& ids) {
  const std::int64_t length = nn::sequence_length(mesh(), {}, ids.size(1));
  const std::int64_t first = run_state().cache ? run_state().cache->first() : 0;
  require_context(first, length);
  Tensor tokens = (*embedding_)(ids);  // [B, T, D]
  if (config_.scaled_embeddings) {
    const double factor = std::sqrt(static_cast<double>(config_.width));
    tokens = tokens * cast(Tensor::full({1}, factor, DType::f64), tokens.dtype()).item();
  }
  if (!positions_) return (*dropout_)(tokens);
  return (*dropout_)(tokens + learned_positions(length, first));  // [B, T, D]
}

/// Tokens first .. first + length must fit the context. In evaluation the text may be longer, if RunState gives every
/// token a learned position, or lets it see no more than the context.
void Gpt::require_context(std::int64_t first, std::int64_t length) {
  if (first + length <= config_.context) return;
  const Tensor& given = positions_ ? run_state().positions : run_state().document_starts;
  bool fits = !run_state().training && given.defined();
  if (fits) {
    const Tensor dense = contiguous(given);  // [B, length]
    for (std::int64_t i = 0; i < dense.count(); ++i) {
      const std::int64_t value = dense.data<std::int32_t>()[i];
      fits = fits && (positions_ ? value : first + i % length - value) < config_.context;
    }
  }
  require(fits, "gpt", "sequences of {} tokens do not fit the context of {}", first + length, config_.context);
}

Tensor Gpt::learned_positions(std::int64_t length, std::int64_t first) {
  if (const Tensor& given = run_state().positions; given.defined()) {
    Tensor mine = nn::local_tokens(given, mesh());  // [B, T/cp]
    if (parallelism().sequence) {
      const std::int64_t part = mine.size(1) / mesh().size(Axis::tp);
      mine = view::slice(mine, 1, mesh().coord(Axis::tp) * part, part);
    }
    return embedding(positions_->value(), contiguous(mine));  // [B, T, D]
  }
  std::vector<Tensor> rows;
  for (const nn::PositionRun& run : nn::shifted(nn::residual_positions(mesh(), parallelism(), length), first))
    rows.push_back(slice(positions_->value(), 0, run.global, run.length));
  return concat(rows, 0);  // [T, D]
}

Tensor Gpt::capped(const Tensor& logits) const {
  return config_.logit_softcap ? softcap(logits, *config_.logit_softcap) : logits;
}

Tensor Gpt::logits(const Tensor& hidden) {
  return capped(use_head_((*norm_)(hidden), [this](const Tensor& normed) { return head_->logits(normed); }));
}

Tensor Gpt::loss(const Tensor& hidden, const Batch& batch, double scale) {
  return nn::cross_entropy(logits(hidden), batch["targets"],
                           {.slice = head_->slice(), .group = &mesh().group(Axis::tp), .smoothing = 0, .scale = scale});
}

Tensor Gpt::gathered_logits(const Tensor& hidden) { return gathered(logits(hidden)); }

Tensor Gpt::next_logits(const Tensor& hidden, std::int64_t position) {
  const Tensor local =
      redistribute((*norm_)(hidden), mesh(), Axis::tp, build().residual(), placement::R);  // [B, T/cp, D]
  const Tensor all = nn::to_sequence_order(redistribute(local, mesh(), Axis::cp, placement::S(1), placement::I),
                                           mesh().size(Axis::cp));
  const auto logits_of = [this](const Tensor& normed) { return head_->logits_of_replicated(normed); };
  return gathered(capped(use_head_(slice(all, 1, position, 1), logits_of)));  // [B, 1, V]
}

Tensor Gpt::gathered(const Tensor& logits) const {
  const Tensor all = redistribute(logits, mesh(), Axis::tp, placement::S(2), placement::I);
  return cast_to(slice(all, 2, 0, config_.vocab), DType::f32);
}

std::string Gpt::configuration() const { return gpt_text(config_, dtype()); }

std::vector<Model::Setting> Gpt::settings(const std::string& configuration, const std::string& path) const {
  return gpt_settings(configuration, path);
}

Shape Gpt::hidden_shape(std::int64_t samples, std::int64_t length) const {
  require(padded_length(length) == length, "gpt", "{} tokens do not divide over the ranks of {}", length,
          to_string(mesh().shape()));
  return {samples, length / nn::sequence_length(mesh(), parallelism(), 1), config_.width};
}

std::int64_t Gpt::padded_length(std::int64_t length) const {
  const std::int64_t multiple = nn::sequence_multiple(mesh().shape(), parallelism());
  return (length + multiple - 1) / multiple * multiple;
}

namespace {

/// Elements of a block's matrices, of its biases, of its norms, and of its adapters.
struct BlockCounts {
  std::int64_t matrices = 0, biases = 0, norms = 0, adapters = 0;
  std::int64_t all() const { return matrices + biases + norms + adapters; }
};

/// A layer with an adapter, [parts * out, in]: each part has matrices of its own.
struct AdaptedLayer {
  std::int64_t in, out, parts;
};

std::vector<AdaptedLayer> adapted_layers(const GptConfig& c, std::int64_t index) {
  const std::int64_t d = c.width, features = c.attention_width(), kv = c.key_value_heads() * c.head_features();
  std::vector<AdaptedLayer> layers;
  const auto add = [&](const std::string& layer, std::int64_t in, std::int64_t out, std::int64_t parts = 1) {
    if (c.lora.adapts(fmt::format("blocks.{}.{}", index, layer))) layers.push_back({in, out, parts});
  };
  if (attention_options(c, index).packed()) {
    add("attn.qkv", d, 3 * features);
  } else {
    add("attn.q", d, features);
    add("attn.k", d, kv);
    add("attn.v", d, kv);
  }
  add("attn.proj", features, d);
  const std::int64_t hidden = c.has_experts(index) ? c.experts.shared * c.expert_hidden() : c.hidden();
  if (hidden == 0) return layers;  // the adapters of routed experts do not exist
  const std::string mlp = c.has_experts(index) ? "mlp.shared." : "mlp.";
  if (c.gated())
    add(mlp + "gate_up", d, hidden, 2);
  else
    add(mlp + "up", d, hidden);
  add(mlp + "down", hidden, d);
  return layers;
}

/// Elements of the adapters of block `index`.
std::int64_t adapter_count(const GptConfig& c, std::int64_t index) {
  std::int64_t count = 0;
  for (const AdaptedLayer& layer : adapted_layers(c, index))
    count += c.lora.rank * layer.parts * (layer.in + layer.out);
  return count;
}

/// Of block `index`; `experts`: how many of its experts are counted, if it has them.
BlockCounts block_counts(const GptConfig& c, std::int64_t index, std::int64_t experts) {
  const std::int64_t d = c.width;
  const std::int64_t features = c.attention_width(), kv = c.key_value_heads() * c.head_features();
  const std::int64_t gates = c.gated() ? 2 : 1;  // matrices from D to F
  const nn::AttentionOptions attention = attention_options(c, index);
  BlockCounts counts;
  counts.matrices = 2 * d * features + 2 * d * kv;  // q, proj; k, v
  counts.biases = (attention.query_bias() ? features + kv : 0) + (attention.key_bias() ? kv : 0) + (c.bias ? d : 0);
  const auto add_mlp = [&](std::int64_t hidden, std::int64_t times) {
    counts.matrices += times * (gates + 1) * d * hidden;
    counts.biases += c.bias ? times * (gates * hidden + d) : 0;
  };
  if (!c.has_experts(index)) {
    add_mlp(c.hidden(), 1);
  } else {
    counts.matrices += c.experts.count * d;  // the router
    add_mlp(c.expert_hidden(), experts);
    if (c.experts.shared > 0) add_mlp(c.experts.shared * c.expert_hidden(), 1);
  }
  counts.norms = (c.post_norms ? 4 : 2) * norm_count(c) + (c.qk_norm ? 2 * c.head_features() : 0);
  counts.adapters = adapter_count(c, index);
  return counts;
}

std::int64_t parameters_with(const GptConfig& c, std::int64_t experts) {
  const std::int64_t tables = c.vocab * (c.tied ? 1 : 2) + (c.positions == PositionEncoding::learned ? c.context : 0);
  std::int64_t count = tables * c.width + norm_count(c);
  for (std::int64_t i = 0; i < c.layers; ++i) count += block_counts(c, i, experts).all();
  return count;
}

}  // namespace

std::int64_t parameter_count(const GptConfig& c) { return parameters_with(c, c.experts.count); }

std::int64_t active_parameter_count(const GptConfig& c) {
  return parameters_with(c, c.experts.count == 0 ? 0 : c.experts.top_k);
}

std::int64_t adapter_parameter_count(const GptConfig& c) {
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < c.layers; ++i) count += adapter_count(c, i);
  return count;
}

std::int64_t most_adapter_rank(const GptConfig& c) {
  std::int64_t most = 0;
  for (std::int64_t i = 0; i < c.layers; ++i)
    for (const AdaptedLayer& layer : adapted_layers(c, i)) most = std::max(most, std::min(layer.in, layer.out));
  return most;
}

std::int64_t expert_parameter_count(const GptConfig& c) { return parameter_count(c) - parameters_with(c, 0); }

pipeline::StageCosts stage_costs(const GptConfig& c) {
  const auto d = static_cast<double>(c.width), vocab = static_cast<double>(c.vocab);
  const auto features = static_cast<double>(c.attention_width());
  pipeline::StageCosts costs{.embedding = 2 * d,  // the sum of two rows, and dropout
                             .head = 2 * d * vocab};
  for (std::int64_t i = 0; i < c.layers; ++i) {
    const std::int64_t matrices = block_counts(c, i, c.experts.top_k).matrices;
    const auto context = static_cast<double>(c.context), keys = context * c.mean_keys(i) / ((context + 1) / 2);
    costs.blocks.push_back(2 * static_cast<double>(matrices) + 4 * features * keys);  // q k^T and p v
  }
  return costs;
}

double training_flops_per_token(const GptConfig& c) {
  const auto d = static_cast<double>(c.width);
  std::int64_t blocks = 0;
  double keys = 0;  // of a query on average, over all layers
  for (std::int64_t i = 0; i < c.layers; ++i) {
    blocks += block_counts(c, i, c.experts.top_k).matrices;
    keys += c.mean_keys(i);
  }
  const double products = static_cast<double>(blocks) + static_cast<double>(c.vocab) * d;
  const double of_products =
      c.lora.rank > 0 ? 4 * products + 6 * static_cast<double>(adapter_parameter_count(c)) : 6 * products;
  return of_products + 12 * static_cast<double>(c.attention_width()) * keys;
}

}  // namespace trireme
