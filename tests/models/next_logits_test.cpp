// With a cache of keys and values, the next token's logits equal those of the whole text, which the model computes in
// f64 on one rank without a cache.
#include "train/gpt/next_logits.h"

#include "tests/models/decoder_kinds.h"
#include "tests/support/elements.h"
#include "tests/support/sanitized.h"
#include "train/gpt/generate.h"

using namespace trireme;
using namespace trireme::testing;

namespace next_logits_test {
using namespace trireme::testing::decoders;

namespace {

/// Of the first `count` tokens of `text`, the last ones that fit the context.
std::span<const std::int32_t> window(const Text& text, std::int64_t count) {
  const std::int64_t seen = std::min(count, context);
  return std::span(text).subspan(static_cast<std::size_t>(count - seen), static_cast<std::size_t>(seen));
}

/// Logits after the first `prompt` tokens of `text`, after one more, and so on: [n, V]. Checks that all ranks of the
/// last stage have the same bits.
std::vector<double> logits_on(const std::string& mesh_text, const Kind& kind, DType dtype, bool keep, const Text& text,
                              std::int64_t prompt, int chunks = 1) {
  Collected logits_by_rank;
  run_mesh(mesh_text, [&](const MeshPtr& mesh) {
    Gpt model = model_on(mesh, kind, dtype, chunks);
    NextLogits next(model, context, keep);
    std::vector<float> mine;
    for (auto count = prompt; count <= static_cast<std::int64_t>(text.size()); ++count) {
      const Tensor logits = next(window(text, count));  // [1, 1, V]
      REQUIRE(logits.defined() == mesh->is_last(Axis::pp));
      if (!logits.defined()) continue;
      mine.insert(mine.end(), logits.span<float>().begin(), logits.span<float>().end());
    }
    CHECK(model.run_state().training);
    CHECK(model.run_state().cache == nullptr);
    const auto count = static_cast<std::int64_t>(mine.size());
    if (mesh->is_last(Axis::pp)) logits_by_rank.add("logits", Tensor::from(std::span<const float>(mine), {count}));
  });
  const std::vector<Tensor>& all = logits_by_rank.all().at("logits");
  const MeshShape shape = parse_mesh(mesh_text, 0);
  CHECK(all.size() == static_cast<std::size_t>(shape.ranks() / shape.size(Axis::pp)));
  for (const Tensor& one : all) CHECK_MESSAGE(same_bits(one, all.front()), kind.name << " on " << mesh_text);
  return values(all.front());
}

}  // namespace

TEST_CASE("logits with a cache are the whole text's on any mesh: one new token, many, and past the context") {
  const Text text = text_of(context + 4);
  Meshes meshes = {"dp=1", "tp=2", "pp=2", "tp=4", "dp=2,tp=2,pp=2"}, cut = {"tp=2", "tp=4,pp=2"};
  if (sanitized) meshes = {"tp=2,pp=2"}, cut = {"tp=2"};
  for (const Kind& kind :
       {gpt2(), llama_kind(), experts(), documents(), later(), restarted(), cut_by_positions(gpt2()),
        cut_by_positions(llama_kind()), cut_by_positions(documents()), cut_by_positions(restarted())}) {
    Kind plain = kind;
    plain.parallelism = {};
    const std::vector<double> exact = logits_on("dp=1", plain, DType::f64, false, text, 1);
    for (const std::string& mesh : kind.parallelism.sequence ? cut : meshes) {
      for (const std::int64_t prompt : {std::int64_t{1}, std::int64_t{5}, context, context + 2}) {
        if (sanitized && (prompt == 1 || prompt == context)) continue;
        const std::vector<double> got = logits_on(mesh, kind, DType::f32, true, text, prompt);
        const auto skipped = static_cast<std::ptrdiff_t>((prompt - 1) * test_vocab);
        const double off = largest_difference(got, {exact.begin() + skipped, exact.end()});
        CHECK_MESSAGE(off < 1e-5, kind.name << " on " << mesh << " after " << prompt << " tokens: " << off);
      }
    }
  }
}

TEST_CASE(
    "logits with a cache when a rank has several stages, and when sequences are cut over cp, where none is kept") {
  const Text text = text_of(context + 2);
  const std::vector<double> exact = logits_on("dp=1", gpt2(), DType::f64, false, text, 3);
  CHECK(largest_difference(logits_on("pp=2", gpt2(), DType::f32, true, text, 3, 2), exact) < 1e-5);
  CHECK(largest_difference(logits_on("dp=1", gpt2(), DType::f32, true, text, 3, 4), exact) < 1e-5);
  CHECK(largest_difference(logits_on("cp=2", gpt2(), DType::f32, true, text, 3), exact) < 1e-5);
}

TEST_CASE("in 16 bits logits with a cache are no farther from exact ones than the whole text's, but for luck") {
  const Text text = text_of(context);
  for (const Kind& kind : {gpt2(), llama_kind()}) {
    for (const DType dtype : {DType::bf16, DType::f16}) {
      const std::vector<double> exact = logits_on("dp=1", kind, DType::f64, false, text, 1);
      const double whole = largest_difference(logits_on("dp=1", kind, dtype, false, text, 1), exact);
      for (const std::string& mesh : Meshes{"dp=1", "tp=2,pp=2"}) {
        const double kept = largest_difference(logits_on(mesh, kind, dtype, true, text, 1), exact);
        CHECK_MESSAGE(kept < 2 * whole, kind.name << " on " << mesh << ": " << kept << ", without " << whole);
      }
    }
  }
}

TEST_CASE("what is kept is used: tokens that stand where they stood are not looked at again, others are") {
  run_mesh("dp=1", [&](const MeshPtr& mesh) {
    for (const bool keep : {true, false}) {
      Gpt model = model_on(mesh, gpt2(), DType::f32);
      NextLogits next(model, context, keep);
      const auto finite = [&](const Text& ids) {
        const Tensor logits = next(ids);
        return std::all_of(logits.span<float>().begin(), logits.span<float>().end(),
                           [](float x) { return std::isfinite(x); });
      };
      CHECK(finite({5, 6, 7}));
      for (const ParameterPtr& p : model.parameters()) {  // token 6 can no longer be computed
        if (p->name != "wte.weight") continue;
        Tensor row = view::slice(p->local.detach(), 0, 6, 1);
        copy(Tensor::full(row.shape(), NAN), row);
      }
      // The head is tied, so token 6's own logit is NaN in any case.
      const auto others_finite = [&](const Text& ids) {
        const Tensor logits = next(ids);
        const std::span<const float> all = logits.span<float>();
        return std::isfinite(all[5]) && std::isfinite(all[7]);
      };
      CHECK(others_finite({5, 6, 7, 8}) == keep);
      CHECK(others_finite({5, 6, 7, 8, 9, 10}) == keep);  // two more
      CHECK(others_finite({5, 6, 7, 8, 9}) == keep);      // a shorter one
      CHECK(others_finite({5, 6, 7, 9, 9}) == keep);      // another fourth token
      CHECK_FALSE(others_finite({4, 6, 7, 9, 9}));        // another first token
      CHECK(others_finite({4, 5}));                       // overwrites what the next text must not reuse
      CHECK_FALSE(others_finite({5, 6, 7}));
    }
  });
}

TEST_CASE("texts that are empty or longer than announced are refused, and so is a cache where it cannot be") {
  run_mesh("dp=1", [&](const MeshPtr& mesh) {
    Gpt model = model_on(mesh, gpt2(), DType::f32);
    NextLogits next(model, 4);
    CHECK_THROWS_WITH_AS(next(Text{}), doctest::Contains("expected 1 to 4 tokens, got 0"), Error);
    CHECK_THROWS_WITH_AS(next(Text{1, 2, 3, 4, 5}), doctest::Contains("expected 1 to 4 tokens, got 5"), Error);
    model.run_state().cache = std::make_shared<nn::KvCache>(context);
    model.run_state().first_sample = 0;
    const Batch ids = token_batch(Tensor::zeros({1, 2}, DType::i32), {}, {0});
    CHECK_THROWS_WITH_AS(model.hidden(0, {}, ids), doctest::Contains("got training"), Error);
  });
  run_mesh("cp=2", [&](const MeshPtr& mesh) {
    Gpt model = model_on(mesh, gpt2(), DType::f32);
    model.run_state().training = false;
    model.run_state().cache = std::make_shared<nn::KvCache>(context);
    CHECK_THROWS_WITH_AS(model.hidden(0, {}, token_batch(Tensor::zeros({1, 2}, DType::i32), {}, {0})),
                         doctest::Contains("cp=2"), Error);
  });
}

TEST_CASE("generated tokens are the same with a cache and without, greedy or by chance, also past the context") {
  for (const Kind& kind : {gpt2(), llama_kind(), experts(), documents()}) {
    for (const std::string& mesh_text :
         sanitized ? Meshes{"tp=2,pp=2"} : Meshes{"dp=1", "tp=2", "pp=2", "dp=2,tp=2,pp=2"}) {
      for (const std::int64_t prompt : {std::int64_t{1}, context}) {
        const Text begin = text_of(prompt);
        for (const double temperature : {0.0, 0.9}) {
          Collected texts;
          run_mesh(mesh_text, [&](const MeshPtr& mesh) {
            Gpt model = model_on(mesh, kind, DType::f32);
            for (const bool cache : {true, false}) {
              const Text ids =
                  generate(model, begin, {.length = 20, .temperature = temperature, .seed = 3, .cache = cache});
              texts.add("text", Tensor::from(std::span<const std::int32_t>(ids), {20}));
            }
          });
          for (const Tensor& one : texts.all().at("text"))
            CHECK_MESSAGE(same_bits(one, texts.all().at("text").front()), kind.name << " on " << mesh_text);
        }
      }
    }
  }
}

}  // namespace next_logits_test
