#include "train/step/gradient_watch.h"

#include <cmath>

#include "core/kernels.h"

namespace trireme {

GradientWatch::GradientWatch(const ParameterList& parameters) {
  for (const ParameterPtr& parameter : trained(parameters))
    parameter->leaf().on_grad_ready([this, p = parameter.get()] { ready(*p); });
}

void GradientWatch::begin(CheckTime check_time, const std::vector<Batch>& batches) {
  check_time_ = check_time;
  checking_ = false;
  batches_ = &batches;
  unread_.clear();
  found_ = {};
}

std::vector<std::int64_t> GradientWatch::samples_of(int microbatch) const {
  std::vector<std::int64_t> samples;
  for (std::size_t m = 0; m < batches_->size(); ++m) {
    const std::vector<std::int64_t>& ids = (*batches_)[m].sample_ids;
    if (microbatch < 0 || m == static_cast<std::size_t>(microbatch))
      samples.insert(samples.end(), ids.begin(), ids.end());
  }
  return samples;
}

void GradientWatch::loss(const Tensor& value, int stage, int microbatch) {
  unread_.push_back({value.detach(), stage, microbatch});
  if (check_time_ != CheckTime::never) read_losses();  // before the gradients that it may spoil
}

void GradientWatch::read_losses() {
  for (const auto& [value, stage, microbatch] : unread_) {
    if (!found_.tensor.empty()) break;
    if (std::isfinite(value.item())) continue;
    found_ = {.tensor = "loss", .stage = stage, .microbatch = microbatch, .samples = samples_of(microbatch)};
  }
  unread_.clear();
}

const NonFinite& GradientWatch::found() {
  read_losses();
  return found_;
}

void GradientWatch::backward(int stage, int microbatch, bool last) {
  checking_ = check_time_ == CheckTime::in_every_backward || (check_time_ == CheckTime::in_last_backward && last);
  stage_ = stage;
  microbatch_ = microbatch;
  order_ = 0;
}

void GradientWatch::ready(const Parameter& parameter) {
  if (tamper_) tamper_(parameter, microbatch_);
  if (!checking_ || !found_.tensor.empty()) return;
  ++order_;
  const Tensor& gradient = parameter.grad();
  if (std::isfinite(kernels(gradient.device()).sum_squares(std::span(&gradient, 1)).value())) return;
  // If only the last backward is checked, the value may come from any micro-batch.
  const int microbatch = check_time_ == CheckTime::in_every_backward || batches_->size() == 1 ? microbatch_ : -1;
  found_ = {.tensor = parameter.name,
            .stage = stage_,
            .microbatch = microbatch,
            .order = order_,
            .samples = samples_of(microbatch)};
}

}  // namespace trireme
