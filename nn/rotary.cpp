#include "nn/rotary.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace trireme::nn {
namespace {

/// Turns of a pair in `original` tokens.
double turns(double original, double frequency) { return original * frequency / (2 * std::numbers::pi); }

double llama3(const RopeScaling& s, double frequency) {
  const double share = std::clamp((turns(s.original, frequency) - s.low) / (s.high - s.low), 0.0, 1.0);
  return (1 - share) * frequency / s.factor + share * frequency;
}

/// The pair that turns `count` times, as a real number.
double pair_of(double count, double base, double original, double width) {
  return width * std::log(original / (count * 2 * std::numbers::pi)) / (2 * std::log(base));
}

double yarn(const RopeScaling& s, double frequency, double base, double width, double i) {
  const double first = std::max(std::floor(pair_of(s.high, base, s.original, width)), 0.0);
  double last = std::min(std::ceil(pair_of(s.low, base, s.original, width)), width - 1);
  last = std::max(last, first + 0.001);  // at least a step, as Hugging Face has it
  const double interpolated = std::clamp((i - first) / (last - first), 0.0, 1.0);
  return interpolated * frequency / s.factor + (1 - interpolated) * frequency;
}

}  // namespace

Tensor rope_frequencies(std::int64_t head_width, const Rotary& rotary) {
  const RopeScaling& s = rotary.scaling;
  if (s.kind == RopeScaling::Kind::none) return {};
  const std::int64_t half = head_width / 2;
  Tensor frequencies = Tensor::empty({half}, DType::f64);
  for (std::int64_t i = 0; i < half; ++i) {
    const double plain = std::pow(rotary.base, -static_cast<double>(i) / static_cast<double>(half));
    double& each = frequencies.data<double>()[i];
    each = plain / s.factor;
    if (s.kind == RopeScaling::Kind::llama3) each = llama3(s, plain);
    if (s.kind == RopeScaling::Kind::yarn)
      each = yarn(s, plain, rotary.base, static_cast<double>(head_width), static_cast<double>(i));
  }
  return frequencies;
}

double score_factor(const Rotary& rotary) {
  if (rotary.scaling.kind != RopeScaling::Kind::yarn) return 1;
  const double each = 0.1 * std::log(rotary.scaling.factor) + 1;  // of q and of k
  return each * each;
}

}  // namespace trireme::nn
