// Numbers as a GGUF file has them. Only for the parts of data/gguf/file.h.
#pragma once

#include <cstddef>
#include <cstring>
#include <string_view>

#include "data/gguf/file.h"

namespace trireme::gguf_numbers {

/// Bytes of a value; 0 for texts and arrays, whose length is in the file.
inline std::size_t size_of(GgufType type) {
  switch (type) {
    case GgufType::u8:
    case GgufType::i8:
    case GgufType::boolean:
      return 1;
    case GgufType::u16:
    case GgufType::i16:
      return 2;
    case GgufType::u32:
    case GgufType::i32:
    case GgufType::f32:
      return 4;
    case GgufType::u64:
    case GgufType::i64:
    case GgufType::f64:
      return 8;
    default:
      return 0;
  }
}

/// The number at the beginning of `bytes`, which must have enough of them.
template <class T>
T load(std::string_view bytes) {
  T value{};
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

}  // namespace trireme::gguf_numbers
