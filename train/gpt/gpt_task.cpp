#include "train/gpt/gpt_task.h"

#include <fmt/format.h>

#include <chrono>
#include <cmath>

#include "core/dry_run.h"
#include "core/kernels.h"
#include "data/eval_windows.h"
#include "data/sampler.h"
#include "data/utf8.h"
#include "models/hugging_face/export.h"
#include "nn/weights.h"
#include "parallel/comm/texts.h"
#include "train/gpt/chat.h"
#include "train/gpt/comparison_batch.h"
#include "train/gpt/generate.h"
#include "train/gpt/gpt_setup.h"
#include "train/gpt/gpt_source.h"
#include "train/gpt/gpu_choices.h"
#include "train/gpt/parity_options.h"
#include "train/gpt/validate_gpt.h"
#include "train/program/signals.h"
#include "train/program/units.h"
#include "train/runs/data_list.h"

namespace trireme {
namespace {

std::string model_row(const GptConfig& m) {
  const std::string shared =
      m.key_value_heads() == m.heads ? "" : fmt::format(" sharing {} key-value heads", m.key_value_heads());
  std::string text = fmt::format("{} layers, {} heads{}, width {}, context {}, {}, biases {}, dropout {}", m.layers,
                                 m.heads, shared, m.width, m.context, name_of(m.activation),
                                 m.bias       ? "on"
                                 : m.qkv_bias ? "of q, k and v"
                                              : "off",
                                 m.dropout);
  if (m.attention_width() != m.width) text += fmt::format(", {} features a head", m.head_features());
  if (m.hidden() != 4 * m.width) text += fmt::format(", MLP {} wide", m.hidden());
  if (m.norm == Norm::rms) text += ", RMS norms";
  if (m.positions == PositionEncoding::rope) text += ", rotary positions";
  if (m.rope_scaling != "none") text += " scaled by " + m.rope_scaling;
  if (!m.tied) text += ", a head of its own";
  if (m.qk_norm) text += ", norms of queries and keys";
  if (m.window) {
    std::int64_t blocks = 0;
    for (std::int64_t i = 0; i < m.layers; ++i) blocks += m.has_window(i) ? 1 : 0;
    text += fmt::format(", a window of {} tokens in {} of {} blocks", *m.window, blocks, m.layers);
  }
  if (m.attention_softcap) text += fmt::format(", scores capped at {}", *m.attention_softcap);
  if (m.zero_centred_norms) text += ", norms centred at zero";
  if (m.post_norms) text += ", norms after attention and MLP";
  if (m.scaled_embeddings) text += ", scaled embeddings";
  if (m.window_rope_base) text += fmt::format(", rotary base {} in windows", *m.window_rope_base);
  if (m.query_pre_attn_scalar) text += fmt::format(", scores over sqrt({})", *m.query_pre_attn_scalar);
  if (m.lora.rank > 0)
    text += fmt::format(", adapters of rank {} beside {} times {}", m.lora.rank, m.lora.targets,
                        m.lora.alpha / static_cast<double>(m.lora.rank));
  if (m.logit_softcap) text += fmt::format(", logits capped at {}", *m.logit_softcap);
  return text;
}

std::string experts_row(const GptConfig& model) {
  const nn::ExpertsOptions& o = model.experts;
  if (o.count == 0) return "none: each block has an MLP";
  const std::string blocks =
      model.moe_every == 1 ? "" : fmt::format(" in {} of {} blocks", model.mixtures(), model.layers);
  const std::string wide =
      model.expert_hidden() == model.hidden() ? "" : fmt::format(" {} wide", model.expert_hidden());
  return fmt::format("{}{}{}, {} for each token, {} shared; {}; balance loss {} per {}, router z-loss {}{}", o.count,
                     wide, blocks, o.top_k, o.shared,
                     o.capacity_factor ? fmt::format("capacity factor {}", *o.capacity_factor) : "none dropped",
                     o.aux_loss, name_of(o.balance), o.z_loss,
                     o.bias_update > 0 ? fmt::format(", bias moved by {}", o.bias_update) : "");
}

/// Published models have a vocabulary of subwords. Without --tokenizer a text is read as characters, which a user of a
/// preset hardly wants: the row then has a warning.
std::string tokenizer_row(const GptOptions& o, const Tokenizer& tokenizer, const std::string& other) {
  std::string text = fmt::format("{}, {} ids", tokenizer.name(), thousands(tokenizer.vocab_size()));
  if (!other.empty())
    text += fmt::format(
        "\nwarning: it is not the tokenizer of {}: {}; expected that one, as the weights know its ids; drop "
        "--tokenizer",
        o.model.init_from, other);
  const bool by_default = o.model.preset != "custom" && o.data.tokenizer == "auto" && tokenizer.name() == "char";
  if (!by_default) return text;
  return text +
         fmt::format(
             "\nwarning: {} is trained on single characters, as --tokenizer is not given; expected for this model: "
             "--tokenizer bpe:PATH; for characters, --vocab auto",
             o.model.preset);
}

/// How `here`, the tokenizer of --tokenizer, differs from that of the model with which training begins; empty: their
/// common ids are the same tokens.
std::string token_difference(const Tokenizer& here, const Tokenizer& there) {
  for (std::int32_t id = 0; id < std::min(here.vocab_size(), there.vocab_size()); ++id) {
    const std::string one = here.decode({{id}}), other = there.decode({{id}});
    if (one != other) return fmt::format("id {} is {} and not {}", id, in_quotes(one), in_quotes(other));
  }
  return {};
}

/// --init-adapter gives the adapters, so flags cannot change them. Their dropout is training's choice.
void require_same_adapter(const nn::LoraOptions& asked, const nn::LoraOptions& saved, const std::string& path) {
  std::string text;
  const auto compare = [&](const char* flag, const auto& here, const auto& there) {
    if (here != there) text += fmt::format("{}{} {} (there: {})", text.empty() ? "" : ", ", flag, here, there);
  };
  compare("--lora-rank", asked.rank, saved.rank);
  compare("--lora-alpha", asked.alpha, saved.alpha);
  compare("--lora-targets", asked.targets, saved.targets);
  if (text.empty()) return;
  fail(ExitCode::usage, "init-adapter",
       "the adapters in {} are others than these flags describe: {}; expected their own; drop these flags, or "
       "--init-adapter",
       path, text);
}

/// --init-from gives the model, so flags cannot change it.
void validate_init_from(const ModelOptions& o) {
  if (o.init_from.empty()) return;
  if (o.preset != "custom")
    fail(ExitCode::usage, "model",
         "--model {} and --init-from {} are two models; expected one; drop --model, or --init-from", o.preset,
         o.init_from);
  GptConfig saved = read_gpt_config(o.read_from);
  if (!o.init_adapter.empty() && o.begins_with_weights()) {
    saved.lora = read_adapter_options(o.init_adapter, saved);
    require_same_adapter(o.config.lora, saved.lora, o.init_adapter);
  }
  GptConfig asked = o.config;
  asked.vocab = o.vocab.value_or(saved.vocab);
  require_same_gpt(asked, saved, o.read_from);
}

/// B A of an adapter has the rank of the layer at most, however large R is.
void validate_adapters(const GptConfig& model) {
  const std::int64_t most = model.lora.rank > 0 ? most_adapter_rank(model) : 0;
  if (most > 0 && model.lora.rank > most)
    fail(ExitCode::usage, "lora",
         "--lora-rank {} is more than the rank of any layer that gets an adapter; expected at most {}; change "
         "--lora-rank, or train all weights without it",
         model.lora.rank, most);
}

void validate_export(const GptOptions& o) {
  if (!o.export_hf) return;
  if (o.run.out_choice == "none")
    fail(ExitCode::usage, "export-hf",
         "--export-hf on with --out none: there are no checkpoints; expected a folder; change --out or --export-hf");
  hugging_face::require_exportable(o.model.config, nullptr);
}

std::string parameters_row(const GptConfig& model) {
  const std::string all = thousands(parameter_count(model));
  if (model.lora.rank > 0)
    return fmt::format("{}, of which {} are trained", all, thousands(adapter_parameter_count(model)));
  return model.experts.count == 0
             ? all
             : fmt::format("{}, of which {} compute a token", all, thousands(active_parameter_count(model)));
}

}  // namespace

void GptTask::declare_model(Flags& flags) {
  declare_other_programs(flags, o_);
  trireme::declare_model(flags, o_.model);
  declare_experts(flags, o_.model);
  declare_adapters(flags, o_.model);
}

void GptTask::declare_data(Flags& flags) {
  trireme::declare_data(flags, o_.data);
  declare_samples(flags, o_.run, o_.data.val_fraction);
}

GptTask::GptTask() : Task(o_) {
  o_.model.read_config = read_gpt_config;
  o_.model.read_adapter = read_adapter_options;
}

void GptTask::validate() const {
  trireme::validate(o_);
  validate_init_from(o_.model);
  validate_adapters(o_.model.config);
  validate_export(o_);
}

std::vector<std::pair<std::string, std::string>> GptTask::config_notes() const { return gpu_choice_notes(o_); }

std::unique_ptr<Model> GptTask::make(const TrainOptions& options, std::shared_ptr<const DeviceMesh> mesh) const {
  std::unique_ptr<Gpt> model = make_gpt(options, o_.model.config, std::move(mesh), !o_.model.init_from.empty());
  if (o_.model.init_from.empty() || DryRun::on()) return model;
  ProcessGroup& world = model->mesh().world();
  if (!any_rank(world, o_.model.begins_with_weights())) return model;
  GptSource(world, o_.model.init_from, o_.model.init_adapter).load(*model);
  fail_together(world, [&] {
    for (const ParameterPtr& parameter : model->parameters()) {
      const Tensor weight = contiguous(parameter->local.detach());
      if (!std::isfinite(kernels(weight.device()).sum_squares(std::span(&weight, 1)).value()))
        fail(
            ExitCode::data, "init-from",
            "{} of the model in {} is not finite; expected numbers; it was not trained well, or its files are damaged: "
            "use another model",
            parameter->name, o_.model.init_from);
    }
  });
  return model;
}

std::string GptTask::needed_checkpoint() const {
  return o_.model.init_from.empty() || o_.model.begins_with_weights() ? "" : o_.model.read_from;
}

double GptTask::workspace_bytes() const { return gpt_workspace_bytes(o_, o_.model.config); }

/// That of the model of --init-from, unless --tokenizer names another one; null: as --tokenizer says.
std::shared_ptr<const Tokenizer> GptTask::own_tokenizer() const {
  if (o_.model.init_from.empty() || o_.data.tokenizer != "auto") return nullptr;
  const std::shared_ptr<ProcessGroup> alone = self_group();
  return GptSource(*alone, o_.model.read_from).tokenizer();
}

/// Takes over what users of the model of --init-from need, and replaces its template by the one it is trained with now.
void GptTask::set_usage() {
  if (!o_.model.init_from.empty()) {
    const std::shared_ptr<ProcessGroup> alone = self_group();
    const GptSource source(*alone, o_.model.read_from);
    const bool adapted = source.config().lora.rank > 0;  // its adapters are trained on, beside the same model
    usage_ = source.usage();
    if (!adapted) usage_.base = std::filesystem::absolute(o_.model.init_from).lexically_normal().string();
    if (o_.data.tokenizer != "auto" && (source.folder() == nullptr || source.folder()->has_tokenizer()))
      other_tokenizer_ = token_difference(*corpus_->tokenizer, *source.tokenizer());
  }
  if (!chat_) return;
  usage_.chat_template = chat_->source();
  for (const auto& [name, token] : chat_->special_tokens()) usage_.special_tokens[name] = token;
  add_end(usage_, *corpus_->tokenizer, end_of_turn(*chat_));
}

/// That of --chat-template, or for JSON lines that of the model of --init-from, if it has one.
std::optional<ChatTemplate> GptTask::chat_template() const {
  const std::shared_ptr<ProcessGroup> alone = self_group();
  if (!o_.data.chat_template.empty()) {
    std::map<std::string, std::string> special_tokens;
    constexpr std::string_view bpe = "bpe:";
    if (!o_.model.init_from.empty()) {
      special_tokens = GptSource(*alone, o_.model.read_from).usage().special_tokens;
    } else if (o_.data.tokenizer.starts_with(bpe)) {
      const std::filesystem::path path = o_.data.tokenizer.substr(bpe.size());
      if (std::filesystem::is_directory(path)) special_tokens = template_texts(path).special_tokens;
    }
    return chat_template_named(o_.data.chat_template, "--chat-template", special_tokens);
  }
  if (o_.model.init_from.empty() || !is_json_lines(o_.data.data)) return std::nullopt;
  const GptSource source(*alone, o_.model.read_from);
  if (source.usage().chat_template.empty()) return std::nullopt;
  if (o_.data.packing != Packing::cut || o_.data.document_mask)
    fail(ExitCode::usage, "data",
         "{} holds dialogues, for the chat template of {}, and they have a packing and a mask of their own; expected "
         "neither of them; drop --packing and --document-mask",
         o_.data.data, o_.model.init_from);
  return source.chat_template();
}

Corpus GptTask::load_text() const {
  const std::shared_ptr<const Tokenizer> tokenizer = own_tokenizer();
  return tokenizer ? load_corpus(o_.corpus(), tokenizer) : load_corpus(o_.corpus());
}

void GptTask::load() {
  if (o_.data.data.empty())
    fail(ExitCode::usage, "data",
         "--data is missing; expected a text file, a folder of text files, or token shards; give --data PATH");
  chat_ = chat_template();
  if (!chat_) {
    corpus_ = load_text();
  } else {
    dialogues_ = load_dialogues(o_.data, *chat_, o_.model.config.context, static_cast<std::uint64_t>(o_.run.seed),
                                own_tokenizer());
    corpus_ = dialogues_->corpus;
  }
  set_usage();
  o_.model.config = o_.model.with_vocab(corpus_->tokenizer->vocab_size());
  o_.model.config.document_separator = o_.data.separator(corpus_->tokenizer->end_of_text(), o_.model.config.vocab);
  o_.model.config.restart_positions = o_.data.restart_positions;
  if (o_.export_hf) hugging_face::require_exportable(o_.model.config, corpus_->tokenizer.get());
  make_training();
}

/// The samples, and how many make an epoch of each source.
void GptTask::make_training() {
  if (dialogues_) {
    training_ = dialogues_->train;
    return;
  }
  const auto seed = static_cast<std::uint64_t>(o_.run.seed);
  const std::int64_t context = o_.model.config.context;
  std::vector<std::shared_ptr<const DataSource>> sources;
  std::vector<double> weights;
  for (const CorpusPart& part : corpus_->parts) {
    const std::uint64_t own = corpus_->parts.size() == 1 ? seed : seed_of_source(seed, sources.size());
    weights.push_back(part.weight);
    if (o_.data.packing == Packing::cut) {
      sources.push_back(std::make_shared<Sampler>(part.train, context, own));
      samples_per_epoch_.push_back(static_cast<double>(part.train.count()) / static_cast<double>(context));
      continue;
    }
    const auto separator = o_.data.packing_separator(corpus_->tokenizer->end_of_text(), o_.model.config.vocab);
    const auto rows = std::make_shared<PackedRows>(part.train, context, separator, o_.data.packing, own);
    sources.push_back(rows);
    samples_per_epoch_.push_back(static_cast<double>(rows->rows()));
    packed_.push_back(rows->report());
    cut_by_windows_ += report_cut(part.train, context, separator).cut;
  }
  if (sources.size() == 1) {
    training_ = sources.front();
    return;
  }
  const auto mixture = std::make_shared<Mixture>(std::move(sources), weights, seed);
  counter_ = std::make_unique<MixtureCounter>(mixture->order());
  training_ = mixture;
}

std::vector<std::pair<std::string, double>> GptTask::epochs(std::int64_t samples) const {
  std::vector<std::pair<std::string, double>> result;
  if (counter_ == nullptr && packed_.empty()) return result;
  for (std::size_t i = 0; i < corpus_->parts.size(); ++i) {
    const std::int64_t own = counter_ == nullptr ? samples : counter_->count(i, samples);
    result.emplace_back(corpus_->parts[i].path, static_cast<double>(own) / samples_per_epoch_[i]);
  }
  return result;
}

RunIdentity GptTask::identity() const {
  return {.seed = o_.run.seed,
          .tokenizer = corpus_->tokenizer->to_json(),
          .data = corpus_->hash ^ (static_cast<std::uint64_t>(o_.data.packing) << 60),  // samples depend on it
          .val_fraction = o_.data.val_fraction,
          .files = data_list(corpus_->files),
          .usage = usage_ == UsageTexts() ? "" : usage_.to_json()};
}

std::shared_ptr<const DataSource> GptTask::training() const { return training_; }

std::shared_ptr<const ValidationSource> GptTask::validation() const {
  if (dialogues_) return dialogues_->validation;
  if (corpus_->validation.count() == 0) return nullptr;
  return std::make_shared<EvalWindows>(
      EvalWindows::of_batches(corpus_->validation, o_.model.config.context, o_.run.eval_batches));
}

/// All tokens; of a mixture also each source, with its share and how often the run will read it.
std::string GptTask::data_row() const {
  std::string text = fmt::format("{}: {} training and {} validation tokens", safe_line(o_.data.data),
                                 thousands(corpus_->train.count()), thousands(corpus_->validation.count()));
  const std::int64_t samples = o_.schedule.steps * o_.batch_sizes().global_batch;
  const auto read = epochs(samples);
  for (std::size_t i = 0; i < read.size(); ++i) {
    const CorpusPart& part = corpus_->parts[i];
    text += fmt::format("\n{}: {:.4g} % of the samples, {} tokens, {:.3g} epochs in {} steps", safe_line(part.path),
                        100 * part.weight, thousands(part.train.count()), read[i].second, thousands(o_.schedule.steps));
  }
  if (corpus_->left_out.all() > 0) text += "\nfiles left out: " + corpus_->left_out.text();
  return text;
}

std::string GptTask::packing_row() const {
  PackingReport sum;
  for (const PackingReport& report : packed_) {
    sum.documents += report.documents;
    sum.tokens += report.tokens;
    sum.rows += report.rows;
    sum.cut += report.cut;
    sum.cropped += report.cropped;
    sum.padding += report.padding;
  }
  const auto percent = [](std::int64_t part, std::int64_t all) {
    return 100 * static_cast<double>(part) / static_cast<double>(all);
  };
  return fmt::format(
      "{}: {} documents in {} rows; {} documents are cut (windows would cut {}), {:.3g} % of the tokens cropped, "
      "{:.3g} "
      "% padding",
      o_.data.packing == Packing::best_fit ? "best fit" : "best fit with cropping", thousands(sum.documents),
      thousands(sum.rows), thousands(sum.cut), thousands(cut_by_windows_), percent(sum.cropped, sum.tokens),
      percent(sum.padding, sum.rows * (o_.model.config.context + 1)));
}

std::vector<LabelledValue> GptTask::rows() const {
  const GptConfig& model = o_.model.config;
  std::vector<LabelledValue> rows = {{"data", data_row()}};
  if (!packed_.empty()) rows.emplace_back("packing", packing_row());
  if (dialogues_) rows.emplace_back("dialogues", describe(dialogues_->train->report()));
  const std::vector<LabelledValue> others = {
      {"tokenizer", tokenizer_row(o_, *corpus_->tokenizer, other_tokenizer_)},
      {"model", model_row(model)},
      {"experts", experts_row(model)},
      {"parameters", parameters_row(model)},
      {"vocabulary",
       fmt::format("{} (padded to {})", model.vocab, nn::padded_vocab(model.vocab, o_.mesh.shape.size(Axis::tp)))}};
  rows.insert(rows.end(), others.begin(), others.end());
  if (!o_.model.init_from.empty())
    rows.emplace_back("first weights", o_.model.begins_with_weights()
                                           ? "those of " + o_.model.init_from
                                           : fmt::format("those of {}, which is not read again: {} has the model",
                                                         o_.model.init_from, o_.model.read_from));
  if (!o_.model.init_adapter.empty()) rows.back().second += ", adapters of " + o_.model.init_adapter;
  return rows;
}

std::string GptTask::gpu_kernels() const {
  const GpuChoices choices = gpu_choices(o_, o_.model.config.vocab);
  return fmt::format("products: {}\nattention: {}", choices.products, choices.attention);
}

std::string GptTask::explain_loss(std::int64_t steps, double loss) const {
  const double perplexity = std::exp(loss);
  if (steps > 0)
    return perplexity < 1e6 ? fmt::format("perplexity {:.2f}", perplexity)
                            : fmt::format("perplexity {:.2e}", perplexity);
  const std::int64_t vocab = o_.model.config.vocab;
  return fmt::format("a random guess scores {:.4f} (ln {})", std::log(static_cast<double>(vocab)), vocab);
}

std::string GptTask::use_command(const std::string& out) const { return "generate --checkpoint " + out; }

/// Generates text that continues the first token of the data.
std::string GptTask::sample(Model& model) const {
  std::vector<std::int32_t> first(1);
  corpus_->train.read(0, first);
  const GenerateOptions options = {.length = o_.run.sample_length,
                                   .seed = static_cast<std::uint64_t>(o_.run.seed),
                                   .vocab_size = corpus_->tokenizer->vocab_size(),
                                   .leave = leave_asked};
  Utf8Stream printable;  // a token may end inside a character
  const std::string text =
      printable.push(corpus_->tokenizer->decode(generate(dynamic_cast<LanguageModel&>(model), first, options)));
  return text + printable.finish();
}

std::string GptTask::export_model(Model& model, const std::filesystem::path& checkpoint) const {
  const auto begin = std::chrono::steady_clock::now();
  const std::filesystem::path folder = checkpoint / "hf";
  const bool own_tokenizer = o_.data.tokenizer == "auto" && hugging_face::is_folder(o_.model.init_from);
  GptConfig config = o_.model.config;
  if (config.positions == PositionEncoding::rope) config.context = std::max(config.context, usage_.context);
  const nn::detail::HeldWeights held = nn::detail::held_weights(model);
  const std::uint64_t bytes = hugging_face::write_folder(
      folder,
      {.config = config,
       .dtype = model.dtype(),
       .tokenizer = corpus_->tokenizer.get(),
       .chat_template = usage_.chat_template,
       .end_tokens = usage_.end_tokens,
       .special_tokens = usage_.special_tokens,
       .texts_from = own_tokenizer ? std::filesystem::path(o_.model.init_from) : std::filesystem::path()},
      held.tensors, *held.group);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  return fmt::format("exported {} ({} in {:.2f} s)", folder.string(), format_bytes(static_cast<double>(bytes)),
                     seconds.count());
}

void GptTask::set_parity_defaults() { trireme::set_parity_defaults(o_); }

void GptTask::declare_parity_data(Flags& flags) { declare_parity_documents(flags, o_.data); }

void GptTask::prepare_parity() { prepare_parity_model(o_); }

GlobalBatch GptTask::parity_data(const TrainOptions& options) const {
  return comparison_batch(options, o_.model.config);
}

}  // namespace trireme
