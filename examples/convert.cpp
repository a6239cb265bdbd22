// Converts models between our checkpoints and the formats of other programs:
//
//   build/bin/convert hf Qwen3-0.6B run1                a folder in Hugging Face's layout becomes a run
//   build/bin/convert hf run1 exported                  a run, or one of its checkpoints, becomes such a folder
//   build/bin/convert gguf run1 model.gguf              a run, or a folder of Hugging Face's, becomes a GGUF file
//   build/bin/convert gguf model.gguf run1              a GGUF file becomes a run
//   build/bin/convert hf model.gguf exported            a GGUF file becomes a folder
//   build/bin/convert peft run1 adapter                 the adapters of a run, for the library PEFT
//   build/bin/convert hf base merged --adapter adapter  adapters of PEFT are added to the weights of their model
//
// What FROM is decides the direction. No conversion is needed to use a folder of Hugging Face or a GGUF file: train_gpt
// --init-from and generate --checkpoint read them in place. Read next: train/gpt/gpt_source.h,
// models/hugging_face/export.h, models/gguf/export.h.
#include <fmt/format.h>

#include <algorithm>

#include "core/cores.h"
#include "core/io.h"
#include "core/parallel_for.h"
#include "data/chat/chat_template.h"
#include "data/utf8.h"
#include "models/gguf/architectures.h"
#include "models/gguf/export.h"
#include "models/gpt.h"
#include "models/hugging_face/adapter.h"
#include "models/hugging_face/export.h"
#include "nn/weights.h"
#include "parallel/checkpoint/folder.h"
#include "train/gpt/gpt_source.h"
#include "train/options/flags.h"
#include "train/program/launcher.h"
#include "train/program/output.h"
#include "train/program/program.h"
#include "train/program/progress.h"
#include "train/program/screen.h"
#include "train/program/units.h"
#include "train/runs/saved_run.h"

using namespace trireme;
namespace fs = std::filesystem;

namespace {

struct Options {
  std::string dtype = "auto", tokenizer = "auto", texts_from, adapter, base;
  std::int64_t shard_megabytes = 5120;
};

void declare(Flags& flags, Options& o) {
  flags.example("convert hf Qwen3-0.6B run1");
  flags.group("what");
  flags.add_choice("dtype", o.dtype, {"auto", "f32", "bf16", "f16", "q8_0"},
                   "of the weights in TO; auto: as in FROM. q8_0, 8 bits for each number, is for GGUF files");
  flags.add("tokenizer", "KIND", o.tokenizer,
            "the tokenizer of a run that is made: byte, bpe:PATH, sentencepiece:PATH or tiktoken:NAME:PATH; auto: that "
            "of FROM");
  flags.add(
      "texts-from", "DIR", o.texts_from,
      "a folder in Hugging Face's layout, whose files of the tokenizer, chat template and settings of generation are "
      "copied to the one that is made; of a GGUF file: its chat template and end tokens");
  flags.add("adapter", "DIR", o.adapter,
            "with hf and gguf: adapters that the library PEFT has saved, or convert peft, for the model FROM. They are "
            "added to its weights in TO, which is a folder in Hugging Face's layout with hf, and a file with gguf");
  flags.not_empty();
  flags.add("shard-megabytes", "N", o.shard_megabytes, "most bytes in one file of weights, unless one tensor has more",
            Range::count());
  flags.add("base", "NAME", o.base,
            "with peft: the model that the adapters belong to, its name on the hub or its path, for "
            "adapter_config.json; without it, the --init-from of the run");
}

constexpr const char* summary =
    "Converts a model between a run of train_gpt and the formats of other programs.\n\n"
    "usage: convert hf|gguf|peft FROM TO [flags]\n\n"
    "FROM is a folder in Hugging Face's layout, which becomes a run, or a run or one of its checkpoints, which becomes "
    "such a folder. With gguf, FROM is a GGUF file, which becomes a run, or a run or a folder, which becomes a GGUF "
    "file. With peft, FROM is a run with --lora-rank, whose adapters become a folder for the library PEFT; hf and gguf "
    "add them to the weights. "
    "TO must not exist, or be an empty folder.";

std::optional<DType> dtype_named(const std::string& text) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    if (text == name(dtype)) return dtype;
  return std::nullopt;
}

/// Whether the folder holds only what a killed conversion to a run leaves behind.
bool has_only_unfinished(const fs::path& folder) {
  std::error_code unknown;
  const fs::path checkpoints = folder / "checkpoints";
  const auto entries = [&](const fs::path& path) { return fs::directory_iterator(path, unknown); };
  return fs::is_directory(checkpoints, unknown) && std::distance(entries(folder), fs::directory_iterator()) == 1 &&
         std::all_of(entries(checkpoints), fs::directory_iterator(),
                     [](const fs::directory_entry& entry) { return checkpoint::is_unfinished(entry.path()); });
}

void require_new(const fs::path& path) {
  std::error_code unknown;
  if (is_there(path) && !fs::is_empty(path, unknown) && !has_only_unfinished(path))
    fail(ExitCode::usage, "convert", "{} exists and is not empty; expected a new folder; change TO", path.string());
}

/// A run in short sequences does not make the model shorter, if its positions are rotary.
GptConfig with_full_context(const GptSource& source, GptConfig config) {
  if (config.positions == PositionEncoding::rope) config.context = std::max(config.context, source.usage().context);
  return config;
}

/// A run without steps, from which --init-from begins, and which generate reads.
void to_run(const GptSource& source, Gpt& model, const fs::path& to, const Options& o) {
  const std::shared_ptr<const Tokenizer> tokenizer =
      o.tokenizer == "auto" ? source.tokenizer() : make_tokenizer(o.tokenizer, {});
  hugging_face::require_vocabulary(*tokenizer, model.config(), o.tokenizer);
  write_out(save_weights_of_run(to, model, {.tokenizer = tokenizer->to_json(), .usage = source.usage().to_json()}) +
            "\n");
}

/// Null for a folder without one.
std::shared_ptr<const Tokenizer> tokenizer_of(const GptSource& source) {
  return source.folder() == nullptr || source.folder()->has_tokenizer() ? source.tokenizer() : nullptr;
}

/// Those of --texts-from, or of the model.
std::vector<std::int32_t> end_tokens_of(const GptSource& source, const Options& o) {
  return o.texts_from.empty() ? source.end_tokens() : hugging_face::read_config(o.texts_from).end_tokens;
}

void to_folder(const GptSource& source, Gpt& model, const fs::path& to, const Options& o) {
  const std::shared_ptr<const Tokenizer> tokenizer = tokenizer_of(source);
  fs::path texts_from = o.texts_from;
  if (texts_from.empty() && source.folder() != nullptr) texts_from = source.folder()->path();  // with adapters
  const nn::detail::HeldWeights held = nn::detail::held_weights(model);
  ProgressBar bar(Screen::of_process(), "writing",
                  static_cast<double>(parameter_count(model.config())) * static_cast<double>(size_of(model.dtype())),
                  format_bytes);
  const std::uint64_t bytes = hugging_face::write_folder(
      to,
      {.config = with_full_context(source, model.config()),
       .dtype = dtype_named(o.dtype).value_or(model.dtype()),
       .tokenizer = tokenizer.get(),
       .chat_template = texts_from.empty() ? source.usage().chat_template : "",
       .end_tokens = end_tokens_of(source, o),
       .special_tokens = source.usage().special_tokens,
       .texts_from = texts_from,
       .shard_bytes = static_cast<std::uint64_t>(o.shard_megabytes) << 20},
      held.tensors, *held.group, [&](std::uint64_t done) { bar.set(static_cast<double>(done)); });
  write_out(fmt::format("wrote {}: a {} of {} in {}\n", to.string(), hugging_face::model_type_of(model.config()),
                        format_bytes(static_cast<double>(bytes)), name(dtype_named(o.dtype).value_or(model.dtype()))));
}

GgufStorage storage_of(const Options& o, DType dtype) {
  if (o.dtype == "q8_0") return GgufStorage::q8_0;
  const DType chosen = dtype_named(o.dtype).value_or(dtype);
  return chosen == DType::bf16 ? GgufStorage::bf16 : chosen == DType::f16 ? GgufStorage::f16 : GgufStorage::f32;
}

gguf::Exported gguf_of(const GptSource& source, const Tokenizer& tokenizer, const fs::path& from, const Options& o) {
  const std::vector<std::int32_t> ends = end_tokens_of(source, o);
  const TemplateTexts texts = o.texts_from.empty() ? TemplateTexts() : template_texts(o.texts_from);
  return {.config = with_full_context(source, source.config()),
          .storage = storage_of(o, source.dtype()),
          .tokenizer = &tokenizer,
          .end_tokens = ends,
          .chat_template = o.texts_from.empty() ? source.usage().chat_template : texts.text,
          .special_tokens = o.texts_from.empty() ? source.usage().special_tokens : texts.special_tokens,
          .name = fs::absolute(from).lexically_normal().filename().string()};
}

void to_gguf(const GptSource& source, Gpt& model, const fs::path& from, const fs::path& to, const Options& o) {
  const std::shared_ptr<const Tokenizer> tokenizer = source.tokenizer();
  const gguf::Exported exported = gguf_of(source, *tokenizer, from, o);
  const nn::detail::HeldWeights held = nn::detail::held_weights(model);
  const auto parameters = static_cast<std::uint64_t>(parameter_count(model.config()));
  ProgressBar bar(Screen::of_process(), "writing", static_cast<double>(gguf_bytes(exported.storage, parameters)),
                  format_bytes);
  const std::uint64_t bytes = gguf::write_file(to, exported, held.tensors, *held.group,
                                               [&](std::uint64_t done) { bar.set(static_cast<double>(done)); });
  write_out(fmt::format("wrote {}: a {} of {} in {}\n", to.string(), gguf::architecture_of(model.config()).name,
                        format_bytes(static_cast<double>(bytes)), name(exported.storage)));
}

void to_adapter(const GptSource& source, Gpt& model, const fs::path& to, const Options& o) {
  const nn::detail::HeldWeights held = nn::detail::held_weights(model);
  const DType dtype = dtype_named(o.dtype).value_or(model.dtype());
  const std::string base = o.base.empty() ? source.usage().base : o.base;
  hugging_face::write_adapter(to, {.config = model.config(), .dtype = dtype, .base = base}, held.tensors, *held.group);
  write_out(fmt::format("wrote {}: adapters of rank {}, {} numbers in {}; {}\n", to.string(), model.config().lora.rank,
                        adapter_parameter_count(model.config()), name(dtype),
                        base.empty() ? "they name no base model: give --base NAME" : "their base model is " + base));
}

/// What TO becomes.
enum class Made : std::uint8_t { run, folder, file, adapter };

/// `adapted`: with --adapter, which is added to the weights.
Made made_from(const GptSource& source, const std::string& format, bool adapted) {
  if (format == "peft") return Made::adapter;
  if (adapted) return format == "gguf" ? Made::file : Made::folder;
  if (format == "gguf") return source.gguf_file() == nullptr ? Made::file : Made::run;
  return source.folder() == nullptr ? Made::folder : Made::run;
}

/// The texts of another model's folder would give the weights another tokenizer. The two may differ in what they do
/// with a text before it is cut into tokens, so only their sizes are compared.
void require_same_tokenizer(const GptSource& source, const fs::path& texts_from) {
  const std::shared_ptr<const Tokenizer> own = tokenizer_of(source);
  if (own == nullptr || !is_there(texts_from / "tokenizer.json")) return;
  const std::shared_ptr<const Tokenizer> theirs = make_tokenizer("bpe:" + texts_from.string(), {});
  if (own->vocab_size() == theirs->vocab_size()) return;
  fail(ExitCode::usage, "convert",
       "the tokenizer in {} has {} tokens, and the model's {}; expected the folder that the model came from; change "
       "--texts-from",
       texts_from.string(), theirs->vocab_size(), own->vocab_size());
}

/// Refuses flags that have no effect on what is made.
void require_used(const Options& o, const GptSource& source, Made made) {
  const char* what = made == Made::run      ? "a run"
                     : made == Made::folder ? "a folder in Hugging Face's layout"
                     : made == Made::file   ? "a GGUF file"
                                            : "a folder of adapters";
  const auto require_for = [&](bool fits, const std::string& flag, const char* users) {
    if (!fits)
      fail(ExitCode::usage, "convert", "{} has no effect here: FROM becomes {}, and it is for {}; drop it", flag, what,
           users);
  };
  if (o.dtype == "q8_0") require_for(made == Made::file, "--dtype q8_0", "a GGUF file");
  if (o.tokenizer != "auto") require_for(made == Made::run, "--tokenizer " + o.tokenizer, "a run");
  if (!o.texts_from.empty())
    require_for(made == Made::folder || made == Made::file, "--texts-from " + o.texts_from,
                "a folder in Hugging Face's layout or a GGUF file");
  if (o.shard_megabytes != Options().shard_megabytes)
    require_for(made == Made::folder, fmt::format("--shard-megabytes {}", o.shard_megabytes),
                "a folder in Hugging Face's layout");
  if (!o.texts_from.empty()) require_same_tokenizer(source, o.texts_from);
  if (!o.base.empty()) require_for(made == Made::adapter, "--base " + o.base, "adapters: convert peft");
}

int convert(const std::string& format, const std::string& from, const fs::path& to, const Options& o) {
  const int team = cores();
  const OwnCores own_cores(0, team);
  set_threads(team);
  require_new(to);
  const std::shared_ptr<ProcessGroup> alone = self_group();
  if (format == "peft" && !o.adapter.empty())
    fail(ExitCode::usage, "convert",
         "--adapter {} is for hf and gguf, which add adapters to the weights; with peft, FROM has adapters itself; "
         "drop --adapter",
         o.adapter);
  GptSource source(*alone, from, o.adapter);
  const Made made = made_from(source, format, !o.adapter.empty());
  require_used(o, source, made);
  if (made == Made::file && fs::is_directory(to))
    fail(ExitCode::usage, "convert", "{} is a folder; expected the name of a new file; change TO, for example to {}",
         to.string(), (to / "model.gguf").string());
  if (made == Made::adapter)
    hugging_face::require_adapters(source.config());
  else if (made == Made::file)
    gguf::require_exportable(gguf_of(source, *source.tokenizer(), from, o));
  else if (made == Made::folder)
    hugging_face::require_exportable(source.config(), tokenizer_of(source).get());
  const auto mesh = std::make_shared<const DeviceMesh>(alone, MeshShape{});
  const DType dtype = dtype_named(o.dtype).value_or(source.dtype());  // weights are converted while they are read
  Gpt model(nn::Build(mesh, dtype, 0).to_be_loaded(), source.config());
  source.load(model);
  if (made == Made::adapter)
    to_adapter(source, model, to, o);
  else if (made == Made::file)
    to_gguf(source, model, from, to, o);
  else if (made == Made::run)
    to_run(source, model, to, o);
  else
    to_folder(source, model, to, o);
  return 0;
}

constexpr const char* form = "convert hf|gguf|peft FROM TO [flags]";

bool is_format(const std::string& word) { return word == "hf" || word == "gguf" || word == "peft"; }

/// The words before the flags: a format, FROM and TO.
void require_words(const std::vector<std::string>& words) {
  if (words.empty())
    fail(ExitCode::usage, "convert", "there is nothing to convert; expected {}; --help explains it", form);
  if (!is_format(words[0]))
    fail(ExitCode::usage, "convert",
         "the first word is {}; expected hf (Hugging Face's layout), gguf (llama.cpp's) or peft (adapters): {}",
         in_quotes(words[0]), form);
  if (words.size() < 3)
    fail(ExitCode::usage, "convert", "{} missing; expected {}", words.size() == 1 ? "FROM and TO are" : "TO is", form);
  if (words.size() > 3)
    fail(ExitCode::usage, "convert", "{} is one word too many; expected {}; put a path with spaces in quotes",
         in_quotes(words[3]), form);
}

int run(const std::vector<std::string>& words) {
  Options options;
  Flags flags("convert", summary);
  declare(flags, options);
  const auto first_flag =
      std::find_if(words.begin(), words.end(), [](const auto& word) { return word.starts_with("-"); });
  if (first_flag == words.begin() && std::any_of(words.begin(), words.end(), is_format))
    fail(ExitCode::usage, "convert", "the flags come first; expected them behind FROM and TO: {}", form);
  const std::vector<std::string> paths(words.begin(), first_flag);
  if (!flags.parse_or_print(std::vector<std::string>(first_flag, words.end()))) return 0;
  require_words(paths);
  return convert(paths[0], paths[1], paths[2], options);
}

}  // namespace

int main(int argc, char** argv) {
  return run_program([&] { return run({argv + 1, argv + argc}); });
}
