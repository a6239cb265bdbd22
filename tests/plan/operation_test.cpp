// Days, money and failures of a whole training.
#include "ops/plan/operation.h"

#include <doctest/doctest.h>

#include <cmath>

using namespace trireme::plan;

TEST_CASE("without failures a training takes its steps") {
  const Outlook o = outlook({.steps = 1000, .seconds_per_step = 3.6, .devices = 10},
                            {.dollars_per_device_hour = 2, .watts_per_device = 500});
  CHECK(o.seconds == doctest::Approx(3600));
  CHECK(o.device_hours == doctest::Approx(10));
  CHECK(o.dollars == doctest::Approx(20));
  CHECK(o.joules == doctest::Approx(10 * 3600 * 500));
  CHECK(o.interruptions == 0);
  CHECK(o.save_every == 0);
}

TEST_CASE("the interval between saves is Young's when saves are short") {
  // A device fails every 1,000 years, and there are 876.6: a failure every 10,000 hours or 3.6e7 s. A save takes 1 s.
  const Operation operation{.failures_per_device_year = 1e-3, .save_gb_per_s_per_node = 1, .restart_minutes = 0};
  const Outlook o =
      outlook({.steps = 1e6, .seconds_per_step = 1, .devices = 877, .nodes = 1, .checkpoint_bytes = 1e9}, operation);
  const double between = 365.25 * 86400 / (1e-3 * 877);
  CHECK(o.save_seconds == doctest::Approx(1));
  CHECK(o.save_every == doctest::Approx(std::sqrt(2 * between)).epsilon(0.001));
  CHECK(o.interruptions == doctest::Approx(1e6 / between).epsilon(0.001));
  CHECK(o.seconds > o.undisturbed_seconds);
  CHECK(o.seconds < 1.001 * o.undisturbed_seconds);
}

TEST_CASE("no other interval is better") {
  const Operation operation{.failures_per_device_year = 10, .save_gb_per_s_per_node = 1, .restart_minutes = 10};
  const Job job{.steps = 1e5, .seconds_per_step = 10, .devices = 1000, .nodes = 1, .checkpoint_bytes = 60e9};
  const Outlook o = outlook(job, operation);
  const double M = 365.25 * 86400 / 1e4, R = 600, delta = 60;
  for (const double factor : {0.8, 1.2}) {
    const double tau = factor * o.save_every;
    CHECK(o.seconds < M * std::exp(R / M) * std::expm1((tau + delta) / M) * o.undisturbed_seconds / tau);
  }
  CHECK(o.seconds > 1.2 * o.undisturbed_seconds);  // a failure every 53 minutes
}
