#include "models/gpt.h"

#include <cmath>
#include <utility>

#include "nn/cross_entropy.h"
#include "parallel/mesh/redistribute.h"

namespace trireme {
namespace {

constexpr double deviation = 0.02;  // initial weights, as in GPT-2

/// Layers that write into the residual stream start smaller, so that its variance does not grow with depth.
double residual_deviation(const GptConfig& c) { return deviation / std::sqrt(2.0 * static_cast<double>(c.layers)); }

Unary activation(const GptConfig& c) { return c.activation == Activation::gelu ? Unary::gelu : Unary::gelu_tanh; }

}  // namespace

GptBlock::GptBlock(const nn::Build& b, const GptConfig& c, int index)
    : Module(b),
      index_(index),
      norm1_(b / "norm1", c.width, c.bias),
      attn_(b / "attn", {.width = c.width,
                         .heads = c.heads,
                         .bias = c.bias,
                         .deviation = deviation,
                         .residual_deviation = residual_deviation(c)}),
      attn_dropout_(b / "attn_dropout", c.dropout),
      norm2_(b / "norm2", c.width, c.bias),
      mlp_(b / "mlp", {.width = c.width,
                       .hidden = 4 * c.width,
                       .activation = activation(c),
                       .bias = c.bias,
                       .deviation = deviation,
                       .residual_deviation = residual_deviation(c)}),
      mlp_dropout_(b / "mlp_dropout", c.dropout) {}

Tensor GptBlock::forward(const Tensor& x) {
  const Tensor h = x + attn_dropout_(attn_(norm1_(x)));  // [B, T, D]
  return h + mlp_dropout_(mlp_(norm2_(h)));              // [B, T, D]
}

Gpt::Gpt(const nn::Build& b, const GptConfig& c) : build_(b), config_(c) {
  const DeviceMesh& mesh = b.mesh();
  const bool first = mesh.is_first(Axis::pp), last = mesh.is_last(Axis::pp);
  const auto make_tokens = [&] {
    return std::make_unique<nn::VocabEmbedding>(b / "wte", c.vocab, c.width, deviation, !first);
  };
  if (first) {
    embedding_ = make_tokens();
    positions_ =
        (b / "wpe").parameter("weight", {c.context, c.width}, {}, nn::Init::normal(deviation), {.decay = true});
    dropout_ = std::make_unique<nn::Dropout>(b / "dropout", c.dropout);
  }
  const pipeline::BlockRange range = pipeline::stage_plan(
      static_cast<int>(c.layers), mesh.size(Axis::pp))[static_cast<std::size_t>(mesh.coord(Axis::pp))];
  for (int i = range.first; i < range.end(); ++i)
    blocks_.push_back(std::make_unique<GptBlock>(b / "blocks" / std::to_string(i), c, i));
  if (last) {
    norm_ = std::make_unique<nn::LayerNorm>(b / "norm", c.width, c.bias);
    head_ = first ? embedding_ : make_tokens();
  }
}

Tensor Gpt::hidden(const Tensor& input, const Tensor& ids) {
  Tensor x = embedding_ ? embed(ids) : input;  // [B, T, D]
  const nn::Recompute& saving = build_.parallelism().recompute;
  const RepeatCheapInputs scope(saving.kind == nn::Recompute::Kind::selective);
  for (const auto& block : blocks_) x = saving.of_block(block->index()) ? recomputed(*block, x) : (*block)(x);
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
  const std::int64_t length = ids.size(1);
  require(length <= config_.context, "gpt", "sequences of {} tokens do not fit the context of {}", length,
          config_.context);
  const Tensor positions = slice(positions_->value, 0, 0, length);  // [T, D]
  return (*dropout_)((*embedding_)(ids) + positions);               // [B, T, D]
}

Tensor Gpt::logits(const Tensor& hidden) { return head_->logits((*norm_)(hidden)); }

Tensor Gpt::loss(const Tensor& hidden, const Tensor& targets, double scale) {
  return nn::cross_entropy(logits(hidden), targets,
                           {.slice = head_->slice(), .group = &mesh().group(Axis::tp), .smoothing = 0, .scale = scale});
}

Tensor Gpt::gathered_logits(const Tensor& hidden) {
  const Tensor all = redistribute(logits(hidden), mesh(), Axis::tp, placement::S(2), placement::I);
  return cast_to(slice(all, 2, 0, config_.vocab), DType::f32);
}

std::int64_t parameter_count(const GptConfig& c) {
  const std::int64_t d = c.width, bias = c.bias ? 1 : 0;
  const std::int64_t norm = d + bias * d;
  const std::int64_t block = 12 * d * d + bias * 9 * d + 2 * norm;  // qkv 3, proj 1, up 4, down 4
  return c.vocab * d + c.context * d + c.layers * block + norm;
}

double training_flops_per_token(const GptConfig& c) {
  const auto d = static_cast<double>(c.width), layers = static_cast<double>(c.layers);
  const double products = 12 * d * d * layers + static_cast<double>(c.vocab) * d;
  return 6 * products + 12 * layers * d * static_cast<double>(c.context);
}

}  // namespace trireme
