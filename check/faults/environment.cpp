// Reads the faults that the environment asks for, and checks that they can happen in a run.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "check/faults/injection.h"
#include "core/io_faults.h"
#include "train/options/options.h"
#include "train/program/launcher.h"

namespace trireme::fault {
namespace {

constexpr const char* io_variable = "TRIREME_IO_FAULT";

/// The variable's value; null if it is unset or empty. Throws if it is set and not `allowed`.
const char* asked_for(const char* name, bool allowed) {
  const char* text = std::getenv(name);
  if (text == nullptr || *text == '\0') return nullptr;
  if (!allowed)
    fail(ExitCode::usage, name,
         "{}='{}' asks for faults, and --allow-fault-injection is not given; expected both or neither; unset {}, or "
         "give --allow-fault-injection",
         name, text, name);
  return text;
}

}  // namespace

std::int64_t restarts() {
  const char* text = std::getenv(restarts_variable);
  if (text == nullptr) return 0;
  const std::string_view value = text;
  std::int64_t count = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), count);
  if (error != std::errc{} || end != value.data() + value.size() || count < 0)
    fail(ExitCode::usage, restarts_variable, "expected the number of restarts, got '{}'; correct or unset it", value);
  return count;
}

std::string from_environment(bool allowed) {
  const char* text = asked_for(fault_variable, allowed);
  if (text == nullptr) return {};
  parse(text);
  restarts();
  return text;
}

void arm_io(bool allowed) {
  const char* text = asked_for(io_variable, allowed);
  if (text == nullptr) return;
  const IoFault fault = parse_io_fault(text);
  if (fault.rank.value_or(0) >= std::max(1, launcher_ranks()))
    fail(ExitCode::usage, io_variable, "rank={} is not a process of this job, which has {}; expected less; change {}",
         *fault.rank, std::max(1, launcher_ranks()), io_variable);
  if (fault.rank && *fault.rank != launcher_rank()) return;
  if (!fault.start || *fault.start == restarts()) arm_io_faults(fault);
}

void require_possible(std::string_view faults, const TrainOptions& options) {
  if (faults.empty()) return;
  const int ranks = options.mesh.shape.ranks();
  for (const Fault& fault : parse(faults)) {
    if (fault.first_step > options.schedule.steps)
      fail(ExitCode::usage, fault_variable, "{} at step {}; expected a step up to --steps {}; change {} or --steps",
           name(fault.kind), fault.first_step, options.schedule.steps, fault_variable);
    if (fault.rank >= ranks)
      fail(ExitCode::usage, fault_variable, "{} on rank {}; expected a rank below {}, as --mesh {} has {}; change {}",
           name(fault.kind), fault.rank, ranks, options.mesh.axes, ranks, fault_variable);
  }
}

}  // namespace trireme::fault
