#include "train/program/units.h"

#include <fmt/core.h>

#include <array>
#include <cmath>

namespace trireme {
namespace {

/// Divides `value` by `base` as often as the result is at least 1, and appends the matching unit.
template <std::size_t N>
std::string scaled(double value, double base, const std::array<const char*, N>& units) {
  std::size_t unit = 0;
  while (unit + 1 < N && value >= base * (1 - 1e-9)) {
    value /= base;
    ++unit;
  }
  return unit == 0 ? fmt::format("{:.0f}{}", value, units[0]) : fmt::format("{:.1f}{}", value, units[unit]);
}

}  // namespace

std::string format_duration(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "?";
  const auto s = static_cast<long long>(std::llround(seconds));
  if (s < 60) return fmt::format("{}s", s);
  if (s < 3600) return fmt::format("{}m{:02}s", s / 60, s % 60);
  if (s < 86400) return fmt::format("{}h{:02}m", s / 3600, s % 3600 / 60);
  return fmt::format("{}d{:02}h", s / 86400, s % 86400 / 3600);
}

std::string format_elapsed(double seconds) {
  return std::isfinite(seconds) && seconds >= 0 && seconds < 59.95 ? fmt::format("{:.1f} s", seconds)
                                                                   : format_duration(seconds);
}

std::string format_count(double count) { return scaled(count, 1000, std::array{"", "k", "M", "G", "T", "P", "E"}); }
std::string format_bytes(double bytes) { return scaled(bytes, 1024, std::array{" B", " KiB", " MiB", " GiB", " TiB"}); }

std::string thousands(std::int64_t n) {
  std::string text = fmt::format("{}", n);
  for (std::int64_t at = static_cast<std::int64_t>(text.size()) - 3; at > 0; at -= 3)
    text.insert(static_cast<std::size_t>(at), ",");
  return text;
}

}  // namespace trireme
