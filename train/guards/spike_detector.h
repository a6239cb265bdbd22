// SpikeDetector: does this loss still belong to those before it?
//
// A mean and a standard deviation would be moved by the very outliers they are to find, so the detector uses the median
// of the last losses and their median absolute deviation from it (MAD; Rousseeuw and Croux 1993):
//
//   z = (loss - median) / (1.4826 MAD)      1.4826: of normal noise, MAD is then one standard deviation
//
// Only what is above counts: a loss that falls fast is no accident. The MAD is taken as at least a thousandth of the
// median, since losses that happen to be nearly equal would make anything a spike. All in plain arithmetic on numbers
// that all ranks have: they come to one answer. Read next: train/guards/guards.h, which acts on it.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

namespace trireme {

class SpikeDetector {
 public:
  /// Judges once it has `window` losses; `threshold` is a z.
  SpikeDetector(std::int64_t window, double threshold);

  /// z of a loss against those added; 0 while there are fewer than the window has.
  double score(double loss) const;
  bool is_spike(double loss) const { return score(loss) > threshold_; }
  /// The loss of a step that was made: the oldest gives way.
  void add(double loss);
  double median() const;  ///< of the losses it holds; there must be one

  /// What a checkpoint stores, oldest first.
  std::vector<double> losses() const { return {losses_.begin(), losses_.end()}; }
  void set_losses(const std::vector<double>& losses);

 private:
  std::size_t window_;
  double threshold_;
  std::deque<double> losses_;
};

}  // namespace trireme
