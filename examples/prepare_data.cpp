// Converts text into token shards. train_gpt maps these into memory, instead of tokenizing the text at every start.
//
//   build/bin/prepare_data --data docs/training.md --out build/shards1 --tokenizer char
//   build/bin/prepare_data --data docs/training.md --out build/shards2 --train-bpe --vocab 512
//   build/bin/prepare_data --data README.md --out build/shards3 --tokenizer bpe:build/shards2
//
// Texts are read once, in constant memory, by any number of workers: data/prepare/prepare.h. The folder --out is
// complete or does not exist: everything is written to OUT.partial, which is renamed at the end (data/prepare/
// work_folder.h). If the program is
// killed, the same command goes on where it was. If the texts are at fault, OUT.partial is removed.
// Read next: data/prepare/prepare.h, data/token_shard.h, data/bpe_train.h, docs/data.md.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "core/error.h"
#include "core/hash.h"
#include "core/io.h"
#include "core/parallel_for.h"
#include "data/bin_tokens.h"
#include "data/prepare/prepare.h"
#include "data/prepare/work_folder.h"
#include "data/utf8.h"
#include "train/options/flags.h"
#include "train/program/launcher.h"
#include "train/program/program.h"
#include "train/program/progress.h"
#include "train/program/removed_on_signal.h"
#include "train/program/screen.h"
#include "train/program/units.h"

namespace {

namespace fs = std::filesystem;
using namespace trireme;

struct Options {
  std::string data, out, tokenizer;
  std::optional<TextFormat> format;
  bool train_bpe = false;
  std::optional<std::int64_t> vocab, workers;
  std::int64_t bpe_bytes = std::int64_t{1} << 30;
  PrepareOptions prepare;
  TokenFormat shard_format = TokenFormat::trireme;
  double val_fraction = 0.1;
};

void declare_texts(Flags& flags, Options& o) {
  flags.group("text");
  flags.add(
      "data", "PATH", o.data,
      "a file, a folder of them (recursive; hidden and binary files left out), or - for standard input: text, "
      ".jsonl, .csv, .tsv, each also with .gz or .zst behind; or tokens, to write them in another --shard-format");
  flags.add_choice("format", o.format,
                   {{"auto", std::nullopt},
                    {"text", TextFormat::text},
                    {"jsonl", TextFormat::jsonl},
                    {"csv", TextFormat::csv},
                    {"tsv", TextFormat::tsv}},
                   "of all files of --data; auto: by their names, and text for standard input");
  flags.add("text-field", "NAME", o.prepare.pipeline.text_field,
            "key (jsonl) or column (csv, tsv) that holds the text");
  flags.add("workers", "N", o.workers, "auto", "threads that turn text into tokens; auto: all cores",
            Range{.low = 1, .high = 4096});
  flags.group("filters");
  TextFilter& filter = o.prepare.pipeline.filter;
  flags.add("min-chars", "N", filter.min_chars, "leave out documents with fewer characters", Range::count());
  flags.add("max-chars", "N", filter.max_chars, "none", "leave out documents with more characters", Range::count());
  flags.add("max-non-letters", "F", filter.max_non_letters, "none",
            "leave out documents in which a larger part of the characters is neither a letter nor white space",
            Range{.low = 0, .high = 1});
  flags.add_switch("dedup", o.prepare.deduplicate,
                   "leave out documents whose text came before (11 to 27 bytes of memory each)", true);
}

void declare(Flags& flags, Options& o) {
  constexpr double kMostTokens = 2147483647;
  declare_texts(flags, o);
  flags.group("tokenizer");
  flags.add(
      "tokenizer", "KIND", o.tokenizer,
      "char, byte, bpe:PATH (a saved tokenizer, Hugging Face's tokenizer.json, or a folder with one of them or with "
      "vocab.json and merges.txt), sentencepiece:PATH (its model) or tiktoken:NAME:PATH (a file of ranks and its "
      "encoding, such as o200k_base); "
      "left out: char, or what --train-bpe learns");
  flags.add_switch("train-bpe", o.train_bpe, "learn a byte-level BPE vocabulary of --vocab tokens from the text", true);
  flags.add("vocab", "N", o.vocab, "none", "tokens of the vocabulary to learn, with <|endoftext|>", {257, kMostTokens});
  flags.add("bpe-bytes", "N", o.bpe_bytes, "bytes of text, from the beginning, to learn from; they are held in memory",
            Range::at_least(1));
  flags.only_with("train-bpe", "on", [&o] { return o.train_bpe; });
  flags.group("shards");
  flags.add("out", "DIR", o.out, "folder to make; must not exist, or be empty");
  flags.add("shard-tokens", "N", o.prepare.shard_tokens, "most tokens in one shard file", Range::at_least(1));
  flags.add_choice("shard-format", o.shard_format,
                   {{"trireme", TokenFormat::trireme}, {"nanogpt", TokenFormat::nanogpt}, {"llmc", TokenFormat::llmc}},
                   "our shards, nanoGPT's train.bin and val.bin, or llm.c's train_*.bin and val_*.bin");
  flags.add("val-fraction", "F", o.val_fraction, "last part of the tokens, for val.bin", Range::half_open(0, 1));
  flags.only_with("shard-format", "nanogpt or llmc", [&o] { return o.shard_format != TokenFormat::trireme; });
  flags.add("sync-seconds", "F", o.prepare.sync_seconds, "how often the work so far is made safe", Range::at_least(0));
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
  const bool reads_twice = o.train_bpe || o.tokenizer.empty() || o.tokenizer == "char";
  if (o.data == standard_input && reads_twice)
    fail(ExitCode::usage, "prepare_data",
         "--data - can be read only once, and {} has to read it first; expected a tokenizer that exists; give "
         "--tokenizer byte, bpe:PATH, sentencepiece:PATH or tiktoken:NAME:PATH",
         o.train_bpe ? "--train-bpe" : "--tokenizer char");
  const TextFilter& filter = o.prepare.pipeline.filter;
  if (filter.max_chars && *filter.max_chars < filter.min_chars)
    fail(ExitCode::usage, "prepare_data", "--max-chars {} is less than --min-chars {}; expected at least that",
         *filter.max_chars, filter.min_chars);
}

/// The folder to make: `asked`, or what it is a link to. Throws if it exists and is not an empty folder that can be
/// replaced.
fs::path folder_to_make(const fs::path& asked) {
  if (!is_there(asked)) {
    std::error_code unknown;
    if (fs::is_symlink(asked, unknown))
      fail(ExitCode::usage, "prepare_data", "{} is a symbolic link to nothing; choose another --out", asked.string());
    return asked;
  }
  std::error_code error;
  if (!fs::is_directory(asked, error))
    fail(ExitCode::usage, "prepare_data", "{} exists and is not a folder; choose another --out", asked.string());
  const bool empty = fs::is_empty(asked, error);
  if (error) fail(ExitCode::io, "prepare_data", "cannot read the folder {}: {}", asked.string(), error.message());
  if (!empty)
    fail(ExitCode::usage, "prepare_data", "{} exists and is not an empty folder; choose another --out", asked.string());
  if (fs::equivalent(asked, ".", error))
    fail(ExitCode::usage, "prepare_data",
         "{} is the current folder, and would be replaced by a new one; expected a folder to make; choose a name in "
         "it, such as --out shards",
         asked.string());
  return fs::is_symlink(asked, error) ? fs::canonical(asked, error) : asked;
}

/// OUT.partial, where the work is done; the end of a long name is replaced. A name that is too long for OUT stays so.
fs::path work_folder(const fs::path& out) {
  constexpr std::string_view ending = ".partial";
  constexpr std::size_t most = 255;
  const fs::path plain = out.has_filename() ? out : out.parent_path();
  std::string name = plain.filename().string();
  if (name.size() <= most && name.size() + ending.size() > most)
    name = name.substr(0, most - ending.size() - 17) + fmt::format(".{:016x}", hash_bytes(name));
  return plain.parent_path() / (name + std::string(ending));
}

/// What decides about the result, and must be the same when a later start goes on.
std::map<std::string, std::string> describe(const Options& o, const TextInputs& inputs) {
  std::string files;
  for (const TextInput& file : inputs.files)
    files += fmt::format("{} {} {} {}\n", file.path.string(), file.bytes, file.modified, name_of(file.format));
  const PrepareOptions& p = o.prepare;
  const TextFilter& f = p.pipeline.filter;
  const auto number = [](auto value) { return value ? fmt::format("{}", *value) : std::string("none"); };
  return {{"--data", o.data},
          {"the files of --data", fmt::format("{} files, {:016x}", inputs.files.size(), hash_bytes(files))},
          {"--text-field", p.pipeline.text_field},
          {"--min-chars", fmt::format("{}", f.min_chars)},
          {"--max-chars", number(f.max_chars)},
          {"--max-non-letters", number(f.max_non_letters)},
          {"--dedup", p.deduplicate ? "on" : "off"},
          {"--tokenizer", o.tokenizer.empty() ? "char" : o.tokenizer},
          {"--train-bpe", o.train_bpe ? "on" : "off"},
          {"--vocab", number(o.vocab)},
          {"--bpe-bytes", fmt::format("{}", o.bpe_bytes)},
          {"--shard-tokens", fmt::format("{}", p.shard_tokens)},
          {"--shard-format", fmt::format("{}", static_cast<int>(o.shard_format))},
          {"--val-fraction", fmt::format("{}", o.val_fraction)}};
}

void require_same_job(const std::map<std::string, std::string>& before, const std::map<std::string, std::string>& now,
                      const fs::path& work) {
  for (const auto& [flag, value] : now) {
    const auto found = before.find(flag);
    const std::string was = found == before.end() ? "nothing" : found->second;
    if (was != value)
      fail(ExitCode::usage, "prepare_data",
           "{} has a job that was not finished, and {} was {} then; now it is {}; expected the same command, to go on; "
           "remove the folder to begin anew",
           work.string(), flag, was, value);
  }
}

std::shared_ptr<const Tokenizer> choose_tokenizer(const Options& o, const TextInputs& inputs) {
  const std::string& field = o.prepare.pipeline.text_field;
  if (o.train_bpe) return learn_bpe(inputs, field, static_cast<std::int32_t>(*o.vocab), o.bpe_bytes);
  if (o.tokenizer.empty() || o.tokenizer == "char") return char_tokenizer_of(inputs, field);
  return make_tokenizer(o.tokenizer, {});
}

/// Removes a job's files that are not part of the result, the note about the job last.
void remove_traces(const fs::path& folder, TokenFormat format) {
  const std::string_view tokens = format == TokenFormat::trireme ? shard_extension : bin_extension;
  for (const std::string& name : list_folder(folder))
    if (is_prepare_file(name) && fs::path(name).extension() != tokens && name != shard_tokenizer_name &&
        name != prepare_state_name)
      remove_file(folder / name);
  remove_file(folder / prepare_state_name);
}

/// The shards in `folder`, as files of another program.
void convert(const fs::path& from, const fs::path& to, const Options& o) {
  const ShardSet set = open_shards(from);
  const TokenRange all(set.tokens);
  const std::int64_t vocab = set.tokenizer->vocab_size();
  const auto train = static_cast<std::int64_t>(static_cast<double>(all.count()) * (1.0 - o.val_fraction));
  write_bins(all.part(0, train), o.shard_format, to, "train", vocab, o.prepare.shard_tokens);
  if (train < all.count())
    write_bins(all.part(train, all.count() - train), o.shard_format, to, "val", vocab, o.prepare.shard_tokens);
}

constexpr std::string_view told_to_stop = "trireme: told to stop: the same command goes on where it was\n";

/// One start of the program.
class Job {
 public:
  explicit Job(const Options& options)
      : o_(options), inputs_(find_text_inputs(options.data, options.format)), job_(describe(options, inputs_)) {}

  void run() {
    if (was_complete()) return;
    out_ = folder_to_make(o_.out);
    work_ = work_folder(out_);
    RemovedOnSignal on_signal;
    require_own_folder(work_);
    make_temporary_folder({}, work_);
    const FileLock lock(work_ / prepare_lock_name, [](const std::string& text) { Screen::of_process().warning(text); });
    if (is_there(work_ / prepare_state_name)) {
      on_signal.keep(told_to_stop);
    } else {
      on_signal.watch(work_);
    }
    try {
      goes_on_ = begin();
      on_signal.keep(told_to_stop);
      if (goes_on_)
        Screen::of_process().print(fmt::format("goes on after {} documents and {} tokens of an earlier start\n",
                                               thousands(state_.counts.documents), thousands(tokens())));
      if (!state_.complete) make();
      on_signal.hold();
      move_folder(work_, out_);
      remove_traces(out_, o_.shard_format);
    } catch (const Error& error) {
      on_signal.hold();
      // A full disk, or memory that ran out, may be put right, and another command given; the text would have to
      // change.
      const bool may_go_on = error.code() == ExitCode::io || error.code() == ExitCode::retryable ||
                             (goes_on_ && error.code() == ExitCode::usage);
      if (same_job_ && !(may_go_on && is_there(work_ / prepare_state_name))) remove_job(work_);
      if (same_job_ && is_there(work_ / prepare_state_name))
        throw PlacedError(error, "", "the same command goes on where it was");
      throw;
    }
    tell();
  }

 private:
  /// An earlier start may have been killed between its last two steps.
  bool was_complete() {
    const fs::path path = fs::path(o_.out) / prepare_state_name;
    std::error_code unknown;
    if (!fs::is_regular_file(path, unknown)) return false;
    const PrepareState before = parse_prepare_state(read_file(path, read_limits::configuration), path);
    if (!before.complete || before.job != job_) return false;
    remove_traces(o_.out, o_.shard_format);
    Screen::of_process().print(fmt::format("{} is complete\n", o_.out));
    return true;
  }

  /// Reads what an earlier start left, or begins. True if there was something.
  bool begin() {
    const fs::path noted = work_ / prepare_state_name;
    if (is_there(noted)) {
      same_job_ = false;
      state_ = parse_prepare_state(read_file(noted, read_limits::configuration), noted);
      require_same_job(state_.job, job_, work_);
      same_job_ = true;
      tokenizer_ = load_tokenizer(work_ / shard_tokenizer_name);
      return true;
    }
    for (const std::string& name : list_folder(work_))
      if (is_prepare_file(name) && name != prepare_lock_name) remove_file(work_ / name);
    tokenizer_ = choose_tokenizer(o_, inputs_);
    if (o_.shard_format != TokenFormat::trireme) require_narrow(*tokenizer_);
    tokenizer_->save(work_ / shard_tokenizer_name);
    state_.job = job_;
    write_file(noted, to_text(state_));
    return false;
  }

  static void require_narrow(const Tokenizer& tokenizer) {
    write_bins({}, TokenFormat::llmc, {}, "", tokenizer.vocab_size(), 1);  // refuses a vocabulary that is too large
  }

  void make() {
    {
      std::optional<ProgressBar> bar;
      const auto begin = Clock::now();
      const std::int64_t before = state_.counts.bytes;
      write_shards(inputs_, *tokenizer_, o_.prepare, work_, state_, [&](std::uint64_t read, const PrepareState& state) {
        const auto done = static_cast<double>(read);
        if (!bar) bar.emplace(Screen::of_process(), "read", static_cast<double>(inputs_.bytes()), format_bytes, done);
        const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
        const double speed = static_cast<double>(state.counts.bytes - before) / std::max(seconds, 1e-3);
        bar->set(done, {format_count(static_cast<double>(state.counts.documents)) + " documents",
                        format_bytes(speed) + "/s of text"});
      });
    }
    if (o_.shard_format != TokenFormat::trireme) convert(work_, work_, o_);
    state_.complete = true;
    write_file(work_ / prepare_state_name, to_text(state_));
  }

  std::int64_t tokens() const { return state_.shards.first_token + state_.shards.tokens; }

  void tell() const {
    const std::string from = o_.data == standard_input
                                 ? "standard input"
                                 : fmt::format("{}, {} bytes in {} files, {} left out{}{}", safe_line(o_.data),
                                               inputs_.bytes(), inputs_.files.size(), inputs_.left_out.all(),
                                               inputs_.left_out.all() == 0 ? "" : ": ", inputs_.left_out.text());
    const PrepareCounts& c = state_.counts;
    const FilterCounts& f = c.left_out;
    const double seconds = std::chrono::duration<double>(Clock::now() - begin_).count();
    Screen::of_process().print(fmt::format(
        "text: {}\n"
        "documents: {} with {} bytes of text; left out: {} too short, {} too long, {} with few letters, {} duplicates\n"
        "tokenizer: {}, vocabulary {}\n"
        "wrote {}: {} tokens, shards: {}, {:.1f} s\n",
        from, c.documents, c.bytes, f.too_short, f.too_long, f.non_letters, c.duplicates, tokenizer_->name(),
        tokenizer_->vocab_size(), safe_line(o_.out), tokens(),
        (tokens() + o_.prepare.shard_tokens - 1) / o_.prepare.shard_tokens, seconds));
  }

  using Clock = std::chrono::steady_clock;

  const Options& o_;
  Clock::time_point begin_ = Clock::now();
  TextInputs inputs_;
  std::map<std::string, std::string> job_;
  fs::path out_, work_;
  bool same_job_ = true;  // the work folder is ours, to go on with or to remove
  bool goes_on_ = false;  // with what an earlier start has left
  PrepareState state_;
  std::shared_ptr<const Tokenizer> tokenizer_;
};

/// Token shards as files of another program: no text, and no tokenizer to choose.
void convert_tokens(const Options& o) {
  if (o.shard_format == TokenFormat::trireme)
    fail(ExitCode::usage, "prepare_data",
         "{} is token shards already; expected text; train_gpt --data takes it as it is", o.data);
  RemovedOnSignal on_signal;
  AtomicFolder folder(folder_to_make(o.out));
  on_signal.watch(folder.temporary());
  const ShardSet set = open_shards(o.data);
  set.tokenizer->save(folder.temporary() / shard_tokenizer_name);
  convert(o.data, folder.temporary(), o);
  on_signal.hold();
  folder.commit();
  Screen::of_process().print(fmt::format("wrote {}: {} tokens of {}\n", o.out, set.tokens->count(), o.data));
}

void prepare(Options& options) {
  options.prepare.pipeline.workers = static_cast<int>(options.workers.value_or(cores()));
  const TokenFormat format = options.data == standard_input ? TokenFormat::none : token_format(options.data);
  if (format == TokenFormat::trireme) return convert_tokens(options);
  if (format != TokenFormat::none)
    fail(ExitCode::usage, "prepare_data",
         "{} is tokens of another program already; expected text, or our token shards; train_gpt --data takes it as it "
         "is",
         options.data);
  Job(options).run();
}

}  // namespace

int main(int argc, char** argv) {
  return run_program([&] {
    Options options;
    Flags flags("prepare_data", "Turns text into token shards for train_gpt --data.");
    flags.example("prepare_data --data text.txt --tokenizer byte --out shards");
    declare(flags, options);
    if (!flags.parse_or_print(argc, argv)) return 0;
    flags.refuse_unused();
    check(options);
    prepare(options);
    return 0;
  });
}
