#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "check/explore/compare.h"
#include "check/parity/rounding.h"

using namespace trireme::explore;
using trireme::most_rounding_ratio;

namespace {

/// A run of two steps.
TrainingResult run(double loss, int tokens = 8) {
  TrainingResult result;
  result.records[1] = {{"step", 1}, {"loss", 2.5}, {"tokens", 4}};
  result.records[2] = {{"step", 2}, {"loss", loss}, {"tokens", tokens}};
  return result;
}

std::vector<Gap> none(int, double) { return {}; }

}  // namespace

TEST_CASE("differences within rounding need no explanation") {
  const auto found = gaps(run(2.0), run(2.0 + 1e-6));
  REQUIRE(found.size() == 1);
  CHECK(found[0].key == "loss");
  CHECK(found[0].step == 2);
  CHECK(found[0].relative == doctest::Approx(5e-7));
  CHECK(unexplained(found, 1e-5, none).empty());
  CHECK_FALSE(unexplained(found, 1e-7, none).empty());
}

TEST_CASE("a larger difference is accepted only if rounding alone reaches as far") {
  const auto found = gaps(run(2.0), run(2.02));
  const auto reached = [](double loss) { return [loss](int, double) { return gaps(run(2.0), run(loss)); }; };
  CHECK(unexplained(found, 1e-5, reached(2.01)).empty());
  CHECK_FALSE(unexplained(found, 1e-5, reached(2.001)).empty());
}

TEST_CASE("counts have no rounding, and a run that is shorter is another run") {
  CHECK_FALSE(unexplained(gaps(run(2.0), run(2.0, 9)), 1.0, none).empty());
  TrainingResult shorter = run(2.0);
  shorter.records.erase(2);
  CHECK_FALSE(unexplained(gaps(run(2.0), shorter), 1.0, none).empty());
}

TEST_CASE("steps before the first one are not compared, and what only one run has is a gap") {
  CHECK(gaps(run(2.0), run(3.0), 3).empty());
  TrainingResult with_validation = run(2.0);
  with_validation.records[2]["val_loss"] = 1.0;
  for (const auto& found : {gaps(with_validation, run(2.0)), gaps(run(2.0), with_validation)}) {
    REQUIRE(found.size() == 1);
    CHECK(found[0].key == "val_loss");
    CHECK(std::isinf(found[0].relative));
  }
}

TEST_CASE("sampled text is compared, also where it is not UTF-8") {
  TrainingResult a = run(2.0), b = run(2.0);
  a.samples[2] = "ab\xff";
  b.samples[2] = "ac\xff";
  REQUIRE(gaps(a, b).size() == 1);
  CHECK(std::isinf(gaps(a, b)[0].relative));
}

TEST_CASE("a text may differ where disturbances as large as the largest accepted gap change one") {
  TrainingResult a = run(2.0), b = run(2.0);
  a.samples[2] = "ab";
  b.samples[2] = "ac";
  const std::vector<Gap> found = gaps(a, b);
  const auto changes_from = [&](double least) {
    return [&found, least](int, double factor) { return factor >= least ? found : std::vector<Gap>{}; };
  };
  CHECK(unexplained(found, 1e-5, changes_from(1)).empty());
  CHECK(unexplained(found, 1e-5, changes_from(most_rounding_ratio)).empty());
  CHECK_FALSE(unexplained(found, 1e-5, changes_from(2 * most_rounding_ratio)).empty());
}

TEST_CASE("while a number is unexplained, disturbances have the size of rounding") {
  const std::vector<Gap> found = gaps(run(2.0), run(2.1));
  double largest = 0;
  CHECK_FALSE(unexplained(found, 1e-5, [&](int, double factor) {
                largest = std::max(largest, factor);
                return std::vector<Gap>{};
              }).empty());
  CHECK(largest == 1.0);
}
