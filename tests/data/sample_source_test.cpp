// Samples of a user's own set: batches, the order of an epoch, ranks of dp, resuming, and what is refused.
#include "data/sample_source.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "data/prefetch.h"
#include "tests/support/errors.h"

using namespace trireme;
using namespace trireme::testing;

namespace sample_source_test {
namespace {

/// "x" of sample i is (i, 10 i), "y" the scalar -i.
struct Numbered : SampleSet {
  std::int64_t samples;
  explicit Numbered(std::int64_t count) : samples(count) {}
  std::int64_t size() const override { return samples; }
  Sample get(std::int64_t index) const override {
    Tensor x = Tensor::full({2}, static_cast<double>(index));
    x.data<float>()[1] *= 10;
    return {{"x", x}, {"y", Tensor::full({}, static_cast<double>(-index), DType::i32)}};
  }
};

std::shared_ptr<SampleSource> source(std::int64_t count, std::uint64_t seed = 7, bool shuffle = true) {
  return std::make_shared<SampleSource>(std::make_shared<Numbered>(count), seed, shuffle);
}

std::vector<float> seen(const Batch& batch) {
  std::vector<float> result;
  for (std::int64_t i = 0; i < batch["x"].size(0); ++i) result.push_back(batch["x"].data<float>()[2 * i]);
  return result;
}

}  // namespace

TEST_CASE("a batch has its samples in every tensor, one after the other") {
  const auto samples = source(13);
  const Batch batch = samples->make_batch(20, 6);
  CHECK(batch["x"].shape() == Shape{6, 2});
  CHECK(batch["y"].shape() == Shape{6});
  for (std::int64_t i = 0; i < 6; ++i) {
    const auto index = static_cast<float>(samples->index(20 + i));
    CHECK(batch["x"].data<float>()[2 * i] == index);
    CHECK(batch["x"].data<float>()[2 * i + 1] == 10 * index);
    CHECK(batch["y"].data<std::int32_t>()[i] == -static_cast<std::int32_t>(index));
    CHECK(batch.sample_ids[static_cast<std::size_t>(i)] == 20 + i);
  }
}

TEST_CASE("an epoch has every sample once, in an order of its own, or in their order") {
  for (const bool shuffle : {true, false}) {
    const auto samples = source(50, 7, shuffle);
    std::vector<std::vector<float>> epochs;
    for (std::int64_t epoch = 0; epoch < 2; ++epoch) {
      epochs.push_back(seen(samples->make_batch(epoch * 50, 50)));
      std::vector<float> sorted = epochs.back();
      std::sort(sorted.begin(), sorted.end());
      for (std::size_t i = 0; i < 50; ++i) CHECK(sorted[i] == static_cast<float>(i));
      CHECK((sorted == epochs.back()) == !shuffle);
    }
    CHECK((epochs[0] == epochs[1]) == !shuffle);
  }
  CHECK(seen(source(50, 7)->make_batch(0, 50)) != seen(source(50, 8)->make_batch(0, 50)));
}

TEST_CASE("ranks and workers see the samples of one rank, also after a resume on other ranks") {
  const auto samples = source(11);
  std::vector<float> whole = seen(samples->make_batch(0, 48)), parts;
  const auto run = [&](int dp, int rank, std::int64_t consumed, int workers) {
    Loader loader(samples, {.global_batch = 12, .micro_batch = 2, .dp_rank = rank, .dp_size = dp}, consumed, 4,
                  workers);
    for (int i = 0; i < 2 * 6 / dp; ++i) {
      const std::vector<float> batch = seen(loader.next());
      parts.insert(parts.end(), batch.begin(), batch.end());
    }
    CHECK(loader.consumed() == consumed + 24);
  };
  run(1, 0, 0, 3);
  for (int rank = 0; rank < 3; ++rank) run(3, rank, 24, 2);
  std::sort(whole.begin(), whole.end());
  std::sort(parts.begin(), parts.end());
  CHECK(parts == whole);
}

TEST_CASE("an empty set, and samples that differ, are refused") {
  struct Ragged : SampleSet {
    std::int64_t size() const override { return 4; }
    Sample get(std::int64_t index) const override {
      if (index == 2) return {{"z", Tensor::zeros({1})}};
      if (index == 3) return {{"x", Tensor()}};
      return {{"x", Tensor::zeros({index + 1})}};
    }
  };
  const SampleSource ragged(std::make_shared<Ragged>(), 1, false);
  CHECK(
      says(error_of([&] { ragged.make_batch(0, 2); }, ExitCode::data),
           "'x' of sample 1 is f32 [2], of the first sample of its batch f32 [1]; expected one shape and dtype; pad or "
           "cut the samples in get()"));
  CHECK(says(error_of([&] { ragged.make_batch(1, 2); }, ExitCode::data), "sample 2 has 'z', which the first of its"));
  CHECK(says(error_of([&] { ragged.make_batch(3, 1); }, ExitCode::data), "'x' of sample 3 is undefined"));
  CHECK(says(error_of([] { source(0); }, ExitCode::data), "a set of 0 samples; expected at least one"));
  CHECK(says(error_of([] { SampleSource(nullptr, 1); }, ExitCode::data), "the set is null; expected a SampleSet"));
}

}  // namespace sample_source_test
