// The prefetching loader: it delivers what direct reading gives, in order, and seeks, fails and stops cleanly.
#include "data/prefetch.h"

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <latch>
#include <stdexcept>
#include <thread>
#include <utility>

#include "helpers.h"
#include "tests/support/errors.h"

using namespace trireme;
using namespace trireme::testing;

namespace {

Sampler make_sampler() {
  std::mt19937_64 random(1);
  std::vector<std::int32_t> ids(5000);
  for (auto& id : ids) id = static_cast<std::int32_t>(random() % 100);
  TokenBuffer buffer(100);
  buffer.append(ids);
  return Sampler(TokenRange(in_memory(std::move(buffer))), 16, 7);
}

bool equal(const Batch& a, const Batch& b) {
  const auto same = [](const Tensor& x, const Tensor& y) {
    const auto p = x.span<std::int32_t>(), q = y.span<std::int32_t>();
    return x.shape() == y.shape() && std::equal(p.begin(), p.end(), q.begin());
  };
  return same(a["inputs"], b["inputs"]) && same(a["targets"], b["targets"]) && a.sample_ids == b.sample_ids;
}

/// A source that delivers sample numbers only, so that threads and not copying are tested.
Batch numbers_only(std::int64_t first, std::int64_t count) {
  Batch batch;
  for (std::int64_t i = 0; i < count; ++i) batch.sample_ids.push_back(first + i);
  return batch;
}

}  // namespace

TEST_CASE("the loader delivers what the sampler makes, for every rank and depth") {
  const Sampler sampler = make_sampler();
  for (const auto& [depth, workers] : {std::pair{1, 1}, {2, 1}, {5, 1}, {1, 3}, {5, 3}}) {
    for (int rank = 0; rank < 2; ++rank) {
      const BatchPlan plan{12, 3, rank, 2};
      Loader loader(std::make_shared<Sampler>(sampler), plan, 24, depth, workers);
      for (std::int64_t step = 0; step < 5; ++step) {
        const std::int64_t consumed = 24 + 12 * step;
        for (std::int64_t m = 0; m < plan.micro_batches(); ++m) {
          CHECK(loader.consumed() == consumed);
          CHECK(equal(loader.next(), sampler.make_batch(plan.first_sample(consumed, m), 3)));
        }
        CHECK(loader.consumed() == consumed + 12);
      }
    }
  }
}

TEST_CASE("several threads deliver in order, although later batches are made first") {
  std::atomic<int> at_once = 0, most = 0;
  std::latch second_made{1};
  const auto source = [&](std::int64_t first, std::int64_t count) {
    most = std::max(most.load(), ++at_once);
    if (first == 0) second_made.wait();
    if (first == 1) second_made.count_down();
    --at_once;
    return numbers_only(first, count);
  };
  Loader loader(source, {1, 1, 0, 1}, 0, 8, 4);
  for (std::int64_t s = 0; s < 40; ++s) CHECK(loader.next().sample_ids.front() == s);
  loader.seek(4);
  for (std::int64_t s = 4; s < 12; ++s) CHECK(loader.next().sample_ids.front() == s);
  CHECK(most <= 4);
}

TEST_CASE("of several threads, an exception arrives in the place of its batch too, and seek goes on") {
  Loader loader(
      [](std::int64_t first, std::int64_t count) -> Batch {
        if (first == 5) fail(ExitCode::data, "test", "sample {} is bad", first);
        return numbers_only(first, count);
      },
      {1, 1, 0, 1}, 0, 6, 3);
  for (std::int64_t s = 0; s < 5; ++s) CHECK(loader.next().sample_ids.front() == s);
  for (int again = 0; again < 2; ++again) CHECK(caught([&] { loader.next(); }).has("sample 5 is bad"));
  loader.seek(6);
  for (std::int64_t s = 6; s < 20; ++s) CHECK(loader.next().sample_ids.front() == s);
}

TEST_CASE("5 + 5 steps on other ranks are the 10 steps of one") {
  std::vector<std::int64_t> whole, parts;
  const auto run = [](const BatchPlan& plan, std::int64_t consumed, int steps, std::vector<std::int64_t>& into) {
    Loader loader(numbers_only, plan, consumed);
    for (std::int64_t i = 0; i < steps * plan.micro_batches(); ++i) {
      const auto ids = loader.next().sample_ids;
      into.insert(into.end(), ids.begin(), ids.end());
    }
    return loader.consumed();
  };
  run({6, 2, 0, 1}, 0, 10, whole);
  const std::int64_t half = run({6, 3, 0, 1}, 0, 5, parts);
  for (int rank = 0; rank < 3; ++rank) CHECK(run({6, 2, rank, 3}, half, 5, parts) == 60);
  std::sort(parts.begin(), parts.end());
  CHECK(parts == whole);
}

TEST_CASE("seek drops what was prepared, also in the middle of a step") {
  Loader loader(numbers_only, {8, 2, 0, 1}, 0, 3);
  for (const std::int64_t to : {80, 0, 8, 8, 160}) {
    CHECK(loader.next().sample_ids.size() == 2);
    loader.seek(to);
    CHECK(loader.consumed() == to);
    for (std::int64_t m = 0; m < 6; ++m) CHECK(loader.next().sample_ids.front() == to + 2 * m);
  }
}

TEST_CASE("the thread runs ahead by `depth` and no further") {
  std::atomic<int> made = 0;
  Loader loader([&](std::int64_t first, std::int64_t count) { return ++made, numbers_only(first, count); },
                {1, 1, 0, 1}, 0, 4);
  // Waits until the thread has made `count` batches, or for half an hour.
  const auto reaches = [&](int count) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(30);
    while (made < count && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    return made == count;
  };
  REQUIRE(reaches(4));
  for (int i = 0; i < 50; ++i) {
    loader.next();
    REQUIRE(reaches(i + 1 + 4));
  }
}

TEST_CASE("an exception arrives in the place of its batch, again at each call, and seek goes on") {
  Loader loader(
      [](std::int64_t first, std::int64_t count) -> Batch {
        if (first == 3) fail(ExitCode::data, "test", "sample {} is bad", first);
        return numbers_only(first, count);
      },
      {1, 1, 0, 1}, 0, 2);
  for (std::int64_t s = 0; s < 3; ++s) CHECK(loader.next().sample_ids.front() == s);
  for (int again = 0; again < 2; ++again) {
    const Caught error = caught([&] { loader.next(); });
    CHECK(error.code == ExitCode::data);
    CHECK(error.has("sample 3 is bad"));
  }
  CHECK(loader.consumed() == 3);
  loader.seek(4);
  CHECK(loader.next().sample_ids.front() == 4);
}

TEST_CASE("a loader stops at once whether its queue is full, empty, failed or untouched") {
  for (int round = 0; round < 100; ++round) {
    Loader untouched(numbers_only, {1, 1, 0, 1});
    Loader used(numbers_only, {1, 1, 0, 1}, 0, 1);
    for (int i = 0; i < round % 5; ++i) used.next();
    Loader failing([](std::int64_t, std::int64_t) -> Batch { throw std::runtime_error("always"); }, {1, 1, 0, 1});
    if (round % 2 == 0) CHECK_THROWS_AS(failing.next(), std::runtime_error);
  }
}

TEST_CASE("a loader without a source is refused") {
  const Caught no_source = caught([] { Loader(std::shared_ptr<const DataSource>(), {1, 1, 0, 1}); });
  CHECK(no_source.has("the source is null"));
  const Caught no_function = caught([] { Loader(Loader::Source(), {1, 1, 0, 1}); });
  CHECK(no_function.has("the source is null"));
}

TEST_CASE("batches come from the memory pool of the thread that made the loader") {
  const auto before = MemoryPool::current()->total().live;
  Loader loader(std::make_shared<Sampler>(make_sampler()), {4, 4, 0, 1});
  const Batch batch = loader.next();
  CHECK(MemoryPool::current()->total().live >= before + batch["inputs"].bytes() + batch["targets"].bytes());
}
