// The answers of all labs: examples/labs/NN_.../{learner,solution,wrong}.cpp.
#include <doctest/doctest.h>

#include <map>
#include <string>

#include "examples/labs/harness/grading.h"

namespace trireme::labs {
namespace {

/// "check: message", of all that failed.
std::string failures(const Verdict& verdict) {
  std::string text;
  for (const Check& check : verdict.checks)
    if (!check.passed) text += check.name + ": " + check.message + "\n";
  return text;
}

TEST_CASE("solutions pass, whatever the inputs") {
  for (const Answer& answer : answers()) {
    if (answer.name != "solution") continue;
    for (const std::uint64_t seed : {1, 2, 3}) {
      CAPTURE(answer.lab);
      CHECK(failures(graded(answer, seed)) == "");
    }
  }
}

TEST_CASE("skeletons fail, and say what is missing") {
  for (const Answer& answer : answers()) {
    if (answer.name != "learner") continue;
    CAPTURE(answer.lab);
    CHECK(failures(graded(answer, 1)) != "");
  }
}

TEST_CASE("wrong answers fail, for their reason") {
  for (const Answer& answer : answers()) {
    if (answer.expected.empty()) continue;
    CAPTURE(answer.lab);
    CAPTURE(answer.name);
    const std::string text = failures(graded(answer, 1));
    CHECK_MESSAGE(text.find(answer.expected) != std::string::npos, text);
  }
}

TEST_CASE("each lab has a skeleton, a solution, and five wrong answers") {
  std::map<std::string, int> wrong, learners, solutions;
  for (const Answer& answer : answers()) {
    learners[answer.lab] += answer.name == "learner" ? 1 : 0;
    solutions[answer.lab] += answer.name == "solution" ? 1 : 0;
    wrong[answer.lab] += answer.expected.empty() ? 0 : 1;
  }
  CHECK(learners.size() == solutions.size());
  for (const auto& [lab, count] : wrong) {
    CAPTURE(lab);
    CHECK(learners[lab] == 1);
    CHECK(solutions[lab] == 1);
    CHECK(count >= 5);
  }
}

}  // namespace
}  // namespace trireme::labs
