#include "nn/rope_scaling.h"

#include <charconv>
#include <cmath>
#include <optional>
#include <string_view>
#include <vector>

#include "core/error.h"

namespace trireme::nn {
namespace {

constexpr const char* spellings = "none, linear:F, llama3:F,ORIGINAL[,LOW,HIGH] or yarn:F,ORIGINAL[,LOW,HIGH]";

/// The numbers of "8,8192"; nothing if the text has anything else.
std::optional<std::vector<double>> numbers_of(std::string_view text) {
  std::vector<double> numbers;
  while (true) {
    double number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc{} || !std::isfinite(number)) return std::nullopt;
    numbers.push_back(number);
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    if (text.empty()) return numbers;
    if (text.front() != ',') return std::nullopt;
    text.remove_prefix(1);
  }
}

}  // namespace

RopeScaling parse_rope_scaling(const std::string& text) {
  using Kind = RopeScaling::Kind;
  if (text == "none") return {};
  const auto refuse = [&](const std::string& why) {
    fail(ExitCode::usage, "rope scaling",
         "'{}' {}; expected {}, as in llama3:8,8192; change the text of parse_rope_scaling() (--rope-scaling)", text,
         why, spellings);
  };
  const std::size_t colon = text.find(':');
  const std::string kind = text.substr(0, colon);
  RopeScaling scaling;
  scaling.kind = kind == "linear"   ? Kind::linear
                 : kind == "llama3" ? Kind::llama3
                 : kind == "yarn"   ? Kind::yarn
                                    : Kind::none;
  if (scaling.kind == Kind::none || colon == std::string::npos) refuse("is not a scaling of rotary positions");
  const auto numbers = numbers_of(std::string_view(text).substr(colon + 1));
  const std::size_t count = numbers ? numbers->size() : 0;
  if (scaling.kind == Kind::linear ? count != 1 : count != 2 && count != 4) refuse("does not have these numbers");
  scaling.factor = (*numbers)[0];
  if (scaling.factor < 1) refuse("has a factor below 1");
  if (scaling.kind == Kind::linear) return scaling;
  scaling.original = (*numbers)[1];
  if (scaling.kind == Kind::yarn) scaling.high = 32;
  if (count == 4) scaling.low = (*numbers)[2], scaling.high = (*numbers)[3];
  if (scaling.original < 1) refuse("has an original context below 1");
  if (!(scaling.low > 0 && scaling.low < scaling.high)) refuse("needs 0 < LOW < HIGH");
  return scaling;
}

}  // namespace trireme::nn
