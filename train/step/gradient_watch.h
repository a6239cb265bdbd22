// GradientWatch: finds the first non-finite value of a step on this rank, before gradients are summed over ranks.
//
// After the sum, a NaN is on every rank. So each rank checks its own gradient of a parameter when the last contribution
// has been added and the sum has not begun: one pass over memory that is still in the cache. A NaN or an infinity stays
// in the accumulated gradient, so one check in the last backward of a step is enough to find the rank. To find the
// micro-batch, the same micro-batches are computed again, with a check after each of them.
// Read next: train/step/non_finite.h, which combines the findings of all ranks.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "data/sampler.h"
#include "parallel/parameters/parameter.h"

namespace trireme {

/// The first non-finite value of a pass on this rank.
struct NonFinite {
  std::string tensor;                 ///< the parameter whose gradient it is, or "loss"; empty: everything was finite
  int stage = 0;                      ///< pipeline stage
  int microbatch = -1;                ///< -1: unknown
  int order = 0;                      ///< position among the gradients checked in that backward, from 1
  std::vector<std::int64_t> samples;  ///< samples that may have caused it
};

class GradientWatch {
 public:
  /// In which backwards gradients are checked.
  enum class CheckTime : std::uint8_t { never, in_last_backward, in_every_backward };
  /// Create it before the object that sums gradients: hooks run in the order in which they were added. `parameters`
  /// must exist as long as the model runs backwards.
  explicit GradientWatch(const ParameterList& parameters);
  GradientWatch(const GradientWatch&) = delete;
  GradientWatch& operator=(const GradientWatch&) = delete;

  /// Begins a pass over the micro-batches of a step, `batches`, which must have one before its forward pass.
  void begin(CheckTime check_time, const std::vector<Batch>& batches);
  /// A micro-batch's loss, one element. It is read only if gradients are checked as well, or by found(): the host need
  /// not wait for a device.
  void loss(const Tensor& value, int stage, int microbatch);
  void backward(int stage, int microbatch, bool last);  ///< call before each; last: of the stage

  /// The first of the pass; reads losses that were not read yet.
  const NonFinite& found();
  /// For tests: may change a gradient right before it is checked.
  using Tamper = std::function<void(const Parameter& parameter, int microbatch)>;
  /// See Tamper.
  void set_tamper(Tamper tamper) { tamper_ = std::move(tamper); }

 private:
  void ready(const Parameter& parameter);
  std::vector<std::int64_t> samples_of(int microbatch) const;
  void read_losses();

  CheckTime check_time_ = CheckTime::never;
  bool checking_ = false;
  int stage_ = 0, microbatch_ = 0, order_ = 0;
  const std::vector<Batch>* batches_ = nullptr;  // by micro-batch
  struct Loss {
    Tensor value;
    int stage, microbatch;
  };
  std::vector<Loss> unread_;
  NonFinite found_;
  Tamper tamper_;
};

}  // namespace trireme
