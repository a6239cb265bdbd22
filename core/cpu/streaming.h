// Results that are too large for the caches are written to memory directly, by streaming stores. An ordinary store
// first reads the line that it overwrites, and displaces another one from the cache; a streaming store does neither. So
// a kernel with one operation for each element moves only two thirds to three quarters of the bytes.
//
// Smaller results are stored as usual, because what reads them next finds them in a cache. Read next: elementwise.cpp.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/cpu/loops.h"

namespace trireme::cpu {

/// The size of a common last-level cache, in bytes. A smaller result of arithmetic is still in it when it is read next.
inline constexpr std::int64_t last_level_bytes = 32 << 20;
constexpr bool is_streamed(std::int64_t bytes) { return bytes >= last_level_bytes; }

/// Whether a copy of so many bytes is written past the caches. For 16 MiB this takes 0.7 of the time with one thread,
/// and 1.5 times as long with two (concat in bf16, Zen 5).
inline bool copy_is_streamed(std::int64_t bytes) {
  return bytes >= (threads() == 1 ? last_level_bytes / 2 : last_level_bytes);
}

/// Copies bytes past the caches. Other threads see them after end_of_stream().
void stream(const void* from, void* to, std::int64_t bytes);
/// The same for bytes that are in no cache: fetches a page ahead, because the processor fetches within a page only.
void stream_from_memory(const void* from, void* to, std::int64_t bytes);
void end_of_stream();

/// parallel_elements() over the dense tensor y, whose elements are at `elements`: body(first, last, place) writes
/// elements [first, last) to `place`. A large y is written in blocks, each in a buffer that is then copied past the
/// caches.
///
/// For kernels that wait for memory: arithmetic does not go on while a block is copied. Where an element takes an exp,
/// or a conversion to 16 bits, this is slower than ordinary stores.
template <class T, class Body>
void write_elements(const Tensor& y, std::int64_t grain, T* elements, Body&& body) {
  if (sizeof(T) < 4 || !is_streamed(y.bytes()))
    return parallel_elements(y.count(), grain,
                             [&](std::int64_t begin, std::int64_t end) { body(begin, end, elements + begin); });
  parallel_elements(y.count(), grain, [&](std::int64_t begin, std::int64_t end) {
    alignas(64) T block[block_elements];
    for (std::int64_t first = begin; first < end; first += block_elements) {
      const std::int64_t last = std::min(end, first + block_elements);
      body(first, last, block);
      stream(block, elements + first, (last - first) * static_cast<std::int64_t>(sizeof(T)));
    }
    end_of_stream();
  });
}

}  // namespace trireme::cpu
