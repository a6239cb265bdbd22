#include "parallel/checkpoint/checkpoint.h"

#include <algorithm>

#include "data/safetensors.h"
#include "data/utf8.h"
#include "parallel/checkpoint/folder.h"

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;

/// The manifest of a folder that has its final name.
Manifest manifest_of(const fs::path& folder) {
  if (!is_checkpoint(folder)) {
    require_still_there(folder);
    fail(ExitCode::data, "checkpoint", "no manifest in {}: its saving was interrupted, or it is not a checkpoint",
         folder.string());
  }
  if (is_unfinished(folder))
    fail(ExitCode::data, "checkpoint", "{} never got its final name: its saving was interrupted", folder.string());
  Manifest manifest = read_manifest(folder);
  if (const std::string problem = name_problem(folder, manifest.step); !problem.empty())
    fail(ExitCode::data, "checkpoint", "{}", problem);
  return manifest;
}

/// The byte of each file at which its first tensor begins.
std::vector<std::uint64_t> first_offsets(const Manifest& manifest) {
  std::vector<std::uint64_t> first;
  for (const StoredFile& file : manifest.files) first.push_back(file.bytes);
  for (const auto& [name, tensor] : manifest.tensors)
    for (const Piece& piece : tensor.pieces) first[piece.file] = std::min(first[piece.file], piece.offset);
  return first;
}

/// Bytes between neighbours of each dim of a dense tensor.
Shape byte_strides(const Shape& shape, DType dtype) {
  Shape strides = row_major_strides(shape);
  for (std::int64_t& stride : strides) stride *= static_cast<std::int64_t>(size_of(dtype));
  return strides;
}

/// The intersection of a piece and a requested rectangle, as runs of bytes that are contiguous in both.
struct Overlap {
  Shape extent;    // of the intersection
  Shape from, to;  // strides, in bytes, in the file and in the dense result
  std::int64_t from_begin = 0, to_begin = 0;
  int run_dims = 0;  // how many of the last dims make up one run
  std::int64_t run_bytes = 0;

  Overlap(const Piece& piece, const Shape& start, const Shape& wanted, DType dtype)
      : extent(wanted), from(byte_strides(piece.shape, dtype)), to(byte_strides(wanted, dtype)) {
    for (int dim = 0; dim < wanted.dims(); ++dim) {
      const std::int64_t begin = std::max(piece.start[dim], start[dim]);
      const std::int64_t end = std::min(piece.start[dim] + piece.shape[dim], start[dim] + wanted[dim]);
      extent[dim] = std::max<std::int64_t>(end - begin, 0);
      from_begin += (begin - piece.start[dim]) * from[dim];
      to_begin += (begin - start[dim]) * to[dim];
    }
    run_bytes = static_cast<std::int64_t>(size_of(dtype));
    bool whole = true;  // the later dims are whole in both
    for (int dim = wanted.dims() - 1; dim >= 0 && whole; --dim) {
      run_bytes *= extent[dim];
      ++run_dims;
      whole = extent[dim] == piece.shape[dim] && extent[dim] == wanted[dim];
    }
  }

  /// Calls visit(from, to) with the byte offsets of each run, in the order of the file.
  template <class Visit>
  void each_run(const Visit& visit) const {
    if (extent.count() == 0) return;
    const int outer = extent.dims() - run_dims;
    std::vector<std::int64_t> index(static_cast<std::size_t>(outer), 0);
    std::int64_t at_from = from_begin, at_to = to_begin;
    while (true) {
      visit(at_from, at_to);
      int dim = outer - 1;
      for (; dim >= 0; --dim) {
        std::int64_t& i = index[static_cast<std::size_t>(dim)];
        at_from += from[dim];
        at_to += to[dim];
        if (++i < extent[dim]) break;
        at_from -= from[dim] * extent[dim];
        at_to -= to[dim] * extent[dim];
        i = 0;
      }
      if (dim < 0) return;
    }
  }
};

constexpr std::uint64_t length_bytes = 8;  // of a header's length, before the header

[[noreturn]] void refuse_header(const ChunkReader& reader, std::uint64_t byte, const std::string& what) {
  fail(ExitCode::data, "checkpoint", "{} byte {}: {}; resume from another checkpoint", reader.path().string(), byte,
       what);
}

/// `data_begins`: where the manifest has the first tensor; not below length_bytes, which parse_manifest() checks.
void check_header_length(ChunkReader& reader, std::uint64_t data_begins) {
  std::uint64_t length = 0;
  reader.read(0, std::as_writable_bytes(std::span(&length, 1)));
  if (length != data_begins - length_bytes)
    refuse_header(
        reader, 0,
        fmt::format("the header claims {} bytes; expected {}, as the manifest has the first tensor at byte {}", length,
                    data_begins - length_bytes, data_begins));
  if (length > safetensors_most_header_bytes)
    refuse_header(reader, 0,
                  fmt::format("a header of {} bytes; expected at most {}", length, safetensors_most_header_bytes));
}

}  // namespace

Checkpoint::Checkpoint(fs::path folder)
    : folder_(std::move(folder)), manifest_(manifest_of(folder_)), data_begins_(first_offsets(manifest_)) {}

const std::string& Checkpoint::run(const std::string& key) const {
  const auto found = manifest_.run.find(key);
  if (found == manifest_.run.end())
    fail(ExitCode::data, "checkpoint", "{} lacks the entry '{}' of a run; expected a checkpoint of train_gpt",
         (folder_ / manifest_name).string(), key);
  return found->second;
}

std::vector<std::string> Checkpoint::names() const {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : manifest_.tensors) names.push_back(name);
  return names;
}

const StoredTensor& Checkpoint::find(std::string_view name) const {
  const auto found = manifest_.tensors.find(name);
  if (found == manifest_.tensors.end())
    fail(ExitCode::data, "checkpoint", "{} has no tensor {}", folder_.string(), name);
  return found->second;
}

// The limit of open files may be small, and is shared by all rank threads.
ChunkReader& Checkpoint::file(std::size_t index) {
  constexpr std::size_t most_open = 4;
  auto found = files_.find(index);
  const bool first = found == files_.end();
  if (!open_.empty() && open_.back() == index) return found->second;
  std::erase(open_, index);
  if (open_.size() == most_open) {
    files_.at(open_.front()).close();
    open_.erase(open_.begin());
  }
  if (first) found = files_.try_emplace(index, folder_, manifest_.files[index]).first;
  open_.push_back(index);
  if (first) check_header_length(found->second, data_begins_[index]);
  return found->second;
}

// The manifest has all that the headers have, but other tools rely on the headers.
void Checkpoint::check_header(std::size_t index) {
  ChunkReader& reader = file(index);
  const StoredFile& stored_file = manifest_.files[index];
  std::string header(static_cast<std::size_t>(data_begins_[index]), '\0');
  reader.read(0, std::as_writable_bytes(std::span(header)));
  SafetensorsLayout layout = parse_safetensors_header(header, stored_file.bytes, reader.path());
  for (const auto& [tensor, stored] : manifest_.tensors)
    for (const Piece& piece : stored.pieces) {
      if (piece.file != index) continue;
      const auto found = layout.tensors.find(tensor);
      if (found == layout.tensors.end())
        refuse_header(reader, length_bytes,
                      fmt::format("the header lacks {}, which the manifest has in this file", in_quotes(tensor)));
      const SafetensorsLayout::Stored& here = found->second;
      if (here.dtype != stored.dtype || here.shape != piece.shape || here.begin != piece.offset)
        refuse_header(
            reader, here.header_at,
            fmt::format("the header has {} as {} {} at byte {}; expected {} {} at byte {}, as the manifest has",
                        in_quotes(tensor), trireme::name(here.dtype), to_string(here.shape), here.begin,
                        trireme::name(stored.dtype), to_string(piece.shape), piece.offset));
      layout.tensors.erase(found);
    }
  if (!layout.tensors.empty())
    refuse_header(reader, layout.tensors.begin()->second.header_at,
                  fmt::format("the header has {}, which the manifest does not have in this file",
                              in_quotes(layout.tensors.begin()->first)));
}

Tensor Checkpoint::read(std::string_view name) {
  const StoredTensor& tensor = find(name);
  Tensor whole = Tensor::empty(tensor.shape, tensor.dtype);
  Shape origin = tensor.shape;
  for (std::int64_t& start : origin) start = 0;
  read(name, origin, whole);
  return whole;
}

void Checkpoint::read(std::string_view name, const Shape& start, Tensor& into) {
  const StoredTensor& tensor = find(name);
  const bool in_place = into.contiguous() && into.device() == Device::cpu;
  Tensor dense = in_place ? into : Tensor::empty(into.shape(), into.dtype());
  require(into.dtype() == tensor.dtype && start.dims() == tensor.shape.dims(), "checkpoint",
          "{} is {} {}, asked for {} from {}", name, trireme::name(tensor.dtype), tensor.shape,
          trireme::name(into.dtype()), start);
  auto* const bytes = static_cast<std::byte*>(dense.raw());
  for (const Piece& piece : tensor.pieces) {
    const Overlap overlap(piece, start, into.shape(), tensor.dtype);
    overlap.each_run([&](std::int64_t from, std::int64_t to) {
      file(piece.file)
          .read(piece.offset + static_cast<std::uint64_t>(from),
                {bytes + to, static_cast<std::size_t>(overlap.run_bytes)});
    });
  }
  if (!in_place) copy(dense, into);
}

void Checkpoint::read(const std::vector<HeldTensor>& held, std::string_view hint) {
  for (const HeldTensor& tensor : held) {
    const auto found = manifest_.tensors.find(tensor.name);
    // The model's tensors follow from the manifest itself, the optimizer's state from this run's flags.
    const ExitCode code = tensor.name.starts_with("optimizer.") ? ExitCode::usage : ExitCode::data;
    if (found == manifest_.tensors.end())
      fail(code, "resume", "{} has no {}; {}", folder_.string(), tensor.name,
           code == ExitCode::data ? "expected it, because its model has it; resume from another checkpoint" : hint);
    const StoredTensor& stored = found->second;
    if (stored.shape != tensor.global || stored.dtype != tensor.value.dtype())
      fail(code, "resume", "{}: {} is {} {}; this model needs {} {}; use the model flags of that run", folder_.string(),
           tensor.name, name(stored.dtype), to_string(stored.shape), name(tensor.value.dtype()),
           to_string(tensor.global));
    Tensor value = tensor.value;
    read(tensor.name, tensor.start, value);
  }
}

void Checkpoint::verify(const std::function<void(std::uint64_t)>& verified) {
  std::uint64_t before = 0;
  for (std::size_t i = 0; i < manifest_.files.size(); ++i) {
    ChunkReader& reader = file(i);
    const std::uint64_t begin = reader.bytes_read();
    reader.verify_all([&] {
      if (verified) verified(before + reader.bytes_read() - begin);
    });
    before += reader.bytes_read() - begin;
    check_header(i);
  }
}

std::uint64_t Checkpoint::bytes_read() const {
  std::uint64_t sum = 0;
  for (const auto& [index, reader] : files_) sum += reader.bytes_read();
  return sum;
}

}  // namespace trireme::checkpoint
