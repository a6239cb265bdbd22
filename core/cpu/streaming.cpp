// Streaming stores of x86-64. Elsewhere, an ordinary copy.
#include "core/cpu/streaming.h"

#include <cstddef>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace trireme::cpu {

#if defined(__x86_64__)

namespace {

constexpr std::int64_t line = 64;  // of a cache; stores that fill one leave the processor together

void stream_line(const std::byte* from, std::byte* to) {
#if defined(__AVX512F__)
  _mm512_stream_si512(reinterpret_cast<__m512i*>(to), _mm512_loadu_si512(from));
#elif defined(__AVX__)
  for (int i = 0; i < line; i += 32)
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to + i),
                        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + i)));
#else
  for (int i = 0; i < line; i += 16)
    _mm_stream_si128(reinterpret_cast<__m128i*>(to + i), _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i)));
#endif
}

/// While a line is copied, the line `ahead` bytes behind it is fetched; 0: no line is fetched.
template <std::int64_t ahead>
void stream_lines(const void* from, void* to, std::int64_t bytes) {
  const auto* x = static_cast<const std::byte*>(from);
  auto* y = static_cast<std::byte*>(to);
  const std::int64_t behind = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(y) % line);
  std::int64_t i = std::min(bytes, (line - behind) % line);  // up to the first whole line of y
  std::memcpy(y, x, static_cast<std::size_t>(i));
  for (; i + line <= bytes; i += line) {
    if constexpr (ahead > 0) __builtin_prefetch(x + i + ahead);
    stream_line(x + i, y + i);
  }
  std::memcpy(y + i, x + i, static_cast<std::size_t>(bytes - i));
}

}  // namespace

void stream(const void* from, void* to, std::int64_t bytes) { stream_lines<0>(from, to, bytes); }

void stream_from_memory(const void* from, void* to, std::int64_t bytes) { stream_lines<page_bytes>(from, to, bytes); }

void end_of_stream() { _mm_sfence(); }

#else

void stream(const void* from, void* to, std::int64_t bytes) { std::memcpy(to, from, static_cast<std::size_t>(bytes)); }

void stream_from_memory(const void* from, void* to, std::int64_t bytes) { stream(from, to, bytes); }

void end_of_stream() {}

#endif

}  // namespace trireme::cpu
