// Times operations and layers one by one, each small (a few thousand elements) and large (about 8 million), for
// bench/op_compare.py, which compares them with PyTorch.
//
//   build/bin/op_bench --threads 2                              # all, f32 and bf16, in microseconds per call
//   build/bin/op_bench --threads 1 --only softmax,gather --dtype f32 --size large
//   bench/op_compare.py --python VENV/bin/python                # takes turns with PyTorch
//
// A time is the median over groups of calls. With --turns, the program reads a case from each line of standard input,
// such as "gather large bf16", prepares it, and then times it as often as it reads the line "go".
// Read next: bench/op_cases.cpp.
#include "bench/op_cases.h"

#include <fmt/core.h>

#include <algorithm>
#include <iostream>
#include <sstream>

#include "bench/command_line.h"
#include "bench/timing.h"
#include "bench/turns.h"
#include "core/cores.h"
#include "core/parallel_for.h"

namespace trireme::bench {
namespace {

constexpr double group_seconds = 4e-3, turn_seconds = 40e-3;  // of calls that are timed together; of all of a turn

/// One case with its inputs. The same loop is in bench/peers/pytorch_ops.py.
class Timed {
 public:
  explicit Timed(std::function<void()> call) : call_(std::move(call)) {
    call_();  // allocates, and starts threads
    const double once = std::max(seconds_of(1), 1e-7);
    calls_ = static_cast<int>(std::clamp(group_seconds / once, 1.0, 1e5));
    groups_ = static_cast<int>(std::clamp(turn_seconds / (once * calls_), 2.0, 9.0));
  }
  /// The median of a turn's groups: seconds of a call.
  double turn() {
    call_();  // wakes threads
    std::vector<double> times;
    for (int group = 0; group < groups_; ++group) times.push_back(seconds_of(calls_) / calls_);
    return median(times);
  }

 private:
  double seconds_of(int calls) {
    const auto start = Clock::now();
    for (int call = 0; call < calls; ++call) call_();
    return seconds_since(start);
  }

  std::function<void()> call_;
  int calls_ = 1, groups_ = 1;
};

DType dtype_named(const std::string& name) { return name == "bf16" ? DType::bf16 : DType::f32; }

const OpCase& case_named(const std::string& name) {
  for (const OpCase& each : op_cases())
    if (each.name == name) return each;
  fail(ExitCode::usage, "op_bench", "there is no case {}; op_bench --list prints those that exist", in_quotes(name));
}

void take_turns_by_line() {
  Turns::say({{"ready", nlohmann::json::object()}});
  std::unique_ptr<Timed> timed;
  for (std::string line; std::getline(std::cin, line);) {
    if (line == "go") {
      require(timed != nullptr, "op_bench", "'go' before any case; expected a line 'NAME small|large f32|bf16' first");
      Turns::say({{"seconds", timed->turn()}});
      continue;
    }
    std::string name, size, dtype;
    std::istringstream(line) >> name >> size >> dtype;
    timed.reset();  // frees the inputs of the last case
    MemoryPool::current()->release_cached();
    timed = std::make_unique<Timed>(case_named(name).prepare(dtype_named(dtype), size == "large"));
    Turns::say({{"prepared", line}});
  }
  Turns::say({{"end", nlohmann::json::object()}});
}

void print(const std::vector<std::string>& names, const std::vector<std::string>& sizes,
           const std::vector<std::string>& dtypes) {
  fmt::print("{:24} {:>6} {:>5} {:>12}\n", "", "", "", "us");
  for (const std::string& name : names) {
    const OpCase& each = case_named(name);
    for (const std::string& size : sizes) {
      for (const std::string& dtype : dtypes) {
        if (each.f32_only && dtype != "f32") continue;
        const double seconds = Timed(each.prepare(dtype_named(dtype), size == "large")).turn();
        fmt::print("{:24} {:>6} {:>5} {:>12.2f}\n", name, size, dtype, seconds * 1e6);
        std::fflush(stdout);
        MemoryPool::current()->release_cached();
      }
    }
  }
}

}  // namespace
}  // namespace trireme::bench

int main(int argc, char** argv) {
  using namespace trireme;
  CLI::App app{"Times of single operations and layers"};
  int team = threads();
  bool turns = false, list = false;
  std::vector<std::string> names, sizes = {"small", "large"}, dtypes = {"f32", "bf16"};
  app.add_option("--threads", team, "number of threads")->check(CLI::Range(1, bench::most_threads));
  app.add_option("--only", names, "cases to time (default: all)")->delimiter(',');
  app.add_option("--size", sizes, "small, large or both")->delimiter(',')->check(CLI::IsMember({"small", "large"}));
  app.add_option("--dtype", dtypes, "f32, bf16 or both")->delimiter(',')->check(CLI::IsMember({"f32", "bf16"}));
  app.add_flag("--list", list, "print the names of the cases, those in f32 only with a star");
  app.add_flag("--turns", turns, "read cases from standard input");
  return bench::run_benchmark(app, argc, argv, [&] {
    if (list) {
      for (const bench::OpCase& each : bench::op_cases()) fmt::print("{}{}\n", each.name, each.f32_only ? " *" : "");
      return;
    }
    set_threads(team);
    const OwnCores own_cores(0, team);
    if (turns) return bench::take_turns_by_line();
    if (names.empty())
      for (const bench::OpCase& each : bench::op_cases()) names.push_back(each.name);
    bench::print(names, sizes, dtypes);
  });
}
