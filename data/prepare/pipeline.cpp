#include "data/prepare/pipeline.h"

#include "core/cores.h"
#include "core/error.h"
#include "core/hash.h"

namespace trireme {

namespace {

void count(FilterCounts& counts, FilterOutcome outcome) {
  if (outcome == FilterOutcome::too_short) ++counts.too_short;
  if (outcome == FilterOutcome::too_long) ++counts.too_long;
  if (outcome == FilterOutcome::non_letters) ++counts.non_letters;
}

/// Appends the ids of a document, or of a part that continues one.
void append(const Tokenizer& tokenizer, std::string_view text, bool begins, std::vector<std::int32_t>& ids) {
  if (begins) return tokenizer.append_part_ids(text, 0, text.size(), ids);
  // The first part of a text may be treated in another way than the others, which therefore get something in front.
  const std::string continued = "\n" + std::string(text);
  tokenizer.append_part_ids(continued, 1, continued.size(), ids);
}

}  // namespace

EncodedBlock encode(const TextBlock& block, const Tokenizer& tokenizer, const PipelineOptions& options,
                    const DocumentSet* seen) {
  EncodedBlock result;
  result.end = block.end;
  result.stored = block.stored;
  const bool whole = block.begins && block.ends;
  for_each_document(block, options.text_field, [&](std::string_view text, std::int64_t line) {
    const FilterOutcome outcome = whole ? filter_outcome(text, options.filter) : FilterOutcome::kept;
    if (outcome != FilterOutcome::kept) return count(result.left_out, outcome);
    EncodedPiece piece{.ids = 0, .bytes = static_cast<std::int64_t>(text.size()), .hash = 0, .begins = block.begins};
    if (options.hash_documents) piece.hash = hash_bytes(text);
    const std::size_t before = result.ids.size();
    try {
      if (seen == nullptr || !seen->contains(piece.hash)) append(tokenizer, text, block.begins, result.ids);
    } catch (const Error& error) {
      throw Error(error.code(), "data",
                  fmt::format("{} line {}, in the text that begins there: {}", block.file, line, error.reason()));
    }
    piece.ids = result.ids.size() - before;
    result.pieces.push_back(piece);
  });
  return result;
}

EncodedBlocks::EncodedBlocks(BlockReader& reader, const Tokenizer& tokenizer, const PipelineOptions& options,
                             const DocumentSet* seen)
    : reader_(reader), tokenizer_(tokenizer), options_(options), seen_(seen) {
  require(options.workers >= 1, "prepare", "{} workers; expected at least 1", options.workers);
  try {
    for (int i = 0; i < options.workers; ++i) threads_.emplace_back([this] { run(); });
  } catch (...) {
    stop();
    throw;
  }
}

EncodedBlocks::~EncodedBlocks() { stop(); }

void EncodedBlocks::stop() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

/// Reads a block when there is room for one; null at the end.
std::shared_ptr<EncodedBlocks::Item> EncodedBlocks::read() {
  const std::lock_guard reading(reading_);
  const std::size_t most = 2 * static_cast<std::size_t>(options_.workers) + 2;
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return stop_ || read_all_ || items_.size() < most; });
    if (stop_ || read_all_) return nullptr;
  }
  const auto item = std::make_shared<Item>();
  bool more = false;
  try {
    more = reader_.next(item->text);
  } catch (...) { item->error = std::current_exception(); }
  const std::lock_guard lock(mutex_);
  if (more || item->error) items_.push_back(item);
  if (!more) read_all_ = true;
  item->ready = item->error != nullptr;
  changed_.notify_all();
  return more ? item : nullptr;
}

void EncodedBlocks::run() {
  use_all_cores();
  while (const std::shared_ptr<Item> item = read()) {
    std::exception_ptr error;
    EncodedBlock encoded;
    try {
      encoded = encode(item->text, tokenizer_, options_, seen_);
    } catch (...) { error = std::current_exception(); }
    item->text.bytes = {};
    const std::lock_guard lock(mutex_);
    item->encoded = std::move(encoded);
    item->error = error;
    item->ready = true;
    changed_.notify_all();
  }
}

bool EncodedBlocks::next(EncodedBlock& block) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return items_.empty() ? read_all_ : items_.front()->ready; });
  if (items_.empty()) return false;
  const std::shared_ptr<Item> item = items_.front();
  if (item->error) std::rethrow_exception(item->error);
  items_.pop_front();
  lock.unlock();
  changed_.notify_all();
  block = std::move(item->encoded);
  return true;
}

}  // namespace trireme
