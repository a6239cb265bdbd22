// The positions of a rank's tokens in the sequence: every token is on exactly one rank of cp x tp, the zigzag gives all
// cp ranks the same share of the causal triangle, and tp splits the tokens of a cp rank.
#include "nn/positions.h"

#include <algorithm>

#include "tests/support/mesh.h"

using namespace trireme;
using namespace trireme::testing;

namespace positions_test {
namespace {

std::vector<std::int32_t> ids(const nn::PositionRuns& runs) {
  const Tensor all = nn::position_ids(runs);
  return {all.data<std::int32_t>(), all.data<std::int32_t>() + all.count()};
}

}  // namespace

// {first position here, first position in the sequence, how many}
TEST_CASE("zigzag: rank r of cp holds chunks r and 2 cp - 1 - r") {
  CHECK(nn::zigzag(7, 1, 0) == nn::PositionRuns{{0, 0, 7}});
  CHECK(nn::zigzag(24, 3, 0) == nn::PositionRuns{{0, 0, 4}, {4, 20, 4}});
  CHECK(nn::zigzag(24, 3, 1) == nn::PositionRuns{{0, 4, 4}, {4, 16, 4}});
  CHECK(nn::zigzag(24, 3, 2) == nn::PositionRuns{{0, 8, 8}});  // its two chunks are neighbours
  CHECK_THROWS_WITH_AS(nn::zigzag(10, 2, 0), doctest::Contains("10 tokens do not divide into 2 x cp = 4"), Error);
}

TEST_CASE("zigzag: every cp rank has the same number of pairs under the causal mask") {
  for (const int cp : {1, 2, 3, 4}) {
    const std::int64_t length = 48;
    for (int rank = 0; rank < cp; ++rank) {
      std::int64_t pairs = 0;
      for (const std::int32_t position : ids(nn::zigzag(length, cp, rank))) pairs += position;
      CHECK(pairs == length * (length - 1) / 2 / cp);
    }
  }
}

TEST_CASE("a part of the runs: cut inside a run, between runs, and across them") {
  const nn::PositionRuns runs = nn::zigzag(24, 2, 0);  // 0..5, 18..23
  CHECK(nn::part(runs, 2, 0) == nn::PositionRuns{{0, 0, 6}});
  CHECK(nn::part(runs, 2, 1) == nn::PositionRuns{{0, 18, 6}});
  CHECK(nn::part(runs, 3, 1) == nn::PositionRuns{{0, 4, 2}, {2, 18, 2}});
  CHECK(nn::part(runs, 12, 5) == nn::PositionRuns{{0, 5, 1}});
  CHECK_THROWS_WITH_AS(nn::part(runs, 5, 0), doctest::Contains("12 tokens do not divide over 5 ranks"), Error);
}

TEST_CASE("every token of the sequence is on one rank; attention sees those of its tp group, in tp order") {
  for (const std::string& text : Meshes{"tp=1", "tp=2", "tp=4", "cp=2", "cp=2,tp=2", "cp=4,tp=2", "cp=2,tp=4"}) {
    for (const bool sequence : {false, true}) {
      const std::int64_t length = 32;
      std::mutex mutex;
      std::vector<int> seen(static_cast<std::size_t>(length), 0);
      run_mesh(text, [&](const MeshPtr& mesh) {
        const nn::Parallelism parallelism{.sequence = sequence};
        const int tp = mesh->size(Axis::tp), parts = sequence ? tp : 1;
        const std::vector<std::int32_t> mine = ids(nn::residual_positions(*mesh, parallelism, length));
        const std::vector<std::int32_t> whole = ids(nn::attention_positions(*mesh, length));
        CHECK(nn::sequence_length(*mesh, parallelism, static_cast<std::int64_t>(mine.size())) == length);
        CHECK(whole.size() == mine.size() * static_cast<std::size_t>(parts));
        const std::size_t first = sequence ? mine.size() * static_cast<std::size_t>(mesh->coord(Axis::tp)) : 0;
        CHECK(std::equal(mine.begin(), mine.end(), whole.begin() + static_cast<std::ptrdiff_t>(first)));
        const std::scoped_lock lock(mutex);
        for (const std::int32_t position : mine) ++seen[static_cast<std::size_t>(position)];
      });
      const int copies = sequence ? 1 : parse_mesh(text, 0).size(Axis::tp);
      for (const int count : seen) CHECK(count == copies);
    }
  }
}

}  // namespace positions_test
