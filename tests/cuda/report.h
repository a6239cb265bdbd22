// What a build says about a mistake in a kernel. Under AddressSanitizer a report ends the process, so the kernel runs
// in a child process, whose standard error is the report. And which line such a report must name.
// Read next: tests/cuda/bounds_test.cpp.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <string>

#include "cuda/emu/zone.h"
#include "tests/cuda/support.h"

namespace cuda_test {

/// What a child process that runs `body` writes to its standard error: AddressSanitizer's report, or the Error.
template <class Body>
std::string report_of_child(Body&& body) {
  std::array<int, 2> ends{};
  REQUIRE(pipe(ends.data()) == 0);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    const std::string error = error_of(body);
    const bool written = write(STDERR_FILENO, error.data(), error.size()) == static_cast<ssize_t>(error.size());
    _exit(written ? 0 : 1);
  }
  close(ends[1]);
  std::string text;
  std::array<char, 4096> buffer{};
  for (ssize_t got = 0; (got = read(ends[0], buffer.data(), buffer.size())) > 0;)
    text.append(buffer.data(), static_cast<std::size_t>(got));
  close(ends[0]);
  waitpid(child, nullptr, 0);
  return text;
}

/// The Error that `body` throws, or AddressSanitizer's report; empty when there is neither.
template <class Body>
std::string report_of(Body&& body) {
  return trireme::cuda::emu::zones_are_poisoned ? report_of_child(body) : error_of(body);
}

/// "race_test.cpp:70" for the line of a file of this folder that ends in "// mark".
inline std::string line_of(const std::string& name, const std::string& mark) {
  std::ifstream file("tests/cuda/" + name);
  std::string line;
  for (int number = 1; std::getline(file, line); ++number)
    if (line.ends_with("// " + mark)) return name + ":" + std::to_string(number);
  FAIL("no line of ", name, " is marked ", mark);
  return {};
}

}  // namespace cuda_test
