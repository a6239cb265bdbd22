#include "check/explore/explorer.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "core/error.h"

namespace trireme::explore {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

/// How many of 100 cases are of each kind.
int share(CaseKind kind) {
  switch (kind) {
    case CaseKind::gradients:
      return 26;
    case CaseKind::run:
      return 20;
    case CaseKind::bits:
      return 26;
    case CaseKind::resume:
      return 16;
    case CaseKind::faults:
      return 7;
    case CaseKind::verify:
      return 5;
  }
  return 0;
}

CaseKind draw_kind(RandomChoices& random) {
  auto rest = static_cast<int>(random.below(100));
  for (const CaseKind kind : all_kinds()) {
    rest -= share(kind);
    if (rest < 0) return kind;
  }
  return CaseKind::gradients;
}

/// The type of a failure: its text up to the first colon. A smaller case must fail with the same type.
std::string sort_of(const std::string& text) { return text.substr(0, text.find(':')); }

constexpr const char* replayed = "replayed";

/// The first part of a message, with numbers replaced by '#'.
std::string without_numbers(const std::string& text) {
  constexpr std::size_t most = 90;
  std::string result;
  for (const char c : text.substr(0, text.find(';'))) {
    const bool digit = c >= '0' && c <= '9';
    if (!digit || !result.ends_with('#')) result += digit ? '#' : c;
  }
  return result.substr(0, most);
}

}  // namespace

Case shrink(Case c, const std::function<bool(const Case&)>& still_wrong, const std::function<bool()>& steps_left) {
  bool smaller = true;
  while (smaller) {
    smaller = false;
    for (const Case& candidate : smaller_cases(c)) {
      if (!steps_left()) return c;
      if (!still_wrong(candidate)) continue;
      c = candidate;
      smaller = true;
      break;
    }
  }
  return c;
}

Explorer::Explorer(Settings settings, std::function<void(const std::string&)> tell)
    : settings_(std::move(settings)),
      tell_(std::move(tell)),
      emulated_(std::filesystem::exists(settings_.programs / "train_gpt_emulated")) {}

void Explorer::count(const Case& c, const CaseResult& result, double seconds) {
  const std::scoped_lock lock(mutex_);
  if (seconds > slowest_) {
    slowest_ = seconds;
    slowest_case_ = to_text(c);
  }
  Tally& tally = tallies_[c.kind];
  switch (result.kind) {
    case CaseResult::Kind::right:
      ++tally.right;
      ++right_;
      break;
    case CaseResult::Kind::refused:
      ++tally.refused;
      ++refusals_[without_numbers(result.text)];
      break;
    case CaseResult::Kind::wrong:
      ++tally.wrong;
      ++wrong_;
      break;
  }
}

void Explorer::report(const Case& c, const std::string& origin, const CaseResult& result, ProgramRunner& runner) {
  constexpr int repeats = 3;
  Case smallest = c;
  // Printed at once: shrinking takes a while and may be interrupted.
  tell(fmt::format("WRONG ({}): {}\n  drawn as: {}", origin, result.text, to_text(c)));
  std::string text;
  if (!settings_.first && !result.text.starts_with("refused")) {
    const Clock::time_point start = Clock::now();
    CaseResult last = result;
    smallest = shrink(
        c,
        [&](const Case& candidate) {
          const CaseResult found = check_case(candidate, runner);
          const bool alike = found.kind == CaseResult::Kind::wrong && sort_of(found.text) == sort_of(result.text);
          if (alike) last = found;
          return alike;
        },
        [&] { return seconds_since(start) < settings_.shrink_seconds && !settings_.stop(); });
    int again = 0;
    for (int i = 0; i < repeats; ++i) again += check_case(smallest, runner).kind == CaseResult::Kind::wrong ? 1 : 0;
    text += fmt::format("  smallest of {}: {}\n  it fails {} of {} times\n", origin, last.text, again, repeats);
  }
  text += fmt::format("  ./trireme explore --replay '{}'", to_text(smallest));
  runner.begin_case();
  check_case(smallest, runner);
  for (std::size_t i = 0; i < std::min<std::size_t>(2, runner.commands().size()); ++i)
    text += fmt::format("\n  {} {}", i == 0 ? "runs" : "and ", runner.commands()[i]);
  tell(text);
}

void Explorer::tell(const std::string& text) {
  const std::scoped_lock lock(mutex_);
  tell_(text);
}

void Explorer::work(int worker, const Next& next) {
  ProgramRunner runner(settings_.programs, settings_.folder / fmt::format("worker{}", worker), settings_.limit);
  while (const auto drawn = next()) {
    const auto& [c, origin] = *drawn;
    const Clock::time_point start = Clock::now();
    runner.begin_case();
    CaseResult result = check_case(c, runner);
    // Otherwise nobody would notice that the case is no longer checked.
    if (replaying_ && result.kind == CaseResult::Kind::refused)
      result = CaseResult::wrong("refused: the programs no longer take this case: " + result.text);
    count(c, result, seconds_since(start));
    ++checked_;
    if (result.kind == CaseResult::Kind::wrong) report(c, origin, result, runner);
  }
}

/// Checks what `next` gives until it gives nothing, and shows the status meanwhile.
void Explorer::run_workers(const Next& next, const std::function<Status()>& status) {
  std::vector<std::thread> workers;
  std::atomic<int> running{settings_.jobs};
  std::exception_ptr error;
  std::mutex failing;
  for (int i = 0; i < settings_.jobs; ++i)
    workers.emplace_back([&, i] {
      try {
        work(i, next);
      } catch (...) {
        const std::scoped_lock lock(failing);
        error = std::current_exception();
      }
      --running;
    });
  const auto show = [&] {
    Status now = status();
    now.cases = checked_;
    now.wrong = wrong_;
    settings_.show(now);
  };
  for (; running > 0; std::this_thread::sleep_for(std::chrono::milliseconds(100))) show();
  for (std::thread& worker : workers) worker.join();
  if (error) std::rethrow_exception(error);
  show();
}

void Explorer::replay(const std::vector<Case>& cases) {
  std::atomic<std::size_t> number{0};
  replaying_ = true;
  const int before = checked_;
  const auto next = [&]() -> std::optional<std::pair<Case, std::string>> {
    const std::size_t i = number++;
    if (i >= cases.size() || settings_.stop()) return std::nullopt;
    return std::pair(cases[i], std::string(replayed));
  };
  run_workers(next, [&] {
    return Status{
        .replaying = true, .done = static_cast<double>(checked_ - before), .total = static_cast<double>(cases.size())};
  });
  replaying_ = false;
}

Case Explorer::drawn(std::uint64_t i) const {
  RandomChoices random(settings_.seed, i);
  const CaseKind kind = draw_kind(random);
  Case c = draw_case(settings_.only.value_or(kind), random);
  if (!emulated_) c.flags.erase("device");
  return c;
}

void Explorer::explore() {
  if (!emulated_)
    tell_(
        "no programs with an emulated GPU are built, so nothing is drawn for it; build parity_emulated and "
        "train_gpt_emulated");
  const Clock::time_point start = Clock::now();
  std::atomic<std::uint64_t> number{settings_.skip};
  std::atomic<int> told{0};
  const auto next = [&]() -> std::optional<std::pair<Case, std::string>> {
    const double seconds = seconds_since(start);
    if (seconds >= settings_.seconds || (settings_.first && wrong_ > 0) || settings_.stop()) return std::nullopt;
    constexpr int every = 30;
    int last = told;
    if (seconds >= (last + 1) * every && told.compare_exchange_strong(last, static_cast<int>(seconds) / every))
      tell(fmt::format("{:.0f} s: {}", seconds, summary()));
    const std::uint64_t i = number++;
    return std::pair(drawn(i), fmt::format("case {} of seed {}", i, settings_.seed));
  };
  run_workers(next, [&] {  // cases that are under way when the time is over are completed
    return Status{.done = std::min(seconds_since(start), settings_.seconds), .total = settings_.seconds};
  });
}

std::string Explorer::summary() const {
  const std::scoped_lock lock(mutex_);
  int all = 0, refused = 0;
  std::string kinds;
  for (const auto& [kind, tally] : tallies_) {
    const int count = tally.right + tally.refused + tally.wrong;
    all += count;
    refused += tally.refused;
    kinds += fmt::format("{}{} {}", kinds.empty() ? "" : ", ", name(kind), count);
  }
  return fmt::format("cases: {} ({}); refused by the programs: {}; wrong: {}", all, all == 0 ? "none" : kinds, refused,
                     wrong_.load());
}

std::string Explorer::slowest() const {
  return slowest_case_.empty() ? "" : fmt::format("the slowest case, {:.1f} s: {}\n", slowest_, slowest_case_);
}

std::string Explorer::refusals() const {
  std::string text;
  for (const auto& [why, count] : refusals_) text += fmt::format("  {:>5} x {}\n", count, why);
  return text;
}

}  // namespace trireme::explore
