// Workers that turn blocks of text into tokens, and give them back in the order of the text: the result does not depend
// on how many there are.
//
//   EncodedBlocks blocks(reader, tokenizer, {.workers = 8});
//   EncodedBlock block;
//   while (blocks.next(block)) ...
//
// At most 2 * workers + 2 blocks are under way.
// Read next: data/prepare/prepare.h, data/prepare/block_reader.h.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "data/prepare/block_reader.h"
#include "data/prepare/document_set.h"
#include "data/prepare/text_filter.h"
#include "data/tokenizer.h"

namespace trireme {

/// A document that the filters keep, or a part of a long text.
struct EncodedPiece {
  std::size_t ids = 0;     ///< how many of the block's
  std::int64_t bytes = 0;  ///< of text
  std::uint64_t hash = 0;  ///< of its text, if duplicates are looked for
  bool begins = true;      ///< a document begins with it; otherwise it continues the one before
};

/// How many documents the filters left out.
struct FilterCounts {
  std::int64_t too_short = 0, too_long = 0, non_letters = 0;
  std::int64_t all() const { return too_short + too_long + non_letters; }
};

/// A block as tokens.
struct EncodedBlock {
  std::vector<std::int32_t> ids;
  std::vector<EncodedPiece> pieces;
  FilterCounts left_out;
  InputPosition end;         ///< where the next block begins
  std::uint64_t stored = 0;  ///< TextBlock::stored
};

/// What workers do with a block.
struct PipelineOptions {
  std::string text_field = "text";
  TextFilter filter;
  bool hash_documents = false;
  int workers = 1;
};

/// The blocks of a reader as tokens, in order, made by several threads.
class EncodedBlocks {
 public:
  /// `seen`: documents of earlier blocks, whose duplicates need not be turned into tokens (ids = 0); may be null. All
  /// must outlive this object.
  EncodedBlocks(BlockReader& reader, const Tokenizer& tokenizer, const PipelineOptions& options,
                const DocumentSet* seen);
  ~EncodedBlocks();
  EncodedBlocks(const EncodedBlocks&) = delete;
  EncodedBlocks& operator=(const EncodedBlocks&) = delete;

  /// The next block; false at the end. Throws what reading or encoding it threw: the first error of the text.
  bool next(EncodedBlock& block);

 private:
  struct Item {
    TextBlock text;
    EncodedBlock encoded;
    std::exception_ptr error;
    bool ready = false;
  };

  void run();
  std::shared_ptr<Item> read();
  void stop();

  BlockReader& reader_;
  const Tokenizer& tokenizer_;
  PipelineOptions options_;
  const DocumentSet* seen_;

  std::mutex reading_;  // one thread reads at a time; taken before mutex_
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Item>> items_;  // in the order of the text
  bool read_all_ = false, stop_ = false;
  std::vector<std::thread> threads_;
};

/// The tokens of one block. Throws as Tokenizer::append_ids and for_each_document do, with file and line.
EncodedBlock encode(const TextBlock& block, const Tokenizer& tokenizer, const PipelineOptions& options,
                    const DocumentSet* seen = nullptr);

}  // namespace trireme
