// Events as lines of text, without colours. Programs and tests read these lines (docs/training.md).
// Read next: ops/terminal/terminal_sink.h, which prints them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "train/events/event.h"

namespace trireme {

/// "step 120/2000 | loss 2.1034 | lr 9.7e-04 | norm 0.81 | 38.2 ms | 20.1k tok/s | eta 1m12s". `rate`: the unit of
/// StepRecord::tokens_per_s, such as "tok/s". `seconds_left`: until the run ends.
std::string step_line(const StepRecord& record, std::int64_t steps, std::string_view rate, double seconds_left);
/// The same for a window of this width: the numbers of steps are aligned, and the last fields are left out if the line
/// is too long. "step  120/2000 | loss 2.1034 | lr 9.7e-04 | grad norm 0.81 | ..."
std::string step_line_in(int columns, const StepRecord& record, std::int64_t steps, std::string_view rate,
                         double seconds_left);
/// "step 500/2000 | validation loss 1.8423 | perplexity 6.31". `aligned`: as in step_line_in().
std::string validation_line(const Validated& validated, std::int64_t steps, bool aligned = false);
/// "warning: TEXT".
std::string warning_text(std::string_view text);
/// A sample of generated text between rules.
std::string sample_block(const Sampled& sampled);
/// "saved step 20 in PATH (1.2 MB, 0.030 s; training paused 0.001 s), the best so far". Without `details`: "saved step
/// 20, the best so far (1.2 MB)". If a signal asked for it: "saved step 20; continuing".
std::string saved_line(const Saved& saved, bool details = true);

/// The result of a run, as far as it is known, for the last line of a run.
struct RunResult {
  RunBegan run;
  RunEnded ended;
  std::optional<StepLogged> logged;    ///< the newest
  std::optional<Validated> validated;  ///< the newest
  bool saved = false;                  ///< at least one checkpoint
  bool best = false;                   ///< one of them was the best at its time

  std::int64_t last_step() const { return run.first_step + ended.steps; }
};
/// "done: 200 steps in 1.9 s | validation loss 2.5582 | best in r1/best | generate --checkpoint r1", or "stopped after
/// step 120/200: ...".
std::string result_line(const RunResult& result);
/// "made 300 steps in 12.0 s | step 300 | loss 2.1034 | validation loss 2.2010 | perplexity 9.03 | saved in PATH", for
/// --quiet. A value of an earlier step is followed by "at step 200". `path`: of the newest checkpoint; may be empty.
std::string quiet_line(const RunResult& result, const std::string& path);

}  // namespace trireme
