// Windows for the loss of a whole text, of which each sees tokens that the one before it has already counted.
//
//   context 8, stride 4       tokens   0 1 2 3 4 5 6 7 8 9 ...
//   window 0                  targets    1 2 3 4 5 6 7 8
//   window 1, tokens 4 to 11  targets                    9 10 11 12
//
// Every token but the first is a target once. A target sees at least context - stride tokens, unless the text begins
// later. A smaller stride gives a lower, truer loss, and takes context / stride times as long. stride = context:
// windows that do not overlap.
// Read next: data/eval_windows.h.
#pragma once

#include "data/source.h"
#include "data/tokens.h"

namespace trireme {

/// Windows of a text for evaluation: see the top of this file.
class StrideWindows : public ValidationSource {
 public:
  /// 1 <= stride <= context. Throws ExitCode::data when there are fewer than 2 tokens.
  StrideWindows(TokenRange tokens, std::int64_t context, std::int64_t stride);

  std::int64_t count() const override { return windows_; }  ///< windows
  std::int64_t targets() const override { return tokens_.count() - 1; }
  /// As EvalWindows::make_batch().
  Batch make_batch(std::int64_t first, std::int64_t count) const override;

 private:
  TokenRange tokens_;
  std::int64_t context_, stride_, windows_;
};

}  // namespace trireme
