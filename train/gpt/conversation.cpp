#include "train/gpt/conversation.h"

#include <fmt/format.h>
#include <unistd.h>

#include <optional>
#include <string>

#include "core/error.h"
#include "parallel/comm/texts.h"
#include "train/program/input_lines.h"
#include "train/program/output.h"
#include "train/program/screen.h"
#include "train/program/signals.h"

namespace trireme {
namespace {

/// What the user types, on all ranks.
class Questions {
 public:
  explicit Questions(ProcessGroup& world)
      : world_(world), terminal_(any_rank(world, first() && ::isatty(STDIN_FILENO) == 1)) {}

  bool terminal() const { return terminal_; }
  std::int64_t line() const { return line_; }  ///< number of the last one, from 1
  bool left() const { return left_; }          ///< whether next() returned nothing because of a signal
  /// The next line; nothing at the end, or after a signal.
  std::optional<std::string> next() {
    std::string text;  // a line with + in front; ! after a signal; empty: the end
    fail_together(world_, [&] {
      if (!first()) return;
      if (terminal_) write_out_bold("> ");
      if (const std::optional<std::string> line = lines_.next()) {
        text = "+" + *line;
      } else if (leave_asked()) {
        if (terminal_) write_out("\n");
        text = "!";
      }
    });
    text = broadcast_text(world_, text);
    ++line_;
    left_ = text == "!";
    if (text.empty() || left_) return std::nullopt;
    if (text.ends_with('\r')) text.pop_back();
    return text.substr(1);
  }

 private:
  bool first() const { return world_.rank() == 0; }

  ProcessGroup& world_;
  bool terminal_, left_ = false;
  InputLines lines_{leave_asked};
  std::int64_t line_ = 0;
};

void report_refused(const Error& error, const Questions& questions) {
  const std::string place = questions.terminal() ? "" : fmt::format("line {}: ", questions.line());
  Screen::of_process().warn(fmt::format("trireme: [{}] {}{}; the conversation goes on without this question",
                                        error.where(), place, error.reason()));
}

/// After a reply that a signal has ended: whether the conversation goes on. The same on all ranks.
bool goes_on(ProcessGroup& world, bool terminal) {
  if (!terminal || any_rank(world, leave_asked() && !only_interrupted())) return false;
  forget_interrupt();
  world.barrier();  // before a rank can note the next one
  return true;
}

}  // namespace

int converse(ProcessGroup& world, ChatSession& session) {
  const bool first = world.rank() == 0;
  const auto write = [first](std::string_view text) {
    if (first) write_out(text);
  };
  Questions questions(world);
  constexpr int told_to_leave = static_cast<int>(ExitCode::retryable);
  int code = 0;
  bool told = false;  // that the context is full
  while (const std::optional<std::string> question = questions.next()) {
    if (*question == "/exit") break;
    if (question->empty()) continue;
    if (*question == "/clear") {
      session.clear();
      told = false;
      continue;
    }
    try {
      session.reply(*question, write);
      write("\n");
      if (session.left() && !goes_on(world, questions.terminal())) return told_to_leave;
    } catch (const Error& error) {
      if (error.code() != ExitCode::data && error.code() != ExitCode::usage) throw;
      if (first) report_refused(error, questions);
      if (!questions.terminal()) code = static_cast<int>(error.code());
    }
    if (told || session.length() <= session.context()) continue;
    told = true;
    if (first)
      Screen::of_process().warning(
          fmt::format("the conversation has {} tokens, more than the model's context of {}: the model no longer sees "
                      "its beginning; /clear begins a new one",
                      session.length(), session.context()));
  }
  if (questions.left()) return told_to_leave;
  return code;
}

}  // namespace trireme
