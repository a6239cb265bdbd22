// Arrays of NumPy between tensors and files.
#include "data/npy.h"

#include <cstring>
#include <set>

#include "core/io.h"
#include "data/mapped_file.h"
#include "data/npy_layout.h"
#include "data/utf8.h"

namespace trireme {
namespace {

using namespace npy_layout;

/// The strides of a tensor whose first index varies fastest.
Shape column_major_strides(const Shape& shape) {
  Shape strides = shape;
  std::int64_t next = 1;
  for (int dim = 0; dim < shape.dims(); ++dim) {
    strides[dim] = next;
    next *= shape[dim];
  }
  return strides;
}

std::string_view bytes_of(const Tensor& dense) {
  return {static_cast<const char*>(dense.raw()), static_cast<std::size_t>(dense.bytes())};
}

}  // namespace

Tensor npy_elements(std::string_view content, const NpyHeader& header) {
  Tensor tensor = Tensor::empty(header.shape, header.dtype);
  if (tensor.count() > 0)
    std::memcpy(tensor.raw(), content.data() + header.data_begin, static_cast<std::size_t>(tensor.bytes()));
  if (!header.fortran_order || tensor.count() == 0) return tensor;
  return contiguous(tensor.as_strided(header.shape, column_major_strides(header.shape), 0));
}

Tensor read_npy(const std::filesystem::path& path) {
  const MappedFile file(path);
  Tensor tensor = npy_elements(file.text(), parse_npy(file.text(), path));
  file.require_whole();
  return tensor;
}

void write_npy(const std::filesystem::path& path, const Tensor& tensor) {
  require(tensor.defined(), "npy", "the tensor for {} is undefined; expected one with elements", path.string());
  const std::string header = header_of(tensor.dtype(), tensor.shape());
  const Tensor dense = contiguous(tensor.to(Device::cpu));
  AtomicFile file(path, header.size() + static_cast<std::uint64_t>(dense.bytes()));
  file.write(header);
  file.write(bytes_of(dense));
  file.commit();
}

std::map<std::string, Tensor> read_npz(const std::filesystem::path& path) {
  const MappedFile file(path);
  std::map<std::string, Tensor> tensors;
  for (const NpzEntry& entry : parse_npz(file.text(), path))
    tensors[entry.name] = npy_elements(file.text().substr(entry.begin, entry.end - entry.begin), entry.header);
  file.require_whole();
  return tensors;
}

void write_npz(const std::filesystem::path& path, const std::vector<std::pair<std::string, Tensor>>& tensors) {
  std::set<std::string_view> names;
  std::uint64_t total = end_bytes;
  for (const auto& [name, tensor] : tensors) {
    if (name.empty() || name.size() > 1000 || valid_utf8_prefix(name) != name.size() || !names.insert(name).second)
      fail(ExitCode::usage, "npz", "an array named {}; expected names of 1 to 1000 bytes in UTF-8, each once",
           in_quotes(name));
    require(tensor.defined(), "npz", "the tensor {} is undefined; expected one with elements", name);
    total += local_bytes + directory_bytes + 2 * (name.size() + suffix.size()) +
             header_of(tensor.dtype(), tensor.shape()).size() + static_cast<std::uint64_t>(tensor.bytes());
  }
  if (total >= all_ones || tensors.size() > npz_most_entries)
    fail(ExitCode::usage, "npz",
         "{} arrays of {} bytes; expected at most {} and less than 4 GiB; write .npy files, or safetensors",
         tensors.size(), total, npz_most_entries);
  AtomicFile file(path, total);
  std::string directory;
  for (const auto& [name, tensor] : tensors) {
    const std::string header = header_of(tensor.dtype(), tensor.shape());
    const Tensor dense = contiguous(tensor.to(Device::cpu));
    const ArchivedFile archived{.name = name + std::string(suffix),
                                .begin = static_cast<std::uint32_t>(file.bytes_written()),
                                .bytes = static_cast<std::uint32_t>(header.size() + bytes_of(dense).size()),
                                .crc = continue_crc(crc32(header), bytes_of(dense))};
    directory += directory_entry(archived);
    file.write(local_header(archived) + header);
    file.write(bytes_of(dense));
  }
  directory += directory_end(tensors.size(), directory.size(), static_cast<std::uint32_t>(file.bytes_written()));
  file.write(directory);
  file.commit();
}

}  // namespace trireme
