// How a manifest's text begins, for its writer and its reader: {"checksum":"0123456789abcdef", then the rest of the
// text, which has this checksum. Read next: parallel/checkpoint/manifest_parse.cpp.
#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace trireme::checkpoint::manifest_text {

inline constexpr std::string_view format_name = "trireme checkpoint 1";
inline constexpr std::string_view before_checksum = "{\"checksum\":\"", after_checksum = "\",\n";
inline constexpr std::size_t digits = 16;                                                     // of a checksum
inline constexpr std::size_t body = before_checksum.size() + digits + after_checksum.size();  // where the rest begins

inline std::string hexadecimal(std::uint64_t value) { return fmt::format("{:016x}", value); }  ///< 16 digits

}  // namespace trireme::checkpoint::manifest_text
