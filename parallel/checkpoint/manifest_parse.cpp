// Reads a manifest, and checks everything in it. It takes the tensors from the JSON parser one by one, so that it needs
// no more memory than the resulting Manifest.
#include <charconv>
#include <optional>
#include <set>
#include <utility>

#include "core/extents.h"
#include "core/hash.h"
#include "data/json.h"
#include "data/utf8.h"
#include "parallel/checkpoint/manifest.h"

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using namespace manifest_text;

std::optional<std::uint64_t> parse_hexadecimal(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  // Compare with the formatted value, so that no other spelling passes: a bit flip that makes a letter upper case is
  // damage.
  if (error != std::errc() || end != text.data() + text.size() || hexadecimal(value) != text) return std::nullopt;
  return value;
}

/// True for the name of a file in the folder itself: no path, not hidden, no control characters.
bool is_plain_name(std::string_view name) {
  constexpr std::size_t most = 255;
  return !name.empty() && name.size() <= most && name.front() != '.' &&
         name.find_first_of("/\\") == std::string_view::npos && is_printable(name);
}

class Parser {
 public:
  Parser(const fs::path& path, bool complete) : path_(path), complete_(complete) {}

  Manifest parse(std::string_view text) {
    manifest_.checksum = checked_checksum(text);
    const json rest = parse_json(text, path_, [this](const JsonPlace& place, json& value) {
      at_ = place.at;
      return take(place, value);
    });
    if (!rest.is_object()) refuse_at(0, "not a manifest; expected an object");
    at_ = text.size();
    for (const char* key : {"format", "step", "ranks", "mesh", "run", "files", "tensors"}) {
      if (!seen_.contains(key)) refuse(fmt::format("the manifest ends without \"{}\"; expected it", key));
    }
    if (const std::string problem = complete_ ? files_problem(manifest_) : ""; !problem.empty()) refuse(problem);
    return std::move(manifest_);
  }

 private:
  [[noreturn]] void refuse_at(std::size_t byte, const std::string& what) const {
    fail(ExitCode::data, "checkpoint", "{} byte {}: {}", path_.string(), byte, what);
  }
  [[noreturn]] void refuse(const std::string& what) const { refuse_at(at_, what); }

  std::uint64_t checked_checksum(std::string_view text) const {
    if (text.size() < body || !text.starts_with(before_checksum) ||
        text.substr(body - after_checksum.size(), after_checksum.size()) != after_checksum)
      refuse_at(0,
                fmt::format("its {} bytes do not begin as a manifest does; expected {}; it is damaged at byte 0 to {}",
                            text.size(), before_checksum, body));
    const std::string_view claimed = text.substr(before_checksum.size(), digits);
    const std::uint64_t found = hash_bytes(text.substr(body));
    if (hexadecimal(found) != claimed)
      refuse_at(body, fmt::format("bytes {} to {} have the checksum {}; expected {}; the manifest is damaged", body,
                                  text.size(), hexadecimal(found), in_quotes(claimed)));
    return found;
  }

  /// A member of the manifest, of its run, its files or its tensors.
  bool take(const JsonPlace& place, json& value) {
    if (place.depth == 1) {
      take_member(place, value);
      return true;
    }
    // Another version may store anything here: then report the version, not an error in the content.
    if (!seen_.contains("format")) refuse("an entry before \"format\"; expected that first");
    if (place.in_array != (place.parent == "files"))
      refuse(fmt::format("\"{}\" is {}; expected an {}", place.parent, place.in_array ? "an array" : "an object",
                         place.in_array ? "object" : "array"));
    if (place.parent == "files") {
      take_file(value);
    } else if (place.parent == "tensors") {
      if (!manifest_.tensors.emplace(place.key, tensor_from(place.key, value)).second) refuse_twice(place);
    } else if (place.parent == "run") {
      if (!value.is_string())
        refuse(fmt::format("the run's {} is {}; expected a text", in_quotes(place.key), shown(value)));
      run_bytes_ += place.key.size() + value.get_ref<const std::string&>().size() + 128;
      if (run_bytes_ > json_most_bytes)
        refuse(fmt::format("the texts of the run take more than {} bytes; expected fewer", json_most_bytes));
      if (!manifest_.run.emplace(place.key, std::move(value.get_ref<std::string&>())).second) refuse_twice(place);
    } else {
      refuse(fmt::format("an entry in {}; expected one in \"run\", \"files\" or \"tensors\"", in_quotes(place.parent)));
    }
    return true;
  }

  void take_member(const JsonPlace& place, const json& value) {
    if (!seen_.emplace(place.key).second) refuse_twice(place);
    const auto expect = [&](bool holds, const char* expected) {
      if (!holds) refuse(fmt::format("{} is {}; expected {}", in_quotes(place.key), shown(value), expected));
    };
    if (place.key == "format") {
      if (value != format_name)
        refuse(fmt::format("the format is {}; expected '{}'; use the version of the program that wrote it",
                           shown(value), format_name));
    } else if (place.key == "step") {
      manifest_.step = static_cast<std::int64_t>(size_from(value, "step"));
    } else if (place.key == "ranks") {
      const std::uint64_t ranks = size_from(value, "ranks");
      expect(ranks <= most_ranks, "fewer ranks");
      manifest_.ranks = static_cast<int>(ranks);
    } else if (place.key == "mesh") {
      expect(value.is_string() && is_printable(value.get_ref<const std::string&>()), "a text that can be printed");
      manifest_.mesh = value.get<std::string>();
    } else if (place.key == "run" || place.key == "tensors") {
      expect(value.is_object(), "an object");
    } else if (place.key == "files") {
      expect(value.is_array(), "an array");
    } else {
      expect(place.key == "checksum", "no such key");
    }
  }

  [[noreturn]] void refuse_twice(const JsonPlace& place) const {
    refuse(fmt::format("the key {} occurs twice; expected it once", in_quotes(place.key)));
  }

  std::uint64_t size_from(const json& value, std::string_view what) const {
    constexpr std::uint64_t most = std::uint64_t{1} << 56;  // sums of two of them still fit
    if (!value.is_number_unsigned() || value.get<std::uint64_t>() > most)
      refuse(fmt::format("{} is {}; expected a whole number below 2^56", what, shown(value)));
    return value.get<std::uint64_t>();
  }

  /// The member, which `object` must have.
  const json& member(const json& object, const char* key, const std::string& of) const {
    const auto found = object.is_object() ? object.find(key) : object.end();
    if (!object.is_object() || found == object.end())
      refuse(fmt::format("{} has no \"{}\": {}; expected one", of, key, shown(object)));
    return *found;
  }

  Shape shape_from(const json& value, const std::string& what) const {
    if (!value.is_array() || value.size() > Shape::max_dims)
      refuse(
          fmt::format("{}: {} is not a shape; expected at most {} whole numbers", what, shown(value), Shape::max_dims));
    std::vector<std::int64_t> extents;
    for (const json& extent : value) {
      extents.push_back(static_cast<std::int64_t>(size_from(extent, "an extent of " + what)));
      if (!are_possible(extents))
        refuse(
            fmt::format("{} has a shape too large to exist: {}; expected at most 2^48 elements", what, shown(value)));
    }
    return Shape(std::span<const std::int64_t>(extents));
  }

  DType dtype_from(const json& value, const std::string& what) const {
    for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16, DType::i64, DType::i32, DType::u8}) {
      if (value == name(dtype)) return dtype;
    }
    refuse(fmt::format("{} has the dtype {}, which this program does not know; expected f32, bf16, f16, ...", what,
                       shown(value)));
  }

  void take_file(const json& value) {
    const json& name = member(value, "name", "a file");
    if (!name.is_string() || !is_plain_name(name.get_ref<const std::string&>()))
      refuse(fmt::format("{} is not a plain file name; expected one without /, control characters or a dot in front",
                         shown(name)));
    StoredFile file{
        .name = name.get<std::string>(), .bytes = size_from(member(value, "bytes", "a file"), "bytes"), .chunks = {}};
    if (!names_.insert(file.name).second)
      refuse(fmt::format("the file {} is listed twice; expected it once", file.name));
    const json& sums = member(value, "chunks", "a file");
    const std::string_view chunks = sums.is_string() ? std::string_view(sums.get_ref<const std::string&>()) : "";
    if (!sums.is_string() || chunks.size() != digits * ((file.bytes + chunk_bytes - 1) / chunk_bytes))
      refuse(fmt::format("{} of {} bytes has {} digits of checksums; expected {} for each MiB", file.name, file.bytes,
                         chunks.size(), digits));
    for (std::size_t at = 0; at < chunks.size(); at += digits) {
      const auto chunk = parse_hexadecimal(chunks.substr(at, digits));
      if (!chunk) refuse(fmt::format("{} has a malformed checksum at digit {}; expected 0-9a-f", file.name, at));
      file.chunks.push_back(*chunk);
    }
    manifest_.files.push_back(std::move(file));
  }

  StoredTensor tensor_from(std::string_view name, const json& value) const {
    const std::string what = "tensor " + in_quotes(name);
    if (!is_printable(name)) refuse(what + " has a name with control characters; expected one that can be printed");
    StoredTensor tensor{.dtype = dtype_from(member(value, "dtype", what), what),
                        .shape = shape_from(member(value, "shape", what), what),
                        .pieces = {}};
    const json& pieces = member(value, "pieces", what);
    if (!pieces.is_array()) refuse(fmt::format("{} has the pieces {}; expected an array", what, shown(pieces)));
    tensor.pieces.reserve(pieces.size());
    for (const json& piece : pieces) tensor.pieces.push_back(piece_from(piece, what, tensor));
    if (const std::string problem = complete_ ? cover_problem(tensor) : ""; !problem.empty())
      refuse(fmt::format("{} has {}", what, problem));
    return tensor;
  }

  /// The piece; refuses one outside its tensor or its file.
  Piece piece_from(const json& value, const std::string& what, const StoredTensor& tensor) const {
    Piece piece{.file = size_from(member(value, "file", "a piece"), "a file's number"),
                .offset = size_from(member(value, "offset", "a piece"), "an offset"),
                .start = shape_from(member(value, "start", "a piece"), what),
                .shape = shape_from(member(value, "shape", "a piece"), what)};
    const int dims = tensor.shape.dims();
    bool fits = piece.file < manifest_.files.size() && piece.start.dims() == dims && piece.shape.dims() == dims;
    for (int dim = 0; fits && dim < dims; ++dim) fits = piece.start[dim] + piece.shape[dim] <= tensor.shape[dim];
    const auto bytes = static_cast<std::uint64_t>(piece.shape.count()) * size_of(tensor.dtype);
    if (!fits || piece.offset + bytes > manifest_.files[piece.file].bytes)
      refuse(
          fmt::format("{} of shape {} has a piece outside itself or its file: {}", what, tensor.shape, shown(value)));
    return piece;
  }

  static constexpr std::uint64_t most_ranks = 1 << 20;

  const fs::path& path_;
  bool complete_;
  std::size_t at_ = 0;  // byte at which the current entry begins
  std::size_t run_bytes_ = 0;
  std::set<std::string, std::less<>> seen_, names_;
  Manifest manifest_;
};

}  // namespace

Manifest parse_manifest(std::string_view text, const fs::path& path) { return Parser(path, true).parse(text); }

Manifest parse_part(std::string_view text) { return Parser("a rank's description", false).parse(text); }

}  // namespace trireme::checkpoint
