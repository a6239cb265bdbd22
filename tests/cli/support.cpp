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
#include <memory>
#include <nlohmann/json.hpp>

namespace trireme::testing {
namespace {

Result run_command(const std::string& command) {
  Result result;
  FILE* pipe = ::popen(fmt::format("{{ timeout 120 {}; }} 2>&1 </dev/null", command).c_str(), "r");
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

Result run_until_killed(double seconds, const std::string& program, const std::string& arguments) {
  return run_command(fmt::format("timeout -s KILL {} {} {}", seconds, binary(program), arguments));
}

Result run_on_terminal(int columns, const std::string& variables, const std::string& program,
                       const std::string& arguments) {
  const std::string command = fmt::format("exec timeout --foreground 120 env TERM=xterm LC_ALL=C.UTF-8 {} {} {}",
                                          variables, binary(program), arguments);
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

Result shell(const std::string& lines) { return run_command(fmt::format("bash -c '{}'", lines)); }

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
      "--eval-batches 2 --warmup-steps 2 --threads 1 --out none ",
      path("text.txt"));
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
