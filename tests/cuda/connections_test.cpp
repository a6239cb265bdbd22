// How many streams a process may have: cuda/runtime/connections.h.
#include <doctest/doctest.h>

#include <cstdlib>

#include "cuda/runtime/connections.h"
#include "tests/support/errors.h"

using namespace trireme;
using namespace trireme::cuda;
using testing::contains;
using testing::error_of;

namespace connections_test {
namespace {

/// The environment variable with this value, or without one, while it lives.
struct ScopedVariable {
  explicit ScopedVariable(const char* value) {
    unsetenv(kConnectionsVariable);
    if (value != nullptr) setenv(kConnectionsVariable, value, 1);
  }
  ~ScopedVariable() { unsetenv(kConnectionsVariable); }
  ScopedVariable(const ScopedVariable&) = delete;
  ScopedVariable& operator=(const ScopedVariable&) = delete;
};

}  // namespace

TEST_CASE("cuda connections: 32 are asked for, but the user's number holds") {
  {
    const ScopedVariable unset(nullptr);
    CHECK(connections() == 8);
    ask_for_connections();
    CHECK(connections() == 32);
  }
  const ScopedVariable chosen("12");
  ask_for_connections();
  CHECK(connections() == 12);
}

TEST_CASE("cuda connections: other values are refused") {
  for (const char* value : {"", "x", "0", "33", "8x", "-1"}) {
    CAPTURE(value);
    const ScopedVariable wrong(value);
    CHECK(contains(error_of([] { connections(); }, ExitCode::usage), "expected a number from 1 to 32"));
  }
}

TEST_CASE("cuda connections: a stream without a connection of its own is refused") {
  const ScopedVariable two("2");
  StreamCount streams;
  streams.add();
  streams.add();
  const std::string error = error_of([&] { streams.add(); }, ExitCode::usage);
  CHECK(contains(error, "this process needs 3 streams on its GPU, and CUDA_DEVICE_MAX_CONNECTIONS is 2"));
  CHECK(contains(error, "unset the variable"));
  CHECK(streams.value() == 2);
  streams.remove();
  streams.add();
  CHECK(streams.value() == 2);
}

}  // namespace connections_test
