// How gemm_sm90 cuts products into work: every step of every tile is computed once, and shapes of real models get the cut
// that keeps multiprocessors busy.
#include "cuda/kernels/gemm_cut.h"

#include <doctest/doctest.h>

#include <vector>

using namespace trireme::cuda;
using sm90::Cut;

namespace gemm_cut_test {

constexpr int kH100 = 132;

TEST_CASE("gemm_cut: shares cover every step of the divided tiles once, and meet at most two tiles") {
  for (const int usable : {1, 2, 3, 7, 132})
    for (const int k : {1, 64, 511, 512, 1096, 16384})
      for (const int m : {1, 128, 129, 700, 3072}) {
        const Cut cut = sm90::cut(m, 768, k, 1, usable, true, m % 2 == 0);
        CAPTURE(usable);
        CAPTURE(k);
        CAPTURE(m);
        CHECK(cut.blocks >= 1);
        CHECK(cut.blocks <= usable);
        CHECK(cut.sharers <= cut.blocks);
        CHECK((cut.workspace > 0) == (cut.divided > 0));
        if (cut.divided == 0) continue;
        CHECK(cut.whole % usable == 0);  // whole waves come before
        const auto begin = [&](int sharer) { return sm90::share_begin(sharer, cut.divided, cut.steps, cut.sharers); };
        CHECK(begin(0) == 0);
        CHECK(begin(cut.sharers) == std::int64_t{cut.divided} * cut.steps);
        for (int sharer = 0; sharer < cut.sharers; ++sharer) {
          const std::int64_t length = begin(sharer + 1) - begin(sharer);
          CHECK(length >= 1);
          CHECK(length <= cut.steps);
        }
      }
}

TEST_CASE("gemm_cut: nothing is divided where it is not allowed, or where sums are short") {
  CHECK(sm90::cut(768, 768, 16384, 1, kH100, false, true).divided == 0);
  CHECK(sm90::cut(768, 768, 256, 1, kH100, true, true).divided == 0);
  CHECK(sm90::cut(16384, 3072, 768, 1, kH100, true, true).divided == 0);  // 97 % of the last wave is in use
}

TEST_CASE("gemm_cut: weight gradients of GPT-2 124M use all multiprocessors, with the largest tile") {
  for (const auto& [m, n] : std::vector<std::pair<int, int>>{{768, 2304}, {768, 768}, {768, 3072}, {3072, 768}}) {
    CAPTURE(m);
    CAPTURE(n);
    const Cut divided = sm90::cut(m, n, 16384, 1, kH100, true, true),
              whole = sm90::cut(m, n, 16384, 1, kH100, false, true);
    CHECK(divided.tile == Tile90::m256n192);
    CHECK(divided.blocks == kH100);
    CHECK(divided.cycles < 0.7 * whole.cycles);
  }
}

TEST_CASE("gemm_cut: a tile that is asked for is used") {
  for (const Tile90 tile : {Tile90::m64n64, Tile90::m128n128, Tile90::m128n256, Tile90::m256n192})
    CHECK(sm90::cut(1000, 1000, 1000, 1, kH100, true, true, tile).tile == tile);
  CHECK(sm90::cut(1000, 1000, 1000, 1, kH100, true, false, Tile90::m256n192).tile == Tile90::m128n256);
  CHECK(sm90::cut(16384, 3072, 768, 1, kH100, true, false).tile == Tile90::m128n256);
  CHECK(sm90::cut(16384, 3072, 768, 1, kH100, true, true).tile == Tile90::m256n192);
}

}  // namespace gemm_cut_test
