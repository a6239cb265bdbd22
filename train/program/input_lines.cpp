#include "train/program/input_lines.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "core/error.h"
#include "core/heartbeat.h"

namespace trireme {
namespace {

constexpr int milliseconds_between_beats = 200;

void require_within(std::size_t bytes, const ReadLimit& limit) {
  if (bytes > limit.bytes)
    fail(ExitCode::data, "io", "standard input has more than {0} bytes; expected at most {0} for {1}; give less",
         limit.bytes, limit.what);
}

}  // namespace

InputLines::InputLines(std::function<bool()> leave) : leave_(std::move(leave)) {}

/// Returns false at the end, or when it is time to leave.
bool InputLines::read_more() {
  pollfd input{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
  while (true) {
    const int ready = ::poll(&input, 1, milliseconds_between_beats);
    if (leaves()) return false;
    if (ready > 0 || (ready < 0 && errno != EINTR)) break;
    Heartbeat::beat();
  }
  std::array<char, 1 << 14> block;
  ssize_t count = -1;
  do { count = ::read(STDIN_FILENO, block.data(), block.size()); } while (count < 0 && errno == EINTR);
  if (count < 0) fail(ExitCode::io, "io", "cannot read standard input: {}", std::strerror(errno));
  read_.append(block.data(), static_cast<std::size_t>(count));
  return count > 0;
}

std::optional<std::string> InputLines::next() {
  while (true) {
    if (leaves()) return std::nullopt;
    const std::size_t end = read_.find('\n', looked_);
    if (end != std::string::npos) {
      std::string line = read_.substr(0, end);
      read_.erase(0, end + 1);
      looked_ = 0;
      return line;
    }
    looked_ = read_.size();
    require_within(looked_, read_limits::prompt);
    if (read_more()) continue;
    if (leaves() || read_.empty()) return std::nullopt;
    looked_ = 0;
    return std::exchange(read_, {});
  }
}

std::string InputLines::rest(const ReadLimit& limit) {
  do { require_within(read_.size(), limit); } while (read_more());
  looked_ = 0;
  return std::exchange(read_, {});
}

}  // namespace trireme
