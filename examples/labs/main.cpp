// Grades the answer to a lab: ./trireme lab N builds this program with the learner's answer, and runs it. So does
// ./trireme puzzle N, for the puzzles of examples/puzzles.
//
//   build/bin/lab_01                        # the checks, and the picture of a run
//   build/bin/lab_01 --picture 01.svg       # the picture for a browser, too
//   build/bin/lab_01 --json --student ada   # for a class: one line of JSON; the name decides inputs and sizes
//
// Read next: examples/labs/README.md; examples/labs/harness/grading.h.
#include <fmt/format.h>

#include <charconv>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <random>
#include <string_view>

#include "core/io.h"
#include "core/random.h"
#include "examples/labs/harness/grading.h"

using namespace trireme;
using namespace trireme::labs;

namespace {

void print(const Verdict& verdict) {
  std::size_t passed = 0;
  for (const Check& check : verdict.checks) {
    fmt::print("{} {}\n", check.passed ? "passed " : "  FAILED", check.name);
    if (!check.passed) fmt::print("         {}\n", check.message);
    passed += check.passed ? 1 : 0;
  }
  if (!verdict.picture.empty()) fmt::print("\n{}", verdict.picture);
  fmt::print("\n{} of {} checks passed\n", passed, verdict.checks.size());
}

std::string json_of(const Answer& answer, const Verdict& verdict, std::uint64_t seed, const std::string& student) {
  nlohmann::json checks = nlohmann::json::array();
  for (const Check& check : verdict.checks)
    checks.push_back({{"check", check.name}, {"passed", check.passed}, {"message", check.message}});
  nlohmann::json line = {{answer.kind, answer.lab}, {"seed", seed}, {"passed", verdict.passed()}, {"checks", checks}};
  if (!student.empty()) line["student"] = student;
  return line.dump();
}

int usage(std::string_view argument) {
  fmt::print(stderr, "{}: unknown argument '{}'; expected --json, --seed N, --student NAME or --picture FILE\n",
             answers().front().kind, argument);
  return static_cast<int>(ExitCode::usage);
}

int run(int argc, char** argv) {
  bool json = false;
  std::string file, student;
  std::uint64_t seed = std::random_device{}() % 1'000'000;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--json") {
      json = true;
    } else if (argument == "--seed" && i + 1 < argc) {
      const std::string_view number = argv[++i];
      const auto [end, error] = std::from_chars(number.begin(), number.end(), seed);
      if (error != std::errc() || end != number.end()) return usage(number);
    } else if (argument == "--student" && i + 1 < argc) {
      student = argv[++i];
      seed = stream_of(student);
    } else if (argument == "--picture" && i + 1 < argc) {
      file = argv[++i];
    } else {
      return usage(argument);
    }
  }
  if (!file.empty()) require_own_kind("--picture", file, drawing_file);
  const Answer& answer = answers().front();
  const Verdict verdict = graded(answer, seed);
  if (!file.empty() && !verdict.svg.empty()) {
    write_file(file, verdict.svg);
    fmt::print(stderr, "the picture: {}\n", file);
  }
  if (json) {
    fmt::print("{}\n", json_of(answer, verdict, seed, student));
  } else {
    print(verdict);
    if (!verdict.passed()) fmt::print("the same inputs again: --seed {}\n", seed);
  }
  return verdict.passed() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
