#include "train/events/texts.h"

#include <fmt/core.h>

#include "train/program/units.h"

namespace trireme {

std::string step_line(const StepRecord& r, std::int64_t steps, std::string_view rate, double seconds_left) {
  return fmt::format("step {}/{} | loss {:.4f} | lr {:.1e} | norm {:.2f} | {:.1f} ms | {} {} | eta {}", r.step, steps,
                     r.loss, r.lr, r.grad_norm, r.step_ms, format_count(r.tokens_per_s), rate,
                     format_duration(seconds_left));
}

std::string validation_line(const Validated& v, std::int64_t steps) {
  return fmt::format("step {}/{} | validation loss {:.4f}{}{}", v.step, steps, v.loss, v.meaning.empty() ? "" : " | ",
                     v.meaning);
}

std::string sample_block(const Sampled& sampled) {
  return fmt::format("--- sample at step {} ---\n{}\n---", sampled.step, sampled.text);
}

std::string saved_line(const Saved& saved) {
  return fmt::format("saved step {} in {} ({}, {:.3f} s, of which training stood still for {:.3f} s){}{}", saved.step,
                     saved.path, format_bytes(static_cast<double>(saved.bytes)), saved.seconds, saved.stall_seconds,
                     saved.warning.empty() ? "" : "; ", saved.warning);
}

}  // namespace trireme
