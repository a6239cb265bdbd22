#include "data/prepare/prepare.h"

#include <chrono>

#include "core/error.h"
#include "core/io.h"
#include "data/bpe_tokenizer.h"
#include "data/bpe_train.h"
#include "data/char_tokenizer.h"
#include "data/utf8.h"

namespace trireme {

namespace {

namespace fs = std::filesystem;
constexpr std::string_view kNewline = "\n";

/// What stands between two documents.
std::vector<std::int32_t> separator_of(const Tokenizer& tokenizer) {
  if (const auto end = tokenizer.end_of_text()) return {*end};
  try {
    return tokenizer.encode(kNewline);
  } catch (const Error& error) {
    throw Error(error.code(), "data", "the newline between documents: " + error.reason());
  }
}

[[noreturn]] void refuse_no_text() {
  fail(ExitCode::data, "data", "there is no text; expected at least one character; change --data");
}

/// One run of write_shards().
class Writing {
 public:
  Writing(const Tokenizer& tokenizer, const PrepareOptions& options, const fs::path& folder, PrepareState& state)
      : tokenizer_(tokenizer),
        options_(options),
        folder_(folder),
        state_(state),
        writer_(folder, tokenizer, options.shard_tokens, state.shards) {
    if (options.deduplicate) seen_ = std::make_unique<DocumentSet>(folder / seen_documents_name, state.seen);
  }

  const DocumentSet* seen() const { return seen_.get(); }

  void write(const EncodedBlock& block) {
    std::span<const std::int32_t> ids = block.ids;
    for (const EncodedPiece& piece : block.pieces) {
      write(piece, ids.first(piece.ids));
      ids = ids.subspan(piece.ids);
    }
    FilterCounts& left_out = state_.counts.left_out;
    left_out.too_short += block.left_out.too_short;
    left_out.too_long += block.left_out.too_long;
    left_out.non_letters += block.left_out.non_letters;
    state_.input = block.end;
    const auto now = Clock::now();
    if (std::chrono::duration<double>(now - synced_).count() < options_.sync_seconds) return;
    sync();
    synced_ = Clock::now();
  }

  void finish() {
    if (writer_.tokens() == 0)
      fail(ExitCode::data, "data",
           "no document is left: {} are too short or empty, {} too long, {} have too few letters; "
           "expected at least one with a token; change the filters or --data",
           state_.counts.left_out.too_short, state_.counts.left_out.too_long, state_.counts.left_out.non_letters);
    sync();
    writer_.finish();
  }

 private:
  using Clock = std::chrono::steady_clock;

  void write(const EncodedPiece& piece, std::span<const std::int32_t> ids) {
    if (piece.begins) {
      if (seen_ && !seen_->insert(piece.hash)) {
        ++state_.counts.duplicates;
        return;
      }
      if (state_.counts.documents > 0) {
        if (separator_.empty()) separator_ = separator_of(tokenizer_);
        writer_.append(separator_);
      }
      writer_.start_document();
      ++state_.counts.documents;
    }
    writer_.append(ids);
    state_.counts.bytes += piece.bytes;
  }

  void sync() {
    state_.shards = writer_.sync();
    if (seen_) {
      seen_->sync();
      state_.seen = seen_->count();
    }
    write_file(folder_ / prepare_state_name, to_text(state_));
  }

  const Tokenizer& tokenizer_;
  const PrepareOptions& options_;
  const fs::path& folder_;
  PrepareState& state_;
  ShardWriter writer_;
  std::unique_ptr<DocumentSet> seen_;
  std::vector<std::int32_t> separator_;
  Clock::time_point synced_ = Clock::now();
};

}  // namespace

void write_shards(const TextInputs& inputs, const Tokenizer& tokenizer, const PrepareOptions& options,
                  const fs::path& folder, PrepareState& state, const PrepareProgress& progress) {
  PipelineOptions pipeline = options.pipeline;
  pipeline.hash_documents = options.deduplicate;
  const BlockOptions blocks{.text_field = pipeline.text_field,
                            .whole_texts = options.deduplicate || pipeline.filter.is_used(),
                            .block_bytes = options.block_bytes};
  Writing writing(tokenizer, options, folder, state);
  BlockReader reader(inputs, blocks, &tokenizer, state.input);
  EncodedBlocks encoded(reader, tokenizer, pipeline, writing.seen());
  EncodedBlock block;
  while (encoded.next(block)) {
    writing.write(block);
    if (progress) progress(block.stored, state);
  }
  writing.finish();
}

void for_each_text(const TextInputs& inputs, const std::string& text_field,
                   const std::function<void(const TextBlock&, std::string_view, std::int64_t)>& f) {
  BlockReader reader(inputs, {.text_field = text_field}, nullptr);
  TextBlock block;
  while (reader.next(block))
    for_each_document(block, text_field, [&](std::string_view text, std::int64_t line) { f(block, text, line); });
}

std::shared_ptr<const Tokenizer> char_tokenizer_of(const TextInputs& inputs, const std::string& text_field) {
  CharacterSet set;
  std::int64_t documents = 0;
  for_each_text(inputs, text_field, [&](const TextBlock& block, std::string_view text, std::int64_t line) {
    documents += block.begins ? 1 : 0;
    const auto at = set.add(text);
    if (!at) return;
    const std::string place = block.format == TextFormat::text ? fmt::format("byte {}", block.begin.offset + *at)
                                                               : fmt::format("line {}", line);
    fail(ExitCode::data, "data",
         "{} {} (0x{:02X}) is not UTF-8; expected UTF-8 text; convert it or use --tokenizer byte", block.file, place,
         static_cast<unsigned char>(text[*at]));
  });
  if (documents > 1) set.add(kNewline);  // the separator
  std::vector<char32_t> characters = set.characters();
  if (characters.empty()) refuse_no_text();
  return std::make_shared<CharTokenizer>(std::move(characters));
}

std::shared_ptr<const Tokenizer> learn_bpe(const TextInputs& inputs, const std::string& text_field,
                                           std::int32_t vocab_size, std::int64_t most_bytes) {
  std::vector<std::string> texts;
  std::int64_t bytes = 0;
  BlockReader reader(inputs, {.text_field = text_field}, nullptr);
  TextBlock block;
  while (bytes < most_bytes && reader.next(block)) {
    for_each_document(block, text_field, [&](std::string_view text, std::int64_t) {
      if (block.begins) {
        texts.emplace_back(text);
      } else {
        texts.back() += text;
      }
      bytes += static_cast<std::int64_t>(text.size());
    });
  }
  if (bytes == 0) refuse_no_text();
  std::vector<std::string_view> views(texts.begin(), texts.end());
  if (views.size() > 1) views.push_back(kNewline);
  return std::make_shared<BpeTokenizer>(train_bpe(views, vocab_size), "the trained vocabulary");
}

}  // namespace trireme
