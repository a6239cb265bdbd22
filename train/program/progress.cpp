#include "train/program/progress.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "train/program/text_width.h"
#include "train/program/units.h"

namespace trireme {
namespace {

constexpr int shortest_bar = 10, longest_bar = 40;

std::string bar(double fraction, int columns, bool unicode) {
  const int done = static_cast<int>(std::floor(fraction * columns));
  std::string text;
  for (int i = 0; i < columns; ++i) text += i < done ? (unicode ? "\u2501" : "#") : (unicode ? "\u2500" : "-");
  return text;
}

std::string without_padding(std::string_view text) {
  return std::string(text.substr(0, text.find_last_not_of(' ') + 1));
}

}  // namespace

std::string progress_line(double fraction, const std::vector<std::string>& fields, int columns, bool unicode) {
  fraction = std::isfinite(fraction) ? std::clamp(fraction, 0.0, 1.0) : 0.0;
  std::string text = fmt::format("{:3.0f}%", std::floor(fraction * 100));
  for (const std::string& field : fields) {
    if (columns_of(text) + 3 + columns_of(without_padding(field)) > columns) break;
    text += " | " + field;
  }
  const int room = columns - columns_of(text) - 1;
  text = without_padding(text);
  return room < shortest_bar ? text : bar(fraction, std::min(room, longest_bar), unicode) + " " + text;
}

ProgressBar::ProgressBar(Screen& screen, std::string what, double total, Format format, double begin)
    : screen_(screen), what_(std::move(what)), total_(total), format_(std::move(format)), begin_(begin) {}

void ProgressBar::set(double done, const std::vector<std::string>& facts) {
  if (!screen_.terminal().updates) return;
  const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
  const bool known = total_ > 0;
  std::vector<std::string> fields = {known ? fmt::format("{} {}/{}", what_, format_(done), format_(total_))
                                           : fmt::format("{} {}", what_, format_(done))};
  fields.insert(fields.end(), facts.begin(), facts.end());
  if (done > begin_ && seconds > 0) {
    if (facts.empty()) fields.push_back(fmt::format("{}/s", format_((done - begin_) / seconds)));
    if (known) fields.push_back("eta " + format_duration(seconds * (total_ - done) / (done - begin_)));
  }
  if (!known) {
    screen_.show_live([fields](int columns) {
      std::string text = fields.front();
      for (std::size_t i = 1; i < fields.size() && columns_of(text) + 3 + columns_of(fields[i]) <= columns; ++i)
        text += " | " + fields[i];
      return text;
    });
    return;
  }
  screen_.show_live([fraction = done / total_, fields, unicode = screen_.terminal().unicode](int columns) {
    return progress_line(fraction, fields, columns, unicode);
  });
}

}  // namespace trireme
