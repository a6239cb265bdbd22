// Picking tokens, against cases worked out by hand, and generating them on any mesh.
#include "train/gpt/generate.h"

#include <algorithm>
#include <numeric>

#include "parallel/comm/texts.h"
#include "tests/models/recipe.h"
#include "tests/support/sanitized.h"
#include "train/gpt/inference.h"

using namespace trireme;
using namespace trireme::testing;

namespace {

/// Logits whose softmax is 0.1, 0.4, 0.2, 0.3: by likelihood the ids 1, 3, 2, 0.
std::vector<float> some_logits() {
  std::vector<float> logits;
  for (const double p : {0.1, 0.4, 0.2, 0.3}) logits.push_back(static_cast<float>(std::log(p)));
  return logits;
}

std::int32_t pick(const GenerateOptions& options, double random) { return pick_token(some_logits(), options, random); }

std::vector<std::int32_t> generate_on(const std::string& mesh_text, const std::vector<std::int32_t>& prompt,
                                      const GenerateOptions& options, const char* pipeline = "1f1b") {
  std::mutex mutex;
  std::vector<std::vector<std::int32_t>> texts;
  run_mesh(mesh_text, [&](const MeshPtr& mesh) {
    GptRun run = run_of(mesh, {.pipeline = pipeline});
    run.steps(5);
    std::vector<std::int32_t> told;
    std::vector<std::int32_t> text = generate(run.gpt(), prompt, options, [&](std::int32_t id) { told.push_back(id); });
    CHECK(told == text);
    const std::scoped_lock lock(mutex);
    texts.push_back(std::move(text));
  });
  for (const auto& text : texts) CHECK(text == texts.front());
  return texts.front();
}

}  // namespace

TEST_CASE("tokens are taken in the order of likelihood") {
  CHECK(pick({}, 0.0) == 1);
  CHECK(pick({}, 0.39) == 1);
  CHECK(pick({}, 0.41) == 3);
  CHECK(pick({}, 0.69) == 3);
  CHECK(pick({}, 0.71) == 2);
  CHECK(pick({}, 0.89) == 2);
  CHECK(pick({}, 0.91) == 0);
  CHECK(pick({}, std::nextafter(1.0, 0.0)) == 0);
}

TEST_CASE("temperature 0 always takes the likeliest, the first of equals") {
  for (const double random : {0.0, 0.5, 0.99}) {
    CHECK(pick({.temperature = 0}, random) == 1);
    CHECK(pick_token(std::vector<float>{1, 5, 2, 5}, {.temperature = 0}, random) == 1);
    CHECK(pick_token(std::vector<float>{-INFINITY, -3, -INFINITY}, {.temperature = 0}, random) == 1);
  }
}

TEST_CASE("temperature sharpens or flattens") {
  // Temperature 1/2 squares the probabilities: 16, 9, 4 and 1 of 30.
  CHECK(pick({.temperature = 0.5}, 15.9 / 30) == 1);
  CHECK(pick({.temperature = 0.5}, 16.1 / 30) == 3);
  CHECK(pick({.temperature = 0.5}, 24.9 / 30) == 3);
  CHECK(pick({.temperature = 0.5}, 25.1 / 30) == 2);
  CHECK(pick({.temperature = 0.5}, 29.1 / 30) == 0);
  CHECK(pick({.temperature = 1e9}, 0.249) == 1);
  CHECK(pick({.temperature = 1e9}, 0.751) == 0);
}

TEST_CASE("top-k leaves the k likeliest, in proportion") {
  CHECK(pick({.top_k = 1}, 0.99) == 1);
  CHECK(pick({.top_k = 2}, 0.56) == 1);  // 0.4 of 0.7 is 0.571
  CHECK(pick({.top_k = 2}, 0.58) == 3);
  CHECK(pick({.top_k = 2}, 0.99) == 3);
  CHECK(pick({.top_k = 100}, 0.99) == 0);
}

TEST_CASE("top-p leaves the smallest set that holds p") {
  CHECK(pick({.top_p = 0.3}, 0.99) == 1);
  CHECK(pick({.top_p = 0.39}, 0.99) == 1);
  CHECK(pick({.top_p = 0.41}, 0.99) == 3);
  CHECK(pick({.top_p = 0.69}, 0.99) == 3);
  CHECK(pick({.top_p = 0.71}, 0.99) == 2);
  CHECK(pick({.top_p = 1e-9}, 0.99) == 1);
  CHECK(pick({.top_k = 3, .top_p = 0.5}, 0.99) == 3);  // of the three, 0.4 / 0.9 is less than half
}

TEST_CASE("among thousands of tokens the same one is taken as by sorting them all") {
  std::vector<float> logits;
  for (std::uint64_t i = 0; i < 3000; ++i) logits.push_back(static_cast<float>(2 * random_normal(3, 1, i)));
  for (std::size_t i = 1; i < logits.size(); i += 7) logits[i] = logits[i - 1];  // ties
  std::vector<std::int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
    return logits[static_cast<std::size_t>(a)] > logits[static_cast<std::size_t>(b)];
  });
  for (const GenerateOptions& o :
       {GenerateOptions{.temperature = 1}, GenerateOptions{.temperature = 3},
        GenerateOptions{.temperature = 2, .top_k = 700}, GenerateOptions{.temperature = 2, .top_p = 0.95},
        GenerateOptions{.temperature = 1, .top_k = 100, .top_p = 0.5}}) {
    const std::size_t likeliest = o.top_k > 0 ? static_cast<std::size_t>(o.top_k) : order.size();
    std::vector<double> up_to;  // cumulative weights
    for (std::size_t i = 0; i < likeliest; ++i)
      up_to.push_back((i == 0 ? 0 : up_to.back()) +
                      std::exp(static_cast<double>(logits[static_cast<std::size_t>(order[i])]) / o.temperature));
    const auto kept =
        static_cast<std::size_t>(std::lower_bound(up_to.begin(), up_to.end(), o.top_p * up_to.back()) - up_to.begin());
    for (std::size_t i = 0; i <= std::min(kept, likeliest - 1); i += 13) {
      const double middle = ((i == 0 ? 0 : up_to[i - 1]) + up_to[i]) / 2;
      CHECK(pick_token(logits, o, middle / up_to[std::min(kept, likeliest - 1)]) == order[i]);
    }
  }
}

TEST_CASE("logits too far apart for exp, and impossible tokens, do no harm") {
  CHECK(pick_token(std::vector<float>{1e30F, -1e30F, 0}, {}, 0.999) == 0);
  CHECK(pick_token(std::vector<float>{-INFINITY, 2, -INFINITY}, {}, 0.999) == 1);
}

TEST_CASE("generating is repeatable, and the same on every mesh") {
  const std::vector<std::int32_t> prompt = {5, 16, 49};
  for (const GenerateOptions& options :
       {GenerateOptions{.length = 30, .temperature = 0},
        GenerateOptions{.length = 30, .temperature = 0.8, .top_k = 20, .top_p = 0.9}}) {
    const auto one = generate_on("dp=1", prompt, options);
    CHECK(one.size() == 30);
    const Meshes meshes = {"dp=1", "dp=2", "tp=2", "pp=2", "tp=2,pp=2", "cp=2", "cp=4", "tp=2,pp=2,cp=2"};
    for (const std::string& mesh : sanitized ? Meshes{"tp=2,pp=2,cp=2"} : meshes)
      CHECK_MESSAGE(generate_on(mesh, prompt, options) == one, mesh);
    for (const std::string& mesh : Meshes{"pp=1", "pp=2"})
      CHECK_MESSAGE(generate_on(mesh, prompt, options, "interleaved:2") == one, mesh);
  }
  CHECK(generate_on("dp=1", prompt, {.length = 30}) != generate_on("dp=1", prompt, {.length = 30, .seed = 1}));
}

TEST_CASE("ids behind those of the tokenizer do not come") {
  for (const double temperature : {0.0, 5.0}) {
    const auto ids =
        generate_on("pp=2", {5, 16, 49}, {.length = 60, .temperature = temperature, .seed = 2, .vocab_size = 3});
    CHECK(std::all_of(ids.begin(), ids.end(), [](std::int32_t id) { return id < 3; }));
  }
}

TEST_CASE("only the last tokens of a prompt longer than the context are seen; an empty one is refused") {
  std::vector<std::int32_t> prompt;
  for (std::int32_t i = 0; i < 40; ++i) prompt.push_back(i);
  const std::vector<std::int32_t> end(prompt.end() - 16, prompt.end());
  CHECK(generate_on("dp=1", prompt, {.length = 5}) == generate_on("dp=1", end, {.length = 5}));
  CHECK_THROWS_WITH_AS(generate_on("dp=1", {}, {.length = 5}), doctest::Contains("the prompt is empty"), Error);
  CHECK(generate_on("dp=1", prompt, {.length = 0}).empty());
}

TEST_CASE("generation ends before the token that stops it, on every mesh") {
  const std::vector<std::int32_t> prompt = {1, 2, 3};
  const GenerateOptions options = {.length = 20, .seed = 5};
  const std::vector<std::int32_t> whole = generate_on("dp=1", prompt, options);
  REQUIRE(whole.size() == 20);
  GenerateOptions stopped = options;
  stopped.stop = {whole[7]};
  const auto end = std::find(whole.begin(), whole.end(), whole[7]);
  const std::vector<std::int32_t> expected(whole.begin(), end);
  CHECK(generate_on("dp=1", prompt, stopped) == expected);
  CHECK(generate_on("tp=2,pp=2", prompt, stopped) == expected);
}

TEST_CASE("one rank that is told to leave ends a text on all, after the same token") {
  for (const std::string& text : Meshes{"dp=1", "dp=2,tp=2", "pp=2", "dp=2,pp=2", "cp=2"}) {
    CAPTURE(text);
    run_mesh(text, [&](const MeshPtr& mesh) {
      GptRun run = run_of(mesh, {});
      const std::vector<std::int32_t> prompt = {1, 2, 3};
      const bool told = mesh->rank() == mesh->world().size() - 1;
      std::int64_t asked = 0;
      const std::vector<std::int32_t> whole = generate(run.gpt(), prompt, {.length = 9});
      const std::vector<std::int32_t> part =
          generate(run.gpt(), prompt, {.length = 9, .leave = [&] { return ++asked > 2 && told; }});
      REQUIRE((part.size() >= 2 && part.size() < 7));  // the calls in between at most double
      CHECK(part == std::vector(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(part.size())));
      const std::vector<std::string> sizes = all_gather_texts(mesh->world(), std::to_string(part.size()));
      for (const std::string& size : sizes) CHECK(size == sizes.front());
      CHECK(generate(run.gpt(), prompt, {.length = 9}) == whole);
    });
  }
}

TEST_CASE("a mesh has as many copies of a model as dp, unless experts need ranks of several dp coordinates") {
  const auto copies = [](const char* mesh) { return model_copies(parse_mesh(mesh, 0)); };
  CHECK(copies("dp=1") == 1);
  CHECK(copies("dp=3,tp=2") == 3);
  CHECK(copies("dp=4,ep=2") == 2);
  CHECK(copies("dp=2,cp=2,ep=2") == 2);  // the experts of a copy lie along cp
  CHECK(copies("dp=2,cp=2,ep=4") == 1);
  CHECK(copies("dp=2,cp=4,ep=2") == 2);
  CHECK(copies("dp=3,cp=2,ep=3") == 1);
  CHECK(copies("dp=6,cp=2,ep=4") == 3);
  run_mesh("dp=4,ep=2,tp=2,pp=2", [&](const MeshPtr& mesh) {
    const std::shared_ptr<ProcessGroup> world = mesh->world().subgroup(mesh->world().members(), "the same");
    const ModelCopy copy = model_copy(world, mesh->shape());
    CHECK(copy.copies == 2);
    CHECK(copy.number == mesh->coord(Axis::dp) / 2);
    CHECK(copy.shape == parse_mesh("dp=2,ep=2,tp=2,pp=2", 0));
    const DeviceMesh part(copy.group, copy.shape);
    for (const Axis axis : {Axis::pp, Axis::tp, Axis::ep}) CHECK(part.coord(axis) == mesh->coord(axis));
    CHECK(part.coord(Axis::dp) == mesh->coord(Axis::dp) % 2);
  });
}
