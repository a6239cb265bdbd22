#include "ops/supervisor/policy.h"

#include <fmt/core.h>
#include <sys/wait.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstring>

#include "core/error.h"

namespace trireme::supervisor {
namespace {

constexpr int signalled = 128, signals = 64;

const char* meaning(int code) {
  switch (static_cast<ExitCode>(code)) {
    case ExitCode::ok:
      return "done";
    case ExitCode::usage:
      return "a flag or a configuration";
    case ExitCode::data:
      return "unusable data";
    case ExitCode::internal:
      return "a bug";
    case ExitCode::locked:
      return "another run has the folder";
    case ExitCode::io:
      return "the file system refused";
    case ExitCode::retryable:
      return "starting again helps";
    case ExitCode::desync:
      return "ranks out of step";
    case ExitCode::numerical:
      return "loss or gradient not finite";
  }
  return code == 127 ? "the command was not found" : nullptr;
}

}  // namespace

Ending Ending::of_wait_status(int status) {
  return WIFSIGNALED(status) ? Ending{.signal = WTERMSIG(status)} : of_exit_code(WEXITSTATUS(status));
}

Ending Ending::of_exit_code(int code) {
  const bool by_signal = code > signalled && code <= signalled + signals;
  return by_signal ? Ending{.signal = code - signalled} : Ending{.code = code};
}

std::string to_string(const Ending& ending, const std::string& cause) {
  if (ending.signal != 0) return fmt::format("signal {} ({})", ending.signal, ::strsignal(ending.signal));
  const char* means = cause.empty() ? meaning(ending.code) : cause.c_str();
  return fmt::format("exit code {}{}", ending.code, means == nullptr ? "" : fmt::format(" ({})", means));
}

EndKind classify(const Ending& ending, bool launched) {
  if (ending.signal != 0) return ending.signal == SIGINT ? EndKind::final : EndKind::retryable;
  if (ending.code == static_cast<int>(ExitCode::ok)) return EndKind::done;
  if (ending.code == static_cast<int>(ExitCode::retryable)) return EndKind::retryable;
  return launched && ending.code == 1 ? EndKind::launcher_failed : EndKind::final;
}

double pause_after(std::int64_t attempts, const Limits& limits) {
  if (attempts == 0) return 0;
  return std::min(limits.pause * std::exp2(static_cast<double>(attempts - 1)), limits.longest_pause);
}

std::optional<double> Budget::restart(std::int64_t newest) {
  if (newest > newest_) without_progress_ = 0;
  newest_ = std::max(newest_, newest);
  if (without_progress_ >= limits_.restarts) return std::nullopt;
  return pause_after(without_progress_++, limits_);
}

int ranks_to_start(int full, int model_ranks, int least, int available) {
  const int dp = full / model_ranks;
  for (int smaller = dp; smaller >= 1; --smaller) {
    const int ranks = smaller * model_ranks;
    if (dp % smaller == 0 && ranks <= available) return ranks >= least ? ranks : 0;
  }
  return 0;
}

}  // namespace trireme::supervisor
