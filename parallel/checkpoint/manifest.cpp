#include "parallel/checkpoint/manifest.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <utility>

#include "core/hash.h"
#include "data/json.h"

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* format_name = "trireme checkpoint 1";
// The text is {"checksum":"0123456789abcdef", and the rest, of which that is the checksum.
constexpr std::string_view before_checksum = "{\"checksum\":\"", after_checksum = "\",\n";
constexpr std::size_t digits = 16;

[[noreturn]] void refuse(const fs::path& path, const std::string& what) {
  fail(ExitCode::data, "checkpoint", "{}: {}", path.string(), what);
}

std::string hexadecimal(std::uint64_t value) { return fmt::format("{:016x}", value); }

std::optional<std::uint64_t> parse_hexadecimal(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  // Written back, so that no other spelling passes: a flipped bit that makes a letter a capital is damage.
  if (error != std::errc() || end != text.data() + text.size() || hexadecimal(value) != text) return std::nullopt;
  return value;
}

// ---- writing --------------------------------------------------------------------------------------------------------

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

// ---- reading --------------------------------------------------------------------------------------------------------

std::uint64_t size_from(const json& value, const fs::path& path, std::string_view what) {
  constexpr std::uint64_t most = std::uint64_t{1} << 56;  // sums of two of them still fit
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() > most)
    refuse(path, fmt::format("{} is {}; expected a whole number below 2^56", what, value.dump()));
  return value.get<std::uint64_t>();
}

Shape shape_from(const json& value, const fs::path& path, const std::string& tensor) {
  if (!value.is_array() || value.size() > Shape::max_dims)
    refuse(path, fmt::format("tensor {}: {} is not a shape", tensor, value.dump()));
  std::vector<std::int64_t> extents;
  std::int64_t count = 1;
  for (const json& extent : value) {
    const auto rows = static_cast<std::int64_t>(size_from(extent, path, "an extent of " + tensor));
    if (__builtin_mul_overflow(count, std::max<std::int64_t>(rows, 1), &count) || count > (std::int64_t{1} << 52))
      refuse(path, fmt::format("tensor {} has a shape too large to exist: {}", tensor, value.dump()));
    extents.push_back(rows);
  }
  return Shape(std::span<const std::int64_t>(extents));
}

DType dtype_from(const json& value, const fs::path& path, const std::string& tensor) {
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16, DType::i64, DType::i32, DType::u8}) {
    if (value == name(dtype)) return dtype;
  }
  refuse(path, fmt::format("tensor {} has the dtype {}, which this program does not know", tensor, value.dump()));
}

StoredFile file_from(const json& value, const fs::path& path) {
  StoredFile file{
      .name = value.at("name").get<std::string>(), .bytes = size_from(value.at("bytes"), path, "bytes"), .chunks = {}};
  if (file.name.empty() || file.name.front() == '.' || file.name.find('/') != std::string::npos)
    refuse(path, fmt::format("'{}' is not a plain file name", file.name));
  const auto chunks = value.at("chunks").get<std::string>();
  if (chunks.size() != digits * ((file.bytes + chunk_bytes - 1) / chunk_bytes))
    refuse(path, fmt::format("{} of {} bytes has {} digits of checksums; expected {} for each MiB", file.name,
                             file.bytes, chunks.size(), digits));
  for (std::size_t at = 0; at < chunks.size(); at += digits) {
    const auto chunk = parse_hexadecimal(std::string_view(chunks).substr(at, digits));
    if (!chunk) refuse(path, fmt::format("{} has a malformed checksum at digit {}", file.name, at));
    file.chunks.push_back(*chunk);
  }
  return file;
}

/// The piece, which lies within its tensor and its file.
Piece piece_from(const json& value, const std::string& name, const StoredTensor& tensor,
                 const std::vector<StoredFile>& files, const fs::path& path) {
  Piece piece{.file = size_from(value.at("file"), path, "a file's number"),
              .offset = size_from(value.at("offset"), path, "an offset"),
              .start = shape_from(value.at("start"), path, name),
              .shape = shape_from(value.at("shape"), path, name)};
  bool fits = piece.file < files.size() && piece.start.dims() == tensor.shape.dims() &&
              piece.shape.dims() == tensor.shape.dims();
  for (int dim = 0; fits && dim < tensor.shape.dims(); ++dim)
    fits = piece.start[dim] + piece.shape[dim] <= tensor.shape[dim];
  const auto bytes = static_cast<std::uint64_t>(piece.shape.count()) * size_of(tensor.dtype);
  if (!fits || piece.offset + bytes > files[piece.file].bytes)
    refuse(path, fmt::format("tensor {} of shape {} has a piece outside itself or its file: {}", name,
                             to_string(tensor.shape), value.dump()));
  return piece;
}

Manifest manifest_from(const json& value, const fs::path& path) {
  if (value.at("format") != format_name)
    refuse(path, fmt::format("the format is {}; expected '{}'; use the version of the program that wrote it",
                             value.at("format").dump(), format_name));
  Manifest manifest;
  manifest.step = static_cast<std::int64_t>(size_from(value.at("step"), path, "step"));
  manifest.ranks = value.at("ranks").get<int>();
  manifest.mesh = value.at("mesh").get<std::string>();
  manifest.run = value.at("run").get<std::map<std::string, std::string>>();
  for (const json& file : value.at("files")) manifest.files.push_back(file_from(file, path));
  for (const auto& [name, tensor] : value.at("tensors").items()) {
    StoredTensor stored{.dtype = dtype_from(tensor.at("dtype"), path, name),
                        .shape = shape_from(tensor.at("shape"), path, name),
                        .pieces = {}};
    for (const json& piece : tensor.at("pieces"))
      stored.pieces.push_back(piece_from(piece, name, stored, manifest.files, path));
    manifest.tensors.emplace(name, std::move(stored));
  }
  return manifest;
}

/// Checks the text's checksum, and parses it.
Manifest checked_parse(std::string_view text, const fs::path& path) {
  constexpr std::size_t body = before_checksum.size() + digits + after_checksum.size();
  if (text.size() < body || !text.starts_with(before_checksum) ||
      text.substr(body - after_checksum.size(), after_checksum.size()) != after_checksum)
    refuse(path, fmt::format("its {} bytes do not begin as a manifest does; it is damaged at byte 0 to {}", text.size(),
                             body));
  const std::string_view claimed = text.substr(before_checksum.size(), digits);
  const std::string found = hexadecimal(hash_bytes(text.substr(body)));
  if (found != claimed)
    refuse(path, fmt::format("bytes {} to {} have the checksum {}; expected {}; the manifest is damaged", body,
                             text.size(), found, claimed));
  // The pieces of many ranks are many: their number is bounded by the text's length alone.
  const json value = parse_json(text, path, text.size());
  try {
    return manifest_from(value, path);
  } catch (const json::exception& error) { refuse(path, fmt::format("not a manifest: {}", error.what())); }
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

// A line for each file and each tensor, for those who look at it with a pager.
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

Manifest parse_manifest(std::string_view text, const fs::path& path) {
  Manifest manifest = checked_parse(text, path);
  require_complete(manifest, path);
  return manifest;
}

Manifest parse_part(std::string_view text) { return checked_parse(text, "a rank's description"); }

void require_complete(const Manifest& manifest, const fs::path& path) {
  for (const auto& [name, tensor] : manifest.tensors) {
    std::int64_t count = 0;
    for (std::size_t i = 0; i < tensor.pieces.size(); ++i) {
      count += tensor.pieces[i].shape.count();
      for (std::size_t j = 0; j < i; ++j) {
        if (overlap(tensor.pieces[i], tensor.pieces[j]))
          refuse(path, fmt::format("tensor {} has two pieces that overlap, at {} and {}", name,
                                   to_string(tensor.pieces[j].start), to_string(tensor.pieces[i].start)));
      }
    }
    if (count != tensor.shape.count())
      refuse(path, fmt::format("tensor {} of shape {} has pieces of {} elements in all; expected {}", name,
                               to_string(tensor.shape), count, tensor.shape.count()));
  }
}

}  // namespace trireme::checkpoint
