// Where the validation windows stand, and their batches.
#include "data/eval_windows.h"

#include <algorithm>
#include <utility>

#include "core/error.h"

namespace trireme {

EvalWindows::EvalWindows(TokenRange tokens, std::int64_t context, std::int64_t windows, bool spaced)
    : tokens_(std::move(tokens)), context_(context), windows_(windows), spaced_(spaced) {
  require(context >= 1 && windows >= 1, "evaluation", "context {} and {} windows; expected at least 1", context,
          windows);
}

EvalWindows EvalWindows::of_batches(TokenRange tokens, std::int64_t context, std::optional<std::int64_t> batches) {
  const EvalWindows whole = all(tokens, context);
  // A division, because a product could overflow: the user may give any number of batches.
  if (!batches || *batches > (whole.count() - 1) / batch) return whole;
  return spaced(std::move(tokens), context, *batches * batch);
}

EvalWindows EvalWindows::spaced(TokenRange tokens, std::int64_t context, std::int64_t windows) {
  if (tokens.count() <= context)
    fail(ExitCode::data, "evaluation",
         "the validation part has {} tokens; expected at least {} for --context {}; lower --context, raise "
         "--val-fraction, or use --eval-batches all",
         tokens.count(), context + 1, context);
  return EvalWindows(std::move(tokens), context, windows, true);
}

EvalWindows EvalWindows::all(TokenRange tokens, std::int64_t context) {
  if (tokens.count() < 2)
    fail(ExitCode::data, "evaluation", "the validation part has {} tokens; expected at least 2; raise --val-fraction",
         tokens.count());
  const std::int64_t targets = tokens.count() - 1;
  return EvalWindows(std::move(tokens), context, (targets + context - 1) / context, false);
}

std::int64_t EvalWindows::targets() const { return spaced_ ? windows_ * context_ : tokens_.count() - 1; }

std::int64_t EvalWindows::start(std::int64_t window) const {
  require(window >= 0 && window < windows_, "evaluation", "window {} of {} does not exist", window, windows_);
  if (!spaced_) return window * context_;
  const std::int64_t last = tokens_.count() - context_ - 1;
  if (windows_ == 1) return 0;
  // floor(window * last / (windows - 1)) without the overflow of the product
  const std::int64_t parts = windows_ - 1;
  return window * (last / parts) + window * (last % parts) / parts;
}

Batch EvalWindows::make_batch(std::int64_t first, std::int64_t count) const {
  require(first >= 0 && count >= 1, "evaluation", "{} windows from {} on; expected at least 1", count, first);
  const Tensor inputs = Tensor::full({count, context_}, 0, DType::i32);    // [B, T]
  const Tensor targets = Tensor::full({count, context_}, -1, DType::i32);  // [B, T]
  std::vector<std::int64_t> ids;
  std::vector<std::int32_t> window;
  for (std::int64_t row = 0; row < count; ++row) {
    ids.push_back(first + row);
    if (first + row >= windows_) continue;
    const std::int64_t begin = start(first + row), length = std::min(context_, tokens_.count() - 1 - begin);
    window.resize(static_cast<std::size_t>(length) + 1);
    tokens_.read(begin, window);
    std::copy_n(window.begin(), length, inputs.data<std::int32_t>() + row * context_);
    std::copy_n(window.begin() + 1, length, targets.data<std::int32_t>() + row * context_);
  }
  return token_batch(inputs, targets, std::move(ids));
}

}  // namespace trireme
