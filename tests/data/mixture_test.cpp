// Mixtures: which sample of which source, and what --data may be.
#include "data/mixture.h"

#include <doctest/doctest.h>

#include "core/io.h"
#include "data/corpus.h"
#include "data/dataset.h"
#include "data/prefetch.h"
#include "helpers.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"

using namespace trireme;
using namespace trireme::testing;

namespace mixture_test {

TEST_CASE("the parts of --data") {
  const TempFolder folder;
  const auto parts = parse_mixture("web:0.7,a:b/books:0.2,code:0.1");
  REQUIRE(parts.size() == 3);
  CHECK(parts[0].path == "web");
  CHECK(parts[1].path == "a:b/books");
  CHECK(parts[1].weight == doctest::Approx(0.2));
  CHECK(parse_mixture("x:3,y:1")[0].weight == 0.75);
  for (const char* one : {"text.txt", "a,b", "a:b", "C:/x,y", ""}) {
    CHECK(parse_mixture(one).size() == 1);
    CHECK(parse_mixture(one)[0].path == one);
  }
  CHECK(parse_mixture("a:1")[0].path == "a");
  // Not a line of its own in a message: found by the fuzzer.
  CHECK_FALSE(contains(error_of([] { parse_mixture("a\nb:0,c:1"); }), "\n"));
  const std::string odd = (folder / "x:1,y:2").string();
  write_plainly(odd, "text");
  CHECK(parse_mixture(odd)[0].path == odd);
  const auto refused = [](const char* text, const char* part) {
    CHECK(says(error_of([&] { parse_mixture(text); }, ExitCode::usage), part));
  };
  refused("a:0.5,b", "the part \"b\" has no weight");
  refused("a:0.5,:0.5", "has no path");
  refused("a:0.5,b:0", "the weight of \"b\" is \"0\"");
  refused("a:0.5,b:-1", "the weight of \"b\" is \"-1\"");
  refused("a:0.5,b:1e", "the weight of \"b\" is \"1e\"");
  refused("a:0.5,b:1e999", "the weight of \"b\" is \"1e999\"");
  refused("a:0.5,a:0.5", "\"a\" occurs twice");
  refused("a:1,b:1e-5", "\"b\" has the weight 1e-05 of 1; expected at least 1/10000");
}

TEST_CASE("each source is read in order, without a gap, at exactly its share") {
  const MixtureOrder order({0.5, 0.3333, 0.1667}, 7);
  constexpr std::int64_t samples = 3 * MixtureOrder::period + 123;
  std::vector<std::vector<bool>> read(3, std::vector<bool>(samples));
  std::vector<std::int64_t> counts(3);
  const MixtureCounter counter(order);
  for (std::int64_t s = 0; s < samples; ++s) {
    if (s % 9973 == 0 || s == 3 * MixtureOrder::period)
      for (std::size_t k = 0; k < 3; ++k) {
        REQUIRE(order.count(k, s) == counts[k]);
        REQUIRE(counter.count(k, s) == counts[k]);
      }
    const auto found = order.locate(s);
    REQUIRE_FALSE(read[found.source][static_cast<std::size_t>(found.sample)]);
    read[found.source][static_cast<std::size_t>(found.sample)] = true;
    ++counts[found.source];
  }
  CHECK(order.count(0, MixtureOrder::period) == 5000);
  CHECK(order.count(1, MixtureOrder::period) == 3333);
  CHECK(order.count(2, 3 * MixtureOrder::period) == 3 * 1667);
  // Within a period the sources alternate as in a random order: of 100 samples in a row, neither is missing.
  for (std::int64_t begin = 0; begin < 9000; begin += 1000) {
    std::vector<int> near(3);
    for (std::int64_t s = begin; s < begin + 100; ++s) ++near[order.locate(s).source];
    CHECK(near[0] > 30);
    CHECK(near[1] > 15);
    CHECK(near[2] > 3);
  }
  CHECK(MixtureOrder({1.0}, 1).locate(12'345).sample != 12'345);
  CHECK(MixtureOrder({0.5, 0.5}, 1).locate(5).source == MixtureOrder({0.5, 0.5}, 1).locate(5).source);
}

/// Samples 0, 1, 2, ... with a first digit for the source.
struct Numbers : DataSource {
  explicit Numbers(std::int32_t source) : source_(source) {}
  Batch make_batch(std::int64_t first, std::int64_t count) const override {
    const Tensor x = Tensor::empty({count, 2}, DType::i32);
    for (std::int64_t i = 0; i < count; ++i) {
      x.data<std::int32_t>()[2 * i] = source_;
      x.data<std::int32_t>()[2 * i + 1] = static_cast<std::int32_t>(first + i);
    }
    return {{{"x", x}}, std::vector<std::int64_t>(static_cast<std::size_t>(count))};
  }
  std::int32_t source_;
};

TEST_CASE("a mixture gives the same samples to any number of ranks, of workers, and after any number of resumes") {
  const auto mixture = std::make_shared<Mixture>(
      std::vector<std::shared_ptr<const DataSource>>{std::make_shared<Numbers>(0), std::make_shared<Numbers>(1)},
      std::vector<double>{0.8, 0.2}, 5);
  const auto values = [](const Batch& batch) {
    const auto all = batch["x"].span<std::int32_t>();
    return std::vector<std::int32_t>(all.begin(), all.end());
  };
  std::vector<std::int32_t> expected;
  for (std::int64_t s = 0; s < 96; ++s) {
    const auto found = mixture->order().locate(s);
    expected.push_back(static_cast<std::int32_t>(found.source));
    expected.push_back(static_cast<std::int32_t>(found.sample));
  }
  CHECK(values(mixture->make_batch(0, 96)) == expected);
  CHECK(mixture->make_batch(40, 3).sample_ids == std::vector<std::int64_t>{40, 41, 42});
  // Steps of 24: one on dp=1, one resumed on dp=2 with 3 workers, two resumed again on dp=4.
  std::vector<std::int32_t> seen;
  std::int64_t consumed = 0;
  for (const auto& [ranks, workers, steps] : {std::tuple(1, 1, 1), std::tuple(2, 3, 1), std::tuple(4, 2, 2)}) {
    std::vector<std::unique_ptr<Loader>> loaders;
    for (int rank = 0; rank < ranks; ++rank)
      loaders.push_back(std::make_unique<Loader>(
          mixture, BatchPlan{.global_batch = 24, .micro_batch = 6, .dp_rank = rank, .dp_size = ranks}, consumed, 4,
          workers));
    for (int step = 0; step < steps; ++step)
      for (const auto& loader : loaders)
        for (std::int64_t i = 0; i < 4 / ranks; ++i) {
          const auto some = values(loader->next());
          seen.insert(seen.end(), some.begin(), some.end());
        }
    consumed = loaders.front()->consumed();
  }
  CHECK(consumed == 96);
  CHECK(seen == expected);
}

TEST_CASE("a corpus of several texts and shards: one tokenizer, each split by itself") {
  const TempFolder folder;
  write_plainly(folder / "a", std::string(90, 'a') + std::string(10, 'b'));
  write_plainly(folder / "b", std::string(45, 'c') + std::string(5, 'd'));
  const std::string both = fmt::format("{}:3,{}:1", (folder / "a").string(), (folder / "b").string());
  const Corpus corpus = load_corpus({both, std::nullopt, 0.1, 4});
  CHECK(corpus.tokenizer->vocab_size() == 4);
  REQUIRE(corpus.parts.size() == 2);
  CHECK(corpus.parts[0].weight == 0.75);
  CHECK(corpus.parts[1].train.count() == 45);
  CHECK(corpus.train.count() == 135);
  std::vector<std::int32_t> ids(15);
  corpus.validation.read(0, ids);
  CHECK(corpus.tokenizer->decode(ids) == "bbbbbbbbbbddddd");
  const std::string other = fmt::format("{}:1,{}:1", (folder / "a").string(), (folder / "b").string());
  CHECK(load_corpus({other, std::nullopt, 0.1, 4}).hash != corpus.hash);
  const auto alone = load_corpus({folder / "a", "char", 0.1, 4});
  CHECK(says(error_of(
                 [&] {
                   load_corpus({both, std::nullopt, 0.1, 4}, alone.tokenizer);
                 },
                 ExitCode::data),
             "outside the vocabulary"));
}

}  // namespace mixture_test
