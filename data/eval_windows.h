// Validation batches: fixed windows of the validation tokens, the same at every evaluation and on every mesh; nothing
// random. And windows that overlap, for the loss of a whole text.
// Read next: data/sampler.h.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "data/source.h"
#include "data/tokens.h"

namespace trireme {

/// Where a window begins, and how many of its first targets earlier windows have counted.
struct Window {
  std::int64_t begin = 0, counted = 0;
};
/// The windows as rows of `count` and `context` tokens, numbered from `first` on. The missing end of a short window,
/// and rows for which there is no window, have input 0 and target -1, which the loss ignores; so have counted targets.
Batch window_batch(const TokenRange& tokens, std::int64_t context, const std::vector<Window>& windows,
                   std::int64_t first, std::int64_t count);

/// Windows of the validation tokens, one after the other.
class EvalWindows : public ValidationSource {
 public:
  /// Windows in one batch of `--eval-batches`: a constant, so that the windows depend neither on the mesh nor on how a
  /// step's batch is cut into micro-batches. It is the default --micro-batch.
  static constexpr std::int64_t batch = 12;
  /// `--eval-batches N`: N * batch windows evenly spaced over the range, or `all` if that gives no more windows.
  /// Without a number: `all`.
  static EvalWindows of_batches(TokenRange tokens, std::int64_t context, std::optional<std::int64_t> batches);
  /// Windows evenly spaced over the range, the first at its start, the last at its end.
  /// Throws ExitCode::data when the range holds no window of context + 1 tokens.
  static EvalWindows spaced(TokenRange tokens, std::int64_t context, std::int64_t windows);
  /// `--eval-batches all`: window k starts at k * context, so that every token but the first is a target exactly once.
  /// The last may be shorter. Throws ExitCode::data when the range holds fewer than 2 tokens.
  static EvalWindows all(TokenRange tokens, std::int64_t context);

  std::int64_t count() const override { return windows_; }  ///< windows
  std::int64_t targets() const override;
  std::int64_t start(std::int64_t window) const;  ///< first token of a window in the range
  /// Windows first .. first + count - 1; there may be fewer, so that all ranks can run the same number of batches. See
  /// window_batch().
  Batch make_batch(std::int64_t first, std::int64_t count) const override;

 private:
  EvalWindows(TokenRange tokens, std::int64_t context, std::int64_t windows, bool spaced);

  TokenRange tokens_;
  std::int64_t context_, windows_;
  bool spaced_;
};

/// Windows for the loss of a whole text, of which each sees tokens that the one before it has already counted.
///
///   context 8, stride 4       tokens   0 1 2 3 4 5 6 7 8 9 ...
///   window 0                  targets    1 2 3 4 5 6 7 8
///   window 1, tokens 4 to 11  targets                    9 10 11 12
///
/// Every token but the first is a target once. A target sees at least context - stride tokens, or all that come
/// before it. A smaller stride gives a lower, truer loss, and takes context / stride times as long. stride = context:
/// windows that do not overlap.
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
