// Standard input, read by the first of several ranks while the others wait for it. A user may think for an hour, so the
// rank sends heartbeats while it waits: without them it would count as lost. Read next: train/gpt/conversation.h.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>

#include "core/io.h"

namespace trireme {

/// Reads standard input line by line, or what is left of it.
class InputLines {
 public:
  /// `leave`: when it is true, next() stops waiting.
  explicit InputLines(std::function<bool()> leave = nullptr);
  /// The next line without its end; nothing after the last one, or when it is time to leave. Throws ExitCode::io if it
  /// cannot be read, ExitCode::data for a line longer than read_limits::prompt.
  std::optional<std::string> next();
  /// Everything up to the end. Throws ExitCode::io, and ExitCode::data if it is longer than `limit`.
  std::string rest(const ReadLimit& limit = read_limits::prompt);

 private:
  bool read_more();
  bool leaves() const { return leave_ && leave_(); }

  std::function<bool()> leave_;
  std::string read_;        // and not yet returned
  std::size_t looked_ = 0;  // bytes of read_ that have no line end
};

}  // namespace trireme
