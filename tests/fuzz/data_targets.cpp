// Targets for files: JSON, safetensors, token shards, manifests, metrics.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/hash.h"
#include "data/json.h"
#include "data/npy.h"
#include "data/npy_layout.h"
#include "data/safetensors.h"
#include "data/shard_layout.h"
#include "data/token_shard.h"
#include "data/utf8.h"
#include "ops/plot/braille.h"
#include "ops/plot/curves.h"
#include "ops/view/findings.h"
#include "ops/view/steps.h"
#include "parallel/checkpoint/manifest.h"
#include "tests/fuzz/targets.h"
#include "train/program/text_width.h"

namespace trireme::fuzz {

namespace {

const std::filesystem::path path = "input";

int depth_of(const nlohmann::json& value) {
  int deepest = 0;
  if (value.is_structured())
    for (const auto& item : value) deepest = std::max(deepest, depth_of(item));
  return value.is_structured() ? deepest + 1 : 0;
}

}  // namespace

void json(std::string_view input) {
  nlohmann::json value;
  if (!accepted([&] { value = parse_json(input, path); })) return;
  expect(depth_of(value) <= json_most_depth, "a value nested too deeply was accepted");
  const std::string text = value.dump();
  expect(parse_json(text, path) == value, "what was accepted is another value once written");
  // A callback that takes every value must see the values that a plain parse keeps, and leave an empty container.
  std::size_t members = 0;
  const nlohmann::json rest = parse_json(text, path, [&](const JsonPlace& place, const nlohmann::json& taken) {
    expect(place.at < text.size(), "a value begins outside the text");
    if (place.depth == 2) return false;
    ++members;
    expect(value.is_array() ? value.at(place.index) == taken : value.at(std::string(place.key)) == taken,
           "a value that is taken differs from the one that is kept");
    return true;
  });
  expect(!value.is_structured() || (members == value.size() && rest.empty()), "a value was not offered");
}

void safetensors(std::string_view input) {
  SafetensorsLayout layout;
  if (!accepted([&] { layout = parse_safetensors(input, path); })) return;
  std::vector<std::pair<std::string, SafetensorsLayout::Stored>> order(layout.tensors.begin(), layout.tensors.end());
  std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
    return std::pair(a.second.begin, a.second.end) < std::pair(b.second.begin, b.second.end);
  });
  std::uint64_t at = order.empty() ? input.size() : order.front().second.begin;
  std::vector<SafetensorsEntry> entries;
  std::string data;
  for (const auto& [name, stored] : order) {
    expect(stored.begin == at && stored.end >= at && stored.end <= input.size(), "tensors leave holes or overlap");
    expect(stored.end - stored.begin == static_cast<std::uint64_t>(stored.shape.count()) * size_of(stored.dtype),
           "a tensor's bytes are not what its shape says");
    at = stored.end;
    entries.push_back({name, stored.dtype, stored.shape});
    data += input.substr(static_cast<std::size_t>(stored.begin), static_cast<std::size_t>(stored.end - stored.begin));
  }
  expect(at == input.size(), "bytes are left");
  const std::string again = safetensors_header(entries, layout.metadata) + data;
  const SafetensorsLayout back = parse_safetensors(again, path);
  expect(back.metadata == layout.metadata && back.tensors.size() == entries.size(), "metadata or tensors were lost");
  for (const auto& [name, stored] : order) {
    const auto& other = back.tensors.at(name);
    expect(other.dtype == stored.dtype && other.shape == stored.shape &&
               std::string_view(again).substr(other.begin, other.end - other.begin) ==
                   input.substr(stored.begin, stored.end - stored.begin),
           "a tensor changed by being written");
  }
}

namespace {

void check_npy(const NpyHeader& header, std::size_t bytes) {
  expect(header.data_begin + static_cast<std::uint64_t>(header.shape.count()) * size_of(header.dtype) == bytes,
         "an array's bytes are not what its shape says");
  for (const std::int64_t extent : header.shape) expect(extent >= 0, "a negative extent");
}

}  // namespace

void npy(std::string_view input) {
  NpyHeader header;
  if (!accepted([&] { header = parse_npy(input, path); })) return;
  check_npy(header, input.size());
  const std::string again =
      npy_layout::header_of(header.dtype, header.shape) + std::string(input.substr(header.data_begin));
  const NpyHeader back = parse_npy(again, path);
  expect(back.dtype == header.dtype && back.shape == header.shape && !back.fortran_order,
         "an array changed by being written");
}

namespace {

void check_npz(std::string_view input) {
  std::vector<NpzEntry> entries;
  if (!accepted([&] { entries = parse_npz(input, path); })) return;
  std::size_t bytes = 0;
  std::string again, directory;
  for (const NpzEntry& entry : entries) {
    expect(entry.begin <= entry.end && entry.end <= input.size(), "an array lies outside its archive");
    bytes += entry.end - entry.begin;
    check_npy(entry.header, entry.end - entry.begin);
    const std::string_view content = input.substr(entry.begin, entry.end - entry.begin);
    const npy_layout::ArchivedFile file{.name = entry.name + ".npy",
                                        .begin = static_cast<std::uint32_t>(again.size()),
                                        .bytes = static_cast<std::uint32_t>(content.size()),
                                        .crc = crc32(content)};
    directory += npy_layout::directory_entry(file);
    again += npy_layout::local_header(file) + std::string(content);
  }
  expect(bytes <= input.size(), "arrays share bytes");
  const std::size_t begin = again.size();
  again += directory + npy_layout::directory_end(entries.size(), directory.size(), static_cast<std::uint32_t>(begin));
  const std::vector<NpzEntry> back = parse_npz(again, path);
  expect(back.size() == entries.size(), "an array was lost");
  for (std::size_t i = 0; i < back.size(); ++i)
    expect(back[i].name == entries[i].name && back[i].header.shape == entries[i].header.shape,
           "an array changed by being written");
}

/// The same archive with correct checksums, so that the code behind them is reached.
std::string with_checksums(std::string_view input) {
  std::string bytes(input);
  const std::string mark("PK\1\2", 4);
  for (std::size_t at = bytes.find(mark); at != std::string::npos; at = bytes.find(mark, at + 1)) {
    if (bytes.size() - at < npy_layout::directory_bytes) break;
    std::uint32_t size = 0, local = 0;
    std::memcpy(&size, bytes.data() + at + 20, sizeof size);
    std::memcpy(&local, bytes.data() + at + 42, sizeof local);
    if (local > bytes.size() || bytes.size() - local < npy_layout::local_bytes) continue;
    std::uint16_t name = 0, extra = 0;
    std::memcpy(&name, bytes.data() + local + 26, sizeof name);
    std::memcpy(&extra, bytes.data() + local + 28, sizeof extra);
    const std::size_t begin = std::size_t{local} + npy_layout::local_bytes + name + extra;
    if (begin > bytes.size() || bytes.size() - begin < size) continue;
    const std::uint32_t crc = crc32(std::string_view(bytes).substr(begin, size));
    std::memcpy(bytes.data() + at + 16, &crc, sizeof crc);
  }
  return bytes;
}

}  // namespace

void npz(std::string_view input) {
  check_npz(input);
  check_npz(with_checksums(input));
}

namespace {

void check_manifest(std::string_view text) {
  checkpoint::Manifest manifest;
  if (!accepted([&] { manifest = checkpoint::parse_manifest(text, path); })) {
    accepted([&] { checkpoint::parse_part(text); });
    return;
  }
  for (const checkpoint::StoredFile& file : manifest.files) {
    expect(std::filesystem::path(file.name).filename() == file.name && file.name != "." && file.name != "..",
           "a file's name leads out of the folder");
    expect(file.chunks.size() == (file.bytes + checkpoint::chunk_bytes - 1) / checkpoint::chunk_bytes,
           "a file has another number of chunks than bytes");
  }
  std::vector<std::uint64_t> first, covered(manifest.files.size());  // per file: where its data begins; bytes in pieces
  for (const checkpoint::StoredFile& file : manifest.files) first.push_back(file.bytes);
  for (const auto& [name, tensor] : manifest.tensors) {
    std::int64_t count = 0;
    for (const checkpoint::Piece& piece : tensor.pieces) {
      const auto bytes = static_cast<std::uint64_t>(piece.shape.count()) * size_of(tensor.dtype);
      expect(piece.file < manifest.files.size() && piece.offset + bytes <= manifest.files[piece.file].bytes,
             "a piece lies outside its file");
      for (int dim = 0; dim < tensor.shape.dims(); ++dim)
        expect(
            piece.start[dim] >= 0 && piece.shape[dim] >= 0 && piece.start[dim] + piece.shape[dim] <= tensor.shape[dim],
            "a piece lies outside its tensor");
      count += piece.shape.count();
      first[piece.file] = std::min(first[piece.file], piece.offset);
      covered[piece.file] += bytes;
    }
    expect(count == tensor.shape.count(), "pieces do not cover their tensor");
  }
  for (std::size_t file = 0; file < first.size(); ++file)
    expect(first[file] >= 8 && first[file] + covered[file] == manifest.files[file].bytes,
           "pieces do not cover their file");
  const std::string once = to_text(manifest);
  expect(to_text(checkpoint::parse_manifest(once, path)) == once, "a manifest changed by being written");
}

}  // namespace

void manifest(std::string_view input) {
  using namespace checkpoint::manifest_text;
  check_manifest(input);
  check_manifest(fmt::format("{}{}{}{}", before_checksum, hexadecimal(hash_bytes(input)), after_checksum, input));
}

namespace {

void check_shard(std::string_view input) {
  std::vector<std::uint64_t> aligned(input.size() / 8 + 1);  // like a mapped file
  std::memcpy(aligned.data(), input.data(), input.size());
  const auto content = std::as_bytes(std::span(aligned)).first(input.size());
  ShardHeader header;
  if (!accepted([&] { header = parse_token_shard(content, path); })) return;
  const std::size_t documents = shard_layout::documents_begin(static_cast<std::uint64_t>(header.tokens),
                                                              static_cast<std::uint64_t>(header.bytes_per_token));
  expect(header.tokens > 0 && header.documents >= 0 && header.first_token >= 0, "impossible numbers");
  expect(documents + 8 * static_cast<std::size_t>(header.documents) == input.size(), "the shard's size is another");
  for (std::int64_t i = 0; i < header.tokens; ++i) {
    const std::size_t at = shard_layout::header_bytes + static_cast<std::size_t>(i * header.bytes_per_token);
    std::int32_t id = 0;
    std::memcpy(&id, input.data() + at, static_cast<std::size_t>(header.bytes_per_token));
    expect(id >= 0 && id < header.vocab_size, "a token is outside the vocabulary");
  }
}

/// The same input with correct hashes, so that the code behind the hash checks is reached.
std::string rehashed(std::string_view input) {
  namespace layout = shard_layout;
  std::string bytes(input);
  if (bytes.size() < layout::header_bytes) return bytes;
  const auto put = [&](std::size_t at, std::uint64_t value) { std::memcpy(bytes.data() + at, &value, sizeof value); };
  std::memcpy(bytes.data(), layout::magic.data(), layout::magic.size());
  put(layout::payload_hash_at, hash_bytes(std::string_view(bytes).substr(layout::header_bytes)));
  put(layout::header_hash_at, hash_bytes(std::string_view(bytes).substr(0, layout::header_hash_at)));
  return bytes;
}

}  // namespace

void token_shard(std::string_view input) {
  check_shard(input);
  check_shard(rehashed(input));
}

void metrics(std::string_view input) {
  RunCurves run;
  if (!accepted([&] { run = parse_curves(input, path); })) return;
  for (const std::vector<CurvePoint>* points : {&run.loss, &run.validation})
    for (const CurvePoint& p : *points)
      expect(p.x >= 0 && p.x <= 1e15 && std::abs(p.y) < 1e100, "a point that no chart can show");
  if (run.loss.empty() && run.validation.empty()) return;
  run.name = std::string(input.substr(0, 50));
  const std::string chart = draw_curves({run, run}, {.columns = 50, .rows = 12}, true);
  for (std::size_t begin = 0, end = 0; (end = chart.find('\n', begin)) != std::string::npos; begin = end + 1) {
    const std::string_view line = std::string_view(chart).substr(begin, end - begin);
    expect(is_printable(line) && columns_of(line) <= 50, "a chart is wider than asked for, or drives the terminal");
  }
}

void trace(std::string_view input) {
  run_view::Profile profile;
  if (!accepted([&] { profile = run_view::profile_of(run_view::parse_trace(input, path), path); })) return;
  for (const run_view::Step& step : profile.steps) {
    expect(static_cast<int>(step.ranks.size()) == profile.ranks(), "a step without a rank of the mesh");
    for (const run_view::RankStep& rank : step.ranks)
      for (const run_view::Exchange& wait : rank.waits)
        expect(wait.last < profile.ranks() && wait.begin <= wait.ready && wait.ready <= wait.end,
               "a wait for a rank that does not exist, or at another time");
    double time = 0;
    for (const run_view::PathPiece& piece : run_view::critical_path(step)) {
      expect(piece.end >= piece.begin && piece.end >= time, "a chain that goes back in time");
      time = piece.end;
    }
  }
  for (const run_view::Finding& finding : run_view::step_findings(profile))
    expect(!finding.title.empty() && finding.rank < profile.ranks(), "a finding about nothing");
}

}  // namespace trireme::fuzz
