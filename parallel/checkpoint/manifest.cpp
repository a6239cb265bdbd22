#include "parallel/checkpoint/manifest.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "core/hash.h"
#include "data/json.h"
#include "data/utf8.h"

namespace trireme::checkpoint {
namespace {

using nlohmann::json;
using namespace manifest_text;

json to_json(const Shape& shape) { return std::vector<std::int64_t>(shape.begin(), shape.end()); }

json to_json(const StoredFile& file) {
  std::string chunks;
  for (const std::uint64_t chunk : file.chunks) chunks += hexadecimal(chunk);
  return {{"name", file.name}, {"bytes", file.bytes}, {"chunks", chunks}};
}

json to_json(const StoredTensor& tensor) {
  json pieces = json::array();
  for (const Piece& p : tensor.pieces)
    pieces.push_back(
        {{"file", p.file}, {"offset", p.offset}, {"start", to_json(p.start)}, {"shape", to_json(p.shape)}});
  return {{"dtype", name(tensor.dtype)}, {"shape", to_json(tensor.shape)}, {"pieces", std::move(pieces)}};
}

bool overlap(const Piece& a, const Piece& b) {
  for (int dim = 0; dim < a.shape.dims(); ++dim) {
    if (a.start[dim] + a.shape[dim] <= b.start[dim] || b.start[dim] + b.shape[dim] <= a.start[dim]) return false;
  }
  return true;
}

}  // namespace

std::uint64_t Manifest::bytes() const {
  std::uint64_t sum = 0;
  for (const StoredFile& file : files) sum += file.bytes;
  return sum;
}

void merge(Manifest& whole, const Manifest& part) {
  const std::size_t first = whole.files.size();
  whole.files.insert(whole.files.end(), part.files.begin(), part.files.end());
  for (const auto& [name, tensor] : part.tensors) {
    StoredTensor& target = whole.tensors.try_emplace(name, StoredTensor{tensor.dtype, tensor.shape, {}}).first->second;
    require(target.dtype == tensor.dtype && target.shape == tensor.shape, "checkpoint",
            "ranks disagree on {}: {} {} and {} {}", name, trireme::name(target.dtype), target.shape,
            trireme::name(tensor.dtype), tensor.shape);
    for (Piece piece : tensor.pieces) {
      piece.file += first;
      target.pieces.push_back(piece);
    }
  }
}

// One line for each file and each tensor, so that it is readable in a pager.
std::string to_text(const Manifest& manifest) {
  std::string body = fmt::format("\"format\":{},\n\"step\":{},\n\"ranks\":{},\n\"mesh\":{},\n\"run\":{},\n\"files\":[",
                                 json(format_name).dump(), manifest.step, manifest.ranks, json(manifest.mesh).dump(),
                                 json(manifest.run).dump());
  const char* separator = "\n";
  for (const StoredFile& file : manifest.files) body += std::exchange(separator, ",\n") + to_json(file).dump();
  body += "],\n\"tensors\":{";
  separator = "\n";
  for (const auto& [name, tensor] : manifest.tensors)
    body += fmt::format("{}{}:{}", std::exchange(separator, ",\n"), json(name).dump(), to_json(tensor).dump());
  body += "}}\n";
  return fmt::format("{}{}{}{}", before_checksum, hexadecimal(hash_bytes(body)), after_checksum, body);
}

std::string cover_problem(const StoredTensor& tensor) {
  std::int64_t count = 0;
  for (std::size_t i = 0; i < tensor.pieces.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (overlap(tensor.pieces[i], tensor.pieces[j]))
        return fmt::format("two pieces that overlap, at {} and {}; expected every element in one",
                           tensor.pieces[j].start, tensor.pieces[i].start);
    }
    count += tensor.pieces[i].shape.count();  // no overflow: the pieces so far do not overlap
  }
  if (count == tensor.shape.count()) return {};
  return fmt::format("pieces of {} elements in all; expected {}, as the shape is {}", count, tensor.shape.count(),
                     tensor.shape);
}

std::string files_problem(const Manifest& manifest) {
  struct PieceBytes {
    std::size_t file;
    std::uint64_t begin, end;
    const std::string* tensor;
  };
  std::vector<PieceBytes> pieces;
  for (const auto& [name, tensor] : manifest.tensors) {
    for (const Piece& p : tensor.pieces) {
      const auto bytes = static_cast<std::uint64_t>(p.shape.count()) * size_of(tensor.dtype);
      pieces.push_back({p.file, p.offset, p.offset + bytes, &name});
    }
  }
  std::sort(pieces.begin(), pieces.end(), [](const PieceBytes& a, const PieceBytes& b) {
    return std::tie(a.file, a.begin, a.end) < std::tie(b.file, b.begin, b.end);
  });
  auto piece = pieces.begin();
  for (std::size_t file = 0; file < manifest.files.size(); ++file) {
    const StoredFile& stored = manifest.files[file];
    std::uint64_t at = 0;  // end of the pieces so far; 0: none yet, and the header's length is not known here
    for (; piece != pieces.end() && piece->file == file; ++piece) {
      if (at == 0 && piece->begin < sizeof(std::uint64_t))
        return fmt::format("tensor {} begins at byte {} of {}, in its header; expected 8 or more",
                           in_quotes(*piece->tensor), piece->begin, stored.name);
      if (at != 0 && piece->begin != at)
        return fmt::format("tensor {} begins at byte {} of {}; expected {}, where the one before it ends: {}",
                           in_quotes(*piece->tensor), piece->begin, stored.name, at,
                           piece->begin < at ? "an overlap" : "a hole");
      at = piece->end;
    }
    if (at != stored.bytes)
      return fmt::format("the tensors of {} end at byte {}; expected {}, its size", stored.name, at, stored.bytes);
  }
  return {};
}

void require_complete(const Manifest& manifest, const std::filesystem::path& path) {
  for (const auto& [name, tensor] : manifest.tensors) {
    if (const std::string problem = cover_problem(tensor); !problem.empty())
      fail(ExitCode::data, "checkpoint", "{}: tensor {} has {}", path.string(), in_quotes(name), problem);
  }
  if (const std::string problem = files_problem(manifest); !problem.empty())
    fail(ExitCode::data, "checkpoint", "{}: {}", path.string(), problem);
}

}  // namespace trireme::checkpoint
