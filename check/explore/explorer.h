// Explorer: draws cases, checks them, and shrinks a wrong case to the smallest case that is still wrong.
// Read next: check/explore/explorer.cpp, examples/explore.cpp.
#pragma once

#include <atomic>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "check/explore/kinds.h"

namespace trireme::explore {

/// How far the explorer is.
struct Status {
  bool replaying = false;      ///< cases that were wrong before
  double done = 0, total = 0;  ///< replaying: cases; exploring: seconds
  int cases = 0, wrong = 0;    ///< checked so far
};

struct Settings {
  double seconds = 600;          ///< time to explore; cases in progress are then completed
  std::uint64_t seed = 0;        ///< case `i` is a function of the seed and i
  std::uint64_t skip = 0;        ///< cases to leave out at the beginning: an earlier exploration has checked them
  std::optional<CaseKind> only;  ///< not set: all kinds
  int jobs = 1;                  ///< cases checked in parallel
  bool first = false;            ///< stop at the first wrong case, without shrinking it
  /// Seconds after which a program counts as hung. Programs end by themselves if ranks wait for one that has stopped
  /// (--timeout), so this limit is for other hangs. It is long because many ranks may share a few cores with other
  /// programs.
  double limit = 300;
  double shrink_seconds = 60;                                      ///< per wrong case
  std::filesystem::path programs;                                  ///< the folder with train_gpt
  std::filesystem::path folder;                                    ///< working folder
  std::function<bool()> stop = [] { return false; };               ///< called between cases
  std::function<void(const Status&)> show = [](const Status&) {};  ///< called ten times a second, and at the end
};

/// Replaces `c` by smaller cases as long as `still_wrong` holds for one of them and `steps_left` returns true. Returns
/// the last case for which it held. Each step checks one smaller case.
Case shrink(Case c, const std::function<bool(const Case&)>& still_wrong, const std::function<bool()>& steps_left);

class Explorer {
 public:
  Explorer(Settings settings, std::function<void(const std::string&)> tell);

  /// Case `i` of the seed.
  Case drawn(std::uint64_t i) const;
  /// Checks cases that were wrong before.
  void replay(const std::vector<Case>& cases);
  /// Draws and checks cases until the time is over.
  void explore();

  int right() const { return right_; }
  int wrong() const { return wrong_; }
  std::string summary() const;
  /// Why programs refused drawn cases, one line each.
  std::string refusals() const;
  std::string slowest() const;

 private:
  struct Tally {
    int right = 0, refused = 0, wrong = 0;
  };

  using Next = std::function<std::optional<std::pair<Case, std::string>>()>;

  void work(int worker, const Next& next);
  void report(const Case& c, const std::string& origin, const CaseResult& result, ProgramRunner& runner);
  void count(const Case& c, const CaseResult& result, double seconds);
  void tell(const std::string& text);
  void run_workers(const Next& next, const std::function<Status()>& status);

  Settings settings_;
  std::function<void(const std::string&)> tell_;
  bool replaying_ = false;
  bool emulated_;             // programs with an emulated GPU are built
  mutable std::mutex mutex_;  // of what follows, and of tell_
  std::map<CaseKind, Tally> tallies_;
  std::map<std::string, int> refusals_;  ///< reason, and how often
  double slowest_ = 0;                   // seconds of the slowest case
  std::string slowest_case_;
  std::atomic<int> right_{0}, wrong_{0}, checked_{0};
};

}  // namespace trireme::explore
