#include "train/gpt/gpt_task.h"

#include <fmt/format.h>

#include <cmath>

#include "data/eval_windows.h"
#include "data/utf8.h"
#include "train/gpt/generate.h"
#include "train/gpt/gpt_parity.h"
#include "train/gpt/gpt_setup.h"
#include "train/gpt/gpu_choices.h"
#include "train/gpt/parity_options.h"
#include "train/gpt/validate_gpt.h"

namespace trireme {
namespace {

std::string model_row(const GptConfig& m) {
  const std::string shared =
      m.key_value_heads() == m.heads ? "" : fmt::format(" sharing {} key-value heads", m.key_value_heads());
  std::string text =
      fmt::format("{} layers, {} heads{}, width {}, context {}, {}, biases {}, dropout {}", m.layers, m.heads, shared,
                  m.width, m.context, name_of(m.activation), m.bias ? "on" : "off", m.dropout);
  if (m.hidden() != 4 * m.width) text += fmt::format(", MLP {} wide", m.hidden());
  if (m.norm == Norm::rms) text += ", RMS norms";
  if (m.positions == PositionEncoding::rope) text += ", rotary positions";
  if (!m.tied) text += ", a head of its own";
  return text;
}

std::string experts_row(const GptConfig& model) {
  const nn::ExpertsOptions& o = model.experts;
  if (o.count == 0) return "none: each block has an MLP";
  const std::string blocks =
      model.moe_every == 1 ? "" : fmt::format(" in {} of {} blocks", model.mixtures(), model.layers);
  return fmt::format(
      "{}{}, {} for each token, {} shared; {}; balance loss {} per {}, router z-loss {}{}", o.count, blocks, o.top_k,
      o.shared, o.capacity_factor ? fmt::format("capacity factor {}", *o.capacity_factor) : "none dropped", o.aux_loss,
      name_of(o.balance), o.z_loss, o.bias_update > 0 ? fmt::format(", bias moved by {}", o.bias_update) : "");
}

/// Published models have a vocabulary of subwords. Without --tokenizer a text is read as characters, which a user of a
/// preset hardly wants: the row then has a warning.
std::string tokenizer_row(const GptOptions& o, const Tokenizer& tokenizer) {
  const std::string text = fmt::format("{}, {} ids", tokenizer.name(), thousands(tokenizer.vocab_size()));
  const bool by_default = o.model.preset != "custom" && o.data.tokenizer == "auto" && tokenizer.name() == "char";
  if (!by_default) return text;
  return text +
         fmt::format(
             "\nwarning: {} is trained on single characters, as --tokenizer is not given; expected for this model: "
             "--tokenizer bpe:PATH; for characters, --vocab auto",
             o.model.preset);
}

std::string parameters_row(const GptConfig& model) {
  const std::string all = thousands(parameter_count(model));
  return model.experts.count == 0
             ? all
             : fmt::format("{}, of which {} compute a token", all, thousands(active_parameter_count(model)));
}

}  // namespace

void GptTask::declare_model(Flags& flags) {
  trireme::declare_model(flags, o_.model);
  declare_experts(flags, o_.model);
}

void GptTask::declare_data(Flags& flags) {
  trireme::declare_data(flags, o_.data);
  declare_samples(flags, o_.run, o_.data.val_fraction);
}

void GptTask::validate() const { trireme::validate(o_); }

std::vector<std::pair<std::string, std::string>> GptTask::config_notes() const { return gpu_choice_notes(o_); }

std::unique_ptr<Model> GptTask::make(const TrainOptions& options, std::shared_ptr<const DeviceMesh> mesh) const {
  return make_gpt(options, o_.model.config, std::move(mesh));
}

ParameterCounts GptTask::parameters() const {
  return {parameter_count(o_.model.config), expert_parameter_count(o_.model.config)};
}

double GptTask::activation_bytes(const TrainOptions& options, int live) const {
  return gpt_activation_bytes(options, o_.model.config, live);
}

double GptTask::workspace_bytes() const { return gpt_workspace_bytes(o_, o_.model.config); }

void GptTask::load() {
  if (o_.data.data.empty())
    fail(ExitCode::usage, "data",
         "--data is missing; expected a text file, a folder of text files, or token shards; give --data PATH");
  corpus_ = load_corpus(o_.corpus());
  o_.model.config = o_.model.with_vocab(corpus_->tokenizer->vocab_size());
  o_.model.config.document_separator = o_.data.separator(corpus_->tokenizer->end_of_text(), o_.model.config.vocab);
}

RunIdentity GptTask::identity() const {
  return {.seed = o_.run.seed,
          .tokenizer = corpus_->tokenizer->to_json(),
          .data = corpus_->hash,
          .val_fraction = o_.data.val_fraction};
}

std::shared_ptr<const DataSource> GptTask::training() const {
  return std::make_shared<Sampler>(corpus_->train, o_.model.config.context, static_cast<std::uint64_t>(o_.run.seed));
}

std::shared_ptr<const ValidationSource> GptTask::validation() const {
  if (corpus_->validation.count() == 0) return nullptr;
  return std::make_shared<EvalWindows>(
      EvalWindows::of_batches(corpus_->validation, o_.model.config.context, o_.run.eval_batches));
}

std::vector<LabelledValue> GptTask::rows() const {
  const GptConfig& model = o_.model.config;
  return {{"data", fmt::format("{}: {} training and {} validation tokens", o_.data.data,
                               thousands(corpus_->train.count()), thousands(corpus_->validation.count()))},
          {"tokenizer", tokenizer_row(o_, *corpus_->tokenizer)},
          {"model", model_row(model)},
          {"experts", experts_row(model)},
          {"parameters", parameters_row(model)},
          {"vocabulary",
           fmt::format("{} (padded to {})", model.vocab, nn::padded_vocab(model.vocab, o_.mesh.shape.size(Axis::tp)))}};
}

std::string GptTask::gpu_kernels() const {
  const GpuChoices choices = gpu_choices(o_, o_.model.config.vocab);
  return fmt::format("products: {}\nattention: {}", choices.products, choices.attention);
}

std::string GptTask::explain_loss(std::int64_t steps, double loss) const {
  if (steps > 0) return fmt::format("perplexity {:.2f}", std::exp(loss));
  const std::int64_t vocab = o_.model.config.vocab;
  return fmt::format("ln(V) = {:.4f}, what guessing among V = {} tokens costs", std::log(static_cast<double>(vocab)),
                     vocab);
}

/// Generates text that continues the first token of the data.
std::string GptTask::sample(Model& model) const {
  std::vector<std::int32_t> first(1);
  corpus_->train.read(0, first);
  const GenerateOptions options = {.length = o_.run.sample_length,
                                   .seed = static_cast<std::uint64_t>(o_.run.seed),
                                   .vocab_size = corpus_->tokenizer->vocab_size()};
  Utf8Stream printable;  // a token may end inside a character
  const std::string text =
      printable.push(corpus_->tokenizer->decode(generate(dynamic_cast<LanguageModel&>(model), first, options)));
  return text + printable.finish();
}

void GptTask::set_parity_defaults() { trireme::set_parity_defaults(o_); }

void GptTask::declare_parity_data(Flags& flags) { declare_parity_documents(flags, o_.data); }

void GptTask::prepare_parity() { prepare_parity_model(o_); }

ParityModel::Data GptTask::parity_data(const TrainOptions& options) const {
  return gpt_parity_data(options, o_.model.config);
}

}  // namespace trireme
