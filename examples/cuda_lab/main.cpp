// cuda_lab: climbs the ladders of examples/cuda_lab. Prints for each level what is new, the time that an H200 needed,
// and its error against f64; fails if one is wrong. The kernels run under emulation: this shows errors, but no times.
// Read next: docs/ladder.md.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>
#include <vector>

#include "core/error.h"
#include "examples/cuda_lab/array.h"
#include "examples/cuda_lab/ladders.h"

namespace {

using namespace trireme;
using namespace trireme::cuda;

/// A small problem: the last of the ragged sizes. Adds the names of wrong levels.
void climb(const lab::Ladder& ladder, std::vector<std::string>& wrong) {
  const std::unique_ptr<lab::Trial> trial = ladder.make(ladder.ragged.back());
  fmt::print("\n{}\n{:<16} {:<46} {:>12} {:>9}\n", ladder.name, "level", "new", "ms on H200", "error");
  for (std::size_t i = 0; i < ladder.levels.size(); ++i) {
    const lab::LevelText& level = ladder.levels[i];
    trial->reset();
    trial->run(i, nullptr);
    const double error = trial->error();
    fmt::print("{:<16} {:<46} {:>12.4g} {:>9.1e}\n", level.name, level.idea, level.h200, error);
    if (error >= 1) wrong.push_back(fmt::format("{} of {} (error {:.1e})", level.name, ladder.name, error));
  }
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("The ladders of kernels, from naive to the ones in use: what each level is, its time, and its error.");
  std::string only;
  app.add_option("--only", only, "climbs the ladders whose name contains this text");
  try {
    app.parse(argc, argv);
    std::setvbuf(stdout, nullptr, _IOLBF, 0);  // line by line, also into a pipe
    fmt::print(
        "Errors are from small problems, under emulation: the largest distance from f64, as part of what the "
        "precision accounts for. Times were measured on an H200, with large problems.\n");
    std::vector<std::string> wrong, names;
    bool found = false;
    for (const lab::Ladder& ladder : lab::ladders<lab::Array>()) {
      names.emplace_back(ladder.name);
      if (names.back().find(only) == std::string::npos) continue;
      found = true;
      climb(ladder, wrong);
    }
    if (!found)
      fail(ExitCode::usage, "cuda_lab", "--only '{}' names no ladder; expected a part of one of: {}", only,
           fmt::join(names, ", "));
    if (!wrong.empty())
      fail(ExitCode::internal, "cuda_lab", "far from f64: {}; expected errors below 1; change these levels",
           fmt::join(wrong, ", "));
    return 0;
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : static_cast<int>(ExitCode::usage);
  } catch (const Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return static_cast<int>(error.code());
  }
}
