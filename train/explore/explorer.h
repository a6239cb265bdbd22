// Explorer: draws cases, tries them, and shrinks what is wrong to the smallest case that still is.
// Read next: train/explore/explorer.cpp, examples/explore.cpp.
#pragma once

#include <atomic>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "train/explore/kinds.h"

namespace trireme::explore {

struct Settings {
  double seconds = 600;      ///< of exploring; what is under way then is finished
  std::uint64_t seed = 0;    ///< case `i` is a function of the seed and i
  std::optional<Kind> only;  ///< not set: all kinds
  int jobs = 1;              ///< cases tried at a time
  bool first = false;        ///< end at the first find, without shrinking it
  /// Seconds after which a program is taken to hang. The programs end by themselves when ranks wait for one that has
  /// stopped (--timeout), so this is for what they do not see; ranks that share few cores with other programs are slow.
  double limit = 300;
  double shrink_seconds = 60;                         ///< per find
  std::filesystem::path programs;                     ///< the folder of train_gpt
  std::filesystem::path folder;                       ///< to work in
  std::function<bool()> stop = [] { return false; };  ///< asked between cases
};

/// The smallest case on the way down from `c` for which `still_wrong` holds, as far as `steps_left` allows: each step
/// tries one smaller case.
Case shrink(Case c, const std::function<bool(const Case&)>& still_wrong, const std::function<bool()>& steps_left);

class Explorer {
 public:
  Explorer(Settings settings, std::function<void(const std::string&)> tell);

  /// Cases that were wrong once, one a line; '#' begins a comment.
  void replay(const std::vector<Case>& cases);
  /// Draws and tries until the time is over.
  void explore();

  int right() const { return right_; }
  int wrong() const { return wrong_; }
  std::string summary() const;
  /// Why programs refused cases that were drawn, a line each.
  std::string refusals() const;
  std::string slowest() const;

 private:
  struct Tally {
    int right = 0, refused = 0, wrong = 0;
  };

  void work(int worker, const std::function<std::optional<std::pair<Case, std::string>>()>& next);
  void report(const Case& c, const std::string& origin, const Verdict& verdict, Lab& lab);
  void count(const Case& c, const Verdict& verdict, double seconds);
  void run_workers(const std::function<std::optional<std::pair<Case, std::string>>()>& next);

  Settings settings_;
  std::function<void(const std::string&)> tell_;
  bool replaying_ = false;
  bool emulated_;  // programs with an emulated GPU are there
  std::mutex mutex_;
  std::map<Kind, Tally> tallies_;
  std::map<std::string, int> refusals_;  ///< why, and how often
  double slowest_ = 0;                   // case, in seconds
  std::string slowest_case_;
  std::atomic<int> right_{0}, wrong_{0};
};

}  // namespace trireme::explore
