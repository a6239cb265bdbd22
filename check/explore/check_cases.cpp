// Checks a case of each kind. Read next: check/explore/draw_cases.cpp.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "check/explore/compare.h"
#include "check/explore/kinds.h"
#include "check/explore/neutral.h"
#include "check/explore/sizes.h"
#include "check/explore/space.h"
#include "check/faults/injection.h"
#include "check/parity/rounding.h"
#include "core/error.h"
#include "core/io.h"
#include "train/options/options.h"

namespace trireme::explore {
namespace {

/// How a program ended, with its last line of output.
std::string ending(int code, const std::string& last_line) {
  return fmt::format("exit code {}{}{}", code, code == ProcessResult::timed_out ? " (not done in time)" : "",
                     last_line.empty() ? "" : ": " + last_line);
}

std::string last_line(const std::string& output) {
  TrainingResult result;
  result.output = output;
  return result.last_line();
}

bool is_refusal(int code) {
  return code == static_cast<int>(ExitCode::usage) || code == static_cast<int>(ExitCode::data);
}

/// The result that follows from the exit codes alone; nothing if both runs succeeded.
std::optional<CaseResult> result_of_codes(const TrainingResult& a, const TrainingResult& b) {
  if (a.code == 0 && b.code == 0) return std::nullopt;
  if (a.code == b.code && is_refusal(a.code)) return CaseResult::refused(a.last_line());
  const bool both_numerical = a.code == b.code && a.code == static_cast<int>(ExitCode::numerical);
  if (both_numerical) return CaseResult::refused(a.last_line());  // no numbers to compare: the loss scale is useless
  return CaseResult::wrong(
      fmt::format("{}, the other run: {}", ending(a.code, a.last_line()), ending(b.code, b.last_line())));
}

std::int64_t number_of(const Arguments& flags, const std::string& flag, std::int64_t otherwise) {
  return flags.contains(flag) ? std::atoll(flags.at(flag).c_str()) : otherwise;
}

DType dtype_of(const Arguments& flags) {
  const std::string dtype = value_of(flags, "dtype", "f32");
  return dtype == "bf16" ? DType::bf16 : dtype == "f16" ? DType::f16 : DType::f32;
}

/// How much sums of equal terms may differ between two orders of summation. Rounding errors of equal terms have one
/// sign and add up: a sum of n of them loses at most n / 2 units of roundoff (Higham 2002, "Accuracy and Stability of
/// Numerical Algorithms", section 4.2). In a text of K characters, a K-th of the tokens may have equal gradients.
double rounding_of_equal_terms(const Arguments& flags) {
  const std::string text = value_of(flags, "data", "text-17");
  const double characters = std::atof(text.substr(text.find('-') + 1).c_str());
  const auto tokens = static_cast<double>(global_batch(flags) * number_of(flags, "context", 8));
  return tokens / std::max(1.0, characters) * roundoff(DType::f32);
}

/// The largest relative difference that is accepted without an explanation.
double accepted(const Arguments& flags) {
  constexpr double units = 16;
  const DType dtype = dtype_of(flags);
  return std::max(rounding_of_equal_terms(flags), dtype == DType::f32 ? 1e-5 : units * roundoff(dtype));
}

/// The flags of the same run on one rank, with the whole batch as one micro-batch.
Arguments on_one_rank(const Arguments& flags) {
  Arguments one;
  for (const Flags::Declared& flag : train_program().flags)
    if (flag.group != "mesh" && flags.contains(flag.name)) one[flag.name] = flags.at(flag.name);
  if (flags.contains("fault")) one["fault"] = flags.at("fault");
  for (const char* flag : {"device", "micro-batches", "recompute", "keep-packed", "check-state"}) one.erase(flag);
  one["micro-batch"] = one["global-batch"] = std::to_string(global_batch(flags));
  return one;
}

/// Runs `a`, whose flags are `flags`, again with weights disturbed before `step` by a few units of the dtype's
/// roundoff times a factor, and returns the gaps to `a`.
Disturbances disturbances(ProgramRunner& runner, const TrainingResult& a, const Arguments& flags, DType dtype,
                          std::int64_t step, std::int64_t first_step) {
  return [&runner, &a, flags, dtype, step, first_step](int number, double factor) {
    const double size = factor * roundoff(dtype) * (1 << number % 4);
    const std::string noise = fmt::format("noise@step={},factor={},seed={}", step, size, number + 1);
    const std::string fault = value_of(flags, "fault");
    const TrainingResult other =
        runner.train("disturbed", with(flags, {{"fault", fault.empty() ? noise : fault + ";" + noise}}));
    return gaps(a, other, first_step);
  };
}

CaseResult check_gradients(const Case& c, ProgramRunner& runner) {
  const ProcessResult ended = runner.parity(c.flags);
  if (ended.code == 0) return CaseResult::right();
  const bool overflows = ended.code == static_cast<int>(ExitCode::numerical) && value_of(c.flags, "dtype") == "f16";
  if (is_refusal(ended.code) || overflows) return CaseResult::refused(last_line(ended.output));
  return CaseResult::wrong(ending(ended.code, last_line(ended.output)));
}

bool first_step_skipped(const TrainingResult& run) {
  const auto first = run.records.find(1);
  return first == run.records.end() || first->second.value("skipped", 0) > 0;
}

/// The first step of a 16-bit run must be close to that of f32. This finds errors that occur both on the mesh and on
/// one rank.
std::string differing_from_f32(const TrainingResult& reference, Arguments flags, ProgramRunner& runner) {
  constexpr double units = 64;  // of roundoff: rounding errors of many operations add up
  const DType dtype = dtype_of(flags);
  if (first_step_skipped(reference)) return {};  // the first recorded step then used other samples
  for (const char* flag : {"dtype", "loss-scale", "loss-scale-window", "loss-scale-hysteresis"}) flags.erase(flag);
  const TrainingResult exact = runner.train("f32", flags);
  std::vector<Gap> first = gaps(exact, reference);
  std::erase_if(first, [](const Gap& gap) { return gap.step != 1 || (gap.key != "loss" && gap.key != "grad_norm"); });
  return unexplained(first, units * roundoff(dtype), disturbances(runner, exact, flags, dtype, 1, 1));
}

CaseResult check_run(const Case& c, ProgramRunner& runner) {
  const Arguments one = on_one_rank(c.flags);
  const DType dtype = dtype_of(c.flags);
  const TrainingResult mesh = runner.train("mesh", c.flags), reference = runner.train("one", one);
  // Only the emulated GPU refuses what a GPU does not support; the reference runs on the CPU.
  if (is_refusal(mesh.code) && c.flags.contains("device")) return CaseResult::refused(mesh.last_line());
  if (const auto result = result_of_codes(mesh, reference)) return *result;
  const std::string what =
      unexplained(gaps(reference, mesh), accepted(c.flags), disturbances(runner, reference, one, dtype, 1, 0));
  if (!what.empty()) return CaseResult::wrong("one rank and the mesh: " + what);
  const std::string far = dtype == DType::f32 ? "" : differing_from_f32(reference, one, runner);
  return far.empty() ? CaseResult::right() : CaseResult::wrong("f32 and 16 bits: " + far);
}

CaseResult check_bits(const Case& c, ProgramRunner& runner) {
  const TrainingResult first = runner.train("first", c.flags), second = runner.train("second", with(c.flags, c.change));
  if (const auto result = result_of_codes(first, second)) return *result;
  const std::string what = differing_bits(first, second);
  return what.empty() ? CaseResult::right() : CaseResult::wrong("bits differ: " + what);
}

CaseResult check_resume(const Case& c, ProgramRunner& runner) {
  const std::int64_t every = number_of(c.flags, "checkpoint-every", 0), steps = number_of(c.flags, "steps", 0);
  if (every <= 0 || every >= steps) return CaseResult::refused("no checkpoint to resume from");
  const TrainingResult whole = runner.train("whole", c.flags);
  TrainingResult resumed;
  if (whole.code == 0) {
    const auto path = whole.out / "checkpoints" / fmt::format("step_{:08}", every);
    resumed = runner.train("resumed", with(with(c.flags, c.change), {{"resume", path.string()}}));
  } else {
    resumed = runner.train("resumed", with(c.flags, c.change));
  }
  if (const auto result = result_of_codes(whole, resumed)) return *result;
  const bool same_mesh = std::all_of(c.change.begin(), c.change.end(),
                                     [&](const auto& item) { return is_neutral(c.flags, item.first, item.second); });
  if (same_mesh) {
    const std::string what = differing_bits(whole, resumed, every + 1);
    return what.empty() ? CaseResult::right() : CaseResult::wrong("after a resume bits differ: " + what);
  }
  const std::string what = unexplained(gaps(whole, resumed, every + 1), accepted(c.flags),
                                       disturbances(runner, whole, c.flags, dtype_of(c.flags), every + 1, every + 1));
  return what.empty() ? CaseResult::right() : CaseResult::wrong("after a resume on another mesh: " + what);
}

/// The lines of `output` that contain `part`.
std::string lines_with(const std::string& output, const std::string& part) {
  std::string lines;
  for (std::size_t at = output.find(part); at != std::string::npos; at = output.find(part, at + part.size())) {
    const std::size_t begin = output.rfind('\n', at) + 1;
    lines += output.substr(begin, output.find('\n', at) - begin) + "\n";
  }
  return lines;
}

CaseResult check_faults(const Case& c, ProgramRunner& runner) {
  const std::string fault = value_of(c.flags, "fault");
  const bool nan = fault.starts_with("nan");
  const std::size_t rank = fault.find(",rank=");
  if (fault.empty()) return CaseResult::refused("no fault was planted");
  Arguments one = on_one_rank(c.flags);
  if (rank != std::string::npos) one["fault"] = fault.substr(0, rank);
  const TrainingResult mesh = runner.train("mesh", c.flags), reference = runner.train("one", one);
  const bool no_place = mesh.code == static_cast<int>(ExitCode::usage) &&
                        mesh.last_line().find(fmt::format("[{}]", fault::fault_variable)) != std::string::npos;
  if (no_place) return CaseResult::refused(mesh.last_line());  // for example, all parameters of that rank are frozen
  if (const auto result = result_of_codes(mesh, reference)) return *result;
  if (nan) {
    const std::string lines = lines_with(mesh.output, " skipped: ");
    const std::string place = "on rank " + fault.substr(rank + 6);
    if (lines.find(place + " ") == std::string::npos && lines.find(place + ",") == std::string::npos &&
        ranks_of(c.flags) > 1)
      return CaseResult::wrong(fmt::format("a NaN {} was not named; it was said: {}", place, lines));
  } else if ((lines_with(mesh.output, "above --spike-threshold").empty()) !=
             (lines_with(reference.output, "above --spike-threshold").empty())) {
    return CaseResult::wrong("one rank and the mesh disagree about a spike");
  }
  const std::string what = unexplained(gaps(reference, mesh), accepted(c.flags),
                                       disturbances(runner, reference, one, dtype_of(c.flags), 1, 0));
  return what.empty() ? CaseResult::right() : CaseResult::wrong("one rank and the mesh after a fault: " + what);
}

CaseResult check_verify(const Case& c, ProgramRunner& runner) {
  if (!can_find_fault(c.flags)) return CaseResult::refused("no guard sees the fault");
  const TrainingResult run = runner.train("run", c.flags);
  if (is_refusal(run.code)) return CaseResult::refused(run.last_line());
  if (run.output.find("injected fault") == std::string::npos) return CaseResult::refused("no fault was planted");
  const bool found =
      run.code == static_cast<int>(ExitCode::desync) || run.code == static_cast<int>(ExitCode::retryable);
  // A flip must be reported by a comparison of replicas or by a checksum, not as a lost rank.
  const bool flip = value_of(c.flags, "fault").starts_with("flip");
  const bool named = !flip || run.output.find("[replicas]") != std::string::npos ||
                     run.output.find("[shard-hash]") != std::string::npos ||
                     run.output.find("[verify]") != std::string::npos;
  if (found && named) return CaseResult::right();
  return CaseResult::wrong("a planted fault was not found: " + ending(run.code, run.last_line()));
}

}  // namespace

CaseResult check_case(const Case& c, ProgramRunner& runner) {
  if (amplifies_rounding(c)) return CaseResult::refused("AdamW's updates are unbounded: expected beta1^2 < beta2");
  switch (c.kind) {
    case CaseKind::gradients:
      return check_gradients(c, runner);
    case CaseKind::run:
      return check_run(c, runner);
    case CaseKind::resume:
      return check_resume(c, runner);
    case CaseKind::bits:
      return check_bits(c, runner);
    case CaseKind::faults:
      return check_faults(c, runner);
    case CaseKind::verify:
      return check_verify(c, runner);
  }
  fail(ExitCode::internal, "explore", "a kind without a check");
}

}  // namespace trireme::explore
