#include "optim/parameter_factors.h"

#include <fnmatch.h>

#include <algorithm>
#include <charconv>
#include <cmath>

namespace trireme::optim {

bool ParameterFactors::Entry::matches(const std::string& name) const {
  return fnmatch(pattern.c_str(), name.c_str(), FNM_NOESCAPE) == 0;
}

ParameterFactors::ParameterFactors(std::string_view flag, std::string_view text) : flag_(flag) {
  while (!text.empty()) {
    const std::string_view entry = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), entry.size() + 1));
    const std::size_t equals = entry.rfind('=');
    double factor = -1;
    if (equals != std::string_view::npos) {
      const std::string_view number = entry.substr(equals + 1);
      const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), factor);
      if (error != std::errc() || end != number.data() + number.size()) factor = -1;
    }
    if (equals == 0 || !(factor >= 0 && std::isfinite(factor)))
      fail(ExitCode::usage, flag_, "'{}' is not of the form PATTERN=F, with F at least 0; expected blocks.*.attn.*=0.5",
           entry);
    entries_.push_back({std::string(entry.substr(0, equals)), factor});
  }
}

double ParameterFactors::of(const std::string& name) const {
  double factor = 1;
  for (const Entry& entry : entries_)
    if (entry.matches(name)) factor = entry.factor;
  return factor;
}

}  // namespace trireme::optim
