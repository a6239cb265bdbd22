// Searches for wrong numbers by itself: draws tiny runs at random from all that the flags allow, and checks each of
// them against docs/guarantees.md.
//
//   build/bin/explore --seconds 60                          a minute, with today's seed
//   build/bin/explore --seconds 600 --seed 7 --only bits    one kind of cases; the seed makes it repeatable
//   build/bin/explore --replay 'bits --mesh=dp=2 then --verify=on'
//
// A wrong case is shrunk to the smallest flags that still fail, and printed as a command. Exit code 0: nothing was
// wrong; 1: something was, or a replayed case was refused; 130: interrupted. Read next: check/explore/kinds.h.
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <sstream>

#include "check/explore/explorer.h"
#include "core/error.h"
#include "core/io.h"
#include "train/options/flags.h"
#include "train/program/launcher.h"
#include "train/program/program.h"
#include "train/program/progress.h"
#include "train/program/screen.h"
#include "train/program/units.h"

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

/// The working folder, a new one; removed at the end, also after an error.
struct WorkFolder {
  std::filesystem::path path = std::filesystem::temp_directory_path() / fmt::format("trireme_explore.{}", ::getpid());
  WorkFolder() {
    if (!make_new_folder(path))
      fail(ExitCode::locked, "explore", "{} exists; expected a new folder to work in; remove it, or start again",
           path.string());
  }
  WorkFolder(const WorkFolder&) = delete;
  WorkFolder& operator=(const WorkFolder&) = delete;
  ~WorkFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
};

/// Shows on a terminal how far the explorer is.
class Progress {
 public:
  void show(const Status& status) {
    if (!bar_ || replaying_ != status.replaying) {
      replaying_ = status.replaying;
      bar_.reset();
      bar_.emplace(Screen::of_process(), replaying_ ? "replaying" : "exploring", status.total,
                   replaying_ ? format_count : format_duration);
    }
    std::vector<std::string> facts = {fmt::format("{} wrong", status.wrong)};
    if (!replaying_) facts.insert(facts.begin(), fmt::format("{} cases", status.cases));
    bar_->set(status.done, facts);
  }
  void end() { bar_.reset(); }

 private:
  std::optional<ProgressBar> bar_;
  bool replaying_ = false;
};

struct Options {
  Settings settings;
  std::optional<std::int64_t> seed;
  std::int64_t skip = 0;
  std::int64_t jobs = 2 * cores();  // ranks often wait for one another
  std::int64_t draw = 0;
  std::string only = "all", replay, finds;
};

void declare(Flags& flags, Options& o) {
  std::vector<std::string> kinds = {"all"};
  for (const CaseKind kind : all_kinds()) kinds.emplace_back(name(kind));
  flags.group("exploring");
  flags.add("seconds", "S", o.settings.seconds, "how long", Range::at_least(0));
  flags.add("seed", "N", o.seed, "today", "of the draws; today: the number of days since 1970", Range::at_least(0));
  flags.add("skip", "N", o.skip, "cases of the seed to leave out, as an earlier exploration has checked them",
            Range::at_least(0));
  flags.add_choice("only", o.only, kinds, "one kind of cases; docs/guarantees.md says what each compares");
  flags.add("finds", "FILE", o.finds, "cases to try first, one per line; with --seconds 0, no others");
  flags.add("replay", "CASE", o.replay,
            "try this case, and nothing else: a kind, flags of train_gpt (gradients: of parity) as --name=value, and "
            "after 'then' what a second run has in addition; --data=text-K is a text of K distinct characters, "
            "--fault=TEXT is TRIREME_FAULT");
  flags.not_empty();
  flags.add("draw", "N", o.draw, "print N cases of the seed, after those of --skip, instead of trying any",
            Range::at_least(0));
  flags.add("jobs", "N", o.jobs, "cases tried at a time", Range::at_least(1));
  flags.add("limit", "S", o.settings.limit, "seconds after which a program is taken to hang", Range::above(0));
  flags.add_switch("first", o.settings.first, "stop at the first wrong case, and do not shrink it", true);
}

/// The settings that follow from the flags and from this program's place.
Settings settings_of(const Options& o) {
  Settings settings = o.settings;
  for (const CaseKind kind : all_kinds())
    if (name(kind) == o.only) settings.only = kind;
  settings.skip = static_cast<std::uint64_t>(o.skip);
  settings.seed = static_cast<std::uint64_t>(o.seed.value_or(days_since_1970()));
  settings.jobs = static_cast<int>(o.jobs);
  settings.programs = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  if (!o.replay.empty() && !o.finds.empty())
    fail(ExitCode::usage, "explore", "--replay tries one case, and --finds has no effect with it; drop one of them");
  return settings;
}

void run(Explorer& explorer, const Options& o, const Settings& settings) {
  if (!o.replay.empty()) return explorer.replay({parse_case(o.replay)});
  Screen::of_process().print(
      fmt::format("seed {}, {} at a time, {:g} s", settings.seed, settings.jobs, settings.seconds));
  if (!o.finds.empty()) explorer.replay(read_cases(o.finds));
  explorer.explore();
}

}  // namespace

int main(int argc, char** argv) {
  return run_program([&] {
    Options options;
    Flags flags("explore", "Draws tiny runs at random, and checks each against docs/guarantees.md.");
    declare(flags, options);
    if (!flags.parse_or_print(argc, argv)) return 0;
    Settings settings = settings_of(options);
    if (options.draw > 0) {
      const Explorer explorer(settings, [](const std::string&) {});
      for (std::int64_t i = 0; i < options.draw; ++i)
        fmt::print("{}\n", to_text(explorer.drawn(settings.skip + static_cast<std::uint64_t>(i))));
      return 0;
    }
    const WorkFolder folder;
    settings.folder = folder.path;
    settings.stop = [] { return interrupted != 0; };
    std::signal(SIGINT, [](int) { interrupted = 1; });
    std::signal(SIGTERM, [](int) { interrupted = 1; });

    Progress progress;
    settings.show = [&](const Status& status) { progress.show(status); };
    Explorer explorer(settings, [](const std::string& text) { Screen::of_process().print(text); });
    run(explorer, options, settings);
    progress.end();
    if (interrupted != 0) fmt::print("interrupted\n");
    fmt::print("{}{}{}\n{} passed, {} failed\n", explorer.refusals(), explorer.slowest(), explorer.summary(),
               explorer.right(), explorer.wrong());
    constexpr int by_signal = 130;
    return interrupted != 0 ? by_signal : explorer.wrong() == 0 ? 0 : 1;
  });
}
