// Loading and splitting a corpus.
#include "data/corpus.h"

#include <array>
#include <cmath>

#include "core/error.h"
#include "core/hash.h"
#include "data/text_files.h"
#include "data/token_shard.h"

namespace trireme {

namespace {

struct Loaded {
  std::shared_ptr<const TokenSource> tokens;
  std::shared_ptr<const Tokenizer> tokenizer;
};

/// `tokenizer` is null unless the caller brought one.
Loaded load_text(const CorpusOptions& options, std::shared_ptr<const Tokenizer> tokenizer) {
  const TextFiles files(options.path);
  if (!tokenizer) tokenizer = files.make_tokenizer(options.tokenizer.value_or("char"));
  TokenBuffer buffer(tokenizer->vocab_size());
  files.tokenize(*tokenizer, [&](std::span<const std::int32_t> ids) { buffer.append(ids); });
  return {in_memory(std::move(buffer)), std::move(tokenizer)};
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
  return {std::move(set.tokens), std::move(set.tokenizer)};
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
  fail(ExitCode::data, "data",
       "{} is too short: {} tokens, of which the {} part gets {} (--val-fraction {}); expected at least {}, one window "
       "of "
       "--context {} and its next token; use more text, a smaller --context or another --val-fraction",
       options.path.string(), total, part, count, options.val_fraction, options.context + 1, options.context);
}

Corpus split(const CorpusOptions& options, Loaded loaded) {
  const TokenRange all(loaded.tokens);
  const auto train =
      static_cast<std::int64_t>(std::floor(static_cast<double>(all.count()) * (1.0 - options.val_fraction)));
  check_part("training", train, all.count(), options);
  if (options.val_fraction > 0) check_part("validation", all.count() - train, all.count(), options);
  Corpus corpus;
  corpus.train = all.part(0, train);
  corpus.validation = all.part(train, all.count() - train);
  const std::array<std::uint64_t, 2> parts = {loaded.tokenizer->hash(), hash_tokens(*loaded.tokens)};
  corpus.hash = hash_bytes(std::as_bytes(std::span(parts)));
  corpus.tokenizer = std::move(loaded.tokenizer);
  return corpus;
}

}  // namespace

Corpus load_corpus(const CorpusOptions& options) {
  check_options(options);
  return split(options, is_shard_set(options.path) ? load_shards(options, nullptr) : load_text(options, nullptr));
}

Corpus load_corpus(const CorpusOptions& options, std::shared_ptr<const Tokenizer> tokenizer) {
  check_options(options);
  require(tokenizer != nullptr && !options.tokenizer, "load_corpus", "expected one tokenizer, not an option as well");
  return split(options,
               is_shard_set(options.path) ? load_shards(options, tokenizer) : load_text(options, std::move(tokenizer)));
}

}  // namespace trireme
