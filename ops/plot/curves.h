// Curves of runs: loss and validation loss by step, read from metrics.jsonl, and the range of the axes that show them.
// Read next: ops/plot/braille.h, examples/pictures/curves.h, which draw them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace trireme {

struct CurvePoint {
  double x = 0, y = 0;  ///< finite; y below 1e100, as losses beyond are left out
};

struct RunCurves {
  std::string name;
  std::vector<CurvePoint> loss{}, validation{};  ///< by step
};

/// Reads the metrics.jsonl of a run's folder; `path` may also be such a file. A line that is still being written is
/// left out. Throws ExitCode::usage if there is none or it has no step, ExitCode::data if a line is not a step's
/// record or it is no file, ExitCode::io if it cannot be read.
RunCurves read_curves(const std::filesystem::path& path);

/// `lines`: the content of the metrics.jsonl `file`. Throws as read_curves().
RunCurves parse_curves(std::string_view lines, const std::filesystem::path& file);

/// A range of numbers with marks at whole multiples of `step`, which is 1, 2 or 5 times a power of ten.
struct Scale {
  double low = 0, high = 1;  ///< multiples of `step`, low < high
  double step = 1;

  /// The smallest range that holds all of low to high and has at most `marks` steps.
  static Scale around(double low, double high, int marks);
  std::vector<double> marks() const;
  double fraction(double value) const { return (value - low) / (high - low); }
};

/// A text for each mark, all with the same unit and the same number of decimals, and no two the same: "1.85", "1.90".
/// Losses are written out; `counts` from 10,000 on in thousands, millions and so on: "12.50k".
std::vector<std::string> mark_labels(const Scale& scale, bool counts);

/// The axes of these runs: steps, and losses.
struct Axes {
  Scale x, y;
};
Axes axes_of(const std::vector<RunCurves>& runs, int x_marks, int y_marks);

}  // namespace trireme
