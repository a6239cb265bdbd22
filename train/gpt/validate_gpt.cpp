#include "train/gpt/validate_gpt.h"

#include <fmt/format.h>

#include "cuda/choices.h"
#include "nn/rope_scaling.h"
#include "train/validate/validate.h"

namespace trireme {
namespace {

void validate_experts(const nn::ExpertsOptions& o, const MeshShape& mesh) {
  const int ep = mesh.size(Axis::ep);
  if (o.count == 0) {
    if (ep > 1)
      fail(ExitCode::usage, "--mesh",
           "ep={} divides experts over ranks, and there are none; give --experts, or leave ep "
           "out of --mesh",
           ep);
    return;
  }
  if (o.top_k > o.count)
    fail(ExitCode::usage, "experts",
         "--top-k {} is more than --experts {}; expected at most {}; change --top-k or "
         "--experts",
         o.top_k, o.count, o.count);
  if (o.top_k == 1 && o.norm == nn::RouterNorm::after)
    fail(ExitCode::usage, "experts",
         "--router-norm after with --top-k 1: the softmax of one chosen expert is always 1, "
         "so the router would not learn; expected --router-norm before; change --router-norm or --top-k");
  if (o.count % ep != 0)
    fail(ExitCode::usage, "experts",
         "--experts {} cannot be shared by ep={} ranks: {} / {} leaves {}; expected ep of "
         "{}; change --experts, or ep in --mesh",
         o.count, ep, o.count, ep, o.count % ep, divisors(o.count));
}

void validate_moe_every(const GptConfig& model) {
  if (model.moe_every > model.layers)
    fail(ExitCode::usage, "experts",
         "--moe-every {} of {} layers leaves {} / {} = 0 blocks with experts; expected at most {}; change --moe-every "
         "or --layers",
         model.moe_every, model.layers, model.layers, model.moe_every, model.layers);
}

/// The use of experts over a whole batch is known only after its last forward. With several micro-batches, some
/// backwards run before that.
void validate_aux_scope(const nn::ExpertsOptions& o, const BatchSizes& sizes) {
  if (o.count == 0 || o.balance == nn::BalanceScope::sequence || sizes.micro_batches == 1) return;
  fail(ExitCode::usage, "experts",
       "--aux-scope batch needs the choices of the whole global batch in one forward: {} "
       "sequences / (micro-batch {} x dp) are {} micro-batches; expected 1; raise --micro-batch, or use --aux-scope "
       "sequence",
       sizes.global_batch, sizes.micro_batch, sizes.micro_batches);
}

/// Context parallelism restricts the length of sequences; Ulysses also restricts the heads.
void validate_context(const GptConfig& model, const MeshOptions& o) {
  const int cp = o.shape.size(Axis::cp), tp = o.shape.size(Axis::tp);
  if (cp == 1) return;
  const int chunks = 2 * cp;
  if (model.context % chunks != 0)
    fail(ExitCode::usage, "model",
         "--context {} cannot be cut into 2 x cp = {} chunks: {} / {} leaves {}; expected a multiple of {}; change "
         "--context, or cp in --mesh",
         model.context, chunks, model.context, chunks, model.context % chunks, chunks);
  if (o.context_parallel != nn::ContextParallel::ulysses) return;
  const auto check = [&](const char* flag, std::int64_t heads, std::int64_t on_rank) {
    if (on_rank % cp == 0) return;
    fail(ExitCode::usage, "model",
         "--context-parallel ulysses exchanges heads for tokens, and cp={} ranks cannot share the {} heads that tp={} "
         "leaves of --{} {}: {} / {} leaves {}; expected cp of {}; change cp in --mesh or --{}, or use "
         "--context-parallel ring",
         cp, on_rank, tp, flag, heads, on_rank, cp, on_rank % cp, divisors(on_rank), flag);
  };
  check("heads", model.heads, model.heads / tp);
  const std::int64_t kv_heads = model.key_value_heads();
  check("kv-heads", kv_heads, std::max<std::int64_t>(kv_heads / tp, 1));
}

void validate_sequence(const MeshOptions& o, std::int64_t context) {
  const int tp = o.shape.size(Axis::tp), ranks = tp * o.shape.size(Axis::cp);
  if (o.parallelism().sequence && context % ranks != 0)
    fail(ExitCode::usage, "mesh",
         "sequence parallelism gives each of {} ranks an equal part of --context {}: {} / {} leaves {}; change "
         "--context or tp in --mesh, or give --sequence-parallel off",
         ranks == tp ? fmt::format("tp={}", tp) : fmt::format("cp x tp = {} x {} = {}", ranks / tp, tp, ranks), context,
         context, ranks, context % ranks);
}

void validate_run(const GptOptions& o) {
  if (o.run.eval_every.value_or(0) > 0 && o.data.val_fraction == 0)
    fail(ExitCode::usage, "run",
         "--eval-every {} needs validation text, and --val-fraction is 0; expected a fraction above 0; change "
         "--val-fraction or drop --eval-every",
         *o.run.eval_every);
  if (o.run.sample_every > 0 && o.run.sample_every > o.schedule.steps)
    fail(ExitCode::usage, "run",
         "--sample-every {} is more than --steps {}: no sample would be made; expected at most {}; change "
         "--sample-every",
         o.run.sample_every, o.schedule.steps, o.schedule.steps);
}

/// "--width 24 / --heads 4 = 6", or "--head-width 6".
std::string features_text(const GptConfig& model) {
  if (model.head_width) return fmt::format("--head-width {}", *model.head_width);
  return fmt::format("--width {} / --heads {} = {}", model.width, model.heads, model.head_features());
}

}  // namespace

void validate_model(const GptConfig& model, const MeshShape& mesh) {
  const int tp = mesh.size(Axis::tp), pp = mesh.size(Axis::pp);
  if (!model.head_width && model.width % model.heads != 0)
    fail(ExitCode::usage, "model",
         "--width {} is not a multiple of --heads {}: {} / {} leaves {}; expected --heads that divide the width; "
         "change --width or --heads, or give --head-width",
         model.width, model.heads, model.width, model.heads, model.width % model.heads);
  if (model.heads % tp != 0)
    fail(ExitCode::usage, "model",
         "--heads {} cannot be shared by tp={} ranks: {} / {} leaves {}; expected tp of {}; change --heads, or tp in "
         "--mesh",
         model.heads, tp, model.heads, tp, model.heads % tp, divisors(model.heads));
  const std::int64_t kv_heads = model.key_value_heads();
  if (model.heads % kv_heads != 0)
    fail(ExitCode::usage, "model",
         "--kv-heads {} cannot be shared by --heads {}: {} / {} leaves {}; expected --kv-heads of {}; change "
         "--kv-heads or --heads",
         kv_heads, model.heads, model.heads, kv_heads, model.heads % kv_heads, divisors(model.heads));
  if (kv_heads % tp != 0 && tp % kv_heads != 0)
    fail(ExitCode::usage, "model",
         "--kv-heads {} cannot be shared by tp={} ranks: {} / {} leaves {}, and {} / {} leaves {}; expected that one "
         "divides the other; change --kv-heads, or tp in --mesh",
         kv_heads, tp, kv_heads, tp, kv_heads % tp, tp, kv_heads, tp % kv_heads);
  if (model.hidden() % tp != 0)
    fail(ExitCode::usage, "model",
         "an MLP of {} hidden features cannot be split over tp={} ranks: {} / {} leaves {}; change --ffn-width, "
         "or tp in --mesh",
         model.hidden(), tp, model.hidden(), tp, model.hidden() % tp);
  if (model.experts.count > 0 && model.expert_hidden() % tp != 0)
    fail(ExitCode::usage, "model",
         "experts of {} hidden features cannot be split over tp={} ranks: {} / {} leaves {}; change "
         "--expert-ffn-width, or tp in --mesh",
         model.expert_hidden(), tp, model.expert_hidden(), tp, model.expert_hidden() % tp);
  if (model.positions == PositionEncoding::rope && model.head_features() % 2 != 0)
    fail(ExitCode::usage, "model",
         "--positions rope turns pairs of features, and a head has {} of them; expected an even number; change {}",
         features_text(model), model.head_width ? "--head-width" : "--width or --heads");
  nn::parse_rope_scaling(model.rope_scaling);  // refuses what is no scaling
  if (model.layers < pp)
    fail(ExitCode::usage, "model",
         "--layers {} are fewer than pp={} stages, and a stage holds at least one layer; expected pp of at most {}; "
         "change --layers, or pp in --mesh",
         model.layers, pp, model.layers);
  validate_experts(model.experts, mesh);
  validate_moe_every(model);
}

void validate_heads(const GptConfig& model, Device device) {
  const std::int64_t features = model.head_features(), most = cuda::kMostHeadDims;
  if (device != Device::cuda) return;
  if (model.attention_softcap)
    fail(ExitCode::usage, "model",
         "--attention-softcap {} on a GPU: its attention does not cap scores; expected none; drop --attention-softcap, "
         "or use --device cpu",
         *model.attention_softcap);
  if (features <= most) return;
  fail(
      ExitCode::usage, "model",
      "{} features a head, more than attention on a GPU takes; expected at most {}; use {}, or --device cpu",
      features_text(model), most,
      model.head_width ? "a smaller --head-width" : fmt::format("--heads {} or more", (model.width + most - 1) / most));
}

void validate(const GptOptions& o) {
  const GptConfig& model = o.model.config;
  validate_device(o.precision.device);
  refuse_unused<GptOptions, declare_all>(o);
  validate_model(model, o.mesh.shape);
  validate_heads(model, o.precision.tensor_device());
  validate_context(model, o.mesh);
  validate_sequence(o.mesh, model.context);
  validate_aux_scope(model.experts, o.batch_sizes());
  validate_run(o);
  validate_training(o, model.layers, model.experts.count > 0);
}

}  // namespace trireme
