#include "models/gpt.h"

#include <cmath>
#include <utility>

#include "models/gpt_text.h"
#include "nn/cross_entropy.h"
#include "nn/documents.h"
#include "nn/kv_cache.h"
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
  if (c.norm == Norm::rms) return std::make_unique<nn::RmsNorm>(b, c.width);
  return std::make_unique<nn::LayerNorm>(b, c.width, c.bias);
}

std::int64_t norm_count(const GptConfig& c) { return c.norm == Norm::layer && c.bias ? 2 * c.width : c.width; }

nn::AttentionOptions attention_options(const GptConfig& c) {
  return {.width = c.width,
          .heads = c.heads,
          .bias = c.bias,
          .init_std = init_std,
          .residual_init_std = residual_init_std(c),
          .kv_heads = c.key_value_heads(),
          .rotary = c.positions == PositionEncoding::rope};
}

nn::MlpOptions mlp_options(const GptConfig& c) {
  return {.width = c.width,
          .hidden = c.hidden(),
          .activation = c.activation == Activation::gelu_tanh ? Unary::gelu_tanh : Unary::gelu,
          .bias = c.bias,
          .init_std = init_std,
          .residual_init_std = residual_init_std(c),
          .gated = c.activation == Activation::swiglu};
}

/// What follows attention in block `index`: an Mlp, or a mixture of experts of the same width.
std::unique_ptr<nn::Module> make_mlp(const nn::Build& b, const GptConfig& c, int index) {
  if (!c.has_experts(index)) return std::make_unique<nn::Mlp>(b, mlp_options(c));
  return std::make_unique<nn::Moe>(b, nn::MoeOptions{mlp_options(c), c.experts});
}

}  // namespace

GptBlock::GptBlock(const nn::Build& b, const GptConfig& c, int index)
    : Module(b),
      norm1_(make_norm(b / "norm1", c)),
      attn_(b / "attn", attention_options(c)),
      attn_dropout_(b / "attn_dropout", c.dropout),
      norm2_(make_norm(b / "norm2", c)),
      mlp_(make_mlp(b / "mlp", c, index)),
      mlp_dropout_(b / "mlp_dropout", c.dropout) {}

Tensor GptBlock::forward(const Tensor& x) {
  const auto add = [](const Tensor& residual, nn::Module& layer, nn::Dropout& dropout, const Tensor& input) {
    return dropout.drops() ? residual + dropout(layer(input)) : layer.forward_add(residual, input);
  };
  const Tensor h = add(x, attn_, attn_dropout_, (*norm1_)(x));  // [B, T, D]
  return add(h, *mlp_, mlp_dropout_, (*norm2_)(h));             // [B, T, D]
}

namespace {

pipeline::StagePlan plan_or_default(const nn::Build& b, const GptConfig& c, pipeline::StagePlan plan) {
  if (!plan.empty()) return plan;
  return pipeline::stage_plan(static_cast<int>(c.layers), b.mesh().size(Axis::pp), stage_costs(c));
}

}  // namespace

Gpt::Gpt(const nn::Build& b, const GptConfig& c, pipeline::StagePlan plan)
    : LanguageModel(b, plan_or_default(b, c, std::move(plan))), config_(c) {
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
                       .parameter("weight", {c.context, c.width}, {.tp = b.beside_residual()},
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
}

Batch Gpt::local_part(const Batch& batch) {
  const std::optional<std::int64_t> separator = config_.document_separator;
  run_state().document_starts = separator ? nn::document_starts(batch["inputs"], *separator) : Tensor();
  Batch local = batch;
  for (auto& [name, ids] : local.tensors) ids = nn::local_tokens(ids, mesh()).to(device());  // [B, T/cp]
  return local;
}

Tensor Gpt::front(const Batch& batch) {
  return use_embedding_(batch["inputs"], [this](const Tensor& tokens) { return embed(tokens); });
}

Tensor Gpt::embed(const Tensor& ids) {
  const std::int64_t length = nn::sequence_length(mesh(), {}, ids.size(1));
  const std::int64_t first = run_state().cache ? run_state().cache->first() : 0;
  require(first + length <= config_.context, "gpt", "sequences of {} tokens do not fit the context of {}",
          first + length, config_.context);
  const Tensor tokens = (*embedding_)(ids);  // [B, T, D]
  if (!positions_) return (*dropout_)(tokens);
  std::vector<Tensor> rows;
  for (const nn::PositionRun& run : nn::shifted(nn::residual_positions(mesh(), parallelism(), length), first))
    rows.push_back(slice(positions_->value(), 0, run.global, run.length));
  return (*dropout_)(tokens + concat(rows, 0));  // [B, T, D] + [T, D]
}

Tensor Gpt::logits(const Tensor& hidden) {
  return use_head_((*norm_)(hidden), [this](const Tensor& normed) { return head_->logits(normed); });
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
  return gathered(use_head_(slice(all, 1, position, 1), logits_of));  // [B, 1, V]
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

/// Elements of a block's matrices, of its biases, and of its norms.
struct BlockCounts {
  std::int64_t matrices = 0, biases = 0, norms = 0;
  std::int64_t all() const { return matrices + biases + norms; }
};

/// Of block `index`; `experts`: how many of its experts are counted, if it has them.
BlockCounts block_counts(const GptConfig& c, std::int64_t index, std::int64_t experts) {
  const std::int64_t d = c.width, kv = c.key_value_heads() * (d / c.heads), f = c.hidden();
  const std::int64_t gates = c.activation == Activation::swiglu ? 2 : 1;  // matrices from D to F
  const bool key_bias = attention_options(c).packed() || c.positions == PositionEncoding::rope;
  BlockCounts counts;
  counts.matrices = 2 * d * d + 2 * d * kv;  // q, proj; k, v
  counts.biases = c.bias ? 2 * d + (key_bias ? 2 : 1) * kv : 0;
  const auto add_mlp = [&](std::int64_t hidden, std::int64_t times) {
    counts.matrices += times * (gates + 1) * d * hidden;
    counts.biases += c.bias ? times * (gates * hidden + d) : 0;
  };
  if (!c.has_experts(index)) {
    add_mlp(f, 1);
  } else {
    counts.matrices += c.experts.count * d;  // the router
    add_mlp(f, experts);
    if (c.experts.shared > 0) add_mlp(c.experts.shared * f, 1);
  }
  counts.norms = 2 * norm_count(c);
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

std::int64_t expert_parameter_count(const GptConfig& c) { return parameter_count(c) - parameters_with(c, 0); }

pipeline::StageCosts stage_costs(const GptConfig& c) {
  const auto d = static_cast<double>(c.width), vocab = static_cast<double>(c.vocab);
  const double attention = 4 * d * static_cast<double>(c.context);  // q k^T and p v, over T keys
  pipeline::StageCosts costs{.embedding = 2 * d,                    // the sum of two rows, and dropout
                             .head = 2 * d * vocab};
  for (std::int64_t i = 0; i < c.layers; ++i) {
    const std::int64_t matrices = block_counts(c, i, c.experts.top_k).matrices;
    costs.blocks.push_back(2 * static_cast<double>(matrices) + attention);
  }
  return costs;
}

double training_flops_per_token(const GptConfig& c) {
  const auto d = static_cast<double>(c.width), layers = static_cast<double>(c.layers);
  std::int64_t blocks = 0;
  for (std::int64_t i = 0; i < c.layers; ++i) blocks += block_counts(c, i, c.experts.top_k).matrices;
  const double products = static_cast<double>(blocks) + static_cast<double>(c.vocab) * d;
  const double seen = 0.5 * static_cast<double>(c.context + 1);  // keys of a query, on average
  return 6 * products + 12 * layers * d * seen;
}

}  // namespace trireme
