// Where the validation windows stand, and their batches.
#include "data/eval_windows.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/error.h"

namespace trireme {

Batch window_batch(const TokenRange& tokens, std::int64_t context, const std::vector<Window>& windows,
                   std::int64_t first, std::int64_t count) {
  const Tensor inputs = Tensor::full({count, context}, 0, DType::i32);    // [B, T]
  const Tensor targets = Tensor::full({count, context}, -1, DType::i32);  // [B, T]
  std::vector<std::int32_t> read;
  std::int64_t row = 0;
  for (const Window& window : windows) {
    const std::int64_t length = std::min(context, tokens.count() - 1 - window.begin);
    read.resize(static_cast<std::size_t>(length) + 1);
    tokens.read(window.begin, read);
    std::copy_n(read.begin(), length, inputs.data<std::int32_t>() + row);
    std::copy(read.begin() + 1 + window.counted, read.end(), targets.data<std::int32_t>() + row + window.counted);
    row += context;
  }
  std::vector<std::int64_t> ids(static_cast<std::size_t>(count));
  std::iota(ids.begin(), ids.end(), first);
  return token_batch(inputs, targets, std::move(ids));
}

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
  std::vector<Window> windows;
  for (std::int64_t i = first; i < std::min(first + count, windows_); ++i) windows.push_back({.begin = start(i)});
  return window_batch(tokens_, context_, windows, first, count);
}

StrideWindows::StrideWindows(TokenRange tokens, std::int64_t context, std::int64_t stride)
    : tokens_(std::move(tokens)), context_(context), stride_(stride) {
  require(stride >= 1 && stride <= context, "evaluation", "a stride of {}; expected 1 to the context of {}", stride,
          context);
  if (tokens_.count() < 2)
    fail(ExitCode::data, "evaluation", "the text has {} tokens; expected at least 2; give a longer text",
         tokens_.count());
  const std::int64_t behind_first = std::max<std::int64_t>(0, targets() - context_);
  windows_ = 1 + (behind_first + stride_ - 1) / stride_;
}

Batch StrideWindows::make_batch(std::int64_t first, std::int64_t count) const {
  std::vector<Window> windows;
  for (std::int64_t i = first; i < std::min(first + count, windows_); ++i)
    windows.push_back({.begin = i * stride_, .counted = i == 0 ? 0 : context_ - stride_});
  return window_batch(tokens_, context_, windows, first, count);
}

}  // namespace trireme
