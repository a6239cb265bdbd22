// Draws loss and validation loss of runs by step, in the terminal or as SVG:
//
//   build/bin/plot run1
//   build/bin/plot run1 run2                 both in one chart; letters name the curves
//   build/bin/plot run1 --svg loss.svg       for a light and a dark page
//
// A RUN is the --out folder of train_gpt or train, also while it trains, or a metrics.jsonl.
// Read next: ops/plot/curves.h, ops/plot/braille.h, examples/pictures/curves.h.
#include <algorithm>
#include <optional>

#include "core/error.h"
#include "core/io.h"
#include "examples/pictures/curves.h"
#include "ops/plot/braille.h"
#include "ops/plot/curves.h"
#include "train/program/output.h"
#include "train/program/program.h"
#include "train/program/screen.h"
#include "train/program/text_width.h"

using namespace trireme;

namespace {

constexpr const char* usage =
    "usage: plot RUN... [--svg FILE]\n\n"
    "Draws loss and validation loss by step in the terminal, for up to 26 runs in one chart.\n\n"
    "RUN         the --out folder of train_gpt or train, also while it trains, or a metrics.jsonl\n"
    "--svg FILE  draws them into FILE instead, as SVG for a light and a dark page";

struct Request {
  std::vector<std::string> runs;
  std::optional<std::string> svg;
};

Request read(const std::vector<std::string>& words) {
  constexpr std::size_t most_runs = 26;  // letters
  Request request;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word.starts_with("--svg=")) {
      request.svg = word.substr(word.find('=') + 1);
    } else if (word == "--svg" && i + 1 < words.size()) {
      request.svg = words[++i];
    } else if (word.starts_with('-')) {
      fail(ExitCode::usage, "plot", "'{}' is not understood; expected RUN... and --svg FILE; see --help", word);
    } else {
      request.runs.push_back(word);
    }
  }
  if (request.runs.empty() || request.runs.size() > most_runs)
    fail(ExitCode::usage, "plot", "{} runs are named; expected 1 to {}: the --out folders of runs; see --help",
         request.runs.empty() ? "no" : std::to_string(request.runs.size()), most_runs);
  if (request.svg && request.svg->empty()) fail(ExitCode::usage, "plot", "--svg is empty; expected a file to write");
  return request;
}

/// In a pipe, the size of a usual window.
ChartSize size_for(const Screen& screen) {
  if (!screen.terminal().wraps()) return {};
  const std::optional<ChartSize> size = chart_size(screen);
  if (!size)
    fail(ExitCode::usage, "plot",
         "the window has {} columns and {} rows; expected at least 40 and 15; enlarge it, or draw into a file with "
         "--svg FILE",
         screen.columns(), screen.rows());
  return *size;
}

int run(const std::vector<std::string>& words) {
  Screen& screen = Screen::of_process();
  const auto asks = [](const std::string& word) { return word == "--help" || word == "-h"; };
  if (std::any_of(words.begin(), words.end(), asks)) {
    require_output();
    screen.print(wrapped_text(usage, screen.text_columns()));
    return 0;
  }
  const Request request = read(words);
  if (request.svg)
    require_own_kind("--svg", *request.svg, drawing_file);
  else
    require_output();
  std::vector<RunCurves> curves;
  for (const std::string& path : request.runs) curves.push_back(read_curves(path));
  if (request.svg)
    write_file(*request.svg, pictures::draw_curves(curves));
  else
    screen.print(draw_curves(curves, size_for(screen), screen.terminal().unicode));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return run_program([&] { return run({argv + 1, argv + argc}); });
}
