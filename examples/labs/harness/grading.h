// A lab's grader, and how it runs answers: each grading in a process of its own, with fresh inputs. The kernel puzzles
// (examples/puzzles) are graded by it, too.
//
// A grader is a function: it calls the learner's functions, and says of each promise whether it holds:
//
//   void grade(const Answers& answers, Grading& grading) {
//     grading.predict("bytes that a rank sends", "4 ranks, 1000 elements", answers.bytes_sent(4, 1000), 6000);
//     grading.check("the sum of the ranks", [&] { ...; grading.expect(difference("x on rank 2", got, want)); });
//   }
//
// Read next: examples/labs/harness/grading.cpp.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "examples/labs/harness/clock.h"

namespace trireme::labs {

/// One promise, and whether it holds.
struct Check {
  std::string name;
  bool passed = false;
  std::string message = {};  ///< why it does not
};

/// What came of a grading.
struct Verdict {
  std::vector<Check> checks;
  std::string picture, svg;  ///< what the learner's code did, as text and for a browser
  bool passed() const;       ///< all checks
};

/// What a grader has of the world.
class Grading {
 public:
  /// Is told of each check when it begins, and when it has ended.
  using Listener = std::function<void(const Check& check, bool ended)>;
  Grading(std::uint64_t seed, Listener listener) : seed_(seed), listener_(std::move(listener)) {}

  /// A whole number from `low` to `high`: another in every grading, the same for the same seed.
  int pick(int low, int high);
  /// Standard normal numbers, f32: others at every call.
  Tensor random(const Shape& shape);

  /// A check. It passes unless `body` throws, or calls expect() with a sentence: the first one is its message. Whether
  /// it passed.
  bool check(const std::string& name, const std::function<void()>& body);
  /// `problem`: empty if all is well.
  void expect(const std::string& problem);
  template <class... Args>
  void expect(bool holds, fmt::format_string<Args...> problem, Args&&... args) {
    if (!holds) expect(fmt::format(problem, std::forward<Args>(args)...));
  }
  /// Checks that the relative error of a predicted number is at most `tolerance`. `given`: what the prediction depends
  /// on, as in "4 ranks, 1000 elements". `hint`: added to the message.
  void predict(const std::string& what, const std::string& given, double predicted, double measured,
               double tolerance = 1e-6, const std::string& hint = {});
  /// Shown after the checks: what the ranks did when (picture.cpp).
  void show(const Timeline& timeline, const std::string& title);
  /// Shown after the checks, in the place of a timeline.
  void show(std::string text) { picture_ = std::move(text); }
  const std::string& picture() const { return picture_; }
  const std::string& svg() const { return svg_; }

 private:
  std::uint64_t seed_, draws_ = 0;
  Listener listener_;
  std::string picture_, svg_;
};

/// An answer to a lab or a puzzle: its functions, behind one that calls the lab's grader with them.
struct Answer {
  std::string lab;   ///< its number: "01"
  std::string name;  ///< "learner", "solution", or what a wrong one does
  std::function<void(Grading&)> grade;
  std::string expected = {};  ///< of a wrong one: a part of the message with which it must fail
  std::string kind = "lab";
};
/// All that this program was linked with.
std::vector<Answer>& answers();
/// A variable of this type, outside of functions, adds an answer.
struct Registered {
  explicit Registered(Answer answer) { answers().push_back(std::move(answer)); }
};

/// Grades in a child process: whatever the answer does, the verdict is the grader's. An answer that crashes, exits or
/// does not end fails the check in which it was.
Verdict graded(const Answer& answer, std::uint64_t seed);

}  // namespace trireme::labs
