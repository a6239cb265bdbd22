// How gemm_sm90 cuts products into work: every step of every tile is computed once, and shapes of real models get the
// cut that keeps multiprocessors busy.
#include "cuda/kernels/gemm_cut.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

using namespace trireme::cuda;
using sm90::Cut;

namespace gemm_cut_test {

constexpr sm90::Resident kH100{132, 66};
constexpr int kLeast = sm90::kLeastSteps;

/// Checks that the items of all shares have every step of every tile once, and that join_kernel, which asks for the
/// item with a step, finds the same items in the order of K. Returns how many steps the longest share has.
int check_shares(const sm90::Shares& shares) {
  int items = 0, visited = 0, most = 0;
  for (int sharer = 0; sharer < shares.sharers(); ++sharer) {
    int steps = 0, number = 0;
    for (; !shares.item(sharer, number).empty(); ++number) {
      const sm90::ShareItem item = shares.item(sharer, number);
      CHECK(item.tile < shares.tiles());
      steps += item.last - item.first;
    }
    CHECK(number >= 1);
    CHECK(number <= shares.items());
    items += number;
    most = std::max(most, steps);
  }
  CHECK(shares.item(shares.sharers(), 0).empty());
  for (int tile = 0; tile < shares.tiles(); ++tile)
    for (int step = 0; step < shares.steps(); ++visited) {
      const sm90::ShareItem item = shares.item_with(tile, step);
      REQUIRE(item.first == step);
      REQUIRE(item.last > step);
      const sm90::ShareItem same = shares.item(item.sharer, item.number);
      CHECK(item.tile == tile);
      CHECK(same.tile == tile);
      CHECK(same.first == step);
      CHECK(same.last == item.last);
      step = item.last;
    }
  CHECK(items == visited);
  return most;
}

TEST_CASE("gemm_cut: shares have every step of the divided tiles once, and are as long as their mean") {
  for (int tiles = 1; tiles <= 100; tiles += tiles < 30 ? 1 : 7)
    for (const int steps : {8, 9, 21, 22, 100, 101, 256})
      for (const int sharers : {2, 3, 7, 16, 25, 32, 66, 132}) {
        if (sharers <= tiles || sharers > tiles * steps / kLeast) continue;
        CAPTURE(tiles);
        CAPTURE(steps);
        CAPTURE(sharers);
        const sm90::Shares shares(tiles, steps, sharers, kLeast);
        CHECK(shares.sharers() <= sharers);
        const int mean = (tiles * steps + sharers - 1) / sharers;
        CHECK(check_shares(shares) <= mean + 2 * kLeast);
      }
}

TEST_CASE("gemm_cut: the example of gemm_shares.h") {
  const sm90::Shares shares(96, 256, 132, kLeast);
  CHECK(shares.sharers() == 132);
  CHECK(shares.items() == 4);
  const auto is = [&](int sharer, int number, int tile, int first, int last) {
    const sm90::ShareItem item = shares.item(sharer, number);
    return item.tile == tile && item.first == first && item.last == last;
  };
  CHECK(is(50, 0, 50, 0, 187));
  CHECK(is(97, 0, 1, 187, 256));
  CHECK(is(97, 1, 37, 187, 256));
  CHECK(is(97, 2, 73, 187, 236));
  CHECK(shares.item(97, 3).empty());
  CHECK(is(121, 1, 61, 187, 256));
  CHECK(is(121, 2, 73, 236, 256));
  CHECK(is(121, 3, 85, 236, 256));
}

TEST_CASE("gemm_cut: whole waves come before the divided tiles") {
  for (const int usable : {1, 2, 3, 7, 132})
    for (const int k : {1, 64, 511, 512, 1096, 16384})
      for (const int m : {1, 128, 129, 700, 3072}) {
        CAPTURE(usable);
        CAPTURE(k);
        CAPTURE(m);
        const Epilogues epilogues = m % 2 == 0 ? Epilogues::simple : Epilogues::all;
        const Cut cut = sm90::cut(m, 768, k, 1, {usable, usable / 2}, true, epilogues);
        const int clusters = cut.tile == Tile90::m256n384 ? usable / 2 : usable;
        CHECK(cut.clusters >= 1);
        CHECK(cut.clusters <= clusters);
        CHECK(cut.shares.sharers() <= cut.clusters);
        CHECK((cut.workspace > 0) == (cut.shares.tiles() > 0));
        if (cut.shares.tiles() > 0) CHECK(cut.whole % clusters == 0);
      }
}

TEST_CASE("gemm_cut: nothing is divided where it is not allowed, or where sums are short") {
  CHECK(sm90::cut(768, 768, 16384, 1, kH100, false, Epilogues::simple).shares.tiles() == 0);
  CHECK(sm90::cut(768, 768, 256, 1, kH100, true, Epilogues::simple).shares.tiles() == 0);
  CHECK(sm90::cut(16384, 3072, 768, 1, kH100, true, Epilogues::simple).shares.tiles() == 0);  // 97 % of the last wave
}

TEST_CASE("gemm_cut: weight gradients of GPT-2 124M use all multiprocessors") {
  for (const auto& [m, n] : std::vector<std::pair<int, int>>{{768, 2304}, {768, 768}, {768, 3072}, {3072, 768}}) {
    CAPTURE(m);
    CAPTURE(n);
    const Cut cut = sm90::cut(m, n, 16384, 1, kH100, true, Epilogues::simple);
    CHECK(cut.clusters * (cut.tile == Tile90::m256n384 ? 2 : 1) == 132);
    CHECK(cut.cycles <= 0.95 * sm90::cut(m, n, 16384, 1, kH100, false, Epilogues::simple).cycles);
  }
}

TEST_CASE("gemm_cut: short sums go to consumers that take turns, and long ones to clusters") {
  CHECK(sm90::cut(16384, 3072, 768, 1, kH100, true, Epilogues::simple).tile == Tile90::m128n192);
  CHECK(sm90::cut(16384, 768, 3072, 1, kH100, true, Epilogues::simple).tile != Tile90::m256n384);
  CHECK(sm90::cut(50304, 768, 16384, 1, kH100, true, Epilogues::simple).tile == Tile90::m256n384);
  CHECK(sm90::cut(50304, 768, 16384, 1, {132, 0}, true, Epilogues::simple).tile != Tile90::m256n384);
}

TEST_CASE("gemm_cut: a tile that is asked for is used, if it has the epilogues") {
  for (const Tile90 tile : {Tile90::m64n64, Tile90::m128n128, Tile90::m128n256, Tile90::m128n192, Tile90::m256n384})
    CHECK(sm90::cut(1000, 1000, 1000, 1, kH100, true, Epilogues::simple, tile).tile == tile);
  CHECK(sm90::cut(1000, 1000, 1000, 1, kH100, true, Epilogues::all, Tile90::m256n384).tile == Tile90::m128n256);
  CHECK(sm90::cut(1000, 1000, 1000, 1, kH100, true, Epilogues::gelu, Tile90::m256n384).tile == Tile90::m128n192);
}

}  // namespace gemm_cut_test
