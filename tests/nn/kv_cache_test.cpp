// The cache of keys and values by itself: what it gives back, and what it refuses.
#include "nn/kv_cache.h"

#include "tests/support/mesh.h"

using namespace trireme;
using namespace trireme::testing;

namespace kv_cache_test {
namespace {

/// [2, n, 1, 3]: token t of batch row b has the three elements 100 b + t.
Tensor tokens(std::int64_t first, std::int64_t count, float sign = 1) {
  Tensor x = Tensor::empty({2, count, 1, 3});
  for (std::int64_t i = 0; i < x.count(); ++i)
    x.data<float>()[i] = sign * static_cast<float>(100 * (i / (3 * count)) + first + i / 3 % count);
  return x;
}

}  // namespace

TEST_CASE("a cache gives back all tokens in their order, layer by layer, and forgets from where it is told to") {
  nn::KvCache cache(8);
  const auto append = [&](const std::string& layer, std::int64_t first, std::int64_t count) {
    const nn::KvCache::Held held = cache.append(layer, tokens(first, count), tokens(first, count, -1));
    CHECK(same_bits(held.keys, tokens(0, first + count)));
    CHECK(same_bits(held.values, tokens(0, first + count, -1)));
  };
  for (const auto& [first, count] : {std::pair{0, 3}, {3, 1}, {4, 4}, {2, 3}, {5, 1}, {0, 2}}) {
    cache.begin(first);
    append("a", first, count);
    append("b", first, count);
  }
}

TEST_CASE("a cache takes its memory once") {
  nn::KvCache cache(1000);
  MemoryPool& pool = *MemoryPool::current();
  Tensor first, last;
  for (std::int64_t t = 0; t < 1000; ++t) {
    cache.begin(t);
    last = cache.append("a", tokens(t, 1), tokens(t, 1)).keys;
    if (t == 0) first = last;
  }
  CHECK(first.shares_storage_with(last));
  const std::int64_t before = pool.system_allocations();
  cache.begin(0);
  for (int i = 0; i < 10; ++i) cache.append("a", tokens(0, 1), tokens(0, 1));
  CHECK(pool.system_allocations() == before);
}

TEST_CASE("a cache refuses a gap, more than it has room for, and keys of another shape") {
  nn::KvCache cache(4);
  cache.begin(1);
  CHECK_THROWS_WITH_AS(cache.append("a", tokens(1, 1), tokens(1, 1)), doctest::Contains("would leave a gap"), Error);
  cache.begin(0);
  CHECK_THROWS_WITH_AS(cache.append("a", tokens(0, 5), tokens(0, 5)), doctest::Contains("do not fit a cache of 4"),
                       Error);
  cache.append("a", tokens(0, 2), tokens(0, 2));
  cache.begin(3);
  CHECK_THROWS_WITH_AS(cache.append("a", tokens(3, 1), tokens(3, 1)), doctest::Contains("behind the 2"), Error);
  cache.begin(2);
  const Tensor wide = Tensor::zeros({2, 1, 2, 3});
  CHECK_THROWS_WITH_AS(cache.append("a", wide, wide), doctest::Contains("one batch of one model"), Error);
}

}  // namespace kv_cache_test
