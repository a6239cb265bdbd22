// Layers under tensor parallelism, with the residual stream whole or split by positions, against one rank in f64:
// output, input gradient, and every parameter's gradient after the sums that its placement requires. All biases and
// gains are random, so that one that is applied on every rank, or whose gradient is only a part of the sum, shows.
#include "nn/attention.h"
#include "nn/mlp.h"
#include "nn/positions.h"
#include "nn/vocab_embedding.h"
#include "tests/support/mesh.h"

using namespace trireme;
using namespace trireme::testing;

namespace sequence_parallel_test {
namespace {

constexpr double rounding = 1e-13;  // f64 sums of some 50 terms, in another order
constexpr std::int64_t length = 8, width = 32;
const Shape stream = {2, length, width};  // [B, T, D]

using Results = std::map<std::string, std::vector<Tensor>>;  // by name, one tensor per rank
using Make = std::function<std::unique_ptr<nn::Module>(const nn::Build&)>;

/// "y", "dx" and the gradients by parameter name, as whole tensors, once per rank. The layer maps residual stream to
/// residual stream.
Results run_layer(const Make& make, const std::string& mesh_text, bool sequence) {
  Collected results;
  run_mesh(mesh_text, [&](const MeshPtr& mesh) {
    const nn::Build build(mesh, DType::f64, 3, {.sequence = sequence});
    const auto module = make(build);
    randomise(build.parameters(), 0.5);
    Tensor x = tp_part(random(stream, 1), build.residual(), *mesh);
    require_grad(x);
    const Tensor y = (*module)(x);
    backward(y, tp_part(random(stream, 2), build.residual(), *mesh));
    results.add("y", tp_whole(y.detach(), build.residual(), *mesh));
    results.add("dx", tp_whole(grad(x), build.residual(), *mesh));
    for (const ParameterPtr& p : build.parameters()) {
      Tensor gradient = clone(p->grad());
      for (const Axis axis : gradient_axes(p->placements, *mesh)) mesh->group(axis).all_reduce(gradient).wait();
      results.add(p->name, whole(gradient, *p, *mesh));
    }
  });
  return results.all();
}

void check_on_meshes(const std::string& what, const Make& make, const Meshes& meshes) {
  const Results reference = run_layer(make, "tp=1", false);
  for (const std::string& mesh : meshes) {
    for (const bool sequence : {false, true}) {
      const Results results = run_layer(make, mesh, sequence);
      CHECK(results.size() == reference.size());
      for (const auto& [name, tensors] : results) {
        const std::string where = fmt::format("{} on {}, sequence {}: {}", what, mesh, sequence, name);
        REQUIRE_MESSAGE(reference.contains(name), where);
        for (const Tensor& tensor : tensors) {
          CHECK_MESSAGE(relative_difference(tensor, reference.at(name).front()) < rounding, where);
          CHECK_MESSAGE(same_bits(tensor, tensors.front()), where, " differs between ranks");
        }
      }
    }
  }
}

nn::AttentionOptions attention_options(std::int64_t kv_heads, bool rotary) {
  return {
      .width = width, .heads = 8, .kv_heads = kv_heads, .rope = rotary ? std::optional(nn::Rotary{}) : std::nullopt};
}

/// The parameters of a layer on one rank by name, as pointers to f64; null if there is none of that name.
class Weights {
 public:
  explicit Weights(const ParameterList& parameters) : parameters_(parameters) {}
  const double* operator()(std::string_view name) const {
    for (const ParameterPtr& p : parameters_) {
      if (p->name == name) return p->local.data<double>();
    }
    return nullptr;
  }

 private:
  const ParameterList& parameters_;
};

/// [T, in] W^T + b by loops.
std::vector<double> product(const double* x, std::int64_t in, const double* w, const double* b, std::int64_t out) {
  std::vector<double> y;
  for (std::int64_t t = 0; t < length; ++t) {
    for (std::int64_t o = 0; o < out; ++o) {
      double sum = b == nullptr ? 0 : b[o];
      for (std::int64_t i = 0; i < in; ++i) sum += x[t * in + i] * w[o * in + i];
      y.push_back(sum);
    }
  }
  return y;
}

/// Rotates each pair (i, i + Dh/2) of every head of row t by t * 10000^(-2 i / Dh).
void turn(std::vector<double>& x, std::int64_t heads, std::int64_t head_width) {
  const std::int64_t half = head_width / 2;
  for (std::int64_t t = 0; t < length; ++t) {
    for (std::int64_t h = 0; h < heads; ++h) {
      for (std::int64_t i = 0; i < half; ++i) {
        const double angle =
            static_cast<double>(t) * std::pow(10000.0, -2.0 * static_cast<double>(i) / static_cast<double>(head_width));
        double& a = x[static_cast<std::size_t>((t * heads + h) * head_width + i)];
        double& b = x[static_cast<std::size_t>((t * heads + h) * head_width + i + half)];
        const double c = std::cos(angle), s = std::sin(angle), old = a;
        a = old * c - b * s;
        b = b * c + old * s;
      }
    }
  }
}

/// Grouped-query attention of one sequence x [T, D], token by token. With causal attention token t sees tokens 0 to t,
/// otherwise all of them.
std::vector<double> attention_by_loops(const double* x, const nn::AttentionOptions& o, const Weights& weights) {
  const std::int64_t head_width = o.width / o.heads, kv_width = o.kv_heads * head_width;
  auto q = product(x, o.width, weights("q.weight"), weights("q.bias"), o.width);
  auto k = product(x, o.width, weights("k.weight"), weights("k.bias"), kv_width);
  const auto v = product(x, o.width, weights("v.weight"), weights("v.bias"), kv_width);
  if (o.rope) turn(q, o.heads, head_width);
  if (o.rope) turn(k, o.kv_heads, head_width);
  std::vector<double> mixed(static_cast<std::size_t>(length * o.width), 0.0);
  for (std::int64_t t = 0; t < length; ++t) {
    const std::int64_t seen = o.causal ? t + 1 : length;
    for (std::int64_t h = 0; h < o.heads; ++h) {
      const std::int64_t shared = h / (o.heads / o.kv_heads);
      std::vector<double> p;
      double total = 0;
      for (std::int64_t s = 0; s < seen; ++s) {
        double score = 0;
        for (std::int64_t i = 0; i < head_width; ++i) {
          score += q[static_cast<std::size_t>(t * o.width + h * head_width + i)] *
                   k[static_cast<std::size_t>(s * kv_width + shared * head_width + i)];
        }
        p.push_back(std::exp(score / std::sqrt(static_cast<double>(head_width))));
        total += p.back();
      }
      for (std::int64_t s = 0; s < seen; ++s) {
        for (std::int64_t i = 0; i < head_width; ++i) {
          mixed[static_cast<std::size_t>(t * o.width + h * head_width + i)] +=
              p[static_cast<std::size_t>(s)] / total *
              v[static_cast<std::size_t>(s * kv_width + shared * head_width + i)];
        }
      }
    }
  }
  return product(mixed.data(), o.width, weights("proj.weight"), weights("proj.bias"), o.width);
}

}  // namespace

TEST_CASE("under sequence parallelism gradients of norms are summed over tp, to the same bits on every rank") {
  const auto layer_norm = [](const nn::Build& b) { return std::make_unique<nn::LayerNorm>(b, width); };
  const auto rms_norm = [](const nn::Build& b) { return std::make_unique<nn::RmsNorm>(b, width); };
  check_on_meshes("layer norm", layer_norm, {"tp=2", "tp=4"});
  check_on_meshes("rms norm", rms_norm, {"tp=2", "tp=4"});
}

TEST_CASE("a linear layer that is whole on every rank, on all positions or on its own") {
  const auto whole_linear = [](const nn::Build& b) {
    return std::make_unique<nn::Linear>(b, width, Shape{width}, nn::Split::none, nn::LinearOptions{});
  };
  check_on_meshes("linear", whole_linear, {"tp=2", "tp=4"});
}

TEST_CASE("an mlp, plain or gated: its row-parallel bias is added once, and its gradient summed over tp") {
  for (const bool gated : {false, true}) {
    for (const bool bias : {false, true}) {
      const auto mlp = [&](const nn::Build& b) {
        return std::make_unique<nn::Mlp>(
            b,
            nn::MlpOptions{
                .width = width, .hidden = 40, .bias = bias, .gate = gated ? std::optional(Unary::silu) : std::nullopt});
      };
      check_on_meshes(gated ? "gated mlp" : "mlp", mlp, {"tp=2", "tp=4"});
    }
  }
}

TEST_CASE("a gated mlp is down(silu(gate x) * up x)") {
  run_mesh("tp=1", [](const MeshPtr& mesh) {
    const nn::Build build(mesh, DType::f64, 3);
    nn::Mlp mlp(build, {.width = width, .hidden = 24, .gate = Unary::silu});
    randomise(build.parameters(), 0.5);
    const Tensor x = random({1, length, width}, 1);
    const Weights weights(build.parameters());
    const auto wide = product(x.data<double>(), width, weights("gate_up.weight"), weights("gate_up.bias"), 48);
    std::vector<double> hidden;
    for (std::size_t t = 0; t < static_cast<std::size_t>(length); ++t) {
      for (std::size_t i = 0; i < 24; ++i) {
        const double gate = wide[t * 48 + i];
        hidden.push_back(gate / (1 + std::exp(-gate)) * wide[t * 48 + 24 + i]);
      }
    }
    const auto expected = product(hidden.data(), 24, weights("down.weight"), weights("down.bias"), width);
    CHECK(relative_difference(mlp(x).detach(), Tensor::from(std::span(expected), {1, length, width})) < rounding);
  });
}

TEST_CASE("kv heads shared by several tp ranks sum their gradients; others are whole per rank") {
  for (const bool rotary : {false, true}) {
    for (const std::int64_t kv_heads : {8, 4, 2, 1}) {
      const auto attention = [&](const nn::Build& b) {
        return std::make_unique<nn::Attention>(b, attention_options(kv_heads, rotary));
      };
      const std::string what = fmt::format("attention with {} kv heads{}", kv_heads, rotary ? ", rotary" : "");
      check_on_meshes(what, attention, {"tp=2", "tp=4", "tp=8"});
    }
  }
}

TEST_CASE("grouped-query attention with rotary positions, causal or not, is what the formulas say") {
  const auto check = [](const nn::AttentionOptions& options) {
    run_mesh("tp=1", [&](const MeshPtr& mesh) {
      const nn::Build build(mesh, DType::f64, 3);
      nn::Attention attention(build, options);
      randomise(build.parameters(), 0.3);
      const Tensor x = random({1, length, width}, 1);
      const auto expected = attention_by_loops(x.data<double>(), options, Weights(build.parameters()));
      CHECK(relative_difference(attention(x).detach(), Tensor::from(std::span(expected), {1, length, width})) <
            rounding);
    });
  };
  for (const bool causal : {true, false}) {
    for (const bool rotary : {false, true}) {
      for (const std::int64_t kv_heads : {4, 2, 1}) {
        nn::AttentionOptions options = attention_options(kv_heads, rotary);
        options.causal = causal;
        check(options);
      }
    }
  }
}

TEST_CASE("attention with one packed projection: the first token sees the last one unless attention is causal") {
  for (const bool causal : {true, false}) {
    run_mesh("tp=1", [&](const MeshPtr& mesh) {
      const nn::Build build(mesh, DType::f64, 3);
      nn::Attention attention(build, {.width = width, .heads = 8, .causal = causal});
      const Tensor x = random({1, length, width}, 1), changed = clone(x);
      changed.data<double>()[x.count() - 1] += 1;  // a feature of the last token
      const auto first = [&](const Tensor& in) { return clone(view::slice(attention(in).detach(), 1, 0, 1)); };
      CHECK(same_bits(first(x), first(changed)) == causal);
    });
  }
}

TEST_CASE("attention to all tokens refuses a sequence that is cut over cp") {
  const auto make = [](const MeshPtr& mesh) {
    const nn::Attention attention(nn::Build(mesh, DType::f32, 1), {.width = 16, .heads = 2, .causal = false});
  };
  CHECK_THROWS_WITH_AS(run_mesh("cp=2", make), doctest::Contains("expected cp=1"), Error);
}

TEST_CASE("attention refuses kv heads that cannot be shared, and rotation of an odd head") {
  const auto make = [](const char* text, nn::AttentionOptions options) {
    run_mesh(text,
             [&](const MeshPtr& mesh) { const nn::Attention attention(nn::Build(mesh, DType::f32, 1), options); });
  };
  CHECK_THROWS_WITH_AS(make("tp=1", {.width = 24, .heads = 4, .kv_heads = 3}),
                       doctest::Contains("--kv-heads 3 does not divide --heads 4"), Error);
  CHECK_THROWS_WITH_AS(make("tp=2", {.width = 24, .heads = 6, .kv_heads = 3}),
                       doctest::Contains("--kv-heads 3 and tp=2: one must divide the other"), Error);
  CHECK_THROWS_WITH_AS(make("tp=1", {.width = 12, .heads = 4, .rope = nn::Rotary{}}),
                       doctest::Contains("a head has 3 features, an odd number"), Error);
}

TEST_CASE("the embedding gives each rank its positions, and the head takes them back") {
  const std::int64_t vocab = 65;
  const Tensor input = random_ids({2, length}, 4, 0, vocab), dlogits = random({2, length, 128}, 5);
  const auto on = [&](const std::string& text, bool sequence) {
    Collected results;
    run_mesh(text, [&](const MeshPtr& mesh) {
      const nn::Build build(mesh, DType::f64, 3, {.sequence = sequence});
      nn::VocabEmbedding table(build / "wte", vocab, width, 0.5, false);
      const Tensor embedded = table(input);  // [B, T(/tp), D]
      results.add("embedded", tp_whole(embedded.detach(), build.residual(), *mesh));
      const Tensor logits = table.logits(embedded);  // [B, T, V/tp]
      Tensor gradient = Tensor::zeros(logits.shape(), DType::f64);
      for (std::int64_t i = 0; i < gradient.count(); ++i) {
        const std::int64_t column = i % logits.size(2) + table.slice().first, row = i / logits.size(2);
        if (column < vocab) gradient.data<double>()[i] = dlogits.data<double>()[row * 128 + column];
      }
      backward(logits, gradient);
      const Parameter& weight = *build.parameters().front();
      results.add("logits", clone(view::slice(tp_whole(logits.detach(), placement::S(2), *mesh), 2, 0, vocab)));
      results.add("weight", whole(weight.grad(), weight, *mesh));
    });
    return results.all();
  };
  const Results reference = on("tp=1", false);
  for (const std::string& mesh : Meshes{"tp=2", "tp=4"}) {
    for (const bool sequence : {false, true}) {
      const Results results = on(mesh, sequence);
      for (const auto& [name, tensors] : results) {
        for (const Tensor& tensor : tensors)
          CHECK_MESSAGE(relative_difference(tensor, reference.at(name).front()) < rounding, mesh, ": ", name);
      }
    }
  }
}

TEST_CASE("a rank's dropout mask is its part of the one mask, by position in the sequence") {
  const Tensor ones = Tensor::full({3, 16, 10}, 1.0);
  const auto mask = [&](const MeshPtr& mesh, bool sequence) {
    const nn::Build build(mesh, DType::f32, 1, {.sequence = sequence});
    nn::Dropout layer(build / "drop", 0.3);
    build.run_state()->first_sample = 6;
    const std::int64_t local = 16 / nn::sequence_length(*mesh, build.parallelism(), 1);
    return layer(clone(view::slice(ones, 1, 0, local)));  // [B, T/cp(/tp), D]
  };
  Tensor one;
  run_mesh("tp=1", [&](const MeshPtr& mesh) { one = mask(mesh, false); });
  for (const std::string& text : Meshes{"tp=2", "tp=4", "cp=2", "cp=2,tp=2", "cp=4,tp=2"}) {
    for (const bool sequence : {false, true}) {
      run_mesh(text, [&](const MeshPtr& mesh) {
        const Tensor mine = mask(mesh, sequence);
        for (const nn::PositionRun& run : nn::residual_positions(*mesh, {.sequence = sequence}, 16)) {
          CHECK_MESSAGE(same_bits(clone(view::slice(mine, 1, run.local, run.length)),
                                  clone(view::slice(one, 1, run.global, run.length))),
                        text, " ", sequence);
        }
      });
    }
  }
}

}  // namespace sequence_parallel_test
