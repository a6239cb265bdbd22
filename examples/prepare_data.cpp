// Converts text into token shards. train_gpt maps these into memory, instead of tokenizing the text at every start.
//
//   build/bin/prepare_data --data docs/training.md --out build/shards1 --tokenizer char
//   build/bin/prepare_data --data docs/training.md --out build/shards2 --train-bpe --vocab 512
//   build/bin/prepare_data --data README.md --out build/shards3 --tokenizer bpe:build/shards2
//
// The folder --out is complete or does not exist: everything is written to OUT.partial, which is renamed at the end. It
// holds the shards and tokenizer.json.
// Read next: data/text_files.h, data/token_shard.h, data/bpe_train.h.
#include <fmt/core.h>

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>

#include "core/error.h"
#include "core/io.h"
#include "data/bpe_train.h"
#include "data/text_files.h"
#include "data/token_shard.h"
#include "train/options/flags.h"
#include "train/program/program.h"
#include "train/program/screen.h"
#include "train/program/units.h"
#include "train/terminal/progress.h"

namespace {

namespace fs = std::filesystem;
using namespace trireme;

struct Options {
  std::string data, out, tokenizer;
  bool train_bpe = false;
  std::optional<std::int64_t> vocab;
  std::int64_t shard_tokens = 100'000'000;
};

void declare(Flags& flags, Options& o) {
  constexpr double kMostTokens = 2147483647;
  flags.group("text");
  flags.add("data", "PATH", o.data,
            "a text file, or a folder of text files (recursive; hidden and binary files left out)");
  flags.group("tokenizer");
  flags.add("tokenizer", "KIND", o.tokenizer,
            "char, byte or bpe:PATH (a saved tokenizer, or a folder with vocab.json and "
            "merges.txt); left out: char, or what --train-bpe learns");
  flags.add_switch("train-bpe", o.train_bpe, "learn a byte-level BPE vocabulary of --vocab tokens from the text", true);
  flags.add("vocab", "N", o.vocab, "none", "tokens of the vocabulary to learn, with <|endoftext|>", {257, kMostTokens});
  flags.group("shards");
  flags.add("out", "DIR", o.out, "folder to make; must not exist, or be empty");
  flags.add("shard-tokens", "N", o.shard_tokens, "most tokens in one shard file", Range::at_least(1));
}

void check(const Options& o) {
  if (o.data.empty())
    fail(ExitCode::usage, "prepare_data", "--data is missing; expected a text file or a folder of them");
  if (o.out.empty()) fail(ExitCode::usage, "prepare_data", "--out is missing; expected a folder to make");
  if (o.train_bpe && !o.vocab)
    fail(ExitCode::usage, "prepare_data", "--train-bpe needs the vocabulary's size; add --vocab N");
  if (o.vocab && !o.train_bpe)
    fail(ExitCode::usage, "prepare_data", "--vocab {} is only for a vocabulary to be learnt; add --train-bpe",
         *o.vocab);
  if (o.train_bpe && !o.tokenizer.empty())
    fail(ExitCode::usage, "prepare_data", "--train-bpe and --tokenizer {} are two tokenizers; leave one out",
         o.tokenizer);
}

/// Throws if `out` exists and is not an empty folder.
void check_out(const fs::path& out) {
  std::error_code error;
  if (fs::exists(out, error) && !(fs::is_directory(out, error) && fs::is_empty(out, error)))
    fail(ExitCode::usage, "prepare_data", "{} exists and is not an empty folder; choose another --out", out.string());
}

std::shared_ptr<const Tokenizer> choose_tokenizer(const Options& options, const TextFiles& files) {
  if (!options.train_bpe) return files.make_tokenizer(options.tokenizer.empty() ? "char" : options.tokenizer);
  auto vocabulary = train_bpe(files.texts(), static_cast<std::int32_t>(*options.vocab));
  return std::make_shared<BpeTokenizer>(std::move(vocabulary), "the trained vocabulary");
}

void prepare(const Options& options) {
  const auto begin = std::chrono::steady_clock::now();
  if (is_shard_set(options.data))
    fail(ExitCode::usage, "prepare_data",
         "{} is token shards already; expected text; train_gpt --data takes it as it is", options.data);
  const TextFiles files(options.data);
  check_out(options.out);
  AtomicFolder folder(options.out);
  const auto tokenizer = choose_tokenizer(options, files);
  tokenizer->save(folder.temporary() / shard_tokenizer_name);

  ShardWriter writer(folder.temporary(), *tokenizer, options.shard_tokens);
  {
    ProgressBar bar(Screen::of_process(), "files", static_cast<double>(files.count()), format_count);
    double done = 0;
    files.tokenize(*tokenizer, [&](std::span<const std::int32_t> ids) {
      writer.start_document();
      writer.append(ids);
      bar.set(++done);
    });
  }
  writer.finish();

  folder.commit();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  Screen::of_process().print(
      fmt::format("text: {}, {} bytes in {} files, {} left out\ntokenizer: {}, vocabulary {}\nwrote {}: {} tokens, "
                  "shards: {}, {:.1f} "
                  "s\n",
                  files.path().string(), files.bytes(), files.count(), files.skipped(), tokenizer->name(),
                  tokenizer->vocab_size(), options.out, writer.tokens(), writer.shards(), seconds));
}

}  // namespace

int main(int argc, char** argv) {
  return run_program([&] {
    Options options;
    Flags flags("prepare_data", "Turns text into token shards for train_gpt --data.");
    flags.example("prepare_data --data text.txt --tokenizer byte --out shards");
    declare(flags, options);
    if (!flags.parse_or_print(argc, argv)) return 0;
    check(options);
    prepare(options);
    return 0;
  });
}
