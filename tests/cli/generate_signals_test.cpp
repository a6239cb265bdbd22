// Signals to `generate`: the first ends the texts under way, which are written as far as they came; the second ends the
// program.
#include <doctest/doctest.h>
#include <fmt/core.h>

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/cli/support.h"

using namespace trireme::testing;
using nlohmann::json;

namespace {

struct TrainedModel {
  TrainedModel() {
    REQUIRE(run("train_gpt", work.small_run() + "--positions rope --out " + work.path("run")).code == 0);
    std::ofstream(work.folder / "chat.jinja") << "{{ messages[-1].content }}";
  }
  Workplace work;
  std::string model = "--checkpoint " + work.path("run") + " ", endless_text = "--length 100000000000 ";
  std::string out = work.path("out"), err = work.path("err");
  std::string chat = model + "--chat --chat-template " + work.path("chat.jinja") + " ";

  /// Starts `command`, waits until its output has more than `bytes`, sends it `signal`, and returns its exit code.
  int ended_by(const std::string& command, int bytes, const std::string& signal) const {
    // Not the output of a command before this one: it would be found at once.
    for (const std::string& file : {out, err}) std::ofstream(file, std::ios::trunc);
    return shell(fmt::format("set -m; {} >>{} 2>>{} & p=$!; trap \"kill -KILL $p\" TERM; {}kill -{} $p; wait $p",
                             command, out, err, until(size_above(bytes)), signal))
        .code;
  }
  std::string here(const std::string& arguments) const { return fmt::format("{}/generate {}", TRIREME_BIN, arguments); }
  std::string size_above(int bytes) const { return fmt::format("[ $(wc -c <{}) -gt {} ]", out, bytes); }
};

std::vector<json> lines_of(const std::string& text) {
  std::vector<json> lines;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\n', at);
    REQUIRE(end != std::string::npos);  // the last line is complete, too
    lines.push_back(json::parse(text.substr(at, end - at)));
    at = end + 1;
  }
  return lines;
}

/// Whether a line begins with the prompt, plain or bold, and nothing follows.
bool ends_with_prompt(const std::string& shown) {
  return shown.ends_with("\n> ") || shown.ends_with("\n\x1b[1m> ") || shown.ends_with("\n\x1b[1m> \x1b[0m");
}

/// A program on a terminal of its own.
class OnTerminal {
 public:
  explicit OnTerminal(const std::string& line) : terminal_(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC)) {
    REQUIRE(terminal_ >= 0);
    REQUIRE(::grantpt(terminal_) == 0);
    REQUIRE(::unlockpt(terminal_) == 0);
    const std::string name = ::ptsname(terminal_);
    child_ = ::fork();
    if (child_ != 0) return;
    ::signal(SIGINT, SIG_DFL);
    ::setsid();
    const int side = ::open(name.c_str(), O_RDWR);  // the first one that a leader opens becomes the session's
    for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::dup2(side, stream);
    ::alarm(1800);
    ::execl("/bin/bash", "bash", "-c", ("exec " + line).c_str(), nullptr);
    ::_exit(127);
  }
  ~OnTerminal() { ::close(terminal_); }
  OnTerminal(const OnTerminal&) = delete;
  OnTerminal& operator=(const OnTerminal&) = delete;

  void type(const std::string& text) {
    REQUIRE(::write(terminal_, text.data(), text.size()) == static_cast<ssize_t>(text.size()));
  }
  /// Reads until `enough` of all that was read; false if the program ends before.
  template <class Enough>
  bool read_until(const Enough& enough) {
    std::array<char, 4096> buffer{};
    while (!enough(shown)) {
      const ssize_t count = ::read(terminal_, buffer.data(), buffer.size());
      if (count <= 0) return false;
      shown.append(buffer.data(), static_cast<std::size_t>(count));
    }
    return true;
  }
  int exit_code() {
    read_until([](const std::string&) { return false; });
    int status = 0;
    REQUIRE(::waitpid(child_, &status, 0) == child_);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

  std::string shown;

 private:
  int terminal_;
  pid_t child_ = -1;
};

/// Starts `generate` with these flags, as two processes if `mpi`; its texts would take hours. Ends it by `signal` after
/// the first text is complete; checks its lines, exit code and message, and returns how many texts were cut short.
int cut_short(const TrainedModel& with, bool mpi, const std::string& flags, const std::string& signal) {
  constexpr std::size_t length = 1000, samples = 200'000;
  const std::string arguments =
      with.model + flags + fmt::format("--prompt ABC --samples {} --batch 1 --length {} --json", samples, length);
  const int code =
      with.ended_by(mpi ? two_ranks("generate", arguments, with.out, with.err) : with.here(arguments), 0, signal);
  const std::string said = content_of(with.err);
  INFO(said);
  CHECK(code == 75);
  const std::vector<json> lines = lines_of(content_of(with.out));
  int cut = 0;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    CHECK(lines[i]["sample"] == i);
    CHECK(lines[i]["ids"].size() == lines[i]["logprobs"].size());
    const bool left = lines[i]["end"] == "leave";
    cut += left ? 1 : 0;
    CHECK(left == (lines[i]["ids"].size() < length));
    if (!left) CHECK(lines[i]["end"] == "length");
  }
  CHECK(contains(said, fmt::format("trireme: told to stop; texts complete: {}, cut short: {}, not begun: {};",
                                   lines.size() - static_cast<std::size_t>(cut), cut, samples - lines.size())));
  CHECK_FALSE(contains(said, "FATAL"));
  return cut;
}

}  // namespace

TEST_CASE("a signal ends texts that become JSON, whose lines are complete and say so") {
  const TrainedModel with;
  struct Way {
    bool mpi;
    std::string flags, signal;
    int copies = 1;
  };
  for (const auto& [mpi, flags, signal, copies] :
       {Way{false, "", "TERM"}, Way{false, "", "INT"}, Way{false, "--mesh dp=2 ", "TERM", 2},
        Way{false, "--mesh tp=2 ", "INT"}, Way{true, "--mesh dp=2 ", "USR2", 2}}) {
    CAPTURE(mpi);
    CAPTURE(flags);
    CAPTURE(signal);
    // A signal between two texts cuts none.
    int cut = 0;
    for (int attempt = 0; attempt < 100 && cut == 0; ++attempt) cut = cut_short(with, mpi, flags, signal);
    CHECK(cut >= 1);
    CHECK(cut <= copies);
  }
}

TEST_CASE("a signal ends a text that is written as it comes, and a reply") {
  const TrainedModel with;
  const int code = with.ended_by(with.here(with.model + with.endless_text + "--prompt ABC"), 100, "INT");
  INFO(content_of(with.err));
  CHECK(code == 75);
  const std::string text = content_of(with.out);
  CHECK(text.starts_with("ABC"));
  CHECK(text.ends_with("\n"));
  CHECK(contains(content_of(with.err), "told to stop; texts complete: 0, cut short: 1, not begun: 0;"));

  // Not a terminal: the reply ends, and with it the program, though there is another question.
  std::ofstream(with.work.folder / "asked") << "ABC\nDEF\n";
  const int chat = with.ended_by(with.here(with.chat + with.endless_text) + "<" + with.work.path("asked"), 100, "INT");
  INFO(content_of(with.err));
  CHECK(chat == 75);
  CHECK(content_of(with.out).ends_with("\n"));
  // While it waits for another question, after a whole line. The shell can write before there is a reader.
  const Result waited = shell(fmt::format(
      "mkfifo {0}; exec 3<>{0}; echo ABC >&3; : >{2}; {1} <{0} >>{2} 2>{3} & p=$!; {4}kill -TERM $p; wait $p",
      with.work.path("pipe"), with.here(with.chat + "--length 5"), with.out, with.err,
      until("[ $(wc -l <" + with.out + ") -gt 0 ]")));
  INFO(content_of(with.err));
  CHECK(waited.code == 75);
}

TEST_CASE("on a terminal Ctrl-C ends a reply, and at the prompt the conversation") {
  const TrainedModel with;
  for (const std::string mesh : {"", "--mesh tp=2"}) {
    CAPTURE(mesh);
    OnTerminal terminal(with.here(with.chat + with.endless_text + mesh));
    REQUIRE(terminal.read_until([](const std::string& shown) { return contains(shown, "> "); }));
    for (int reply = 0; reply < 2; ++reply) {
      terminal.type("ABC\n");
      std::size_t before = terminal.shown.size();
      REQUIRE(terminal.read_until([&](const std::string& shown) { return shown.size() > before + 200; }));
      before = terminal.shown.size();
      terminal.type("\x03");
      REQUIRE(terminal.read_until([&](const std::string& shown) { return ends_with_prompt(shown.substr(before)); }));
    }
    terminal.type("\x03");
    CHECK(terminal.exit_code() == 75);
  }
}
