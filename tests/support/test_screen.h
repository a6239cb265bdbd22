// A screen for tests: it keeps the bytes that a terminal would get.
#pragma once

#include <string>
#include <utility>

#include "train/program/screen.h"

namespace trireme::testing {

/// The bytes of both streams go to one terminal. The test sets its width and the clock.
struct TestScreen {
  std::string bytes;
  int columns = 20;
  Screen::Clock::time_point now{std::chrono::hours(1)};
  Screen screen;

  explicit TestScreen(Terminal terminal, int width = 20)
      : columns(width),
        screen({.out = [this](std::string_view text) { bytes += text; },
                .err = [this](std::string_view text) { bytes += text; },
                .columns = [this] { return columns; },
                .now = [this] { return now; }},
               terminal) {}

  /// The bytes since the last call.
  std::string take() { return std::exchange(bytes, {}); }
};

}  // namespace trireme::testing
