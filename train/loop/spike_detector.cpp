#include "train/loop/spike_detector.h"

#include <algorithm>
#include <cmath>

namespace trireme {
namespace {

/// For an even count, the mean of the two middle values.
double median_of(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return values.size() % 2 == 1 ? *middle : (*middle + *std::max_element(values.begin(), middle)) / 2;
}

}  // namespace

SpikeDetector::SpikeDetector(std::int64_t window, double threshold)
    : window_(static_cast<std::size_t>(window)), threshold_(threshold) {}

double SpikeDetector::median() const { return median_of(losses()); }

double SpikeDetector::score(double loss) const {
  if (losses_.size() < window_) return 0;
  const double middle = median();
  std::vector<double> distances;
  for (const double each : losses_) distances.push_back(std::abs(each - middle));
  const double deviation = std::max(median_of(std::move(distances)), 1e-3 * std::abs(middle));
  constexpr double of_normal_noise = 1.4826, smallest = 1e-300;
  return (loss - middle) / std::max(of_normal_noise * deviation, smallest);
}

void SpikeDetector::add(double loss) {
  losses_.push_back(loss);
  if (losses_.size() > window_) losses_.pop_front();
}

void SpikeDetector::set_losses(const std::vector<double>& losses) {
  losses_.assign(losses.begin(), losses.end());
  while (losses_.size() > window_) losses_.pop_front();
}

}  // namespace trireme
