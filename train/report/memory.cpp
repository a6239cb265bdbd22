#include "train/report/memory.h"

#include <algorithm>

#include "train/options/optimizer_kinds.h"
#include "train/program/units.h"

namespace trireme {
namespace {

/// Bytes of optimizer state per parameter: moments, the average, and the master weight with a 16-bit dtype. `hidden`:
/// the part of the parameters that is in matrices between hidden layers.
double state_bytes(const TrainOptions& o, double hidden) {
  return kind_of(o.optimizer).moment_bytes(o.optimizer, hidden) * (o.optimizer.moments == DType::bf16 ? 0.5 : 1) +
         (o.optimizer.ema_decay ? 4 : 0) + (o.precision.dtype == DType::f32 ? 0 : 4);
}

}  // namespace

double state_of_all_ranks(const TrainOptions& o, const ParameterCounts& parameters) {
  const bool on_gpu = o.precision.tensor_device() == Device::cuda;
  const double data = o.mesh.shape.size(Axis::data);
  const double copies = data / static_cast<double>(o.mesh.dp_shard.value_or(o.mesh.shape.size(Axis::data)));
  const auto held = [&](int from_stage, double bytes) { return bytes * (o.mesh.zero >= from_stage ? copies : data); };
  const double element = static_cast<double>(size_of(o.precision.dtype));
  const bool elsewhere = on_gpu && o.optimizer.memory == MemoryCategory::offloaded;
  const auto experts = static_cast<double>(parameters.experts), all = static_cast<double>(parameters.all);
  const double hidden = static_cast<double>(parameters.hidden_matrices) / std::max(all, 1.0);
  const double state = elsewhere ? 0 : state_bytes(o, hidden);
  // Per parameter, on all ranks together.
  const double weights = held(3, element), each = weights + held(2, 4) + held(1, state);
  const auto frozen = static_cast<double>(parameters.frozen);
  if (frozen > 0) return frozen * weights + (all - frozen) * each;  // experts among them are not counted apart
  return (all - experts + experts / o.mesh.shape.size(Axis::ep)) * each;
}

std::string predicted_memory(const TrainOptions& o, const ParameterList& parameters, double activations,
                             double workspace) {
  double count = 0, trained = 0, hidden = 0;
  for (const ParameterPtr& parameter : parameters) {
    const auto elements = static_cast<double>(parameter->local.count());
    count += elements;
    if (!parameter->requires_grad()) continue;
    trained += elements;
    hidden += parameter->hidden_matrix ? elements : 0;
  }
  const double element = static_cast<double>(size_of(o.precision.dtype));
  // ZeRO: the ranks that share a category divide it.
  const double ranks = static_cast<double>(o.mesh.dp_shard.value_or(o.mesh.shape.size(Axis::data)));
  const auto shared = [&](int from_stage, double elements) {
    return elements / (o.mesh.zero >= from_stage ? ranks : 1);
  };
  const double weights = shared(3, count) * element, gradients = shared(2, trained) * 4,
               state = shared(1, trained) * state_bytes(o, hidden / std::max(trained, 1.0));
  const bool offloaded = o.optimizer.memory == MemoryCategory::offloaded;
  const double packed = o.precision.keep_packed && o.batch_sizes().micro_batches > 1 ? 2 * weights : 0;
  return fmt::format("{} parameters + {} gradients (f32){}{}{}{} = {}{}", format_bytes(weights),
                     format_bytes(gradients), offloaded ? "" : fmt::format(" + {} optimizer", format_bytes(state)),
                     activations > 0 ? fmt::format(" + about {} activations", format_bytes(activations))
                                     : " + activations (not estimated)",
                     workspace > 0 ? fmt::format(" + {} workspace of cuDNN", format_bytes(workspace)) : "",
                     packed > 0 ? fmt::format(" + up to {} packed weights", format_bytes(packed)) : "",
                     format_bytes(weights + gradients + activations + workspace + packed + (offloaded ? 0 : state)),
                     offloaded ? fmt::format(", and {} optimizer offloaded to host memory", format_bytes(state)) : "");
}

std::string memory_estimate(const TrainOptions& o, const ParameterCounts& parameters) {
  const int ranks = o.mesh.processes ? 1 : o.mesh.shape.ranks();
  const double bytes = state_of_all_ranks(o, parameters) * ranks / o.mesh.shape.ranks();
  return fmt::format("weights, gradients and optimizer state were estimated at {} for the {} rank{} of this process",
                     format_bytes(bytes), ranks, ranks == 1 ? "" : "s");
}

}  // namespace trireme
