// A vocabulary whose size is not a multiple of tp, split over ranks: embedding, tied logits and cross-entropy against
// plain f64 loops without slices or padding.
#include "nn/cross_entropy.h"
#include "nn/linear.h"
#include "nn/vocab_embedding.h"
#include "parallel/mesh/redistribute.h"
#include "tests/support/errors.h"
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

TEST_CASE("logits that are padded or split are refused without a slice and a group, also after views and casts") {
  for (const char* mesh_text : {"tp=1", "tp=2"})
    run_mesh(mesh_text, [&](const MeshPtr& mesh) {
      const nn::Build build(mesh, DType::bf16, 5);
      nn::VocabEmbedding tokens(build / "wte", 100, 8, 1.0, false);
      const bool split = mesh->size(Axis::tp) > 1;
      ProcessGroup* const group = &mesh->group(Axis::tp);
      const Tensor h = random({2, 3, 8}, 6, DType::bf16), ids = random_ids({2, 3}, 9, 0, 50);
      const auto error = [&](const Tensor& logits, const nn::CrossEntropyOptions& options) {
        return error_of([&] { nn::cross_entropy(logits, view::reshape(ids, {ids.count()}), options); },
                        ExitCode::usage);
      };
      const auto refused = [&](const Tensor& logits) {
        const std::string message = error(logits, {.scale = 1});
        CHECK(says(message, split ? "64 columns of a vocabulary or a layer of 100, which is split over the ranks of tp"
                                  : "128 columns of a vocabulary or a layer of 100, padded"));
        CHECK(says(message, "give cross_entropy .slice = table.slice() and .group = &mesh.group(Axis::tp)"));
      };
      refused(tokens.logits(h));
      refused(reshape(tokens.logits(h), {6, -1}));
      refused(cast_to(tokens.logits(h), DType::f32));
      refused(cast(tokens.logits(h).detach(), DType::bf16));
      const Tensor logits = tokens.logits(h), bias = random({logits.size(-1)}, 7, DType::bf16);
      for (const Tensor& changed : {softcap(logits, 30), tanh(logits) * 30, logits / 0.7, logits + bias,
                                    clamp(logits, -9, 9), dropout(logits, 0, 1, 1, {logits.shape(), {0, 0, 0}})})
        refused(changed);
      nn::cross_entropy(softcap(logits, 30), ids, {.slice = tokens.slice(), .group = group});
      {
        const NoGrad guard;
        refused(tokens.logits(h));
      }
      nn::Linear head(build / "head", 8, {100}, nn::Split::out, {});
      if (split) {
        CHECK(says(error(head(h), {}),
                   "logits [2, 3, 50] have 50 columns of a vocabulary or a layer of 100, which is "
                   "split over the ranks of tp"));
        CHECK(says(error(head(h), {.group = group}), "50 columns of a vocabulary"));
        CHECK(says(error(clone(head(h).detach()), {}), "50 columns of a vocabulary"));
        CHECK(says(error(random({2, 3, 50}, 1, DType::bf16), {.group = group}),
                   "a group of 2 ranks, and no slice that says which columns each of them has"));
        CHECK(says(error(tokens.logits(h), {.slice = tokens.slice()}),
                   "of 100 tokens, and no group has the others; expected the ranks"));
      } else {
        nn::cross_entropy(head(h), ids, {});
        nn::cross_entropy(slice(tokens.logits(h), 2, 0, 100), ids, {});  // without the padding
      }
      CHECK(says(error(tokens.logits(h), {.slice = {.first = 0, .valid = 200, .global = 200}}),
                 "a slice of 200 tokens from 0 on, of 200, for logits"));
      nn::cross_entropy(tokens.logits(h), ids, {.slice = tokens.slice(), .group = group});
      const Tensor whole = nn::VocabEmbedding(build / "even", 64 * mesh->size(Axis::tp), 8, 1.0, false).weight()->local;
      if (!split) nn::cross_entropy(linear(h, whole, {}), ids, {});
    });
}

struct OverColumns {
  const char* name;
  bool of_all;  // it needs all columns on one rank
  void (*run)(const Tensor& x, int dim);
};
/// What sums over the vocabulary, or chooses from it.
constexpr OverColumns over_columns[] = {
    {"softmax", true, [](const Tensor& x, int dim) { softmax(x, dim); }},
    {"log_softmax", true, [](const Tensor& x, int dim) { log_softmax(x, dim); }},
    {"argmax", true, [](const Tensor& x, int dim) { argmax(x, dim); }},
    {"argmin", true, [](const Tensor& x, int dim) { argmin(x, dim); }},
    {"topk", true, [](const Tensor& x, int dim) { topk(x, 3, dim); }},
    {"logsumexp", false, [](const Tensor& x, int dim) { logsumexp(x, dim); }},
    {"max", false, [](const Tensor& x, int dim) { max(x, dim); }},
    {"min", false, [](const Tensor& x, int dim) { min(x, dim); }},
    {"sum", false, [](const Tensor& x, int dim) { sum(x, dim); }},
    {"mean", false, [](const Tensor& x, int dim) { mean(x, dim); }},
    {"var", false, [](const Tensor& x, int dim) { var(x, dim); }},
    {"norm", false, [](const Tensor& x, int dim) { norm(x, dim); }},
};

TEST_CASE("what sums over padded or split logits, or chooses from them, is refused with the way to all columns") {
  for (const char* mesh_text : {"tp=1", "tp=2"})
    run_mesh(mesh_text, [&](const MeshPtr& mesh) {
      const nn::Build build(mesh, DType::f32, 5);
      nn::VocabEmbedding tokens(build / "padded", 100, 8, 1.0, false), even(build / "even", 128, 8, 1.0, false);
      const bool split = mesh->size(Axis::tp) > 1;
      const Tensor h = random({2, 3, 8}, 6, DType::f32), logits = tokens.logits(h) / 0.7;
      const Tensor gathered = redistribute(logits, *mesh, Axis::tp, placement::S(2), placement::I);
      const Tensor before = transpose(logits, 1, 2);  // [2, V, 3]
      for (const OverColumns& over : over_columns) {
        CAPTURE(over.name);
        const auto message = [&](const Tensor& x, int dim) {
          return error_of([&] { over.run(x, dim); }, ExitCode::usage);
        };
        if (split) {
          CHECK(says(message(logits, -1), "dim 2 of [2, 3, 64] has 64 columns of a vocabulary of 100, which is split"));
          CHECK(says(message(before, 1),
                     "gather them with y = redistribute(x, *mesh, Axis::tp, placement::S(1), "
                     "placement::I) and take slice(y, 1, 0, 100), or for a loss"));
        } else {
          CHECK(says(message(before, 1), "dim 1 of [2, 128, 3] has 128 columns, of which 100 are a vocabulary"));
        }
        for (const Tensor& x : {gathered, contiguous(slice(gathered, 1, 0, 2)), select(gathered, 1, 2),
                                gather_rows(reshape(gathered, {6, 128}), Tensor::from({5, 0}, DType::i32))})
          CHECK(says(message(x, -1),
                     "has 128 columns, of which 100 are a vocabulary and the others padding; expected "
                     "columns without padding; take slice(x, "));
        over.run(slice(gathered, 2, 0, 100), -1);
        over.run(masked_fill(gathered, Tensor::arange(128) >= 100, -1e9), -1);
        over.run(gathered, 1);  // over positions
        over.run(redistribute(even.logits(h), *mesh, Axis::tp, placement::S(2), placement::I), -1);
      }
      CHECK(says(error_of([&] { max(gathered); }, ExitCode::usage), "100 are a vocabulary"));
      sum(gathered);  // the padding of logits is 0
    });
}

TEST_CASE("parts of a split vocabulary without padding: a maximum is allowed, and a softmax or an index is refused") {
  run_mesh("tp=2", [&](const MeshPtr& mesh) {
    const nn::Build build(mesh, DType::f32, 5);
    nn::VocabEmbedding tokens(build / "wte", 128, 8, 1.0, false);
    nn::Linear layer(build / "layer", 8, {128}, nn::Split::out, {});
    const Tensor h = random({2, 3, 8}, 6, DType::f32);
    for (const OverColumns& over : over_columns) {
      CAPTURE(over.name);
      over.run(layer(h), -1);  // features: a part may be meant
      const Tensor logits = tokens.logits(h);
      if (!over.of_all) {
        over.run(logits, -1);
        continue;
      }
      CHECK(
          says(error_of([&] { over.run(logits, -1); }, ExitCode::usage),
               "64 columns of a vocabulary of 128, which is split over the ranks of tp; expected all 128 on each rank; "
               "gather them with y = redistribute(x, *mesh, Axis::tp, placement::S(2), placement::I), or"));
    }
  });
}

}  // namespace vocab_test
