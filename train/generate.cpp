#include "train/generate.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/random.h"
#include "parallel/pipeline/executor.h"
#include "train/evaluate.h"
#include "train/rank_batch.h"

namespace trireme {
namespace {

/// The logits of the token after `ids`, on the last stage; undefined on others. Ranks that share a sequence need a
/// length that divides: tokens are added behind the last one, which does not see them.
Tensor next_logits(Gpt& model, std::span<const std::int32_t> ids) {
  const DeviceMesh& mesh = model.mesh();
  const auto last = static_cast<std::int64_t>(ids.size()) - 1;
  std::vector<std::int32_t> padded(ids.begin(), ids.end());
  padded.resize(static_cast<std::size_t>(model.padded_length(last + 1)), 0);
  const auto length = static_cast<std::int64_t>(padded.size());
  const Tensor input_ids = Tensor::from(std::span<const std::int32_t>(padded), {1, length});
  const Tensor local_ids = enter_batch(model, {input_ids, {}, {0}}).inputs;  // [1, T/cp]
  Tensor logits;
  pipeline::Executor executor(pipeline::forward_only(mesh.size(Axis::pp), 1, model.chunks()), mesh.group(Axis::pp));
  executor.run({.forward =
                    [&](int stage, const Tensor& input, int) {
                      const Tensor hidden = model.hidden(stage, input, local_ids);  // [1, T, D]
                      if (!model.is_last_stage(stage)) return hidden;
                      logits = model.gathered_logits_at(hidden, last);  // [1, 1, V]
                      return Tensor();
                    },
                .activation_shape = model.hidden_shape(1, length),
                .dtype = model.dtype(),
                .device = model.device()});
  return logits.defined() ? contiguous(logits.to(Device::cpu)) : logits;
}

}  // namespace

std::int32_t pick_token(std::span<const float> logits, const GenerateOptions& o, double random) {
  // -infinity is a token that cannot come.
  const auto usable = [](float x) { return !std::isnan(x) && x != INFINITY; };
  if (!std::all_of(logits.begin(), logits.end(), usable))
    fail(ExitCode::numerical, "generate",
         "the model's logits are not finite numbers; it was not trained well; use another checkpoint");
  std::vector<std::int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto likelier = [&](std::int32_t a, std::int32_t b) {
    const float x = logits[static_cast<std::size_t>(a)], y = logits[static_cast<std::size_t>(b)];
    return x > y || (x == y && a < b);
  };
  if (o.temperature == 0) return *std::min_element(order.begin(), order.end(), likelier);
  std::sort(order.begin(), order.end(), likelier);
  if (o.top_k > 0) order.resize(std::min(order.size(), static_cast<std::size_t>(o.top_k)));

  const auto highest = static_cast<double>(logits[static_cast<std::size_t>(order[0])]);
  std::vector<double> weights;
  for (const std::int32_t id : order) {
    weights.push_back(std::exp((static_cast<double>(logits[static_cast<std::size_t>(id)]) - highest) / o.temperature));
  }
  const double whole = std::accumulate(weights.begin(), weights.end(), 0.0);
  double kept = 0;
  std::size_t count = 0;
  while (count < weights.size() && (count == 0 || kept < o.top_p * whole)) kept += weights[count++];

  double target = random * kept;
  for (std::size_t i = 0; i < count; ++i) {
    target -= weights[i];
    if (target < 0) return order[i];
  }
  return order[count - 1];
}

std::vector<std::int32_t> generate(Gpt& model, std::span<const std::int32_t> prompt, const GenerateOptions& options,
                                   const std::function<void(std::int32_t)>& each) {
  require(!prompt.empty(), "generate", "the prompt is empty; give at least one token");
  const Evaluating guard(model);
  ProcessGroup& stages = model.mesh().group(Axis::pp);
  const auto context = static_cast<std::size_t>(model.config().context);
  std::vector<std::int32_t> ids(prompt.begin(), prompt.end());
  for (std::int64_t n = 0; n < options.length; ++n) {
    const std::size_t seen = std::min(ids.size(), context);
    const Tensor logits = next_logits(model, std::span(ids).last(seen));
    const double random = random_uniform(options.seed, stream_of("generate"), static_cast<std::uint64_t>(n));
    Tensor token = Tensor::zeros({1}, DType::i32);
    if (logits.defined()) *token.data<std::int32_t>() = pick_token(logits.span<float>(), options, random);
    stages.broadcast(token, stages.size() - 1).wait();
    ids.push_back(*token.data<std::int32_t>());
    if (each) each(ids.back());
  }
  return {ids.begin() + static_cast<std::ptrdiff_t>(prompt.size()), ids.end()};
}

}  // namespace trireme
