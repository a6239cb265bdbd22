// Several texts at once, and texts longer than the context: compared with each text alone, without a cache, in f64.
#include "tests/models/decoder_kinds.h"
#include "tests/support/elements.h"
#include "tests/support/sanitized.h"
#include "train/gpt/generate.h"
#include "train/gpt/next_logits.h"

using namespace trireme;
using namespace trireme::testing;

namespace batched_test {
using namespace trireme::testing::decoders;

namespace {

using Texts = std::vector<Text>;

Text part(const Text& text, std::int64_t from, std::int64_t count) {
  return {text.begin() + static_cast<std::ptrdiff_t>(from), text.begin() + static_cast<std::ptrdiff_t>(from + count)};
}

/// Calls `body` with a NextLogits on every rank, and returns what it gives on the last stage, f64; checks that ranks
/// agree.
std::vector<double> on_mesh(const std::string& mesh_text, const Kind& kind, DType dtype, bool keep, PastContext past,
                            const std::function<void(NextLogits&, const std::function<void(const Tensor&)>&)>& body) {
  Collected by_rank;
  run_mesh(mesh_text, [&](const MeshPtr& mesh) {
    Gpt model = model_on(mesh, kind, dtype);
    NextLogits next(model, 100, keep, past);
    std::vector<float> mine;
    body(next, [&](const Tensor& logits) {
      if (logits.defined()) mine.insert(mine.end(), logits.span<float>().begin(), logits.span<float>().end());
    });
    const auto count = static_cast<std::int64_t>(mine.size());
    if (mesh->is_last(Axis::pp)) by_rank.add("logits", Tensor::from(std::span<const float>(mine), {count}));
  });
  for (const Tensor& one : by_rank.all().at("logits"))
    CHECK_MESSAGE(same_bits(one, by_rank.all().at("logits").front()), kind.name << " on " << mesh_text);
  return values(by_rank.all().at("logits").front());
}

/// Each text alone, without a cache, in f64 on one rank.
std::vector<double> alone(Kind kind, PastContext past, const Texts& texts) {
  kind.parallelism = {};
  return on_mesh("dp=1", kind, DType::f64, false, past, [&](NextLogits& next, const auto& take) {
    for (const Text& text : texts) take(next(std::span<const std::int32_t>(text)));
  });
}

/// Three texts that grow by a token, then two of them, one of these twice, that grow by two; and all that were asked.
Texts growing(NextLogits* next, const std::function<void(const Tensor&)>& take) {
  const Text all = text_of(60);
  const std::vector<std::int64_t> from = {0, 20, 31}, begin = {9, 3, 6};
  Texts asked;
  const auto ask = [&](const std::vector<std::size_t>& rows, std::int64_t more) {
    Texts texts;
    for (const std::size_t row : rows) texts.push_back(part(all, from[row], begin[row] + more));
    asked.insert(asked.end(), texts.begin(), texts.end());
    if (next != nullptr) take((*next)(texts));
  };
  ask({0, 1, 2}, 0);
  ask({0, 1, 2}, 1);
  const std::vector<std::int64_t> rows = {2, 1, 2};
  if (next != nullptr) next->select(rows);
  ask({2, 1, 2}, 2);
  ask({2, 1, 2}, 4);
  if (next != nullptr) next->select(std::vector<std::int64_t>{1});
  for (std::int64_t more = 5; more < 15; ++more) ask({1}, more);
  return asked;
}

/// A text that grows past the context, beside a shorter one.
Texts past_the_context(NextLogits* next, const std::function<void(const Tensor&)>& take) {
  const Text all = text_of(90);
  Texts asked;
  for (std::int64_t count : {13, 14, 15, 16, 17, 18, 20, 25, 26, 33, 40}) {
    const Texts texts = {part(all, 0, count), part(all, 41, count - 5)};
    asked.insert(asked.end(), texts.begin(), texts.end());
    if (next != nullptr) take((*next)(texts));
  }
  return asked;
}

std::vector<Kind> all_kinds() {
  return {gpt2(),
          llama_kind(),
          experts(),
          documents(),
          later(),
          restarted(),
          cut_by_positions(gpt2()),
          cut_by_positions(llama_kind()),
          cut_by_positions(restarted())};
}

}  // namespace

TEST_CASE("texts of different lengths at once have the logits that each has alone, on any mesh") {
  for (const Kind& kind : all_kinds()) {
    const std::vector<double> exact = alone(kind, PastContext::slide, growing(nullptr, {}));
    Meshes meshes = {"dp=1", "tp=2", "pp=2", "cp=2"};
    if (kind.parallelism.sequence) meshes = {"tp=2", "tp=4,pp=2"};
    if (sanitized) meshes = {"tp=2"};
    for (const std::string& mesh : meshes) {
      for (const bool keep : {true, false}) {
        const std::vector<double> got = on_mesh(mesh, kind, DType::f32, keep, PastContext::slide,
                                                [](NextLogits& next, const auto& take) { growing(&next, take); });
        CHECK_MESSAGE(largest_difference(got, exact) < 1e-5, kind.name << " on " << mesh);
      }
    }
  }
}

TEST_CASE("past the context, texts at once have the logits that each has alone, with a cache and without") {
  for (const PastContext past : {PastContext::slide, PastContext::recompute}) {
    for (const Kind& kind : all_kinds()) {
      const std::vector<double> exact = alone(kind, past, past_the_context(nullptr, {}));
      Meshes meshes = {"dp=1", "tp=2,pp=2", "cp=2"};
      if (kind.parallelism.sequence) meshes = {"tp=2"};
      if (sanitized) meshes = {"tp=2"};
      for (const std::string& mesh : meshes) {
        for (const bool keep : {true, false}) {
          const std::vector<double> got =
              on_mesh(mesh, kind, DType::f32, keep, past,
                      [](NextLogits& next, const auto& take) { past_the_context(&next, take); });
          CHECK_MESSAGE(largest_difference(got, exact) < 1e-5, kind.name << " on " << mesh << ", keep " << keep
                                                                         << ", slides "
                                                                         << (past == PastContext::slide));
        }
      }
    }
  }
}

TEST_CASE("rotary positions slide as a window of attention over the whole text") {
  const Text text = text_of(70);
  Kind windowed = llama_kind();  // the same weights
  windowed.config.context = 128;
  windowed.config.window = context;
  const std::vector<double> exact = on_mesh("dp=1", windowed, DType::f64, false, PastContext::slide,
                                            [&](NextLogits& next, const auto& take) { take(next(text)); });
  for (const std::int64_t begin : {std::int64_t{1}, std::int64_t{16}, std::int64_t{50}, std::int64_t{70}}) {
    std::vector<double> last;
    on_mesh("dp=1", llama_kind(), DType::f32, true, PastContext::slide, [&](NextLogits& next, const auto& take) {
      for (std::int64_t n = begin; n <= 70; ++n) {
        const Tensor logits = next(part(text, 0, n));
        if (n == 70) last = values(logits), take(logits);
      }
    });
    CHECK(largest_difference(last, exact) < 1e-5);
  }
  // It is not the last C tokens by themselves, if there is more than one block.
  const std::vector<double> other = alone(llama_kind(), PastContext::recompute, {text});
  CHECK(largest_difference(other, exact) > 1e-3);
  Kind one_block = llama_kind();
  one_block.config.layers = 1;
  CHECK(largest_difference(alone(one_block, PastContext::recompute, {text}),
                           alone(one_block, PastContext::slide, {text})) < 1e-5);
}

TEST_CASE("learned positions drop the older half of the context at a time") {
  const Text text = text_of(60);
  for (const auto& [length, seen] : {std::pair{16, 16}, {17, 9}, {18, 10}, {24, 16}, {25, 9}, {60, 12}}) {
    const std::vector<double> whole = alone(gpt2(), PastContext::slide, {part(text, 0, length)});
    const std::vector<double> end = alone(gpt2(), PastContext::slide, {part(text, length - seen, seen)});
    CHECK(largest_difference(whole, end) < 1e-12);
  }
}

TEST_CASE("a window of attention keeps only its keys, however long the text is") {
  run_mesh("dp=1", [&](const MeshPtr& mesh) {
    Kind kind = llama_kind();
    kind.config.context = 4096;
    const auto bytes_for = [&](std::optional<std::int64_t> window, std::int64_t longest) {
      kind.config.window = window;
      Gpt model = model_on(mesh, kind, DType::f32);
      NextLogits next(model, longest);
      next(text_of(3));
      return next.cache_bytes();
    };
    const std::int64_t of_token = 4 * 2 * 2 * 8 * 4;  // blocks, keys and values, their heads, features, bytes
    CHECK(bytes_for({}, 4096) == 4096 * of_token);
    CHECK(bytes_for(512, 4096) == (512 + 128) * of_token);
    CHECK(bytes_for({}, 1 << 20) == (4096 + 1024) * of_token);  // slides
    CHECK(bytes_for(512, 1 << 20) == (512 + 128) * of_token);
  });
}

TEST_CASE("texts generated at once are those generated alone, on every mesh, by chance or greedy") {
  const Text all = text_of(60);
  const std::vector<TextRequest> requests = {
      {part(all, 0, 9), 1}, {part(all, 20, 3), 2}, {part(all, 0, 9), 3}, {part(all, 30, 15), 4}};
  for (const Kind& kind : {gpt2(), llama_kind(), documents()}) {
    for (const GenerateOptions& options :
         {GenerateOptions{.length = 12, .temperature = 0}, GenerateOptions{.length = 12,
                                                           .temperature = 0.9,
                                                           .top_k = 30,
                                                           .min_p = 0.01,
                                                           .repetition_penalty = 1.1,
                                                           .presence_penalty = 0.2,
                                                           .frequency_penalty = 0.1,
                                                           .stop = {7, 20},
                                                           .top_logprobs = 2}}) {
      for (const std::string& mesh_text : sanitized ? Meshes{"tp=2"} : Meshes{"dp=1", "tp=2", "pp=2", "dp=2,cp=2"}) {
        run_mesh(mesh_text, [&](const MeshPtr& mesh) {
          Gpt model = model_on(mesh, kind, DType::f32);
          std::vector<std::size_t> told(requests.size(), 0);
          const auto each = [&](std::size_t text, const GeneratedToken&) {
            return ++told[text] < (text == 1 ? 5 : 99);
          };
          const std::vector<GeneratedText> texts = generate_texts(model, requests, options, each);
          for (std::size_t i = 0; i < requests.size(); ++i) {
            GenerateOptions one = options;
            one.seed = requests[i].seed;
            Text expected = generate(model, requests[i].prompt, one), got;
            if (i == 1 && expected.size() > 5) expected.resize(5);
            for (const GeneratedToken& token : texts[i].tokens) {
              got.push_back(token.id);
              CHECK(token.logprob <= 0);
              CHECK(token.likeliest.size() == static_cast<std::size_t>(options.top_logprobs));
            }
            CHECK_MESSAGE(got == expected, kind.name << " on " << mesh_text << ", text " << i);
            CHECK(told[i] == got.size());
            CHECK((texts[i].end == TextEnd::length) == (got.size() == 12));
          }
        });
      }
    }
  }
}

}  // namespace batched_test
