// Searches for wrong numbers by itself: draws tiny runs at random from all that the flags allow, and checks each of
// them against docs/guarantees.md.
//
//   build/bin/explore --seconds 60                          a minute, with today's seed
//   build/bin/explore --seconds 600 --seed 7 --only bits    one kind of cases; the seed makes it repeatable
//   build/bin/explore --replay 'bits --mesh=dp=2 then --verify=on'
//
// A wrong case is shrunk to the smallest flags that still fail, and printed as a command. Exit code 0: nothing was
// wrong; 1: something was, or a replayed case was refused; 130: interrupted. Read next: train/explore/kinds.h.
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <sstream>

#include "core/io.h"
#include "train/explore/explorer.h"
#include "train/options/flags.h"
#include "train/program/launcher.h"
#include "train/program/program.h"
#include "train/program/screen.h"

using namespace trireme;
using namespace trireme::explore;

namespace {

std::int64_t days_since_1970() {
  return std::chrono::duration_cast<std::chrono::hours>(std::chrono::system_clock::now().time_since_epoch()).count() /
         24;
}

/// Reads cases from a file: one per line; lines that begin with '#' are comments.
std::vector<Case> read_cases(const std::string& path) {
  std::vector<Case> cases;
  std::istringstream lines(read_file(path));
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    const std::size_t begin = line.find_first_not_of(" \t\r");
    if (begin == std::string::npos || line[begin] == '#') continue;
    try {
      cases.push_back(parse_case(line.substr(begin, line.find_last_not_of(" \t\r") + 1 - begin)));
    } catch (const Error& error) { fail(error.code(), "explore", "{}:{}: {}", path, number, error.reason()); }
  }
  return cases;
}

std::sig_atomic_t volatile interrupted = 0;

/// The working folder; removed at the end, also after an error.
struct WorkFolder {
  std::filesystem::path path = std::filesystem::temp_directory_path() / fmt::format("trireme_explore.{}", ::getpid());
  WorkFolder() = default;
  WorkFolder(const WorkFolder&) = delete;
  WorkFolder& operator=(const WorkFolder&) = delete;
  ~WorkFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
};

}  // namespace

int main(int argc, char** argv) {
  return run_program([&] {
    Settings settings;
    std::optional<std::int64_t> seed;
    std::int64_t jobs = 2 * cores();  // ranks often wait for one another
    std::string only = "all", replay, finds;
    std::vector<std::string> kinds = {"all"};
    for (const Kind kind : all_kinds()) kinds.emplace_back(name(kind));
    Flags flags("explore", "Draws tiny runs at random, and checks each against docs/guarantees.md.");
    flags.group("exploring");
    flags.add("seconds", "S", settings.seconds, "how long", Range::at_least(0));
    flags.add("seed", "N", seed, "today", "of the draws; today: the number of days since 1970", Range::at_least(0));
    flags.add_choice("only", only, kinds, "one kind of cases; docs/guarantees.md says what each compares");
    flags.add("finds", "FILE", finds, "cases to try first, one per line: those that were wrong before");
    flags.add("replay", "CASE", replay,
              "try this case, and nothing else: a kind, flags of train_gpt (gradients: of parity) as --name=value, and "
              "after 'then' what a second run has in addition; --data=text-K is a text of K distinct characters, "
              "--fault=TEXT is TRIREME_FAULT");
    flags.not_empty();
    flags.add("jobs", "N", jobs, "cases tried at a time", Range::at_least(1));
    flags.add("limit", "S", settings.limit, "seconds after which a program is taken to hang", Range::above(0));
    flags.add_switch("first", settings.first, "stop at the first wrong case, and do not shrink it", true);
    if (!flags.parse_or_print(argc, argv)) return 0;
    for (const Kind kind : all_kinds())
      if (name(kind) == only) settings.only = kind;
    settings.seed = static_cast<std::uint64_t>(seed.value_or(days_since_1970()));
    settings.jobs = static_cast<int>(jobs);
    settings.programs = std::filesystem::read_symlink("/proc/self/exe").parent_path();
    const WorkFolder folder;
    settings.folder = folder.path;
    settings.stop = [] { return interrupted != 0; };
    std::signal(SIGINT, [](int) { interrupted = 1; });
    std::signal(SIGTERM, [](int) { interrupted = 1; });

    Explorer explorer(settings, [](const std::string& text) { Screen::of_process().print(text); });
    if (!replay.empty() && !finds.empty())
      fail(ExitCode::usage, "explore", "--replay tries one case, and --finds has no effect with it; drop one of them");
    if (!replay.empty()) {
      explorer.replay({parse_case(replay)});
    } else {
      fmt::print("seed {}, {} at a time, {:g} s\n", settings.seed, settings.jobs, settings.seconds);
      if (!finds.empty()) explorer.replay(read_cases(finds));
      explorer.explore();
    }
    if (interrupted != 0) fmt::print("interrupted\n");
    fmt::print("{}{}{}\n{} passed, {} failed\n", explorer.refusals(), explorer.slowest(), explorer.summary(),
               explorer.right(), explorer.wrong());
    constexpr int by_signal = 130;
    return interrupted != 0 ? by_signal : explorer.wrong() == 0 ? 0 : 1;
  });
}
