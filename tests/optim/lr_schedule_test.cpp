// Learning-rate schedules at their corners: where warm-up ends, where decay begins, its middle and its end.
#include "optim/lr_schedule.h"

#include <doctest/doctest.h>

#include "tests/support/errors.h"

using namespace trireme::optim;
using doctest::Approx;

TEST_CASE("warm-up is the same for every shape: (step + 1) / (warmup + 1) of the peak") {
  for (const LrShape shape : {LrShape::cosine, LrShape::linear, LrShape::constant, LrShape::wsd}) {
    const LrSchedule s{.shape = shape, .lr = 1.0, .min_lr = 0.1, .warmup_steps = 4, .decay_begin = 4, .decay_end = 10};
    CHECK(s.at(0) == Approx(0.2));
    CHECK(s.at(1) == Approx(0.4));
    CHECK(s.at(3) == Approx(0.8));
    CHECK(s.at(4) == Approx(1.0));
    const LrSchedule cold{
        .shape = shape, .lr = 1.0, .min_lr = 0.1, .warmup_steps = 0, .decay_begin = 0, .decay_end = 10};
    CHECK(cold.at(0) == Approx(1.0));
  }
}

TEST_CASE("a warm-up may begin at another rate, such as 0") {
  LrSchedule s{.shape = LrShape::constant, .lr = 1.0, .warmup_steps = 4, .warmup_lr = 0.0};
  CHECK(s.at(0) == 0.0);
  CHECK(s.at(1) == Approx(0.25));
  CHECK(s.at(3) == Approx(0.75));
  CHECK(s.at(4) == 1.0);
  s.warmup_lr = 0.2;
  CHECK(s.at(0) == Approx(0.2));
  CHECK(s.at(2) == Approx(0.6));
  CHECK(s.at(4) == 1.0);
  s.warmup_steps = 0;
  CHECK(s.at(0) == 1.0);
}

TEST_CASE("cosine and linear reach min_lr at decay_end and stay there") {
  const LrSchedule cosine{
      .shape = LrShape::cosine, .lr = 1.0, .min_lr = 0.1, .warmup_steps = 10, .decay_begin = 10, .decay_end = 110};
  CHECK(cosine.at(10) == Approx(1.0));
  CHECK(cosine.at(35) == Approx(0.1 + 0.45 * (1 + 0.70710678118654752)));  // a quarter of the way: cos(pi / 4)
  CHECK(cosine.at(60) == Approx(0.55));
  CHECK(cosine.at(110) == Approx(0.1));
  CHECK(cosine.at(299) == Approx(0.1));
  LrSchedule linear = cosine;
  linear.shape = LrShape::linear;
  CHECK(linear.at(10) == Approx(1.0));
  CHECK(linear.at(35) == Approx(0.775));
  CHECK(linear.at(60) == Approx(0.55));
  CHECK(linear.at(110) == Approx(0.1));
  CHECK(linear.at(111) == Approx(0.1));
}

TEST_CASE("constant stays at the peak") {
  const LrSchedule s{
      .shape = LrShape::constant, .lr = 0.3, .min_lr = 0.1, .warmup_steps = 2, .decay_begin = 2, .decay_end = 5};
  CHECK(s.at(2) == 0.3);
  CHECK(s.at(1000000) == 0.3);
}

TEST_CASE("wsd stays at the peak and decays over the last steps") {
  const LrSchedule s{
      .shape = LrShape::wsd, .lr = 1.0, .min_lr = 0.0, .warmup_steps = 10, .decay_begin = 80, .decay_end = 100};
  CHECK(s.at(10) == 1.0);
  CHECK(s.at(79) == 1.0);
  CHECK(s.at(80) == 1.0);
  CHECK(s.at(85) == Approx(0.75));
  CHECK(s.at(99) == Approx(0.05));
  CHECK(s.at(100) == Approx(0.0));
}

TEST_CASE("a decay that has no length is a step down, not a division by zero") {
  const LrSchedule s{
      .shape = LrShape::cosine, .lr = 1.0, .min_lr = 0.1, .warmup_steps = 5, .decay_begin = 5, .decay_end = 5};
  CHECK(s.at(5) == Approx(1.0));
  CHECK(s.at(6) == Approx(0.1));
}

TEST_CASE("a schedule without an end of its decay stays at lr, and one that makes no sense is refused") {
  for (const LrShape shape : {LrShape::cosine, LrShape::linear, LrShape::wsd, LrShape::constant}) {
    const LrSchedule only_lr{.shape = shape, .lr = 0.01};
    for (const std::int64_t step : {0, 1, 2, 1000}) CHECK(only_lr.at(step) == 0.01);
    const LrSchedule warm{.shape = shape, .lr = 1.0, .warmup_steps = 3};
    CHECK(warm.at(0) == Approx(0.25));
    CHECK(warm.at(3) == 1.0);
    CHECK(warm.at(500) == 1.0);
  }
  using namespace trireme;
  const LrSchedule no_end{.lr = 1e-3, .decay_begin = 10};
  CHECK(testing::says(testing::error_of([&] { static_cast<void>(no_end.at(0)); }, ExitCode::usage),
                      "[lr_schedule] the rate is to fall from step 10 on, but decay_end is not set"));
  const LrSchedule rising{.lr = 1e-5, .min_lr = 1e-4, .decay_end = 10};
  CHECK(testing::says(testing::error_of([&] { static_cast<void>(rising.at(0)); }, ExitCode::usage),
                      "[lr_schedule] min_lr 0.0001 is above lr 1e-05: the rate would rise"));
  CHECK(LrSchedule{.lr = 1e-5, .decay_end = 10}.at(10) == 0);
  for (const LrSchedule& wrong : {LrSchedule{.lr = -1}, LrSchedule{.lr = 1, .warmup_steps = -1}})
    CHECK_THROWS_AS(static_cast<void>(wrong.at(0)), Error);
  CHECK_THROWS_AS(static_cast<void>(LrSchedule{}.at(-1)), Error);
}

TEST_CASE("the decay begins where the warm-up ends, so that the peak is reached") {
  for (const LrShape shape : {LrShape::cosine, LrShape::linear}) {
    const LrSchedule s{.shape = shape, .lr = 1e-3, .warmup_steps = 20, .decay_end = 120};
    CHECK(s.at(19) < 1e-3);
    CHECK(s.at(20) == 1e-3);
    CHECK(s.at(70) == Approx(5e-4));
    CHECK(s.at(120) == Approx(0));
  }
  using namespace trireme;
  const auto refused = [](const LrSchedule& s, const std::string& said) {
    CHECK(testing::says(testing::error_of([&] { static_cast<void>(s.at(0)); }, ExitCode::usage), said));
  };
  refused({.warmup_steps = 20, .decay_begin = 0, .decay_end = 100},
          "the rate is to fall from step 0 to step 100, after 20 steps of warm-up");
  refused({.warmup_steps = 20, .decay_end = 10}, "the rate is to fall from step 20 to step 10");
  refused({.lr = 1e-3, .min_lr = 1e-5}, "the rate is to fall to a min_lr of 1e-05, but decay_end is not set");
  refused({.shape = LrShape::wsd, .decay_end = 100}, "wsd without decay_begin");
}

TEST_CASE("shapes have names") {
  for (const std::string_view text : lr_shape_names()) CHECK(name(lr_shape(text).value()) == text);
  CHECK(lr_shape_names().size() == 4);
  CHECK(lr_shape("wsd") == LrShape::wsd);
  CHECK_FALSE(lr_shape("cosinus").has_value());
}
