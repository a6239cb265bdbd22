#include "examples/labs/harness/grading.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>
#include <stdexcept>

#include "core/error.h"
#include "core/random.h"

namespace trireme::labs {
namespace {

/// Ends a check with its message.
class Failed : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Beyond any answer that works, and short enough to wait for.
constexpr rlim_t most_cpu_seconds = 60;
constexpr unsigned most_seconds = 600;

}  // namespace

bool Verdict::passed() const {
  return !checks.empty() && std::ranges::all_of(checks, [](const Check& check) { return check.passed; });
}

int Grading::pick(int low, int high) {
  return low +
         static_cast<int>(random_word(seed_, stream_of("pick"), draws_++) % static_cast<unsigned>(high - low + 1));
}

Tensor Grading::random(const Shape& shape) { return Tensor::randn(shape, seed_, draws_++); }

bool Grading::check(const std::string& name, const std::function<void()>& body) {
  Check check{.name = name, .passed = true};
  listener_(check, false);
  try {
    body();
  } catch (const Error& error) { check = {name, false, error.reason()}; } catch (const std::exception& error) {
    check = {name, false, error.what()};
  }
  listener_(check, true);
  return check.passed;
}

void Grading::expect(const std::string& problem) {
  if (!problem.empty()) throw Failed(problem);
}

void Grading::predict(const std::string& what, const std::string& given, double predicted, double measured,
                      double tolerance, const std::string& hint) {
  check("prediction: " + what, [&] {
    expect(std::abs(predicted - measured) <= tolerance * std::abs(measured),
           "{}: predicted {:.6g}, measured {:.6g}{}{}", given, predicted, measured, hint.empty() ? "" : ". ", hint);
  });
}

std::vector<Answer>& answers() {
  static std::vector<Answer> all;
  return all;
}

namespace {

/// What the child says, as lines of JSON: each check as it begins and ends, and at last the picture. The key is known to
/// the grader alone, so what an answer writes there is no result.
class Report {
 public:
  Report(int file, std::uint64_t key) : file_(file), key_(key) {}
  void say(const Check& check, bool ended) const {
    write(
        {{"key", key_}, {"check", check.name}, {"ended", ended}, {"passed", check.passed}, {"message", check.message}});
  }
  void end(const Grading& grading) const {
    write({{"key", key_}, {"picture", grading.picture()}, {"svg", grading.svg()}});
  }

 private:
  void write(const nlohmann::json& json) const {
    const std::string line = json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
    for (std::size_t done = 0; done < line.size();) {
      const ssize_t count = ::write(file_, line.data() + done, line.size() - done);
      if (count <= 0) return;
      done += at(count);
    }
  }
  int file_;
  std::uint64_t key_;
};

[[noreturn]] void grade_and_exit(const Answer& answer, std::uint64_t seed, Report report) {
  const rlimit limit{most_cpu_seconds, most_cpu_seconds + 1};
  setrlimit(RLIMIT_CPU, &limit);
  alarm(most_seconds);
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // nobody reads the verdict any more
  Grading grading(seed, [&](const Check& check, bool ended) { report.say(check, ended); });
  answer.grade(grading);
  report.end(grading);
  std::fflush(stdout);
  _exit(0);
}

/// All that comes until the other end is closed.
std::string read_all(int file) {
  std::string text;
  std::array<char, 4096> part{};
  for (ssize_t count = 0; (count = read(file, part.data(), part.size())) != 0;)
    if (count > 0) text.append(part.data(), at(count));
  return text;
}

std::string how_it_ended(int status) {
  if (WIFSIGNALED(status)) {
    const int signal = WTERMSIG(status);
    if (signal == SIGKILL) return "killed by the system, which had no memory left: a list that does not end?";
    if (signal == SIGXCPU)
      return fmt::format("stopped after {} seconds of processor time: a loop that does not end?", most_cpu_seconds);
    if (signal == SIGALRM) return fmt::format("stopped after {} minutes: it waits for something?", most_seconds / 60);
    return fmt::format("the program was ended by signal {} ({}) in your code", signal, strsignal(signal));
  }
  return fmt::format("your code ended the program, with status {}, before the grader had its results",
                     WEXITSTATUS(status));
}

}  // namespace

Verdict graded(const Answer& answer, std::uint64_t seed) {
  std::array<int, 2> ends{};
  require(pipe2(ends.data(), O_CLOEXEC) == 0, "lab", "pipe: {}", std::strerror(errno));
  std::random_device device;
  const std::uint64_t key = (std::uint64_t{device()} << 32) + device();
  std::fflush(nullptr);
  const pid_t child = fork();
  require(child >= 0, "lab", "fork: {}", std::strerror(errno));
  if (child == 0) {
    close(ends[0]);
    grade_and_exit(answer, seed, Report(ends[1], key));
  }
  close(ends[1]);
  std::istringstream text(read_all(ends[0]));
  close(ends[0]);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {}
  Verdict verdict;
  std::string begun = "the beginning";
  bool complete = false;
  for (std::string line; std::getline(text, line);) {
    const auto json = nlohmann::json::parse(line, nullptr, false);
    if (!json.is_object() || json.value("key", std::uint64_t{0}) != key) continue;
    if (json.contains("picture")) {
      verdict.picture = json.value("picture", "");
      verdict.svg = json.value("svg", "");
      complete = true;
    } else if (!json.value("ended", false)) {
      begun = json.value("check", "");
    } else {
      verdict.checks.push_back({json.value("check", ""), json.value("passed", false), json.value("message", "")});
    }
  }
  if (!complete) verdict.checks.push_back({begun, false, how_it_ended(status)});
  return verdict;
}

}  // namespace trireme::labs
