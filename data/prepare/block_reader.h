// Cuts inputs into blocks of about a megabyte, which workers turn into tokens independently: at the ends of records,
// and in a text where its tokenizer allows it. Where blocks end depends on the text alone.
//
// Memory is that of a few blocks. It grows to the longest record, and in a text to the longest stretch without a place
// where the tokenizer can cut.
// Read next: data/prepare/records.h, data/prepare/pipeline.h.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "core/hash.h"
#include "data/prepare/csv.h"
#include "data/prepare/records.h"
#include "data/prepare/text_input.h"
#include "data/tokenizer.h"

namespace trireme {

/// How inputs are cut.
struct BlockOptions {
  std::string text_field = "text";  ///< the key or column that holds the text
  bool whole_texts = false;         ///< a text is one block, whatever its size
  std::size_t block_bytes = std::size_t{1} << 20;
  std::size_t longest_text = std::size_t{1} << 30;  ///< that is not cut
};

/// Opens an input, to be read from its beginning.
using OpenInput = std::function<std::shared_ptr<StoredBytes>(const TextInput&)>;

/// The blocks of all inputs, in order.
class BlockReader {
 public:
  /// Begins at `from`, which a block's `end` was. `tokenizer` says where a text may be cut; null: at any character.
  /// next() throws ExitCode::usage if standard input has another text before `from` than it had then.
  /// `open`: not set: the file of that path, or standard input.
  BlockReader(const TextInputs& inputs, const BlockOptions& options, const Tokenizer* tokenizer,
              const InputPosition& from = {}, OpenInput open = {});
  ~BlockReader();
  BlockReader(const BlockReader&) = delete;
  BlockReader& operator=(const BlockReader&) = delete;

  /// Puts the next block into `block`; false at the end of the last input. Throws ExitCode::data for input that is
  /// damaged, and records that are too long.
  bool next(TextBlock& block);

 private:
  const TextInput& input() const { return inputs_.files[static_cast<std::size_t>(at_.file)]; }
  void open();
  bool fill();
  void read_header();
  void skip_to(std::uint64_t offset);
  std::size_t cut();
  std::size_t cut_text(std::size_t most);
  std::size_t cut_lines(std::size_t most);
  void note(std::string_view bytes);
  [[noreturn]] void fail_too_long() const;

  const TextInputs& inputs_;
  BlockOptions options_;
  const Tokenizer* tokenizer_;
  OpenInput open_;
  InputPosition at_;
  std::shared_ptr<StoredBytes> stored_;
  std::unique_ptr<ByteStream> bytes_;  // null: no input is open
  std::string pending_;                // the text from at_ on, as far as it was read
  bool at_end_ = false;                // nothing follows `pending_`
  std::size_t searched_ = 0;           // of `pending_`, without a place to cut
  CsvCutter csv_;
  CsvColumn column_;
  std::unique_ptr<Hasher> hash_;  // of standard input
  std::uint64_t stored_before_ = 0;
};

}  // namespace trireme
