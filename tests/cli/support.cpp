#include "tests/cli/support.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

namespace trireme::testing {
namespace {

Result run_command(const std::string& command) {
  Result result;
  FILE* pipe = ::popen(fmt::format("{{ timeout 1800 {}; }} 2>&1 </dev/null", command).c_str(), "r");
  if (pipe == nullptr) return result;
  std::array<char, 4096> buffer{};
  while (const std::size_t count = std::fread(buffer.data(), 1, buffer.size(), pipe))
    result.output.append(buffer.data(), count);
  const int status = ::pclose(pipe);
  result.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

// Containers run tests as root and with fewer cores than ranks; Open MPI must be told to allow both.
const std::string launcher =
    "env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 " TRIREME_MPIEXEC " --oversubscribe --bind-to none";

std::string binary(const std::string& program) { return fmt::format("{}/{}", TRIREME_BIN, program); }

}  // namespace

Result run(const std::string& program, const std::string& arguments) {
  return run_command(binary(program) + " " + arguments);
}

Result run_with(const std::string& variables, const std::string& program, const std::string& arguments) {
  return run_command(fmt::format("env {} {} {}", variables, binary(program), arguments));
}

Result run_on_terminal(int columns, const std::string& variables, const std::string& program,
                       const std::string& arguments) {
  const std::string command =
      fmt::format("exec timeout --foreground 1800 env -u NO_COLOR TERM=xterm LC_ALL=C.UTF-8 {} {} {}", variables,
                  binary(program), arguments);
  Result result;
  const int terminal = ::posix_openpt(O_RDWR | O_NOCTTY);
  if (terminal < 0 || ::grantpt(terminal) != 0 || ::unlockpt(terminal) != 0) return result;
  const std::string name = ::ptsname(terminal);
  const winsize size{.ws_row = 24, .ws_col = static_cast<unsigned short>(columns), .ws_xpixel = 0, .ws_ypixel = 0};
  ::ioctl(terminal, TIOCSWINSZ, &size);
  const pid_t child = ::fork();
  if (child == 0) {
    ::setsid();
    const int screen = ::open(name.c_str(), O_RDWR);  // becomes the terminal of the new session
    for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::dup2(screen, stream);
    ::close(terminal);
    ::execl("/bin/bash", "bash", "-c", command.c_str(), nullptr);
    ::_exit(127);
  }
  std::array<char, 4096> buffer{};
  for (ssize_t count = 0;
       (count = ::read(terminal, buffer.data(), buffer.size())) > 0;)  // an error: all have closed it
    result.output.append(buffer.data(), static_cast<std::size_t>(count));
  ::close(terminal);
  int status = 0;
  ::waitpid(child, &status, 0);
  result.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

Result run_mpi(int ranks, const std::string& program, const std::string& arguments) {
  return run_command(fmt::format("{} -n {} {} {}", launcher, ranks, binary(program), arguments));
}

Result run_mpi_with(const std::vector<std::string>& settings, const std::string& program,
                    const std::string& arguments) {
  std::string command = launcher;
  for (const std::string& setting : settings)
    command +=
        fmt::format("{} -n 1 env {} {} {}", command == launcher ? "" : " :", setting, binary(program), arguments);
  return run_command(command);
}

std::string two_ranks(const std::string& program, const std::string& arguments, const std::string& out,
                      const std::string& errors) {
  return fmt::format("{} -n 2 bash -c \"exec {} {} >>{} 2>>{}\"", launcher, binary(program), arguments, out, errors);
}

Result shell(const std::string& lines) {
  std::string quoted;
  for (const char c : lines) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return run_command(fmt::format("bash -c '{}'", quoted));
}

// The log is emptied before: in the background, that could be after the first look into it. Each writer appends. The
// trap is for the time limit: with job control (set -m), it would not end the process otherwise.
std::string started(const std::string& command, const std::string& log) {
  return fmt::format(": >{1}; {0} >>{1} 2>&1 & p=$!; trap \"kill -KILL $p\" TERM; ", command, log);
}

// The second look at the condition: the process may have met it just before its end.
std::string until(const std::string& condition) {
  return fmt::format("until {0}; do kill -0 $p 2>/dev/null || {0} || exit 99; sleep 0.01; done; ", condition);
}

std::string has_line(const std::string& pattern, const std::string& file) {
  return fmt::format("grep -qs \"{}\" {}", pattern, file);
}

std::string catches(int signal) {
  return fmt::format("(( 0x0$(grep -s SigCgt /proc/$p/status | cut -f 2) >> {} & 1 ))", signal - 1);
}

Result with_message(const std::function<Result()>& start) {
  constexpr int most = 100;
  Result result;
  for (int attempt = 0; attempt < most; ++attempt) {
    result = start();
    if (result.code == 0 || contains(result.output, "trireme: FATAL[")) break;
  }
  return result;
}

void check_ranks_refused(const std::function<Result()>& start, int code, const std::vector<std::string>& parts) {
  constexpr int retryable = 75;
  Result result = with_message(start);
  if (result.code == retryable) result.code = code;
  check_refused(result, code, parts);
}

void check_refused(const Result& result, int code, const std::vector<std::string>& parts) {
  INFO(result.output);
  CHECK(result.code == code);
  CHECK(occurrences(result.output, "trireme: FATAL[") == 1);
  CHECK(contains(result.output, fmt::format("trireme: FATAL[{}] ", code)));
  for (const std::string& part : parts) CHECK_MESSAGE(contains(result.output, part), part);
  CHECK_FALSE(contains(result.output, "step 1/"));
  CHECK_FALSE(contains(result.output, "terminate called"));
}

Workplace::Workplace() {
  std::ofstream text(folder / "text.txt");
  for (int i = 0; i < 6000; ++i) text << static_cast<char>('A' + (i * i + i / 7) % 40);
}

std::string Workplace::small_run() const {
  return fmt::format(
      "--data {} --layers 2 --heads 2 --width 16 --context 16 --global-batch 8 --micro-batch 2 --steps 6 --log-every 1 "
      "--eval-batches 2 --warmup-steps 2 --threads 1 {}--out none ",
      path("text.txt"), patient);
}

std::vector<std::string> results(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) {
    auto record = nlohmann::json::parse(line);
    for (const char* key : {"tokens_per_s", "step_ms", "forward_ms", "backward_ms", "optimizer_ms", "data_ms",
                            "comm_ms", "comm_exposed_ms", "peak_bytes"})
      record.erase(key);
    lines.push_back(record.dump());
  }
  return lines;
}

std::vector<double> metric(const std::string& path, const std::string& key) {
  std::ifstream file(path);
  std::vector<double> values;
  for (std::string line; std::getline(file, line);) {
    const auto record = nlohmann::json::parse(line);
    if (record.contains(key)) values.push_back(record[key].get<double>());
  }
  return values;
}

}  // namespace trireme::testing
