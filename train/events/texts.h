// Events as lines of text, without colours. Programs and tests read these lines (docs/training.md).
// Read next: train/terminal/terminal_sink.h, which prints them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "train/events/event.h"

namespace trireme {

/// "step 120/2000 | loss 2.1034 | lr 9.7e-04 | norm 0.81 | 38.2 ms | 20.1k tok/s | eta 1m12s". `rate`: the unit of
/// StepRecord::tokens_per_s, such as "tok/s". `seconds_left`: until the run ends.
std::string step_line(const StepRecord& record, std::int64_t steps, std::string_view rate, double seconds_left);
/// "step 500/2000 | validation loss 1.8423 | perplexity 6.31".
std::string validation_line(const Validated& validated, std::int64_t steps);
/// A sample of generated text between rules.
std::string sample_block(const Sampled& sampled);
/// "saved step 20 in PATH (1.2 MB, 0.030 s, of which training stood still for 0.001 s)".
std::string saved_line(const Saved& saved);

}  // namespace trireme
