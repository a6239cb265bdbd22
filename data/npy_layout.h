// What readers and writers of NumPy's files share. Read next: data/npy.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/dtype.h"
#include "core/shape.h"

namespace trireme::npy_layout {

/// Magic, version, length and dictionary, padded to a multiple of 64 bytes. Throws ExitCode::usage for bf16.
std::string header_of(DType dtype, const Shape& extents);

// Of a ZIP archive: what begins a file's header, its entry in the directory and the directory's end, and their bytes
// without names.
inline constexpr std::uint32_t local_mark = 0x04034b50, directory_mark = 0x02014b50, end_mark = 0x06054b50;
inline constexpr std::size_t local_bytes = 30, directory_bytes = 46, end_bytes = 22;
inline constexpr std::uint32_t all_ones = 0xFFFFFFFF;  // the number is in a field for archives of more than 4 GiB
inline constexpr std::string_view suffix = ".npy";

/// The CRC-32 of more bytes, given that of those before; 0: there are none.
std::uint32_t continue_crc(std::uint32_t crc, std::string_view bytes);

/// A file in an archive.
struct ArchivedFile {
  std::string name;                    ///< "x.npy"
  std::uint32_t begin = 0, bytes = 0;  ///< of its local header, in the archive; of its content
  std::uint32_t crc = 0;               ///< of its content
};
std::string local_header(const ArchivedFile& file);     ///< the content follows
std::string directory_entry(const ArchivedFile& file);  ///< all of them follow the last content
/// `bytes`, `begin`: of the directory.
std::string directory_end(std::size_t files, std::size_t bytes, std::uint32_t begin);

}  // namespace trireme::npy_layout
