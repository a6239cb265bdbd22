// GradientWatch: what of a step was not finite on this rank, before ranks summed what they had.
//
// After the sum a NaN is everywhere. So each rank looks at its own gradient of a parameter at the moment when the last
// contribution has been added and before it is given to a sum: one pass over memory that is still in the cache. Sums
// keep a NaN or an infinity, so one look in the last backward of a step is enough to know whose it was; which
// micro-batch it came with, a second pass over the same micro-batches tells, with a look after every one.
// Read next: train/step/non_finite.h, which puts together what all ranks saw.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "data/sampler.h"
#include "nn/parameter.h"

namespace trireme {

/// The first thing in a pass that was not finite on this rank.
struct NonFinite {
  std::string tensor;                 ///< a parameter, whose gradient it is, or "loss"; empty: all was finite
  int stage = 0;                      ///< of the pipeline
  int microbatch = -1;                ///< -1: one of those of the step
  int order = 0;                      ///< how many gradients of that backward were looked at before
  std::vector<std::int64_t> samples;  ///< that it can have come from
};

class GradientWatch {
 public:
  enum class Look : std::uint8_t { never, in_last_backward, in_every_backward };
  /// To be made before what sums gradients: hooks run in the order in which they were added. `parameters` must outlive
  /// the backwards of this model.
  explicit GradientWatch(const nn::ParameterList& parameters);
  GradientWatch(const GradientWatch&) = delete;
  GradientWatch& operator=(const GradientWatch&) = delete;

  /// A pass over the micro-batches of a step begins.
  void begin(Look look);
  void microbatch(const Batch& batch) { samples_.push_back(batch.sample_ids); }  ///< the next one's, in order
  void loss(double value, int stage, int microbatch);
  void backward(int stage, int microbatch, bool last);  ///< of a micro-batch is about to start: the stage's last one?

  const NonFinite& found() const { return found_; }
  /// For tests: may change a gradient right before it is looked at.
  using Tamper = std::function<void(const nn::Parameter& parameter, int microbatch)>;
  void set_tamper(Tamper tamper) { tamper_ = std::move(tamper); }

 private:
  void ready(const nn::Parameter& parameter);
  std::vector<std::int64_t> samples_of(int microbatch) const;

  Look look_ = Look::never;
  bool looking_ = false;
  int stage_ = 0, microbatch_ = 0, order_ = 0;
  std::vector<std::vector<std::int64_t>> samples_;  // by micro-batch
  NonFinite found_;
  Tamper tamper_;
};

}  // namespace trireme
