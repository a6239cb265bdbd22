// How long tests wait for what must happen. Only a test that hangs reaches the limit, however busy the machine is.
#pragma once

#include <chrono>
#include <thread>

namespace trireme::testing {

inline constexpr auto patience = std::chrono::minutes(30);

/// Waits until `test` returns true, and returns what it returned last.
template <class Test>
bool eventually(const Test& test) {
  const auto end = std::chrono::steady_clock::now() + patience;
  while (!test()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

}  // namespace trireme::testing
