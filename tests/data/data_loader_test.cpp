// Batches by epochs: each sample once, orders of their own, a shorter last batch, parts of dp ranks, early ends.
#include "data/data_loader.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <set>

#include "tests/support/errors.h"

using namespace trireme;
using namespace trireme::testing;

namespace data_loader_test {
namespace {

/// x is the number of the row, [n, 1].
std::map<std::string, Tensor, std::less<>> numbered(std::int64_t n) {
  Tensor x = Tensor::empty({n, 1}, DType::i32);
  for (std::int64_t i = 0; i < n; ++i) x.data<std::int32_t>()[i] = static_cast<std::int32_t>(i);
  return {{"x", x}};
}

struct Numbers : SampleSet {
  std::int64_t size() const override { return 10; }
  Sample get(std::int64_t index) const override {
    return {{"x", Tensor::full({1}, static_cast<double>(index), DType::i32)}};
  }
};

std::vector<int> rows_of(const Batch& batch) {
  const auto values = batch["x"].span<const std::int32_t>();
  return {values.begin(), values.end()};
}

std::vector<std::vector<int>> batches_of(DataLoader& loader, std::int64_t number) {
  std::vector<std::vector<int>> batches;
  for (const Batch& batch : loader.epoch(number)) batches.push_back(rows_of(batch));
  return batches;
}

std::vector<int> flat(const std::vector<std::vector<int>>& batches) {
  std::vector<int> all;
  for (const auto& batch : batches) all.insert(all.end(), batch.begin(), batch.end());
  return all;
}

void check_epochs(DataLoader& loader) {
  std::set<std::vector<int>> orders;
  for (std::int64_t number = 0; number < 3; ++number) {
    const auto batches = batches_of(loader, number);
    CHECK(batches.size() == 3);
    CHECK(batches.back().size() == 2);
    std::vector<int> all = flat(batches);
    orders.insert(all);
    std::sort(all.begin(), all.end());
    CHECK(all == std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
  }
  CHECK(orders.size() == 3);
}

template <class L>
constexpr bool has_epochs = requires(L&& loader) {
  std::forward<L>(loader).epoch(0);
};

}  // namespace

TEST_CASE("an epoch has every sample once, in an order that its number decides; the last batch may be shorter") {
  for (const int workers : {1, 3}) {
    DataLoader loader(numbered(10), {.batch = 4, .seed = 7, .depth = 4, .workers = workers});
    CHECK(loader.size() == 10);
    CHECK(loader.batches() == 3);
    CHECK(loader.epoch(0).size() == 3);
    check_epochs(loader);
    DataLoader own(std::make_shared<Numbers>(), {.batch = 4, .seed = 7, .workers = workers});
    check_epochs(own);
    CHECK(batches_of(loader, 1) == batches_of(own, 1));  // also after later epochs, and again
    CHECK(batches_of(loader, 1) == batches_of(loader, 1));
  }
}

TEST_CASE("without shuffling, with drop_last, and on ranks of dp") {
  DataLoader ordered(numbered(10), {.batch = 4, .shuffle = false});
  CHECK(batches_of(ordered, 5) == std::vector<std::vector<int>>{{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9}});
  DataLoader whole(numbered(10), {.batch = 4, .shuffle = false, .drop_last = true});
  CHECK(batches_of(whole, 0) == std::vector<std::vector<int>>{{0, 1, 2, 3}, {4, 5, 6, 7}});
  DataLoader one(numbered(10), {.batch = 4, .seed = 3});
  const auto expected = flat(batches_of(one, 2));
  std::vector<std::vector<int>> parts[2];
  for (const int rank : {0, 1}) {
    DataLoader loader(numbered(10), {.batch = 4, .seed = 3, .dp_rank = rank, .dp_size = 2});
    parts[rank] = batches_of(loader, 2);
  }
  std::vector<int> joined;
  for (std::size_t i = 0; i < 3; ++i)
    for (const auto& part : parts) joined.insert(joined.end(), part[i].begin(), part[i].end());
  CHECK(joined == expected);
}

TEST_CASE("a loop that ends early, and an exception of a sample, leave the loader usable") {
  DataLoader loader(numbered(10), {.batch = 3, .seed = 1});
  const auto first = batches_of(loader, 0);
  for (const Batch& batch : loader.epoch(1)) {
    CHECK(batch["x"].size(0) == 3);
    break;
  }
  CHECK(batches_of(loader, 0) == first);
  struct Broken : SampleSet {
    std::int64_t size() const override { return 4; }
    Sample get(std::int64_t index) const override {
      if (index == 2) fail(ExitCode::data, "broken", "sample 2 is broken");
      return {{"x", Tensor::zeros({1}, DType::i32)}};
    }
  };
  DataLoader broken(std::make_shared<Broken>(), {.batch = 1, .shuffle = false});
  for (int again = 0; again < 2; ++again)
    CHECK(says(error_of([&] { batches_of(broken, 0); }, ExitCode::data), "sample 2 is broken"));
}

TEST_CASE("two loops at the same time, and a loop over a loader that is gone, are refused") {
  DataLoader loader(numbered(10), {.batch = 3, .seed = 1});
  CHECK(says(error_of(
                 [&] {
                   for (const Batch& outer : loader.epoch(0))
                     for (const Batch& inner : loader.epoch(1)) CHECK(inner["x"].dims() == outer["x"].dims());
                 },
                 ExitCode::internal),
             "[data_loader] a loop over an epoch goes on after another one has begun"));
  static_assert(has_epochs<DataLoader&> && !has_epochs<DataLoader>);  // a temporary would be gone in the loop
}

TEST_CASE("options that do not fit are refused") {
  const auto error = [](const DataLoaderOptions& o) {
    return error_of([&] { DataLoader(numbered(10), o); }, ExitCode::usage);
  };
  CHECK(says(error({.batch = 0}), "[data_loader] a batch of 0 for rank 0 of 1; expected a multiple"));
  CHECK(says(error({.batch = 3, .dp_size = 2}), "a batch of 3 for rank 0 of 2"));
  CHECK(says(error({.batch = 4, .dp_rank = 2, .dp_size = 2}), "a batch of 4 for rank 2 of 2"));
  CHECK(says(error({.batch = 8, .dp_size = 4}),
             "the last batch of an epoch of 10 samples has 2, which do not divide over 4 ranks"));
  CHECK(says(error({.batch = 16, .drop_last = true}), "an epoch of 10 samples has no whole batch of 16"));
  DataLoader loader(numbered(10), {.batch = 2});
  CHECK(says(error_of([&] { loader.epoch(-1); }, ExitCode::internal), "epoch -1; expected a number from 0"));
  CHECK_THROWS_AS(DataLoader(std::shared_ptr<const SampleSet>(), {.batch = 2}), Error);
}

}  // namespace data_loader_test
