// Loss scaling: when the scale grows and shrinks, what a checkpoint stores, and which overflows end the run.
#include "optim/loss_scaler.h"

#include <doctest/doctest.h>

#include <cmath>

#include "core/error.h"

using namespace trireme;
using optim::LossScaler;

TEST_CASE("the scale doubles after a window without overflow and halves after as many overflows as its hysteresis") {
  LossScaler scaler({.initial = 1024, .dynamic = true, .window = 3, .hysteresis = 2});
  scaler.overflowed(INFINITY);
  CHECK(scaler.scale() == 1024);  // the hysteresis allows one overflow
  scaler.overflowed(INFINITY);
  CHECK(scaler.scale() == 512);
  scaler.overflowed(NAN);
  CHECK(scaler.scale() == 256);  // the hysteresis is used up until the scale grows again
  for (int i = 0; i < 2; ++i) scaler.updated();
  scaler.overflowed(INFINITY);  // the window starts over
  CHECK(scaler.scale() == 128);
  for (int i = 0; i < 2; ++i) scaler.updated();
  CHECK(scaler.scale() == 128);
  scaler.updated();
  CHECK(scaler.scale() == 256);
  scaler.overflowed(INFINITY);
  CHECK(scaler.scale() == 256);  // the hysteresis allows one again
  CHECK(scaler.skipped() == 5);
}

TEST_CASE("what a checkpoint stores continues exactly") {
  const optim::LossScaleConfig config{.initial = 64, .dynamic = true, .window = 2, .hysteresis = 1};
  LossScaler a(config), b(config);
  a.overflowed(INFINITY);
  a.updated();
  b.set_state(a.state());
  a.updated();
  b.updated();
  CHECK(b.scale() == 64);
  CHECK(b.state().good_updates == a.state().good_updates);
  CHECK(b.skipped() == 1);
}

TEST_CASE("counters are never negative, however many overflows come in a row: a checkpoint stores them") {
  LossScaler scaler({.initial = 65536, .dynamic = true, .window = 3, .hysteresis = 2});
  for (int overflow = 0; overflow < 5; ++overflow) {
    scaler.overflowed(INFINITY);
    CHECK(scaler.state().overflows_left >= 0);
  }
  CHECK(scaler.scale() == 4096);  // the first used up the hysteresis, each of the others halved the scale
}

TEST_CASE("a scale that can fall no further, and a fixed one too often in a row, end the run with the cause") {
  LossScaler dynamic({.initial = 2, .dynamic = true, .window = 10, .hysteresis = 1});
  dynamic.overflowed(INFINITY);
  CHECK_THROWS_WITH_AS(dynamic.overflowed(INFINITY), doctest::Contains("loss scale of 1, the smallest"), Error);
  LossScaler fixed({.initial = 8, .dynamic = false, .window = 1, .hysteresis = 1});
  for (int i = 0; i < LossScaler::patience; ++i) fixed.overflowed(INFINITY);
  CHECK(fixed.scale() == 8);
  CHECK_THROWS_WITH_AS(fixed.overflowed(INFINITY), doctest::Contains("--loss-scale"), Error);
}

TEST_CASE("without scaling an overflow is an error") {
  LossScaler none;
  CHECK(none.scale() == 1);
  CHECK_FALSE(none.active());
  CHECK_THROWS_WITH_AS(none.overflowed(NAN), doctest::Contains("lower the learning rate (--lr)"), Error);
}
