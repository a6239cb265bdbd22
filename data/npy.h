// Arrays of NumPy: .npy files with one, .npz files with several under names.
//
//   write_npy("x.npy", x);                              // np.load("x.npy")
//   const Tensor y = read_npy("y.npy");                 // np.save("y.npy", y)
//   write_npz("all.npz", {{"x", x}, {"y", y}});
//   const std::map<std::string, Tensor> all = read_npz("all.npz");
//
// The format (numpy.lib.format, versions 1 to 3): 6 bytes of magic, 2 of version, the header's length, a header that is
// a Python dictionary with dtype, order and shape, then the elements. A .npz file is a ZIP archive (PKWARE APPNOTE 6.3,
// sections 4.3 to 4.5) of such files, stored without compression.
//
// f64, f32, f16, i64, i32 and u8 are read and written. NumPy has no bf16: cast to f32 first. Arrays in Fortran order
// become row-major tensors. Big-endian and structured arrays and compressed archives are refused.
// Read next: data/safetensors.h, which also has bf16.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/tensor.h"

namespace trireme {

/// What the header of a .npy file says, checked against the size of the content.
struct NpyHeader {
  DType dtype = DType::f32;
  Shape shape;
  bool fortran_order = false;  ///< the first index varies fastest
  std::size_t data_begin = 0;  ///< bytes, in the content; the elements reach up to its end
};

/// Parses the content of `path`, or of the file `path`(`member`) of an archive, which begins at byte `first` of it.
/// Throws ExitCode::data, with file and byte, if it is malformed, its size contradicts its header, the dtype is not
/// supported, or it has more than 6 dims or at least 2^56 elements.
NpyHeader parse_npy(std::string_view content, const std::filesystem::path& path, std::size_t first = 0);

/// The elements behind such a header, as a dense row-major tensor.
Tensor npy_elements(std::string_view content, const NpyHeader& header);

/// One array of an archive.
struct NpzEntry {
  std::string name = {};           ///< without ".npy"
  std::size_t begin = 0, end = 0;  ///< bytes of its .npy file, in the archive
  NpyHeader header = {};
};
inline constexpr std::size_t npz_most_entries = 65'534;

/// Parses the content of `path`. Throws ExitCode::data as parse_npy(), and if the archive is malformed, compressed,
/// encrypted, larger than 4 GiB or damaged (CRC-32), or if entries overlap or have one name.
std::vector<NpzEntry> parse_npz(std::string_view content, const std::filesystem::path& path);

/// The checksum of ZIP archives.
std::uint32_t crc32(std::string_view bytes);

/// Throws as parse_npy(), and ExitCode::io if the file cannot be read.
Tensor read_npy(const std::filesystem::path& path);
/// All arrays of an archive, by name; throws as parse_npz(), and ExitCode::io.
std::map<std::string, Tensor> read_npz(const std::filesystem::path& path);

/// A file is complete or absent. Throws ExitCode::usage for bf16, two arrays of one name, and 4 GiB or more in an
/// archive; ExitCode::io if it cannot be written.
/// @snippet files_test.cpp npy
void write_npy(const std::filesystem::path& path, const Tensor& tensor);
/// The same for an archive of arrays, each under its name.
void write_npz(const std::filesystem::path& path, const std::vector<std::pair<std::string, Tensor>>& tensors);

}  // namespace trireme
