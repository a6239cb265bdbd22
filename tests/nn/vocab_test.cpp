// A vocabulary whose size is not a multiple of tp, split over ranks: embedding, tied logits and cross-entropy against
// plain f64 loops without slices or padding.
#include "nn/cross_entropy.h"
#include "nn/vocab_embedding.h"
#include "tests/support/mesh.h"

using namespace trireme;
using namespace trireme::testing;

namespace vocab_test {
namespace {

constexpr std::int64_t batch = 2, length = 5, rows = batch * length, width = 8;

struct Question {
  std::int64_t vocab;
  double smoothing = 0;
  double spread = 1;  // of the hidden states: logits grow with it
  DType dtype = DType::f64;
};

struct Answer {
  double loss = 0;
  Tensor embedded, dhidden, dtable;  // [B, T, D], [B, T, D], [V, D]
};

Tensor some_targets(std::int64_t vocab) {
  Tensor targets = random_ids({batch, length}, 8, 0, vocab);
  for (const std::int64_t ignored : {1, 6, 7}) targets.data<std::int32_t>()[ignored] = -1;
  targets.data<std::int32_t>()[0] = static_cast<std::int32_t>(vocab - 1);  // the last real row, next to the padding
  return targets;
}

double loss_scale() { return 1.0 / (rows - 3); }

/// loss = scale * sum over targets of -sum_v q_v log softmax(h W^T)_v with q the smoothed one-hot; the table also gets
/// the gradient of sum(dembedded * embedding(ids)).
Answer by_loops(const Question& q, const Tensor& table, const Tensor& hidden, const Tensor& dembedded) {
  const Tensor targets = some_targets(q.vocab), input = random_ids({batch, length}, 9, 0, q.vocab);
  Answer a{0, Tensor::zeros({batch, length, width}, DType::f64), Tensor::zeros({batch, length, width}, DType::f64),
           Tensor::zeros({q.vocab, width}, DType::f64)};
  const double* w = table.data<double>();
  std::vector<double> logits(static_cast<std::size_t>(q.vocab));
  for (std::int64_t n = 0; n < rows; ++n) {
    const double* h = hidden.data<double>() + n * width;
    for (std::int64_t d = 0; d < width; ++d) {
      const std::int64_t at = input.data<std::int32_t>()[n] * width + d;
      a.embedded.data<double>()[n * width + d] = w[at];
      a.dtable.data<double>()[at] += dembedded.data<double>()[n * width + d];
    }
    const std::int64_t target = targets.data<std::int32_t>()[n];
    if (target < 0) continue;
    double maximum = -INFINITY, total = 0;
    for (std::int64_t v = 0; v < q.vocab; ++v) {
      double& x = logits[static_cast<std::size_t>(v)];
      x = 0;
      for (std::int64_t d = 0; d < width; ++d) x += h[d] * w[v * width + d];
      maximum = std::max(maximum, x);
    }
    for (const double x : logits) total += std::exp(x - maximum);
    for (std::int64_t v = 0; v < q.vocab; ++v) {
      const double log_p = logits[static_cast<std::size_t>(v)] - maximum - std::log(total);
      const double wanted = q.smoothing / static_cast<double>(q.vocab) + (v == target ? 1 - q.smoothing : 0);
      a.loss -= loss_scale() * wanted * log_p;
      const double g = loss_scale() * (std::exp(log_p) - wanted);
      for (std::int64_t d = 0; d < width; ++d) {
        a.dhidden.data<double>()[n * width + d] += g * w[v * width + d];
        a.dtable.data<double>()[v * width + d] += g * h[d];
      }
    }
  }
  return a;
}

/// The results of one rank, gathered. Also checks the rank's slice and that its padding has no gradient.
Answer on_rank(const Question& q, const MeshPtr& mesh) {
  const nn::Build build(mesh, q.dtype, 5);
  nn::VocabEmbedding tokens(build / "wte", q.vocab, width, 1.0, false);
  const Parameter& table = *build.parameters().front();
  randomise(build.parameters(), 0.1);  // also the padding
  Tensor hidden = random({batch, length, width}, 6, q.dtype, normal(q.spread));
  require_grad(hidden);

  const Tensor embedded = tokens(random_ids({batch, length}, 9, 0, q.vocab));
  backward(embedded, random({batch, length, width}, 7, q.dtype));
  const Tensor loss = nn::cross_entropy(
      tokens.logits(hidden), some_targets(q.vocab),
      {.slice = tokens.slice(), .group = &mesh->group(Axis::tp), .smoothing = q.smoothing, .scale = loss_scale()});
  backward(loss);

  const std::int64_t real = std::clamp<std::int64_t>(q.vocab - table.rectangle.start[0], 0, table.local.size(0));
  CHECK(tokens.slice().valid == real);
  const Tensor padding = clone(view::slice(table.grad(), 0, real, table.local.size(0) - real));
  CHECK(kernels(Device::cpu).sum_squares({&padding, 1}).value() == 0);
  return {loss.item(), embedded.detach(), grad(hidden), whole(table.grad(), table, *mesh)};
}

/// The table as one rank holds it, without padding.
Tensor whole_table(const Question& q) {
  Tensor table;
  run_mesh("tp=1", [&](const MeshPtr& mesh) {
    const nn::Build build(mesh, q.dtype, 5);
    const nn::VocabEmbedding tokens(build / "wte", q.vocab, width, 1.0, false);
    randomise(build.parameters(), 0.1);
    table = cast(whole(build.parameters().front()->local, *build.parameters().front(), *mesh), DType::f64);
  });
  return table;
}

/// Compares every rank with the loops. `tolerance` is relative, for the loss and the gradients.
void check(const Question& q, double tolerance, const Meshes& meshes = {"tp=1", "tp=2", "tp=4"}) {
  const Tensor hidden = cast(random({batch, length, width}, 6, q.dtype, normal(q.spread)), DType::f64);
  const Answer expected =
      by_loops(q, whole_table(q), hidden, cast(random({batch, length, width}, 7, q.dtype), DType::f64));
  CAPTURE(q.vocab);
  CAPTURE(q.smoothing);
  for (const std::string& text : meshes) {
    CAPTURE(text);
    std::vector<Answer> answers(4);
    run_mesh(text, [&](const MeshPtr& mesh) { answers[static_cast<std::size_t>(mesh->rank())] = on_rank(q, mesh); });
    for (const Answer& a : answers) {
      if (!a.embedded.defined()) continue;
      CHECK(std::isfinite(a.loss));
      CHECK(std::abs(a.loss - expected.loss) <= tolerance * expected.loss);
      CHECK(same_bits(cast(a.embedded, DType::f64), expected.embedded));
      CHECK(relative_difference(a.dhidden, expected.dhidden) < tolerance);
      CHECK(relative_difference(a.dtable, expected.dtable) < tolerance);
      CHECK(a.loss == answers.front().loss);
      CHECK(same_bits(a.dhidden, answers.front().dhidden));
    }
  }
}

}  // namespace

TEST_CASE("a vocabulary is padded to a multiple of 64 and of tp") {
  CHECK(nn::padded_vocab(65, 1) == 128);
  CHECK(nn::padded_vocab(64, 4) == 64);
  CHECK(nn::padded_vocab(50257, 2) == 50304);
  CHECK(nn::padded_vocab(65, 3) == 192);
  CHECK(nn::padded_vocab(1, 128) == 128);
}

TEST_CASE("embedding, tied logits and loss over 65 tokens, one slice all padding") {
  run_mesh("tp=4", [](const MeshPtr& mesh) {
    const nn::VocabEmbedding tokens(nn::Build(mesh, DType::f32, 5) / "wte", 65, width, 1.0, false);
    CHECK(tokens.slice().valid == std::vector<std::int64_t>{32, 32, 1, 0}[static_cast<std::size_t>(mesh->rank())]);
  });
  for (const double smoothing : {0.0, 0.1}) {
    check({.vocab = 65, .smoothing = smoothing}, 1e-13);
    check({.vocab = 65, .smoothing = smoothing, .dtype = DType::f32}, 2e-6);  // some 32 roundings of 2^-24
  }
}

TEST_CASE("and over 50257 tokens") {
  check({.vocab = 50257}, 1e-12);
  check({.vocab = 50257, .smoothing = 0.1}, 1e-12, {"tp=2", "tp=4"});
}

TEST_CASE("logits a thousand times larger overflow nothing") {
  // One rounding of a logit near 10^4 changes its probability by 10^4 roundings: 1e-16 * 10^4, and 2^-24 * 10^4 in f32.
  for (const std::int64_t vocab : {65, 50257})
    check({.vocab = vocab, .smoothing = 0.1, .spread = 1000}, 1e-11, {"tp=1", "tp=4"});
  check({.vocab = 65, .smoothing = 0.1, .spread = 1000, .dtype = DType::f32}, 1e-3);
}

}  // namespace vocab_test
