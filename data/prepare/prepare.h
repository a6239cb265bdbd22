// Turns documents into token shards, in constant memory and with any number of workers. A job that was killed goes on
// where it was. This is what prepare_data does after it has read its flags.
//
//   PrepareState state = ...;  // of an earlier start, or a new one with the job's description
//   write_shards(inputs, *tokenizer, options, folder, state, [](std::uint64_t read, const PrepareState&) { ... });
//
// Read next: data/prepare/pipeline.h, data/prepare/prepare_state.h.
#pragma once

#include <functional>
#include <memory>

#include "data/prepare/prepare_state.h"

namespace trireme {

inline constexpr std::string_view prepare_state_name = "progress.json";
inline constexpr std::string_view seen_documents_name = "seen.part";  ///< hashes of documents: DocumentSet

/// What prepare_data is asked for, besides texts and tokenizer.
struct PrepareOptions {
  PipelineOptions pipeline;
  bool deduplicate = false;
  std::int64_t shard_tokens = 100'000'000;
  double sync_seconds = 10;                              ///< how often the work so far is made safe
  std::size_t block_bytes = BlockOptions{}.block_bytes;  ///< what a worker turns into tokens at once
};

/// Called after each block with the bytes of all inputs read so far, as they are stored.
using PrepareProgress = std::function<void(std::uint64_t read, const PrepareState& state)>;

/// Writes token shards into `folder`, from where `state` is to the end. Keeps progress.json there, and brings `state`
/// up to date. Between two documents stands the end-of-text token, or a newline if there is none. Throws ExitCode::data
/// if no document is left, and what the parsers throw.
void write_shards(const TextInputs& inputs, const Tokenizer& tokenizer, const PrepareOptions& options,
                  const std::filesystem::path& folder, PrepareState& state, const PrepareProgress& progress = {});

/// Calls f(text) for all documents, in order and before any filter, in constant memory: f gets long texts in parts. The
/// parts end between characters.
void for_each_text(const TextInputs& inputs, const std::string& text_field,
                   const std::function<void(const TextBlock& block, std::string_view text, std::int64_t line)>& f);

/// The tokenizer of single characters for these inputs. Reads them from beginning to end. Throws ExitCode::data, with
/// the file and the byte or line, for text that is not UTF-8.
std::shared_ptr<const Tokenizer> char_tokenizer_of(const TextInputs& inputs, const std::string& text_field);

/// A byte-level BPE vocabulary learnt from the first `most_bytes` bytes of text, which it holds in memory.
std::shared_ptr<const Tokenizer> learn_bpe(const TextInputs& inputs, const std::string& text_field,
                                           std::int32_t vocab_size, std::int64_t most_bytes);

}  // namespace trireme
