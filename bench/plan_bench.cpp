// Compares the planner's step times with measured ones, on this machine. Each argument is a command line of
// build/bin/parity:
//
//   build/bin/plan_bench "--layers 4 --width 256 --mesh dp=2" "--layers 4 --width 256 --mesh pp=2 --micro-batches 4"
//
// Prints a row for each: the median of the errors of a few turns, and their range; and the errors of every other row,
// because the others of bench/plan_runs.txt were used to calibrate. Read next: ops/plan/this_machine.h.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <sstream>
#include <string>

#include "bench/timing.h"
#include "check/parity/parity.h"
#include "ops/plan/this_machine.h"
#include "train/gpt/parity_options.h"
#include "train/program/program.h"
#include "train/step/rank_memory.h"

using namespace trireme;

namespace {

std::vector<std::string> words(const std::string& line) {
  std::istringstream in(line);
  return {std::istream_iterator<std::string>(in), {}};
}

void print(const std::vector<plan::RankTime>& ranks) {
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const plan::RankTime& r = ranks[i];
    double kernels = 0;
    for (const auto& [name, seconds] : r.kernels) kernels += seconds;
    std::string exchanges;
    for (const auto& [name, seconds] : r.exchanges) exchanges += fmt::format(", {} {:.2f}", name, 1e3 * seconds);
    fmt::print("    rank {}: {:.2f} ms: kernels {:.2f}, host {:.2f}{}\n", i, 1e3 * r.step, 1e3 * kernels, 1e3 * r.host,
               exchanges);
  }
}

/// Predicted and measured in turns, because the speed of a machine that others use changes from second to second.
struct Row {
  std::vector<double> ratios, predicted, measured;
  std::vector<plan::RankTime> ranks;  // of the last prediction

  explicit Row(const GptOptions& options) {
    constexpr int turns = 5;
    constexpr double enough = 0.7;  // seconds
    const DryProgram program = dry_program(gpt_parity(options.model.config), options);
    for (int turn = 0; turn < turns; ++turn) {
      plan::ThisMachine machine;  // that knows nothing yet
      ranks = machine.predict(options, program);
      predicted.push_back(plan::step_seconds(ranks));
      measured.push_back(plan::ThisMachine::measure(options, program, enough));
      ratios.push_back(predicted.back() / measured.back());
    }
  }
};

struct Errors {
  double sum = 0, bias = 0, largest = 0;
  int rows = 0;

  void add(double error) {
    sum += std::abs(error);
    bias += error;
    largest = std::max(largest, std::abs(error));
    ++rows;
  }
  std::string text() const {
    const double count = std::max(rows, 1);
    return fmt::format("{} rows: mean error {:.1f} %, largest {:.1f} %, mean {:+.1f} %", rows, 100 * sum / count,
                       100 * largest, 100 * bias / count);
  }
};

}  // namespace

int main(int argc, char** argv) {
  return run_program([&] {
    Errors all, held;
    for (const char* line : std::span(argv + 1, static_cast<std::size_t>(argc - 1))) {
      GptOptions options = read_parity_options(words(line));
      options.model.config.experts.force_balance = true;
      const Row row(options);
      const double error = bench::median(row.ratios) - 1;
      const auto [least, most] = std::minmax_element(row.ratios.begin(), row.ratios.end());
      fmt::print("{:8.2f} ms predicted {:8.2f} ms measured {:+6.1f} % ({:+.0f} to {:+.0f})  {}\n",
                 1e3 * bench::median(row.predicted), 1e3 * bench::median(row.measured), 100 * error, 100 * (*least - 1),
                 100 * (*most - 1), line);
      print(row.ranks);
      all.add(error);
      if (all.rows % 2 == 0) held.add(error);
    }
    fmt::print("{}\nof them, the second, fourth and so on: {}\n", all.text(), held.text());
    return 0;
  });
}
