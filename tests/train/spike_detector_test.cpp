// The spike detector alone, on made-up series; and the texts that name differing copies and skipped samples.
#include "train/loop/spike_detector.h"

#include <doctest/doctest.h>

#include <cmath>

#include "core/random.h"
#include "train/step/non_finite.h"
#include "train/step/replica_check.h"

using namespace trireme;

TEST_CASE("a detector judges by the median and the MAD, once it has a window") {
  SpikeDetector detector(5, 3.0);
  for (const double loss : {2.0, 2.2, 1.8, 2.1}) detector.add(loss);
  CHECK(detector.score(1000) == 0);  // the window has four losses of five
  detector.add(1.9);
  CHECK(detector.median() == 2.0);  // distances 0, 0.2, 0.2, 0.1, 0.1: MAD 0.1
  CHECK(detector.score(2.3) == doctest::Approx(0.3 / 0.14826));
  CHECK_FALSE(detector.is_spike(2.4));
  CHECK(detector.is_spike(2.5));
  CHECK_FALSE(detector.is_spike(0.0));  // a fall is not a spike
}

TEST_CASE("what lies in the window does not hide the next spike, and what is too old is forgotten") {
  SpikeDetector detector(9, 8.0);
  for (int i = 0; i < 9; ++i) detector.add(2 + 0.01 * (i % 3));
  for (int i = 0; i < 3; ++i) detector.add(50);  // a mean would be 18 now, a standard deviation 22
  CHECK(detector.is_spike(40));
  SpikeDetector moved(4, 8.0);
  for (const double loss : {1.0, 1.1, 1.2, 1.3, 5.0, 5.1, 5.2, 5.3}) moved.add(loss);
  CHECK(moved.losses() == std::vector<double>{5.0, 5.1, 5.2, 5.3});
  CHECK_FALSE(moved.is_spike(5.4));
}

TEST_CASE("equal losses do not make anything a spike") {
  SpikeDetector detector(6, 10.0);
  for (int i = 0; i < 6; ++i) detector.add(3.0);
  CHECK_FALSE(detector.is_spike(3.001));
  CHECK(detector.is_spike(3.1));
}

TEST_CASE("a falling, noisy loss has no spike in ten thousand steps, and one that is put there is found") {
  SpikeDetector detector(100, 8.0);
  for (std::int64_t step = 0; step < 10000; ++step) {
    const double trend = 2 + 3 * std::exp(-static_cast<double>(step) / 500);
    const double loss = trend + 0.05 * random_normal(3, 9, static_cast<std::uint64_t>(step));
    CHECK_FALSE(detector.is_spike(loss));
    if (step > 1000) CHECK(detector.is_spike(loss + 1.5));
    detector.add(loss);
  }
}

TEST_CASE("a detector that is saved and loaded goes on as if it had not been") {
  SpikeDetector one(7, 4.0), other(7, 4.0);
  for (int i = 0; i < 20; ++i) one.add(random_normal(1, 2, static_cast<std::uint64_t>(i)));
  other.set_losses(one.losses());
  CHECK(one.score(3.5) == other.score(3.5));
}

TEST_CASE("of copies that differ the one in the minority is named, and of two neither") {
  CHECK(describe_difference({{"a", 0, "x"}, {"a", 1, "x"}}).empty());
  CHECK(describe_difference({{"a", 0, "x"}, {"a", 2, "y"}, {"a", 4, "x"}, {"b", 0, "z"}}) ==
        "a on rank 2 differs from 2 copies that are equal, on ranks 0, 4");
  CHECK(describe_difference({{"a", 0, "x"}, {"a", 1, "y"}, {"b", 0, "p"}, {"b", 1, "q"}}) ==
        "a differs between rank 0 and rank 1, and no majority tells which is right; b differs too");
  CHECK(describe_difference({{"a", 0, "x"}, {"a", 1, "y"}, {"a", 2, "x"}, {"a", 3, "z"}}) ==
        "a differs between ranks 0, 2 and rank 1 and rank 3, and no majority tells which is right");
  CHECK(describe_difference({{"a", 0, "x"}, {"a", 1, "y"}, {"a", 2, "x"}, {"a", 3, "z"}, {"a", 4, "x"}}) ==
        "a on ranks 1, 3 differs from 3 copies that are equal, on ranks 0, 2, 4");
}

TEST_CASE("sample numbers are written as ranges") {
  CHECK(ranges({7}) == "7");
  CHECK(ranges({12, 13, 14, 20, 13}) == "12-14, 20");
}
