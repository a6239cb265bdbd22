// The protocol by which the programs of bench/compare.py take turns. Each program is started once and warms up. Then it
// reads a number of steps from each line of standard input, and prints one line of JSON per step. So the driver can
// alternate Trireme and its peers, however long each takes to start or compile.
//
//   -> (starts)        <- {"ready":{"parameters":124439808,...}}      after the warm-up, with facts for the driver
//   -> 3               <- {"seconds":0.51,...}  three times
//   -> (end of file)   <- {"end":{"peak_rss":2107637760,...}}
//
// With --steps N instead of --turns a program runs N steps once. The same in Python: bench/peers/turns.py.
#pragma once

#include <fmt/core.h>
#include <sys/resource.h>

#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "data/utf8.h"
#include "train/options/flags.h"

namespace trireme::bench {

class Turns {
 public:
  void declare(Flags& flags) {
    flags.group("turns");
    flags.add("steps", "N", steps_, "steps to measure, unless --turns",
              Range{.low = 1, .high = static_cast<double>(most_steps)});
    flags.add("warm-up", "N", warm_up_, "steps before those that are measured",
              Range{.low = 0, .high = static_cast<double>(most_steps)});
    flags.add_switch("turns", interactive_, "read from standard input how many steps to do, one line per turn", true);
  }
  std::int64_t warm_up() const { return warm_up_; }
  bool interactive() const { return interactive_; }

  /// The number of steps of the next turn; 0: the input has ended. Throws ExitCode::usage for a line that is not a
  /// number.
  std::int64_t next() {
    if (!interactive_) return std::exchange(steps_, 0);
    char buffer[32];
    if (std::fgets(buffer, sizeof buffer, stdin) == nullptr) return 0;
    ++line_;
    std::string_view text = buffer;
    const bool whole = text.ends_with('\n') || std::feof(stdin) != 0;  // a longer line is not a number of steps
    if (text.ends_with('\n')) text.remove_suffix(1);
    std::int64_t count = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
    if (!whole || error != std::errc{} || end != text.data() + text.size() || count < 1 || count > most_steps)
      fail(ExitCode::usage, "turns",
           "line {} of standard input is {}; expected the number of steps to do, an integer in [1, {}]; end the input "
           "after the last turn",
           line_, in_quotes(text), most_steps);
    return count;
  }

  static void say(const nlohmann::json& line) {
    fmt::print("{}\n", line.dump());
    std::fflush(stdout);
  }

 private:
  static constexpr std::int64_t most_steps = 1 << 20;
  std::int64_t steps_ = 10, warm_up_ = 3, line_ = 0;
  bool interactive_ = false;
};

/// What the process has used since this object was made: time, and page faults of all threads.
class Usage {
 public:
  Usage() : start_(std::chrono::steady_clock::now()), faults_(now()) {}
  nlohmann::json json() const {
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
    const rusage after = now();
    return {{"seconds", seconds},
            {"minor_faults", after.ru_minflt - faults_.ru_minflt},
            {"major_faults", after.ru_majflt - faults_.ru_majflt}};
  }
  /// Largest resident size of the process so far, in bytes.
  static std::int64_t peak_rss() { return std::int64_t{now().ru_maxrss} * 1024; }

 private:
  static rusage now() {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return usage;
  }
  std::chrono::steady_clock::time_point start_;
  rusage faults_;
};

}  // namespace trireme::bench
