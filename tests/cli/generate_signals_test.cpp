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
  std::string model = "generate --checkpoint " + work.path("run") + " ";
  std::string out = work.path("out"), err = work.path("err");
  std::string short_chat = model + "--chat --chat-template " + work.path("chat.jinja") + " --length 5 ";
  std::string chat = model + "--chat --chat-template " + work.path("chat.jinja") + " --length 100000000 ";

  /// Starts `command`, waits until `found` is true, sends it `signal`, and returns its exit code.
  int ended_by(const std::string& command, const std::string& found, const std::string& signal) const {
    // Not the output of a command before this one: it would be found at once.
    std::ofstream(out, std::ios::trunc);
    return shell(fmt::format("set -m; {} >{} 2>{} & p=$!; trap \"kill -KILL $p\" TERM; until {}; do kill -0 $p || exit "
                             "99; sleep 0.01; done; kill -{} $p; wait $p",
                             command, out, err, found, signal))
        .code;
  }
  std::string here(const std::string& command) const { return fmt::format("{}/{}", TRIREME_BIN, command); }
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
    ::alarm(120);
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

/// Ends `command`, which makes 1000 texts, by `signal`, a moment after the first text is complete; checks its lines,
/// exit code and message, and returns how many texts were cut short.
int cut_short(const TrainedModel& with, const std::string& command, const std::string& signal, double moment) {
  constexpr std::size_t length = 4000;
  const std::string texts = fmt::format("--prompt ABC --samples 1000 --batch 1 --length {} --json", length);
  const int code = with.ended_by(command + texts, fmt::format("{} && sleep {}", with.size_above(0), moment), signal);
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
                                   lines.size() - static_cast<std::size_t>(cut), cut, 1000 - lines.size())));
  CHECK_FALSE(contains(said, "FATAL"));
  return cut;
}

}  // namespace

TEST_CASE("a signal ends texts that become JSON, whose lines are complete and say so") {
  const TrainedModel with;
  const std::string mpi =
      fmt::format("env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 {} --oversubscribe -n 2 {}/",
                  TRIREME_MPIEXEC, TRIREME_BIN);
  struct Way {
    std::string command, signal;
    int copies = 1;
  };
  for (const auto& [command, signal, copies] :
       {Way{with.here(with.model), "TERM"}, Way{with.here(with.model), "INT"},
        Way{with.here(with.model) + "--mesh dp=2 ", "TERM", 2}, Way{with.here(with.model) + "--mesh tp=2 ", "INT"},
        Way{mpi + with.model + "--mesh dp=2 ", "USR2", 2}}) {
    CAPTURE(command);
    CAPTURE(signal);
    // A signal between two texts cuts none.
    int cut = 0;
    for (int attempt = 0; attempt < 10 && cut == 0; ++attempt)
      cut = cut_short(with, command, signal, 0.02 * (attempt + 1));
    CHECK(cut >= 1);
    CHECK(cut <= copies);
  }
}

TEST_CASE("a signal ends a text that is written as it comes, and a reply") {
  const TrainedModel with;
  const int code =
      with.ended_by(with.here(with.model + "--prompt ABC --length 100000000"), with.size_above(100), "INT");
  INFO(content_of(with.err));
  CHECK(code == 75);
  const std::string text = content_of(with.out);
  CHECK(text.starts_with("ABC"));
  CHECK(text.ends_with("\n"));
  CHECK(contains(content_of(with.err), "told to stop; texts complete: 0, cut short: 1, not begun: 0;"));

  // Not a terminal: the reply ends, and with it the program, though there is another question.
  std::ofstream(with.work.folder / "asked") << "ABC\nDEF\n";
  const int chat = with.ended_by(with.here(with.chat) + "<" + with.work.path("asked"), with.size_above(100), "INT");
  INFO(content_of(with.err));
  CHECK(chat == 75);
  CHECK(content_of(with.out).ends_with("\n"));
  // While it waits for another question.
  const Result waited = shell(fmt::format(
      "mkfifo {0}; {1} <{0} >{2} 2>{3} & p=$!; exec 3>{0}; echo ABC >&3; until grep -q . {2}; do sleep 0.01; "
      "done; sleep 0.1; kill -TERM $p; wait $p",
      with.work.path("pipe"), with.here(with.short_chat), with.out, with.err));
  INFO(content_of(with.err));
  CHECK(waited.code == 75);
}

TEST_CASE("on a terminal Ctrl-C ends a reply, and at the prompt the conversation") {
  const TrainedModel with;
  for (const std::string mesh : {"", "--mesh tp=2"}) {
    CAPTURE(mesh);
    OnTerminal terminal(with.here(with.chat + mesh));
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
