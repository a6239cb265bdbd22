#include "data/prepare/document_set.h"

#include <algorithm>
#include <mutex>
#include <span>
#include <utility>

#include "core/io.h"

namespace trireme {

DocumentSet::DocumentSet(std::filesystem::path path, std::int64_t count)
    : file_(std::move(path), 8 * static_cast<std::uint64_t>(count)), slots_(1024) {
  const InputFile stored(file_.path());
  std::vector<std::uint64_t> block;
  for (std::int64_t at = 0; at < count; at += static_cast<std::int64_t>(block.size())) {
    block.resize(static_cast<std::size_t>(std::min<std::int64_t>(1 << 16, count - at)));
    stored.read_at(8 * static_cast<std::uint64_t>(at), std::as_writable_bytes(std::span(block)));
    for (const std::uint64_t hash : block) put(hash);
  }
}

bool DocumentSet::contains(std::uint64_t hash) const {
  const std::shared_lock lock(mutex_);
  if (hash == 0) return has_zero_;
  const std::size_t mask = slots_.size() - 1;
  for (std::size_t at = hash & mask; slots_[at] != 0; at = (at + 1) & mask)
    if (slots_[at] == hash) return true;
  return false;
}

bool DocumentSet::insert(std::uint64_t hash) {
  {
    const std::unique_lock lock(mutex_);
    if (!put(hash)) return false;
  }
  file_.write(std::as_bytes(std::span(&hash, 1)));
  return true;
}

bool DocumentSet::put(std::uint64_t hash) {
  if (hash == 0) {
    count_ += has_zero_ ? 0 : 1;
    return !std::exchange(has_zero_, true);
  }
  if (4 * static_cast<std::size_t>(count_) >= 3 * slots_.size()) grow();
  const std::size_t mask = slots_.size() - 1;
  std::size_t at = hash & mask;
  for (; slots_[at] != 0; at = (at + 1) & mask)
    if (slots_[at] == hash) return false;
  slots_[at] = hash;
  ++count_;
  return true;
}

void DocumentSet::grow() {
  std::vector<std::uint64_t> larger(2 * slots_.size());
  const std::size_t mask = larger.size() - 1;
  for (const std::uint64_t hash : slots_) {
    if (hash == 0) continue;
    std::size_t at = hash & mask;
    while (larger[at] != 0) at = (at + 1) & mask;
    larger[at] = hash;
  }
  slots_ = std::move(larger);
}

}  // namespace trireme
