#include "ops/plot/curves.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string_view>

#include "core/error.h"
#include "core/io.h"
#include "data/json.h"
#include "data/utf8.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

constexpr const char* metrics_name = "metrics.jsonl";  // in a run's folder

/// A number under `key`; nothing if it is absent or null, as a loss is that was not finite.
std::optional<double> number_in(const nlohmann::json& record, const char* key, const std::string& where) {
  const auto found = record.find(key);
  if (found == record.end() || found->is_null()) return std::nullopt;
  if (!found->is_number())
    fail(ExitCode::data, "plot", "{}: '{}' is not a number; expected a step's record as train_gpt writes it", where,
         key);
  return found->get<double>();
}

void add_point(std::vector<CurvePoint>& points, double step, std::optional<double> loss) {
  constexpr double most = 1e100;  // the difference of two losses must be finite, too
  if (loss && std::abs(*loss) < most) points.push_back({step, *loss});
}

void add_record(RunCurves& run, std::string_view line, const std::string& where) {
  const nlohmann::json record = parse_json(line, where);
  const std::optional<double> step = record.is_object() ? number_in(record, "step", where) : std::nullopt;
  constexpr double most_steps = 1e15;
  if (!step || *step < 0 || *step > most_steps)
    fail(ExitCode::data, "plot", "{}: no step; expected a step's record as train_gpt writes it", where);
  add_point(run.loss, *step, number_in(record, "loss", where));
  add_point(run.validation, *step, number_in(record, "val_loss", where));
}

}  // namespace

RunCurves read_curves(const fs::path& path) {
  std::error_code unknown;
  const fs::path file = fs::is_directory(path, unknown) ? path / metrics_name : path;
  if (!is_there(file))
    fail(ExitCode::usage, "plot", "{} is not there; expected the --out folder of a run, or its {}; change the path",
         file.string(), metrics_name);
  RunCurves run = parse_curves(read_file(file, read_limits::metrics), file);
  run.name = path.string();
  return run;
}

RunCurves parse_curves(std::string_view lines, const fs::path& file) {
  RunCurves run;
  int number = 0;
  for (std::size_t begin = 0, end = 0; (end = lines.find('\n', begin)) != std::string_view::npos; begin = end + 1)
    add_record(run, lines.substr(begin, end - begin), fmt::format("{}:{}", file.string(), ++number));
  if (run.loss.empty() && run.validation.empty())
    fail(ExitCode::usage, "plot", "{} has no step yet; expected one at least; wait for --log-every steps",
         file.string());
  return run;
}

Scale Scale::around(double low, double high, int marks) {
  if (!(high > low)) {  // one value: a range around it
    const double margin = std::max(std::abs(low) * 0.05, 1e-9);
    low -= margin;
    high += margin;
  }
  for (double power = std::pow(10, std::floor(std::log10((high - low) / marks)));; power *= 10) {
    for (const double factor : {1.0, 2.0, 5.0}) {
      const double step = factor * power, first = std::floor(low / step), last = std::ceil(high / step);
      if (last - first <= marks) return {first * step, last * step, step};
    }
  }
}

std::vector<double> Scale::marks() const {
  std::vector<double> all;
  const auto count = static_cast<int>(std::lround((high - low) / step));
  for (int i = 0; i <= count; ++i) {
    const double mark = low + i * step;
    all.push_back(std::abs(mark) < step / 1e6 ? 0 : mark);  // without the rounding of 0.3 - 3 x 0.1
  }
  return all;
}

std::vector<std::string> mark_labels(const Scale& scale, bool counts) {
  const double most = std::max(std::abs(scale.low), std::abs(scale.high));
  double unit = 1;
  const char* suffix = "";
  if (counts && most >= 1e4) {
    for (const char* next : {"k", "M", "G", "T"}) {
      if (most < unit * 1e3) break;
      unit *= 1e3;
      suffix = next;
    }
  }
  // The step is 1, 2 or 5 times a power of ten: this is the place of its only digit.
  const int decimals = std::max(0, -static_cast<int>(std::floor(std::log10(scale.step / unit) + 1e-9)));
  constexpr int most_decimals = 6;
  const bool plain = decimals <= most_decimals && most / unit < 1e7;
  // Otherwise with an exponent, and the digits between the first and that of the step.
  const int digits = std::clamp(
      static_cast<int>(std::floor(std::log10(most) + 1e-9) - std::floor(std::log10(scale.step) + 1e-9)), 0, 15);
  std::vector<std::string> labels;
  for (const double mark : scale.marks()) {
    if (!plain)
      labels.push_back(fmt::format("{:.{}e}", mark, digits));
    else if (counts && mark == 0)
      labels.emplace_back("0");
    else
      labels.push_back(fmt::format("{:.{}f}{}", mark / unit, decimals, suffix));
  }
  return labels;
}

Axes axes_of(const std::vector<RunCurves>& runs, int x_marks, int y_marks) {
  constexpr double most = std::numeric_limits<double>::infinity();
  CurvePoint low{most, most}, high{-most, -most};
  for (const RunCurves& run : runs) {
    for (const auto* points : {&run.loss, &run.validation}) {
      for (const CurvePoint& p : *points) {
        low = {std::min(low.x, p.x), std::min(low.y, p.y)};
        high = {std::max(high.x, p.x), std::max(high.y, p.y)};
      }
    }
  }
  // From step 0, unless most of the chart would then be empty, as after a resume.
  return {Scale::around(low.x < high.x / 2 ? 0 : low.x, high.x, x_marks), Scale::around(low.y, high.y, y_marks)};
}

}  // namespace trireme
