#include "train/events/texts.h"

#include <fmt/core.h>

#include "train/program/text_width.h"
#include "train/program/units.h"

namespace trireme {
namespace {

/// "step 120/2000".
std::string step_of(std::int64_t step, std::int64_t steps, bool aligned) {
  return aligned ? fmt::format("step {:>{}}/{}", step, std::to_string(steps).size(), steps)
                 : fmt::format("step {}/{}", step, steps);
}

std::string step_text(const StepRecord& r, const std::string& step, std::string_view norm, std::string_view rate,
                      double seconds_left) {
  return fmt::format("{} | loss {:.4f} | lr {:.1e} | {} {:.2f} | {:.1f} ms | {} {} | eta {}", step, r.loss, r.lr, norm,
                     r.grad_norm, r.step_ms, format_count(r.tokens_per_s), rate, format_duration(seconds_left));
}

/// " at step 200" if `step` is not the last one.
std::string at_step(std::int64_t step, const RunResult& result) {
  return step == result.last_step() ? "" : fmt::format(" at step {}", step);
}

}  // namespace

std::string step_line(const StepRecord& r, std::int64_t steps, std::string_view rate, double seconds_left) {
  return step_text(r, step_of(r.step, steps, false), "norm", rate, seconds_left);
}

std::string step_line_in(int columns, const StepRecord& r, std::int64_t steps, std::string_view rate,
                         double seconds_left) {
  constexpr std::string_view separator = " | ";
  const std::string step = step_of(r.step, steps, true);
  std::string line = step_text(r, step, "grad norm", rate, seconds_left);
  if (columns_of(line) > columns) line = step_text(r, step, "norm", rate, seconds_left);
  while (columns_of(line) > columns && line.find(separator) != line.rfind(separator))
    line.resize(line.rfind(separator));
  return line;
}

std::string validation_line(const Validated& v, std::int64_t steps, bool aligned) {
  return fmt::format("{} | validation loss {:.4f}{}{}", step_of(v.step, steps, aligned), v.loss,
                     v.meaning.empty() ? "" : " | ", v.meaning);
}

std::string warning_text(std::string_view text) { return fmt::format("warning: {}", text); }

std::string sample_block(const Sampled& sampled) {
  return fmt::format("--- sample at step {} ---\n{}\n---", sampled.step, sampled.text);
}

std::string saved_line(const Saved& saved, bool details) {
  const std::string best = saved.best ? ", the best so far" : "", size = format_bytes(static_cast<double>(saved.bytes));
  std::string text = fmt::format("saved step {}", saved.step);
  if (saved.asked)
    text += best + "; continuing";
  else if (details)
    text += fmt::format(" in {} ({}, {:.3f} s; training paused {:.3f} s){}", saved.path, size, saved.seconds,
                        saved.stall_seconds, best);
  else
    text += fmt::format("{} ({})", best, size);
  return saved.warning.empty() ? text : text + "; " + saved.warning;
}

std::string result_line(const RunResult& r) {
  const std::string made = fmt::format("{} step{} in {}", r.ended.steps, r.ended.steps == 1 ? "" : "s",
                                       format_elapsed(r.ended.wall_seconds));
  std::string text = r.ended.last_step ? "done: " + made
                                       : fmt::format("stopped after step {}/{}: {}", r.last_step(), r.run.steps, made);
  if (r.validated && r.validated->step == r.last_step())
    text += fmt::format(" | validation loss {:.4f}", r.validated->loss);
  else if (r.logged)
    text += fmt::format(" | loss {:.4f}{}", r.logged->record.loss, at_step(r.logged->record.step, r));
  if (r.best)
    text += fmt::format(" | best in {}/best", r.run.out);
  else if (r.saved)
    text += " | saved in " + r.run.out;
  if (!r.saved) return text;
  if (!r.ended.last_step) return text + " | --resume auto goes on";
  return r.run.use.empty() ? text : text + " | " + r.run.use;
}

std::string quiet_line(const RunResult& r, const std::string& path) {
  std::string text = fmt::format("made {} step{} in {}", r.ended.steps, r.ended.steps == 1 ? "" : "s",
                                 format_elapsed(r.ended.wall_seconds));
  if (!r.ended.last_step) text += ", until a signal";
  text += fmt::format(" | step {}", r.last_step());
  if (r.logged) text += fmt::format(" | loss {:.4f}{}", r.logged->record.loss, at_step(r.logged->record.step, r));
  if (r.validated) {
    const bool old = r.validated->step != r.last_step();
    text += fmt::format(" | validation loss {:.4f}{}", r.validated->loss, at_step(r.validated->step, r));
    if (!old && !r.validated->meaning.empty()) text += " | " + r.validated->meaning;
  }
  return path.empty() ? text : text + " | saved in " + path;
}

}  // namespace trireme
