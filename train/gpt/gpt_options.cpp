// The flags of a GPT and its text.
#include "train/gpt/gpt_options.h"

#include "train/runs/saved_run.h"

namespace trireme {
namespace {

const Range count_of_layers = {1, 1 << 12};  // placing layers on stages takes time that grows with their number

}  // namespace

void declare_data(Flags& flags, DataOptions& o) {
  flags.group("data");
  flags.add("data", "PATH", o.data,
            "a text file, a folder of text files, token shards made by prepare_data, or nanoGPT's or llm.c's files of "
            "tokens; several, with their shares of the samples: A:0.7,B:0.3");
  flags.add("tokenizer", "KIND", o.tokenizer,
            "how text becomes tokens: char, byte, bpe:PATH (a saved tokenizer, or one of Hugging Face), "
            "sentencepiece:PATH or tiktoken:NAME:PATH; auto: char, or for token shards their own");
  flags.add("val-fraction", "F", o.val_fraction, "the last part of the text, kept for validation",
            Range::half_open(0, 1));
  flags.add_choice(
      "packing", o.packing,
      {{"cut", Packing::cut}, {"best-fit", Packing::best_fit}, {"best-fit-crop", Packing::best_fit_crop}},
      "samples are windows at random places, or whole documents packed into rows: what stays free in a row "
      "is padding, or filled with the beginning of another document");
  flags.only_with("chat-template", "none, since dialogues have a packing of their own",
                  [&o] { return o.chat_template.empty(); });
  flags.add(
      "chat-template", "FILE", o.chat_template,
      "--data is a file of dialogues (JSONL), written by this Jinja template; the loss is of the assistant's turns "
      "only. A file, a tokenizer_config.json, a folder with one of them, or chatml");
  declare_documents(flags, o);
}

void declare_documents(Flags& flags, DataOptions& o) {
  flags.add_switch("document-mask", o.document_mask, "attention only within a document");
  flags.only_with("chat-template", "none, since a dialogue is always a document",
                  [&o] { return o.chat_template.empty(); });
  flags.add("document-separator", "ID", o.document_separator, "auto",
            "token that ends a document; auto: the tokenizer's end-of-text token", Range::count(0));
  flags.only_with("document-mask", "on, or --packing best-fit",
                  [&o] { return o.document_mask || o.packing != Packing::cut; });
  flags.add_switch("restart-positions", o.restart_positions, "positions begin again in each document");
  flags.only_with("document-mask", "on", [&o] { return o.document_mask; });
}

namespace {

/// Parts of later decoders that GPT-2 and Llama do not have.
void declare_newer_parts(Flags& flags, GptConfig& c) {
  flags.add_switch("qkv-bias", c.qkv_bias, "biases of queries, keys and values, also without --bias (Qwen2)");
  flags.only_with("bias", "off", [&c] { return !c.bias; });
  flags.add("norm-eps", "F", c.norm_eps, "is added to the variance, or the mean square, in all norms", Range::above(0));
  const auto for_rope = [&] {
    flags.only_with("positions", "rope", [&c] { return c.positions == PositionEncoding::rope; });
  };
  flags.add("rope-base", "F", c.rope_base, "base of the angles of rotary positions", Range::above(1));
  for_rope();
  flags.add("rope-scaling", "none|linear:F|llama3:F,ORIGINAL|yarn:F,ORIGINAL", c.rope_scaling,
            "changes rotary positions for sequences F times as long as ORIGINAL, the context that a model was trained "
            "with; the last two may go on with ,LOW,HIGH (1,4 and 1,32)");
  for_rope();
  flags.add_switch("rope-interleaved", c.rope_interleaved,
                   "rotate pairs of neighbours, as GPT-J does; off: the two halves of a head, as Llama does");
  for_rope();
  flags.add_switch("qk-norm", c.qk_norm, "RMS norms of queries and keys over the features of a head");
  flags.add("window", "N", c.window, "auto", "a token sees the last N tokens only; auto: all", Range::count());
  const auto for_windows = [&] { flags.only_with("window", "a number", [&c] { return c.window.has_value(); }); };
  flags.add("window-every", "K", c.window_every, "every K-th block has the window, the others see all", Range::count());
  for_windows();
  flags.only_with("full-every", "none", [&c] { return !c.full_every; });
  flags.add("full-every", "K", c.full_every, "none",
            "every K-th block sees all, the others have the window; Gemma 2: 2, Gemma 3: 6", Range::count());
  for_windows();
  flags.add("window-rope-base", "F", c.window_rope_base, "auto",
            "base of rotary positions in blocks with the window, without --rope-scaling; auto: as in the others. Gemma "
            "3: 10000",
            Range::above(1));
  for_rope();
  for_windows();
  flags.add("logit-softcap", "F", c.logit_softcap, "none", "logits x become F tanh(x / F)", Range::above(0));
  flags.add("attention-softcap", "F", c.attention_softcap, "none", "so do the scores of attention", Range::above(0));
  flags.add("query-pre-attn-scalar", "F", c.query_pre_attn_scalar, "auto",
            "scores of attention are divided by its square root; auto: the features of a head", Range::above(0));
  flags.add_switch("zero-centred-norms", c.zero_centred_norms,
                   "norms multiply by 1 + weight, and weights start at 0 (Gemma)");
  flags.add_switch("post-norms", c.post_norms, "norms also after attention and after the MLP (Gemma 2)");
  flags.add_switch("scaled-embeddings", c.scaled_embeddings, "embeddings are multiplied by sqrt(width) (Gemma)");
}

}  // namespace

void declare_other_programs(Flags& flags, GptOptions& options) {
  flags.group("from and to other programs");
  ModelOptions& o = options.model;
  flags.add("init-from", "DIR", o.init_from,
            "begin with the weights of DIR: a model in Hugging Face's layout, or a run; it gives the model's flags and "
            "the tokenizer, too");
  flags.not_empty();
  flags.follow_up([&o, &flags] {
    const auto resumed =
        resumed_checkpoint(flags.given("resume").value_or("none"), flags.given("out").value_or("auto"));
    o.read_from = resumed ? resumed->string() : o.init_from;
    o.set_saved_config();
  });
  flags.add("init-adapter", "DIR", o.init_adapter,
            "go on training the adapters that the library PEFT has saved in DIR, beside the model of --init-from; it "
            "gives the flags of adapters, too");
  flags.not_empty();
  flags.only_with("init-from", "DIR", [&o] { return !o.init_from.empty(); });
  flags.follow_up([&o] { o.set_saved_config(); });
  flags.add_switch("export-hf", options.export_hf,
                   "write each checkpoint also in Hugging Face's layout, into the folder hf in it");
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
  flags.add("width", "N", o.config.width,
            "size of the residual stream; a multiple of --heads, unless --head-width is given", Range::count());
  flags.add("context", "N", o.config.context, "longest sequence, in tokens", Range::count());
  flags.add("vocab", "N", o.vocab, "auto", "number of token ids; auto: the tokenizer's", Range::count());
  flags.add("dropout", "F", o.config.dropout, "part of the activations set to zero in training",
            Range::half_open(0, 1));
  flags.add_switch("bias", o.config.bias, "biases in the linear layers and norms");
  flags.add_choice(
      "activation", o.config.activation, named_values<Activation>(),
      "exact GELU, its tanh form as GPT-2 had it, the gated units of Llama and Gemma, or the square of ReLU");
  flags.add("kv-heads", "N", o.config.kv_heads, "auto",
            "key-value heads, each shared by --heads / N heads (grouped-query attention); auto: --heads",
            Range::count());
  flags.add("head-width", "N", o.config.head_width, "auto",
            "features of a head; auto: --width / --heads. Gemma and Qwen3 have others", Range::count());
  flags.add("ffn-width", "N", o.config.ffn_width, "auto",
            "hidden features of the MLP; auto: 4 x --width, or for swiglu and geglu, which have a matrix more, 8/3 of "
            "it rounded "
            "up to a multiple of 64",
            Range::count());
  flags.add_choice("norm", o.config.norm, named_values<Norm>(),
                   "layer norm, or RMS norm, which does not centre and has no bias");
  flags.add_choice("positions", o.config.positions, named_values<PositionEncoding>(),
                   "a learned vector per position, or rotation of queries and keys by it");
  flags.add_switch("tied", o.config.tied, "the output head is the embedding; off: it has weights of its own");
  declare_newer_parts(flags, o.config);
}

void declare_adapters(Flags& flags, ModelOptions& model) {
  flags.group("adapters");
  nn::LoraOptions& o = model.config.lora;
  flags.add("lora-rank", "R", o.rank,
            "low-rank adapters (LoRA) beside linear layers; only they are trained; 0: none, all is trained",
            Range::count(0));
  const auto with_adapters = [&] { flags.only_with("lora-rank", "above 0", [&o] { return o.rank > 0; }); };
  flags.add("lora-alpha", "F", o.alpha, "adapters are multiplied by F / R", Range::above(0));
  with_adapters();
  flags.add("lora-dropout", "F", o.dropout, "part of an adapter's input set to zero in training",
            Range::half_open(0, 1));
  with_adapters();
  flags.add("lora-targets", "PATTERN,...", o.targets,
            "names of the layers that get adapters, as in *.attn.q,*.attn.v; not those of routed experts");
  with_adapters();
}

void declare_experts(Flags& flags, ModelOptions& model) {
  flags.group("experts");
  nn::ExpertsOptions& o = model.config.experts;
  flags.add("experts", "N", o.count, "experts of each block, over all ranks; 0: a plain MLP", Range::count(0));
  const auto only_with_experts = [&] { flags.only_with("experts", "above 0", [&o] { return o.count > 0; }); };
  flags.add("moe-every", "N", model.config.moe_every, "every N-th block has experts, the others a plain MLP",
            Range::count());
  only_with_experts();
  flags.add("expert-ffn-width", "N", model.config.expert_ffn_width, "auto",
            "hidden features of an expert; auto: those of the MLP, --ffn-width", Range::count());
  only_with_experts();
  flags.add("top-k", "N", o.top_k, "experts that compute a token", Range::count());
  only_with_experts();
  flags.add_choice("router-norm", o.norm, named_values<nn::RouterNorm>(),
                   "the output of an expert is weighted by a softmax over all experts (before the choice), or over the "
                   "chosen ones (after it)");
  only_with_experts();
  flags.add("capacity-factor", "F", o.capacity_factor, "none",
            "in training an expert takes at most F x top-k x context / experts tokens of a sequence; none: all that "
            "chose it",
            Range::above(0));
  only_with_experts();
  flags.add("shared-experts", "N", o.shared, "experts that every token uses, made as one MLP of their total width",
            Range::count(0));
  only_with_experts();
  flags.add("aux-loss", "F", o.aux_loss, "weight of the loss that keeps experts equally used", Range::at_least(0));
  only_with_experts();
  flags.add("bias-update", "F", o.bias_update,
            "balance without a loss: after each step a router's bias moves by F towards experts used too little",
            Range::at_least(0));
  only_with_experts();
  flags.add("z-loss", "F", o.z_loss, "weight of the loss that keeps the router's logits small", Range::at_least(0));
  only_with_experts();
  flags.add_choice("aux-scope", o.balance, named_values<nn::BalanceScope>(),
                   "over what the use of experts is balanced: each sequence, or the whole global batch");
  only_with_experts();
  flags.only_with("aux-loss", "above 0", [&o] { return o.aux_loss > 0; });
}

void declare_all(Flags& flags, GptOptions& o) {
  declare_data(flags, o.data);
  declare_other_programs(flags, o);
  declare_model(flags, o.model);
  declare_experts(flags, o.model);
  declare_adapters(flags, o.model);
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

namespace {

/// `flag`: what needs it.
std::int64_t separator_for(const char* flag, std::optional<std::int64_t> token, std::int64_t vocab) {
  if (!token)
    fail(ExitCode::usage, "data",
         "{} needs a token that ends a document, and this tokenizer has no end-of-text token; expected "
         "a bpe tokenizer that has one, or a token of this one; give --document-separator ID or drop {}",
         flag, std::string_view(flag).substr(0, std::string_view(flag).find(' ')));
  if (*token >= vocab)
    fail(ExitCode::usage, "data",
         "--document-separator {} is not a token: the vocabulary has {}; expected at most {}; change "
         "--document-separator",
         *token, vocab, vocab - 1);
  return *token;
}

}  // namespace

std::optional<std::int64_t> DataOptions::separator(std::optional<std::int64_t> end_of_text, std::int64_t vocab) const {
  if (!document_mask) return std::nullopt;
  return separator_for("--document-mask on", document_separator ? document_separator : end_of_text, vocab);
}

std::int32_t DataOptions::packing_separator(std::optional<std::int64_t> end_of_text, std::int64_t vocab) const {
  const char* flag = packing == Packing::best_fit ? "--packing best-fit" : "--packing best-fit-crop";
  return static_cast<std::int32_t>(separator_for(flag, document_separator ? document_separator : end_of_text, vocab));
}

void ModelOptions::set_saved_config() {
  if (init_from.empty() || !read_config) return;
  const double dropout = config.dropout;
  config = read_config(read_from);
  config.dropout = dropout;
  vocab = config.vocab;
  if (!init_adapter.empty() && read_adapter && begins_with_weights()) config.lora = read_adapter(init_adapter, config);
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
