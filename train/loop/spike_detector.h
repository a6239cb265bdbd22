// SpikeDetector: is this loss consistent with the recent ones?
//
// Outliers would distort a mean and a standard deviation. The detector therefore uses the median of the recent losses
// and their median absolute deviation from it (MAD; Rousseeuw and Croux 1993):
//
//   z = (loss - median) / (1.4826 MAD)      with 1.4826, the denominator is the standard deviation of normal noise
//
// Only losses above the median count as spikes. The MAD is at least a thousandth of the median; otherwise, if recent
// losses were nearly equal, any loss would be a spike. All ranks have the same losses, so they come to the same
// decision. Read next: train/loop/guards.h, which acts on it.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

namespace trireme {

class SpikeDetector {
 public:
  /// Detects spikes once it has `window` losses. `threshold` is a value of z.
  SpikeDetector(std::int64_t window, double threshold);

  /// z of a loss relative to the stored losses; 0 while there are fewer than `window`.
  double score(double loss) const;
  /// Whether this loss is too far above recent ones.
  bool is_spike(double loss) const { return score(loss) > threshold_; }
  /// Stores the loss of a completed step, and drops the oldest if there are more than `window`.
  void add(double loss);
  double median() const;  ///< of the stored losses; there must be at least one

  /// The stored losses, oldest first, for a checkpoint.
  std::vector<double> losses() const { return {losses_.begin(), losses_.end()}; }
  void set_losses(const std::vector<double>& losses);  ///< when resuming: the recent losses

 private:
  std::size_t window_;
  double threshold_;
  std::deque<double> losses_;
};

}  // namespace trireme
