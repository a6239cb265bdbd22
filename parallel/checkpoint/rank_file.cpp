#include "parallel/checkpoint/rank_file.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

#include "core/parallel_for.h"
#include "data/safetensors.h"
#include "parallel/checkpoint/chunks.h"

namespace trireme::checkpoint {
namespace {

/// memcpy by all threads of the rank: a snapshot is as fast as memory.
void copy_bytes(std::byte* to, const std::byte* from, std::int64_t bytes) {
  parallel_for(bytes, std::int64_t{1} << 20, [&](std::int64_t begin, std::int64_t end) {
    std::memcpy(to + begin, from + begin, static_cast<std::size_t>(end - begin));
  });
}

/// The elements of x, dense. Those of a GPU come without another buffer on the host, which would cost page faults.
void copy_dense(std::byte* to, const Tensor& x) {
  const Tensor dense = contiguous(x);
  if (dense.device() == Device::cpu)
    copy_bytes(to, static_cast<const std::byte*>(dense.raw()), dense.bytes());
  else
    backend(dense.device()).download(to, dense.device_address(), static_cast<std::size_t>(dense.bytes()));
}

}  // namespace

// Uses large pages: training waits longest for the first copy into fresh memory, which costs a page fault per page.
void RankFile::reserve(std::size_t bytes) {
  constexpr std::size_t large_page = 2 << 20;
  memory_.reset();
  capacity_ = (bytes + large_page - 1) / large_page * large_page;
  memory_.reset(static_cast<std::byte*>(std::aligned_alloc(large_page, capacity_)));
  if (memory_ == nullptr) throw std::bad_alloc();
  static_cast<void>(::madvise(memory_.get(), capacity_, MADV_HUGEPAGE));  // a hint that some systems ignore
}

void RankFile::take(const std::vector<HeldTensor>& parts, int rank) {
  description_ = {};
  bytes_ = 0;
  if (parts.empty()) return;
  std::vector<SafetensorsEntry> entries;
  for (const HeldTensor& part : parts) entries.push_back({part.name, part.value.dtype(), part.value.shape()});
  std::vector<std::uint64_t> offsets;
  const std::string header =
      safetensors_header(entries, {{"format", "trireme checkpoint 1, pieces of tensors"}}, &offsets);
  bytes_ = offsets.back() + static_cast<std::size_t>(parts.back().value.bytes());
  if (bytes_ > capacity_) reserve(bytes_);
  std::memcpy(memory_.get(), header.data(), header.size());
  description_.files.push_back({.name = fmt::format("rank_{:05}.safetensors", rank), .bytes = bytes_, .chunks = {}});
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const HeldTensor& part = parts[i];
    copy_dense(memory_.get() + offsets[i], part.value);
    description_.tensors[part.name] = {
        part.value.dtype(), part.global, {{0, offsets[i], part.start, part.value.shape()}}};
  }
}

Manifest RankFile::write(const std::filesystem::path& folder) const {
  Manifest description = description_;
  if (empty()) return description;
  StoredFile& file = description.files.front();
  AtomicFile target(folder / file.name, bytes_);
  constexpr std::size_t at_once = 8 * chunk_bytes;  // hashed right before writing, while it is in a cache
  for (std::size_t at = 0; at < bytes_; at += at_once) {
    const auto part = content().subspan(at, std::min(at_once, bytes_ - at));
    const std::vector<std::uint64_t> sums = checksums(part);
    file.chunks.insert(file.chunks.end(), sums.begin(), sums.end());
    target.write(part);
  }
  target.commit();
  require_not_removed(folder);
  ChunkReader(folder, file).verify_all();
  return description;
}

}  // namespace trireme::checkpoint
