#include "models/gpt.h"

#include <cmath>
#include <utility>

#include "nn/cross_entropy.h"
#include "nn/kv_cache.h"
#include "nn/moe.h"
#include "nn/positions.h"
#include "nn/sequence_order.h"
#include "parallel/mesh/redistribute.h"

namespace trireme {
namespace {

constexpr double deviation = 0.02;  // initial weights, as in GPT-2

/// Layers that write into the residual stream start smaller, so that its variance does not grow with depth.
double residual_deviation(const GptConfig& c) { return deviation / std::sqrt(2.0 * static_cast<double>(c.layers)); }

std::unique_ptr<nn::Module> make_norm(const nn::Build& b, const GptConfig& c) {
  if (c.norm == Norm::rms) return std::make_unique<nn::RmsNorm>(b, c.width);
  return std::make_unique<nn::LayerNorm>(b, c.width, c.bias);
}

std::int64_t norm_count(const GptConfig& c) { return c.norm == Norm::layer && c.bias ? 2 * c.width : c.width; }

nn::AttentionOptions attention_options(const GptConfig& c) {
  return {.width = c.width,
          .heads = c.heads,
          .bias = c.bias,
          .deviation = deviation,
          .residual_deviation = residual_deviation(c),
          .kv_heads = c.key_value_heads(),
          .rotary = c.positions == PositionEncoding::rope};
}

nn::MlpOptions mlp_options(const GptConfig& c) {
  return {.width = c.width,
          .hidden = c.hidden(),
          .activation = c.activation == Activation::gelu_tanh ? Unary::gelu_tanh : Unary::gelu,
          .bias = c.bias,
          .deviation = deviation,
          .residual_deviation = residual_deviation(c),
          .gated = c.activation == Activation::swiglu};
}

/// What follows attention in block `index`: an Mlp, or a mixture of as wide ones.
std::unique_ptr<nn::Module> make_mlp(const nn::Build& b, const GptConfig& c, int index) {
  if (!c.has_experts(index)) return std::make_unique<nn::Mlp>(b, mlp_options(c));
  return std::make_unique<nn::Moe>(b, nn::MoeOptions{mlp_options(c), c.experts});
}

}  // namespace

GptBlock::GptBlock(const nn::Build& b, const GptConfig& c, int index)
    : Module(b),
      index_(index),
      norm1_(make_norm(b / "norm1", c)),
      attn_(b / "attn", attention_options(c)),
      attn_dropout_(b / "attn_dropout", c.dropout),
      norm2_(make_norm(b / "norm2", c)),
      mlp_(make_mlp(b / "mlp", c, index)),
      mlp_dropout_(b / "mlp_dropout", c.dropout) {}

Tensor GptBlock::forward(const Tensor& x) {
  const auto add = [](const Tensor& residual, nn::Module& layer, nn::Dropout& dropout, const Tensor& input) {
    return dropout.drops() ? residual + dropout(layer(input)) : layer.onto(residual, input);
  };
  const Tensor h = add(x, attn_, attn_dropout_, (*norm1_)(x));  // [B, T, D]
  return add(h, *mlp_, mlp_dropout_, (*norm2_)(h));             // [B, T, D]
}

Gpt::Gpt(const nn::Build& b, const GptConfig& c, pipeline::StagePlan plan)
    : build_(b), config_(c), plan_(std::move(plan)) {
  const DeviceMesh& mesh = b.mesh();
  const int ranks = mesh.size(Axis::pp);
  if (plan_.empty()) plan_ = pipeline::stage_plan(static_cast<int>(c.layers), ranks, stage_costs(c));
  require(stages() % ranks == 0 && plan_.back().end() == c.layers, "gpt",
          "a plan of {} stages and {} layers for {} ranks and {} layers", stages(), plan_.back().end(), ranks,
          c.layers);
  const bool first = mesh.is_first(Axis::pp), last = mesh.is_last(Axis::pp);
  const nn::Build tables = b.unit(first ? 0 : chunks() - 1);  // both tables of a stage, or the head's own
  const auto make_tokens = [&](const char* name, bool copy) {
    return std::make_unique<nn::VocabEmbedding>(tables / name, c.vocab, c.width, deviation, copy);
  };
  if (first) {
    use_embedding_ = tables.use_unit();
    embedding_ = make_tokens("wte", false);
    if (c.positions == PositionEncoding::learned) {
      positions_ = (tables / "wpe")
                       .parameter("weight", {c.context, c.width}, {.tp = b.beside_residual()},
                                  nn::Init::normal(deviation), {.decay = true});
    }
    dropout_ = std::make_unique<nn::Dropout>(b / "dropout", c.dropout);
  }
  for (int stage = mesh.coord(Axis::pp); stage < stages(); stage += ranks) {
    const int chunk = stage / ranks;
    const pipeline::BlockRange& range = plan_[static_cast<std::size_t>(stage)];
    for (int i = range.first; i < range.end(); ++i)
      blocks_.push_back(std::make_unique<GptBlock>((b / "blocks" / std::to_string(i)).unit(chunk), c, i));
  }
  if (last) {
    norm_ = make_norm((b / "norm").unit(chunks() - 1), c);
    use_head_ = tables.use_unit();
    head_ = !c.tied ? make_tokens("head", false) : first ? embedding_ : make_tokens("wte", true);
    // Each stage is a backward of its own: the shared weight's gradient is complete after the second.
    if (first && c.tied && stages() > 1) embedding_->weight()->leaf().run_hooks_after(2);
  }
}

Tensor Gpt::hidden(int stage, const Tensor& input, const Tensor& ids) {
  const pipeline::BlockRange& range = plan_[static_cast<std::size_t>(stage)];
  Tensor x = input;  // [B, T, D]
  if (stage == 0) x = use_embedding_(ids, [this](const Tensor& tokens) { return embed(tokens); });
  const nn::Recompute& saving = build_.parallelism().recompute;
  const RepeatCheapInputs scope(saving.kind == nn::Recompute::Kind::selective);
  for (const auto& block : blocks_) {
    if (!range.contains(block->index())) continue;  // of another stage on this rank
    x = saving.of_block(block->index()) ? recomputed(*block, x) : (*block)(x);
  }
  return x;
}

Tensor Gpt::recomputed(GptBlock& block, const Tensor& x) {
  // Dropout is keyed by the micro-batch, and backward runs when another one may be under way.
  const auto run = build_.run();
  return recompute(
      [&block, run, state = *run](const Tensor& input) {
        const nn::RunState now = std::exchange(*run, state);
        const Tensor output = block(input);
        *run = now;
        return output;
      },
      x);
}

Tensor Gpt::embed(const Tensor& ids) {
  const std::int64_t length = nn::sequence_length(mesh(), {}, ids.size(1));
  const std::int64_t first = run().cache ? run().cache->first() : 0;
  require(first + length <= config_.context, "gpt", "sequences of {} tokens do not fit the context of {}",
          first + length, config_.context);
  const Tensor tokens = (*embedding_)(ids);  // [B, T, D]
  if (!positions_) return (*dropout_)(tokens);
  std::vector<Tensor> rows;
  for (const nn::PositionRun& run : nn::from(first, nn::residual_positions(mesh(), build_.parallelism(), length)))
    rows.push_back(slice(positions_->value(), 0, run.global, run.length));
  return (*dropout_)(tokens + concat(rows, 0));  // [B, T, D] + [T, D]
}

Tensor Gpt::logits(const Tensor& hidden) {
  return use_head_((*norm_)(hidden), [this](const Tensor& normed) { return head_->logits(normed); });
}

Tensor Gpt::loss(const Tensor& hidden, const Tensor& targets, double scale) {
  return nn::cross_entropy(logits(hidden), targets,
                           {.slice = head_->slice(), .group = &mesh().group(Axis::tp), .smoothing = 0, .scale = scale});
}

Tensor Gpt::gathered_logits(const Tensor& hidden) { return gathered(logits(hidden)); }

Tensor Gpt::gathered_logits_at(const Tensor& hidden, std::int64_t position) {
  const Tensor local =
      redistribute((*norm_)(hidden), mesh(), Axis::tp, build_.residual(), placement::R);  // [B, T/cp, D]
  const Tensor all = nn::to_sequence_order(redistribute(local, mesh(), Axis::cp, placement::S(1), placement::I),
                                           mesh().size(Axis::cp));
  const auto logits_of = [this](const Tensor& normed) { return head_->logits_of_replicated(normed); };
  return gathered(use_head_(slice(all, 1, position, 1), logits_of));  // [B, 1, V]
}

Tensor Gpt::gathered(const Tensor& logits) const {
  const Tensor all = redistribute(logits, mesh(), Axis::tp, placement::S(2), placement::I);
  return cast_to(slice(all, 2, 0, config_.vocab), DType::f32);
}

Shape Gpt::hidden_shape(std::int64_t batch, std::int64_t length) const {
  require(padded_length(length) == length, "gpt", "{} tokens do not divide over the ranks of {}", length,
          to_string(mesh().shape()));
  return {batch, length / nn::sequence_length(mesh(), build_.parallelism(), 1), config_.width};
}

std::int64_t Gpt::padded_length(std::int64_t length) const {
  const std::int64_t multiple = nn::sequence_multiple(mesh().shape(), build_.parallelism());
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
  const std::int64_t gates = c.activation == Activation::swiglu ? 2 : 1;  // matrices that lead into the hidden
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
