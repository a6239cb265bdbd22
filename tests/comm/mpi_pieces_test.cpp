// MPI counts elements as int: how many one call takes, and how more of them are cut into pieces.
#include "parallel/comm/mpi/pieces.h"

#include <doctest/doctest.h>

using namespace trireme::comm::mpi;

namespace {

constexpr std::int64_t beyond = std::int64_t{1} << 31;  // the first count beyond int

/// The lengths of the pieces, which must follow one another and be at most `longest`.
std::vector<std::int64_t> lengths(std::int64_t count, std::int64_t longest) {
  std::vector<std::int64_t> result;
  std::int64_t next = 0;
  for (const Piece& piece : pieces(count, longest)) {
    CHECK(piece.first == next);
    CHECK(piece.count <= longest);
    next += piece.count;
    result.push_back(piece.count);
  }
  CHECK(next == count);
  return result;
}

using Lengths = std::vector<std::int64_t>;

}  // namespace

TEST_CASE("pieces cover what they are cut from") {
  CHECK(lengths(0, 10) == Lengths{0});  // zero elements take a call, too
  CHECK(lengths(1, 10) == Lengths{1});
  CHECK(lengths(10, 10) == Lengths{10});
  CHECK(lengths(11, 10) == Lengths{10, 1});
  CHECK(lengths(25, 10) == Lengths{10, 10, 5});
  CHECK(lengths(3, 1) == Lengths{1, 1, 1});
}

TEST_CASE("a count that is an int goes in one call, the next one in two") {
  CHECK(most_per_call == beyond - 1);
  CHECK(lengths(beyond - 1, most_per_call) == Lengths{beyond - 1});
  CHECK(lengths(beyond, most_per_call) == Lengths{beyond - 1, 1});
  CHECK(lengths(2 * beyond, most_per_call) == Lengths{beyond - 1, beyond - 1, 2});
  CHECK(lengths(20 * beyond, most_per_call).size() == 21);
}

TEST_CASE("shares of all ranks go in one call as long as all of them together are an int") {
  CHECK(fits_one_call(beyond / 2 - 1, 2, most_per_call));
  CHECK_FALSE(fits_one_call(beyond / 2, 2, most_per_call));
  CHECK(fits_one_call(beyond - 1, 1, most_per_call));
  CHECK_FALSE(fits_one_call(beyond, 1, most_per_call));
  CHECK(fits_one_call(0, 1 << 20, most_per_call));
  CHECK_FALSE(fits_one_call(std::int64_t{1} << 60, 1 << 20, most_per_call));  // the product overflows 64 bits
  for (const int ranks : {1, 2, 3, 7, 1000}) {
    const std::int64_t longest = longest_share(ranks, most_per_call);
    CHECK(longest * ranks <= most_per_call);
    CHECK((longest + 1) * ranks > most_per_call);
    CHECK(fits_one_call(longest, ranks, most_per_call));
    CHECK_FALSE(fits_one_call(longest + 1, ranks, most_per_call));
  }
  CHECK(longest_share(8, 3) == 1);  // more ranks than elements per call: only in tests
}
