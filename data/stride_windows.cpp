#include "data/stride_windows.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "data/eval_windows.h"

namespace trireme {

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
