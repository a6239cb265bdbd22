#include "train/gpt_setup.h"

#include <unistd.h>

#include <algorithm>

#include "cuda/runtime/open.h"
#include "train/console.h"
#include "train/setup.h"

namespace trireme {
namespace {

/// Elements a block keeps per token for its backward: the inputs of two norms (cut over tp under sequence parallelism)
/// and what they give the products, and, split over tp, q and attention's output, k and v, and the hidden before and
/// after the activation (gated: a third one). Of experts: the hidden of those that compute a token, and what each of
/// the chosen ones takes and gives.
double kept_per_token(const TrainOptions& o, const GptConfig& c, bool experts) {
  const double tp = o.mesh.shape.size(Axis::tp);
  const bool sequence = o.mesh.parallelism().sequence && tp > 1;
  const double width = static_cast<double>(c.width), chosen = static_cast<double>(experts ? c.experts.top_k : 0);
  const double mlps = experts ? chosen + static_cast<double>(c.experts.shared) : 1;
  const double hidden = mlps * static_cast<double>(c.hidden()) / tp;
  const double kv_width = width / static_cast<double>(c.heads) * static_cast<double>(c.key_value_heads());
  const double kv_ranks = std::min(tp, static_cast<double>(c.key_value_heads()));
  const double stream = sequence ? width / tp : width;
  const double inner = c.activation == Activation::swiglu ? 3 * hidden : 2 * hidden;
  const double whole = 2 * stream + 2 * width + 2 * width / tp + 2 * kv_width / kv_ranks + inner + 2 * chosen * width;
  using Kind = nn::Recompute::Kind;
  const nn::Recompute recompute = o.precision.recompute_plan();
  if (recompute.kind == Kind::selective) return whole - hidden - 2 * width;
  if (recompute.kind == Kind::blocks) return (stream + (recompute.every - 1) * whole) / recompute.every;
  return whole;
}

/// The same, mean over blocks with and without experts.
double mean_kept_per_token(const TrainOptions& o, const GptConfig& c) {
  const double mixtures = static_cast<double>(c.mixtures()) / static_cast<double>(c.layers);
  return mixtures * kept_per_token(o, c, true) + (1 - mixtures) * kept_per_token(o, c, false);
}

/// Bytes of optimizer state per parameter: moments, and the master of a 16-bit weight.
double state_bytes(const TrainOptions& o) {
  const double moments = o.optimizer.optimizer == "adamw" ? 8 : (o.optimizer.momentum > 0 ? 4 : 0);
  return moments + (o.precision.dtype == DType::f32 ? 0 : 4);
}

/// What a library keeps besides tensors: cuDNN's backward of attention the gradient of a layer's scores, 16 bits each.
/// Ulysses cuts heads over cp; the ring is none of cuDNN's.
double workspace_bytes(const TrainOptions& o, const GptConfig& c) {
  if (o.precision.attention != "cudnn") return 0;
  const double heads = static_cast<double>(c.heads) / o.mesh.shape.size(Axis::tp) / o.mesh.shape.size(Axis::cp);
  const auto context = static_cast<double>(c.context);
  return 2 * static_cast<double>(o.batch_sizes().micro_batch) * heads * context * context;
}

}  // namespace

std::unique_ptr<Gpt> make_gpt(const TrainOptions& o, std::shared_ptr<const DeviceMesh> mesh) {
  return std::make_unique<Gpt>(make_build(o, std::move(mesh)), o.model.config, o.stage_plan());
}

std::string predicted_memory(const TrainOptions& o, const GptConfig& c, const nn::ParameterList& parameters,
                             int live_activations) {
  double count = 0;
  for (const nn::ParameterPtr& parameter : parameters) count += static_cast<double>(parameter->local.count());
  const double element = static_cast<double>(size_of(o.precision.dtype));
  const double tokens = static_cast<double>(o.batch_sizes().micro_batch * c.context) / o.mesh.shape.size(Axis::cp);
  const double layers = static_cast<double>(c.layers) / o.mesh.stages();  // of an activation alive
  const double tp = o.mesh.shape.size(Axis::tp);
  double activations = tokens * layers * mean_kept_per_token(o, c) * element * live_activations;
  activations +=
      2 * tokens * static_cast<double>(c.vocab) / tp * element;  // logits and their gradient, one micro-batch
  // ZeRO: what its stage shards is divided by the ranks that share it.
  const double ranks = static_cast<double>(o.mesh.dp_shard.value_or(o.mesh.shape.size(Axis::data)));
  const auto shared = [&](int from_stage) { return count / (o.mesh.zero >= from_stage ? ranks : 1); };
  const double weights = shared(3) * element, gradients = shared(2) * 4, state = shared(1) * state_bytes(o);
  const bool offloaded = o.optimizer.memory == MemoryCategory::offloaded;
  const double workspace = workspace_bytes(o, c);
  const double packed = o.precision.keep_packed && o.batch_sizes().micro_batches > 1 ? 2 * weights : 0;
  return fmt::format("{} parameters + {} gradients (f32){} + about {} activations{}{} = {}{}", format_bytes(weights),
                     format_bytes(gradients), offloaded ? "" : fmt::format(" + {} optimizer", format_bytes(state)),
                     format_bytes(activations),
                     workspace > 0 ? fmt::format(" + {} workspace of cuDNN", format_bytes(workspace)) : "",
                     packed > 0 ? fmt::format(" + up to {} packed weights", format_bytes(packed)) : "",
                     format_bytes(weights + gradients + activations + workspace + packed + (offloaded ? 0 : state)),
                     offloaded ? fmt::format(", and {} optimizer offloaded to host memory", format_bytes(state)) : "");
}

namespace {

double host_memory() {
  return static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGE_SIZE));
}

/// Of weights, gradients and optimizer state of the ranks in this process: bytes.
double estimated_bytes(const TrainOptions& o) {
  const bool on_gpu = o.precision.tensor_device() == Device::cuda;
  const double data = o.mesh.shape.size(Axis::data);
  const double copies = data / static_cast<double>(o.mesh.dp_shard.value_or(o.mesh.shape.size(Axis::data)));
  const auto held = [&](int from_stage, double bytes) { return bytes * (o.mesh.zero >= from_stage ? copies : data); };
  const double element = static_cast<double>(size_of(o.precision.dtype));
  const bool elsewhere = on_gpu && o.optimizer.memory == MemoryCategory::offloaded;
  const double state = elsewhere ? 0 : state_bytes(o);
  const double each = held(3, element) + held(2, 4) + held(1, state);     // of a parameter, on all ranks together
  const double here = o.mesh.processes ? 1.0 / o.mesh.shape.ranks() : 1;  // of the ranks in this process
  return static_cast<double>(parameter_count(o.model.config)) * each * here;
}

}  // namespace

std::string memory_estimate(const TrainOptions& o) {
  const int ranks = o.mesh.processes ? 1 : o.mesh.shape.ranks();
  return fmt::format("weights, gradients and optimizer state were estimated at {} for the {} rank{} of this process",
                     format_bytes(estimated_bytes(o)), ranks, ranks == 1 ? "" : "s");
}

void require_memory(const TrainOptions& o) {
  const bool on_gpu = o.precision.tensor_device() == Device::cuda;
  const double machine = on_gpu ? static_cast<double>(cuda::find_devices().devices.front().memory) : host_memory();
  const double bytes = estimated_bytes(o);
  if (bytes <= machine) return;
  fail(ExitCode::usage, "memory",
       "{} parameters need {} for weights, gradients and optimizer state{}, and this {} has {}; change --layers, "
       "--width, --vocab or --mesh, or share more with --zero",
       parameter_count(o.model.config), format_bytes(bytes),
       o.mesh.processes           ? " of this rank"
       : o.mesh.shape.ranks() > 1 ? " of all ranks"
                                  : "",
       on_gpu ? "GPU" : "machine", format_bytes(machine));
}

}  // namespace trireme
