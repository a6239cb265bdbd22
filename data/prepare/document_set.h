// Finds documents that were seen before, by a table of 64-bit hashes of their texts (hash_bytes).
//
// Memory: 11 to 27 bytes per different document (a table of 8-byte entries, at most 0.75 full, which doubles; while it
// grows, the old one is there as well). 8 bytes per document are on disk until the end, so that a later start can go
// on. Two different documents have the same hash with a probability of n^2 / 2^65 among n: 3e-6 for ten million, 3 %
// for a billion; then the later one is left out.
// Read next: data/prepare/pipeline.h.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <shared_mutex>
#include <vector>

#include "core/io_growing.h"

namespace trireme {

/// Hashes of documents, in memory and in a file; see the top of this file.
class DocumentSet {
 public:
  /// Keeps the hashes in `path`, too; goes on with the first `count` of them. Throws ExitCode::data if it has fewer.
  DocumentSet(std::filesystem::path path, std::int64_t count);

  /// Whether a document with this hash was inserted. Any thread may ask.
  bool contains(std::uint64_t hash) const;
  /// Returns false if it was there already. One thread inserts.
  bool insert(std::uint64_t hash);
  std::int64_t count() const { return count_; }  ///< different documents
  void sync() { file_.sync(); }                  ///< the first count() hashes are on disk

 private:
  bool put(std::uint64_t hash);
  void grow();

  mutable std::shared_mutex mutex_;
  GrowingFile file_;
  std::vector<std::uint64_t> slots_;  // 0: free
  bool has_zero_ = false;             // the hash 0, which would look like a free slot
  std::int64_t count_ = 0;
};

}  // namespace trireme
