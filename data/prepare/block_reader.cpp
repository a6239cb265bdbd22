#include "data/prepare/block_reader.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "data/file_kind.h"

namespace trireme {

namespace {

constexpr std::size_t kRead = std::size_t{1} << 18;

}  // namespace

BlockReader::BlockReader(const TextInputs& inputs, const BlockOptions& options, const Tokenizer* tokenizer,
                         const InputPosition& from, OpenInput open)
    : inputs_(inputs), options_(options), tokenizer_(tokenizer), open_(std::move(open)), at_(from) {
  const auto files = static_cast<std::int64_t>(inputs.files.size());
  require(from.file >= 0 && from.file <= files, "prepare", "input {} of {} does not exist", from.file, files);
  for (std::int64_t file = 0; file < from.file; ++file)
    stored_before_ += inputs.files[static_cast<std::size_t>(file)].bytes;
}

BlockReader::~BlockReader() = default;

void BlockReader::fail_too_long() const {
  if (input().format == TextFormat::text)
    fail(ExitCode::data, "data",
         "{} line {}: {} bytes of text and no place to cut them; expected at most {}: {}; cut the file, or choose "
         "another tokenizer",
         input().name(), at_.line, pending_.size(), options_.longest_text,
         options_.whole_texts
             ? "filters and duplicates need a whole document in memory"
             : "this tokenizer needs a whole document, or this text has no line that ends with a word");
  fail(ExitCode::data, "data", "{} line {}: a record of more than {} bytes; expected at most that; is this {}?",
       input().name(), at_.line, longest_record, name_of(input().format));
}

/// Reads more into pending_; false at the end.
bool BlockReader::fill() {
  if (at_end_) return false;
  const std::size_t before = pending_.size();
  pending_.resize(before + kRead);
  const std::size_t count = bytes_->read(std::span(pending_).subspan(before));
  pending_.resize(before + count);
  at_end_ = count < kRead;
  return count > 0;
}

/// Remembers what was read of standard input.
void BlockReader::note(std::string_view bytes) {
  at_.offset += bytes.size();
  at_.line += std::count(bytes.begin(), bytes.end(), '\n');
  if (!hash_) return;
  hash_->add(std::as_bytes(std::span(bytes)));
  at_.hash = hash_->value();
}

void BlockReader::open() {
  hash_ = input().is_standard_input() ? std::make_unique<Hasher>() : nullptr;
  if (open_) {
    stored_ = open_(input());
  } else if (input().is_standard_input()) {
    stored_ = std::make_shared<StandardInputBytes>();
  } else {
    stored_ = std::make_shared<FileBytes>(input().path);
  }
  bytes_ = decompressed(stored_, input().compression, input().path);
  pending_.clear();
  at_end_ = false;
  searched_ = 0;
  const InputPosition from = at_;
  at_ = {.file = from.file};
  fill();
  require_text(std::string_view(pending_).substr(0, sniffed_bytes), input());
  if (std::string_view(pending_).starts_with(byte_order_mark)) {
    note(byte_order_mark);
    pending_.erase(0, byte_order_mark.size());
  }
  if (input().format == TextFormat::csv || input().format == TextFormat::tsv) read_header();
  if (from.offset > at_.offset) skip_to(from.offset);
  if (from.hash != at_.hash && from.offset > 0)
    fail(ExitCode::usage, "data",
         "standard input has another text in its first {} bytes than when this job began; expected the same; give the "
         "same text, or begin anew",
         from.offset);
  if (from.offset > 0) at_ = from;
}

/// The names of a table's columns. Leaves at_ behind them.
void BlockReader::read_header() {
  csv_.restart();
  std::size_t end = 0;
  while ((end = csv_.cut(pending_, 1)) == 0 && fill())
    if (pending_.size() > longest_record) fail_too_long();
  if (end == 0) end = pending_.size();
  const std::string header = pending_.substr(0, end);
  std::vector<std::string> names;
  const std::string file = input().name();
  CsvReader(header, input().format == TextFormat::tsv ? '\t' : ',', file).next(names);
  column_ = csv_column(names, options_.text_field, file);
  note(header);
  pending_.erase(0, end);
  csv_.restart();
}

/// Goes to a place that an earlier start has reached. Reads what comes before it, unless it can be skipped.
void BlockReader::skip_to(std::uint64_t offset) {
  if (input().compression == Compression::none && !hash_ && !open_) {
    auto file = std::make_shared<FileBytes>(input().path);
    file->seek(offset);
    stored_ = file;
    bytes_ = decompressed(stored_, Compression::none, input().path);
    pending_.clear();
    at_end_ = false;
    at_.offset = offset;
    return;
  }
  while (at_.offset < offset) {
    if (pending_.empty() && !fill())
      fail(ExitCode::data, "data", "{} ends at byte {} of its text; expected at least {}, as when this job began",
           input().name(), at_.offset, offset);
    const std::size_t count = std::min<std::uint64_t>(pending_.size(), offset - at_.offset);
    note(std::string_view(pending_).substr(0, count));
    pending_.erase(0, count);
  }
}

bool BlockReader::next(TextBlock& block) {
  while (true) {
    if (!bytes_) {
      if (at_.file == static_cast<std::int64_t>(inputs_.files.size())) return false;
      open();
    }
    const std::size_t end = cut();
    const bool last = at_end_ && end == pending_.size();
    if (end > 0 || at_.inside) {
      block.format = input().format;
      block.file = input().name();
      block.column = column_;
      block.begin = at_;
      block.begins = !at_.inside;
      block.bytes.assign(pending_, 0, end);
      note(block.bytes);
      pending_.erase(0, end);
      searched_ = 0;
      at_.inside = block.format == TextFormat::text && !last;
      block.ends = !at_.inside;
      block.end = at_;
      block.stored = stored_before_ + stored_->position();
      return true;
    }
    // The input has no more text.
    stored_before_ += input().bytes;
    bytes_.reset();
    at_ = {.file = at_.file + 1};
  }
}

/// How many bytes of pending_ make the next block; 0 at the end of the input.
std::size_t BlockReader::cut() {
  const bool text = input().format == TextFormat::text;
  const bool csv = !text && input().format != TextFormat::jsonl;
  const std::size_t most = text ? options_.longest_text : longest_record;
  if (csv) csv_.restart();
  while (true) {
    const std::size_t end = text  ? cut_text(options_.block_bytes)
                            : csv ? csv_.cut(pending_, options_.block_bytes)
                                  : cut_lines(options_.block_bytes);
    if (end > 0) return end;
    if (pending_.size() > most) fail_too_long();
    if (!fill()) return pending_.size();
  }
}

/// The end of the last line that ends within `most` bytes, or of the first that ends behind them.
std::size_t BlockReader::cut_lines(std::size_t most) {
  if (pending_.size() < most) return 0;
  if (searched_ == 0) {
    const std::size_t line = pending_.rfind('\n', most - 1);
    if (line != std::string::npos) return line + 1;
    searched_ = most;
  }
  const std::size_t line = pending_.find('\n', searched_);
  searched_ = pending_.size();
  return line == std::string::npos ? 0 : line + 1;
}

/// A place behind `most` bytes where the text may be cut, and is not at its end.
std::size_t BlockReader::cut_text(std::size_t most) {
  if (options_.whole_texts || pending_.size() <= most) return 0;
  const std::size_t from = std::max(most, searched_);
  searched_ = pending_.size() - 1;  // the last line end may be one, with what follows it
  if (tokenizer_ == nullptr) {
    for (std::size_t at = from; at < pending_.size(); ++at)
      if ((static_cast<unsigned char>(pending_[at]) & 0xC0U) != 0x80U) return at;
    return 0;
  }
  const auto place = tokenizer_->safe_cut(pending_, from);
  return place && *place < pending_.size() ? *place : 0;
}

}  // namespace trireme
