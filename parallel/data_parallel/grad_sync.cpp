#include "parallel/data_parallel/grad_sync.h"

#include <map>
#include <utility>

#include "core/kernels.h"
#include "core/stopwatch.h"
#include "parallel/comm/call_site.h"
#include "parallel/data_parallel/tied_parameters.h"
#include "parallel/parameters/same_model.h"

namespace trireme {

namespace {

constexpr std::int64_t alignment = 16;  // elements: each gradient starts on a 64-byte line

std::int64_t padded(std::int64_t count) { return (count + alignment - 1) / alignment * alignment; }

/// True if a bucket's first sum is over data-parallel ranks, which may run during backward.
bool sums_over_data(const std::vector<Axis>& axes) { return !axes.empty() && axes.front() != Axis::tp; }

}  // namespace

GradSync::GradSync(const ParameterList& parameters, const DeviceMesh& mesh, std::int64_t bucket_bytes) : mesh_(mesh) {
  check_parameters("grad_sync", parameters);
  for (const ParameterPtr& parameter : parameters)
    require(
        parameter->summed_by == GradientSum::nobody, "grad_sync",
        "{} has a GradSync already, whose sums would be lost; expected one for each parameter; destroy the other, or "
        "make one of all parameters",
        parameter->name);
  require_same_model(parameters, mesh);
  later_ = LaterParameters(parameters);
  fill_buckets(parameters, bucket_bytes);
  tied_ = find_tied(parameters, mesh);
  for (Slot& slot : slots_) {
    slot.parameter->leaf().on_grad_ready([this, &slot] { gradient_ready(slot); });
    slot.parameter->summed_by = GradientSum::grad_sync;
    slot.parameter->gradient_summed = false;
  }
}

GradSync::~GradSync() {
  for (const Slot& slot : slots_) {
    if (Leaf* const leaf = leaf_of(slot.parameter->local)) leaf->clear_hooks();
    slot.parameter->summed_by = GradientSum::nobody;
    slot.parameter->gradient_summed = false;
  }
}

void GradSync::fill_buckets(const ParameterList& parameters, std::int64_t bucket_bytes) {
  struct Open {
    std::int64_t bytes = 0;
    std::vector<std::size_t> slots;
  };
  std::map<BucketKey, Open> open;  // a bucket is summed as a whole
  const ParameterList newest_first(parameters.rbegin(), parameters.rend());
  for (const ParameterPtr& parameter : newest_first) {
    if (!parameter->requires_grad()) continue;
    const BucketKey key = key_of(*parameter);
    const std::int64_t bytes = padded(parameter->local.count()) * static_cast<std::int64_t>(sizeof(float));
    Open& bucket = open[key];
    if (!bucket.slots.empty() && bucket.bytes + bytes > bucket_bytes) {
      close_bucket(key, std::move(bucket.slots));
      bucket = {};
    }
    bucket.bytes += bytes;
    bucket.slots.push_back(slots_.size());
    slots_.push_back({parameter});
  }
  for (auto& [key, bucket] : open) close_bucket(key, std::move(bucket.slots));
}

// Where all sums are in rank order, one order for all: fewer buckets.
GradSync::BucketKey GradSync::key_of(const Parameter& parameter) const {
  BucketKey key{gradient_axes(parameter.placements, mesh_), SumOrder::ranks};
  if (key.axes.empty() || mesh_.world().fastest_order() == SumOrder::ranks) return key;
  key.order = order_of_gradients(parameter.placements, key.axes.front(), mesh_);
  return key;
}

void GradSync::close_bucket(const BucketKey& key, std::vector<std::size_t> slots) {
  const MemoryScope scope(MemoryCategory::gradients);
  std::int64_t count = 0;
  for (const std::size_t slot : slots) count += padded(slots_[slot].parameter->local.count());
  const Device device = slots_[slots.front()].parameter->local.device();
  const Tensor gradients = Tensor::zeros({count}, DType::f32, device);  // [n]
  std::int64_t start = 0;
  for (const std::size_t slot : slots) {
    const Parameter& parameter = *slots_[slot].parameter;
    parameter.grad() =
        view::reshape(view::slice(gradients, 0, start, parameter.local.count()), parameter.local.shape());
    slots_[slot].bucket = buckets_.size();
    start += padded(parameter.local.count());
  }
  const std::size_t missing = slots.size();
  buckets_.push_back({gradients, key.axes, key.order, std::move(slots), missing, {}});
}

void GradSync::zero_grad() {
  require(
      state_ != State::backward, "grad_sync",
      "{}: zero_grad() after a backward whose gradients were not summed over ranks; expected finish() after the last "
      "backward of a step, and the optimizer's step after it",
      mesh_.where());
  state_ = State::zero;
  for (const Slot& slot : slots_) {
    slot.parameter->leaf().mark_zero();
    slot.parameter->gradient_summed = false;
  }
}

void GradSync::gradient_ready(Slot& slot) {
  require(
      state_ != State::summed, "grad_sync",
      "{}: {} gets a gradient after finish(), which would be added to the sum over ranks; expected zero_grad() before "
      "the first backward of a step",
      mesh_.where(), slot.parameter->name);
  state_ = State::backward;
  if (!in_last_backward_) return;
  require(!slot.ready, "grad_sync",
          "{}: {} was completed twice in one backward; its first gradient may have been sent already", mesh_.where(),
          slot.parameter->name);
  slot.ready = true;
  --buckets_[slot.bucket].missing;
  while (launched_ < buckets_.size() && buckets_[launched_].missing == 0) launch_next();
}

void GradSync::launch_next() {
  const CallSite site("sums of gradients");
  Bucket& bucket = buckets_[launched_++];
  for (const std::size_t slot : bucket.slots) slots_[slot].parameter->leaf().write_zero();
  if (!sums_over_data(bucket.axes)) return;
  bucket.over_data =
      mesh_.group(bucket.axes.front()).all_reduce(bucket.gradients, ReduceOp::sum, Launch::background, bucket.order);
  report_.bytes += bucket.gradients.bytes();
  if (in_last_backward_) ++report_.buckets_overlapped;
}

void GradSync::sum(const Tensor& gradients, ProcessGroup& group, SumOrder order) {
  group.all_reduce(gradients, ReduceOp::sum, Launch::lazy, order).wait();
  report_.bytes += gradients.bytes();
}

GradSyncReport GradSync::finish() {
  require(state_ != State::summed, "grad_sync",
          "{}: finish() was called twice, which would add up sums over ranks once more; expected zero_grad() and a "
          "backward "
          "in between",
          mesh_.where());
  later_.require_summed("grad_sync");
  const CallSite site("sums of gradients");
  const Stopwatch stopwatch;
  in_last_backward_ = false;
  state_ = State::summed;
  while (launched_ < buckets_.size()) launch_next();
  for (Bucket& bucket : buckets_) {
    std::exchange(bucket.over_data, {}).wait();
    for (const Axis axis : bucket.axes) {
      if (axis != Axis::tp) continue;
      const bool first = !sums_over_data(bucket.axes);
      sum(bucket.gradients, mesh_.group(axis), first ? bucket.order : SumOrder::ranks);
    }
  }
  for (const ParameterPtr& parameter : tied_) sum(parameter->grad(), *mesh_.pipeline_ends(), SumOrder::ranks);
  report_.exposed_seconds = stopwatch.seconds();
  launched_ = 0;
  for (Slot& slot : slots_) {
    slot.ready = false;
    slot.parameter->gradient_summed = true;
  }
  for (Bucket& bucket : buckets_) bucket.missing = bucket.slots.size();
  return std::exchange(report_, {});
}

}  // namespace trireme
