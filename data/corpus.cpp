// Loading and splitting a corpus.
#include "data/corpus.h"

#include <bit>
#include <cmath>
#include <new>

#include "core/error.h"
#include "core/hash.h"
#include "core/io.h"
#include "data/bin_tokens.h"
#include "data/mixture.h"
#include "data/token_shard.h"

namespace trireme {

namespace {

namespace fs = std::filesystem;

struct Loaded {
  std::shared_ptr<const TokenSource> tokens, validation;  // validation: null unless it has files of its own
  std::shared_ptr<const Tokenizer> tokenizer;
  std::vector<SourceFile> files = {};  // of text
  OmittedFiles left_out = {};
};

/// `tokenizer` is null unless the caller brought one.
Loaded load_text(const CorpusOptions& options, std::shared_ptr<const Tokenizer> tokenizer) {
  const TextFiles files(options.path);
  if (!tokenizer) tokenizer = files.make_tokenizer(options.tokenizer.value_or("char"));
  TokenBuffer buffer(tokenizer->vocab_size());
  buffer.reserve(files.bytes());  // more are rare, and memory that stays unused costs nothing
  files.tokenize(*tokenizer, [&](std::span<const std::int32_t> ids, bool) { buffer.append(ids); });
  return {in_memory(std::move(buffer)), nullptr, std::move(tokenizer), files.list(), files.left_out()};
}

/// What a folder of tokens holds besides them, which is not read.
OmittedFiles beside_tokens(const fs::path& path, std::string_view extension) {
  OmittedFiles left_out;
  if (!fs::is_directory(path)) return left_out;
  for (const std::string& name : list_folder(path))
    if (!name.starts_with('.') && name != shard_tokenizer_name && fs::path(name).extension() != extension)
      ++left_out.beside;
  return left_out;
}

/// Shards come with their tokenizer. A tokenizer that is asked for as well must be equal to it.
Loaded load_shards(const CorpusOptions& options, const std::shared_ptr<const Tokenizer>& given) {
  ShardSet set = open_shards(options.path);
  std::shared_ptr<const Tokenizer> wanted = given;
  if (!wanted && options.tokenizer && *options.tokenizer == "char") {
    // Shards do not hold the text, so "char" can only mean the vocabulary that they came with.
    if (set.tokenizer->name() != "char")
      fail(ExitCode::usage, "data", "{} was tokenized with {}; expected char; leave --tokenizer out",
           options.path.string(), set.tokenizer->name());
  } else if (!wanted && options.tokenizer) {
    wanted = make_tokenizer(*options.tokenizer, {});
  }
  if (wanted && wanted->hash() != set.tokenizer->hash())
    fail(given ? ExitCode::data : ExitCode::usage, "data",
         "{} was tokenized with another tokenizer ({}, {} ids) than the one asked for ({}, {} ids); {}",
         options.path.string(), set.tokenizer->name(), set.tokenizer->vocab_size(), wanted->name(),
         wanted->vocab_size(),
         given ? "make shards with this one, or give the text itself"
               : "leave --tokenizer out, or make the shards again");
  return {std::move(set.tokens), nullptr, std::move(set.tokenizer), {}, beside_tokens(options.path, shard_extension)};
}

/// Files of other programs do not hold their tokenizer: it may stand beside them, or be asked for.
Loaded load_bins(const CorpusOptions& options, std::shared_ptr<const Tokenizer> tokenizer) {
  const fs::path folder = fs::is_directory(options.path) ? options.path : options.path.parent_path();
  const fs::path beside = folder / shard_tokenizer_name;
  if (!tokenizer && options.tokenizer && *options.tokenizer != "char")
    tokenizer = make_tokenizer(*options.tokenizer, {});
  if (!tokenizer && fs::exists(beside)) tokenizer = load_tokenizer(beside);
  if (!tokenizer)
    fail(ExitCode::usage, "data",
         "{} holds tokens of another program, and there is no {} beside it; expected the tokenizer that they were made "
         "with; give --tokenizer bpe:PATH, sentencepiece:PATH, tiktoken:NAME:PATH or byte",
         options.path.string(), shard_tokenizer_name);
  BinTokens bins = open_bins(options.path, tokenizer->vocab_size());
  return {std::move(bins.train),
          std::move(bins.validation),
          std::move(tokenizer),
          {},
          beside_tokens(options.path, bin_extension)};
}

/// `tokenizer` is null unless the caller brought one.
Loaded load_source(const CorpusOptions& options, const std::shared_ptr<const Tokenizer>& tokenizer) {
  switch (token_format(options.path)) {
    case TokenFormat::trireme:
      return load_shards(options, tokenizer);
    case TokenFormat::nanogpt:
    case TokenFormat::llmc:
      return load_bins(options, tokenizer);
    case TokenFormat::none:
      break;
  }
  return load_text(options, tokenizer);
}

void check_options(const CorpusOptions& options) {
  if (options.path.empty())
    fail(ExitCode::usage, "data",
         "no text is given; expected --data with a text file, a folder of them or token shards");
  if (!(options.val_fraction >= 0 && options.val_fraction < 1))
    fail(ExitCode::usage, "data", "--val-fraction is {}; expected at least 0 and less than 1", options.val_fraction);
  if (options.context < 1) fail(ExitCode::usage, "data", "--context is {}; expected at least 1", options.context);
}

/// Throws if a part cannot hold one window of inputs and their targets.
void check_part(const char* part, std::int64_t count, std::int64_t total, const CorpusOptions& options) {
  if (count > options.context) return;
  if (options.context == 1 && options.val_fraction == 0)  // for scores, which take what there is
    fail(ExitCode::data, "data", "{} has {} token; expected at least 2, one and the next; use more text",
         options.path.string(), total);
  fail(ExitCode::data, "data",
       "{} is too short: {} tokens, of which the {} part gets {} (--val-fraction {}); expected at least {}, one "
       "window of --context {} and its next token; use more text, a smaller --context or another --val-fraction",
       options.path.string(), total, part, count, options.val_fraction, options.context + 1, options.context);
}

Corpus split(const CorpusOptions& options, Loaded loaded) {
  const TokenRange all(loaded.tokens);
  std::int64_t train =
      static_cast<std::int64_t>(std::floor(static_cast<double>(all.count()) * (1.0 - options.val_fraction)));
  if (loaded.validation) train = all.count();
  check_part("training", train, all.count(), options);
  Corpus corpus;
  corpus.train = all.part(0, train);
  corpus.validation = all.part(train, all.count() - train);
  if (loaded.validation && options.val_fraction > 0) corpus.validation = TokenRange(loaded.validation);
  if (options.val_fraction > 0)
    check_part("validation", corpus.validation.count(), train + corpus.validation.count(), options);
  std::vector<std::uint64_t> parts = {loaded.tokenizer->hash(), hash_tokens(*loaded.tokens)};
  if (loaded.validation) parts.push_back(hash_tokens(*loaded.validation));
  corpus.hash = hash_bytes(std::as_bytes(std::span(parts)));
  corpus.files = std::move(loaded.files);
  if (corpus.files.empty())
    corpus.files = {{options.path.filename().string(), static_cast<std::uint64_t>(all.count()), corpus.hash}};
  corpus.left_out = std::move(loaded.left_out);
  corpus.tokenizer = std::move(loaded.tokenizer);
  corpus.parts = {{options.path.string(), 1.0, corpus.train}};
  return corpus;
}

/// A range as a source, to be joined with others.
class RangeSource : public TokenSource {
 public:
  explicit RangeSource(TokenRange range) : range_(std::move(range)) {}
  std::int64_t count() const override { return range_.count(); }
  void read(std::int64_t first, std::span<std::int32_t> out) const override { range_.read(first, out); }

 private:
  TokenRange range_;
};

TokenRange joined_ranges(const std::vector<TokenRange>& ranges) {
  std::vector<std::shared_ptr<const TokenSource>> sources;
  for (const TokenRange& range : ranges)
    if (range.count() > 0) sources.push_back(std::make_shared<RangeSource>(range));
  return sources.empty() ? TokenRange() : TokenRange(joined(std::move(sources)));
}

/// The tokenizer of all sources: that of the first which holds tokens, or the one asked for, which for characters has
/// those of all texts.
std::shared_ptr<const Tokenizer> common_tokenizer(const CorpusOptions& options, const std::vector<MixturePart>& parts) {
  CorpusOptions one = options;
  for (const MixturePart& part : parts) {
    one.path = part.path;
    if (token_format(part.path) != TokenFormat::none) return load_source(one, nullptr).tokenizer;
  }
  const std::string kind = options.tokenizer.value_or("char");
  if (kind != "char") return make_tokenizer(kind, {});
  CharacterSet set;
  for (const MixturePart& part : parts) TextFiles(part.path).add_characters(set);
  return std::make_shared<CharTokenizer>(set);
}

Corpus load_mixture(const CorpusOptions& options, const std::vector<MixturePart>& parts,
                    std::shared_ptr<const Tokenizer> tokenizer) {
  if (!tokenizer) tokenizer = common_tokenizer(options, parts);
  Corpus corpus;
  std::vector<TokenRange> train, validation;
  std::vector<std::uint64_t> hashes;
  for (const MixturePart& part : parts) {
    CorpusOptions one = options;
    one.path = part.path;
    one.tokenizer.reset();
    const Corpus loaded = split(one, load_source(one, tokenizer));
    train.push_back(loaded.train);
    validation.push_back(loaded.validation);
    corpus.parts.push_back({part.path, part.weight, loaded.train});
    for (const SourceFile& file : loaded.files)
      corpus.files.push_back({(fs::path(part.path) / file.name).string(), file.bytes, file.hash});
    corpus.left_out += loaded.left_out;
    hashes.push_back(loaded.hash);
    hashes.push_back(std::bit_cast<std::uint64_t>(part.weight));
  }
  corpus.train = joined_ranges(train);
  corpus.validation = joined_ranges(validation);
  corpus.hash = hash_bytes(std::as_bytes(std::span(hashes)));
  corpus.tokenizer = std::move(tokenizer);
  return corpus;
}

Corpus load(const CorpusOptions& options, const std::shared_ptr<const Tokenizer>& tokenizer) {
  const std::vector<MixturePart> parts = parse_mixture(options.path.string());
  if (parts.size() > 1) return load_mixture(options, parts, tokenizer);
  CorpusOptions one = options;
  one.path = parts.front().path;
  return split(one, load_source(one, tokenizer));
}

}  // namespace

Corpus load_corpus(const CorpusOptions& options) {
  check_options(options);
  try {
    return load(options, nullptr);
  } catch (const std::bad_alloc&) {
    fail(ExitCode::retryable, "data",
         "there is no memory for the tokens of {}; give a smaller text, or token shards, which stay on disk: "
         "prepare_data makes them in constant memory",
         options.path.string());
  }
}

Corpus load_corpus(const CorpusOptions& options, const std::shared_ptr<const Tokenizer>& tokenizer) {
  check_options(options);
  require(tokenizer != nullptr && !options.tokenizer, "load_corpus", "expected one tokenizer, not an option as well");
  return load(options, tokenizer);
}

}  // namespace trireme
