// The flags of a GPT and its text.
#include "train/gpt/gpt_options.h"

namespace trireme {
namespace {

const Range count_of_layers = {1, 1 << 12};  // placing layers on stages takes time that grows with their number

}  // namespace

void declare_data(Flags& flags, DataOptions& o) {
  flags.group("data");
  flags.add("data", "PATH", o.data, "a text file, a folder of text files, or token shards made by prepare_data");
  flags.add("tokenizer", "auto|char|byte|bpe:PATH", o.tokenizer,
            "how text becomes tokens; auto: char, or for token shards their own");
  flags.add("val-fraction", "F", o.val_fraction, "the last part of the text, kept for validation",
            Range::half_open(0, 1));
  declare_documents(flags, o);
}

void declare_documents(Flags& flags, DataOptions& o) {
  flags.add_switch("document-mask", o.document_mask, "attention only within a document; positions are not reset");
  flags.add("document-separator", "ID", o.document_separator, "auto",
            "token that ends a document; auto: the tokenizer's end-of-text token", Range::count(0));
  flags.only_with("document-mask", "on", [&o] { return o.document_mask; });
}

void declare_model(Flags& flags, ModelOptions& o) {
  flags.group("model");
  std::vector<std::string> presets = {"custom"};
  for (const std::string_view preset : gpt_preset_names()) presets.emplace_back(preset);
  flags.add_choice("model", o.preset, presets, "a published size; the flags below override its parts");
  flags.follow_up([&o] {
    if (const auto preset = gpt_preset(o.preset)) {
      o.config = *preset;
      o.vocab = preset->vocab;
    }
  });
  flags.add("layers", "N", o.config.layers, "transformer blocks", count_of_layers);
  flags.add("heads", "N", o.config.heads, "attention heads of a block", Range::count());
  flags.add("width", "N", o.config.width, "size of the residual stream, a multiple of --heads", Range::count());
  flags.add("context", "N", o.config.context, "longest sequence, in tokens", Range::count());
  flags.add("vocab", "N", o.vocab, "auto", "number of token ids; auto: the tokenizer's", Range::count());
  flags.add("dropout", "F", o.config.dropout, "part of the activations set to zero in training",
            Range::half_open(0, 1));
  flags.add_switch("bias", o.config.bias, "biases in the linear layers and norms");
  flags.add_choice("activation", o.config.activation, named_values<Activation>(),
                   "exact GELU, its tanh form as GPT-2 had it, or the gated unit of Llama");
  flags.add("kv-heads", "N", o.config.kv_heads, "auto",
            "key-value heads, each shared by --heads / N heads (grouped-query attention); auto: --heads",
            Range::count());
  flags.add("ffn-width", "N", o.config.ffn_width, "auto",
            "hidden features of the MLP; auto: 4 x --width, or for swiglu, which has a matrix more, 8/3 of it rounded "
            "up to a multiple of 64",
            Range::count());
  flags.add_choice("norm", o.config.norm, named_values<Norm>(),
                   "layer norm, or RMS norm, which does not centre and has no bias");
  flags.add_choice("positions", o.config.positions, named_values<PositionEncoding>(),
                   "a learned vector per position, or rotation of queries and keys by it");
  flags.add_switch("tied", o.config.tied, "the output head is the embedding; off: it has weights of its own");
}

void declare_experts(Flags& flags, ModelOptions& model) {
  flags.group("experts");
  nn::ExpertsOptions& o = model.config.experts;
  flags.add("experts", "N", o.count, "experts of each block, over all ranks; 0: a plain MLP", Range::count(0));
  const auto for_mixtures = [&] { flags.only_with("experts", "above 0", [&o] { return o.count > 0; }); };
  flags.add("moe-every", "N", model.config.moe_every, "every N-th block has experts, the others a plain MLP",
            Range::count());
  for_mixtures();
  flags.add("top-k", "N", o.top_k, "experts that compute a token", Range::count());
  for_mixtures();
  flags.add_choice("router-norm", o.norm, named_values<nn::RouterNorm>(),
                   "the output of an expert is weighted by a softmax over all experts (before the choice), or over the "
                   "chosen ones (after it)");
  for_mixtures();
  flags.add("capacity-factor", "F", o.capacity_factor, "none",
            "in training an expert takes at most F x top-k x context / experts tokens of a sequence; none: all that "
            "chose it",
            Range::above(0));
  for_mixtures();
  flags.add("shared-experts", "N", o.shared, "experts that every token uses, made as one MLP of their total width",
            Range::count(0));
  for_mixtures();
  flags.add("aux-loss", "F", o.aux_loss, "weight of the loss that keeps experts equally used", Range::at_least(0));
  for_mixtures();
  flags.add("bias-update", "F", o.bias_update,
            "balance without a loss: after each step a router's bias moves by F towards experts used too little",
            Range::at_least(0));
  for_mixtures();
  flags.add("z-loss", "F", o.z_loss, "weight of the loss that keeps the router's logits small", Range::at_least(0));
  for_mixtures();
  flags.add_choice("aux-scope", o.balance, named_values<nn::BalanceScope>(),
                   "over what the use of experts is balanced: each sequence, or the whole global batch");
  for_mixtures();
  flags.only_with("aux-loss", "above 0", [&o] { return o.aux_loss > 0; });
}

void declare_all(Flags& flags, GptOptions& o) {
  declare_data(flags, o.data);
  declare_model(flags, o.model);
  declare_experts(flags, o.model);
  declare_training(flags, o);
  declare_samples(flags, o.run, o.data.val_fraction);
}

CorpusOptions GptOptions::corpus() const {
  const bool automatic = data.tokenizer == "auto";
  return {.path = data.data,
          .tokenizer = automatic ? std::nullopt : std::optional(data.tokenizer),
          .val_fraction = data.val_fraction,
          .context = model.config.context};
}

std::optional<std::int64_t> DataOptions::separator(std::optional<std::int64_t> end_of_text, std::int64_t vocab) const {
  if (!document_mask) return std::nullopt;
  const std::optional<std::int64_t> token = document_separator ? document_separator : end_of_text;
  if (!token)
    fail(ExitCode::usage, "data",
         "--document-mask on needs a token that ends a document, and this tokenizer has no end-of-text token; expected "
         "a bpe tokenizer that has one, or a token of this one; give --document-separator ID or drop --document-mask");
  if (*token >= vocab)
    fail(ExitCode::usage, "data",
         "--document-separator {} is not a token: the vocabulary has {}; expected at most {}; change "
         "--document-separator",
         *token, vocab, vocab - 1);
  return token;
}

GptConfig ModelOptions::with_vocab(std::int64_t tokenizer_vocab) const {
  GptConfig model = config;
  model.vocab = vocab.value_or(tokenizer_vocab);
  if (model.vocab < tokenizer_vocab)
    fail(ExitCode::usage, "model",
         "--vocab {} is smaller than the tokenizer's vocabulary; expected at least {}; change or drop --vocab",
         model.vocab, tokenizer_vocab);
  return model;
}

std::string config_text(const GptOptions& options) {
  GptOptions copy = options;
  Flags flags("", "");
  declare_all(flags, copy);
  return flags.config_text();
}

}  // namespace trireme
