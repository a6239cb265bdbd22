#include "train/runs/checkpoint_report.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "data/utf8.h"
#include "train/program/text_width.h"
#include "train/program/units.h"
#include "train/report/report.h"
#include "train/runs/run_texts.h"

namespace trireme {
namespace {

using checkpoint::Checkpoint;

std::string size_text(std::uint64_t bytes) { return format_bytes(static_cast<double>(bytes)); }

/// "1 rank", "2 ranks".
std::string counted(std::size_t count, const std::string& what) {
  return fmt::format("{} {}{}", thousands(static_cast<std::int64_t>(count)), what, count == 1 ? "" : "s");
}

bool is_state(const std::string& tensor) { return tensor.starts_with("optimizer."); }

/// "12 tensors, 3,400 elements, 13.3 KiB" for the tensors whose names begin with `prefix`. An empty prefix means all
/// tensors except optimizer state.
std::string count_text(const Checkpoint& saved, const std::string& prefix) {
  std::size_t count = 0;
  std::int64_t elements = 0;
  std::uint64_t bytes = 0;
  for (const auto& [name, tensor] : saved.manifest().tensors) {
    if (prefix.empty() ? is_state(name) : !name.starts_with(prefix)) continue;
    ++count;
    elements += tensor.shape.count();
    bytes += static_cast<std::uint64_t>(tensor.shape.count()) * size_of(tensor.dtype);
  }
  return fmt::format("{}, {} elements, {}", counted(count, "tensor"), thousands(elements), size_text(bytes));
}

std::string tensor_lines(const Checkpoint& saved) {
  std::string text;
  for (const auto& [tensor_name, tensor] : saved.manifest().tensors) {
    text += fmt::format("{}  {} {}\n", tensor_name, name(tensor.dtype), to_string(tensor.shape));
    for (const checkpoint::Piece& piece : tensor.pieces)
      text += fmt::format("    {} at {} in {}, byte {}\n", to_string(piece.shape), to_string(piece.start),
                          saved.manifest().files[piece.file].name, piece.offset);
  }
  return text;
}

std::string files_text(const checkpoint::Manifest& m, std::size_t most) {
  std::string text = fmt::format("{}, {}", counted(m.files.size(), "file"), size_text(m.bytes()));
  for (std::size_t i = 0; i < std::min(most, m.files.size()); ++i)
    text += fmt::format("\n{} ({}, {})", m.files[i].name, size_text(m.files[i].bytes),
                        counted(m.files[i].chunks.size(), "chunk"));
  if (m.files.size() > most) text += fmt::format("\n... and {} more", m.files.size() - most);
  return text;
}

std::optional<double> loss_of(const checkpoint::Manifest& m) {
  const auto progress = m.run.find("progress");
  if (progress == m.run.end()) return std::nullopt;
  const auto json = nlohmann::json::parse(progress->second, nullptr, false);
  if (!json.is_object() || !json.contains("loss") || !json["loss"].is_number()) return std::nullopt;
  return json["loss"].get<double>();
}

/// A value of JSON in words: numbers rounded and with separators, "on" and "off", and objects as "key value, ...".
std::string value_text(const nlohmann::json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_boolean()) return value.get<bool>() ? "on" : "off";
  if (value.is_null()) return "none";
  if (value.is_number_unsigned() && value.get<std::uint64_t>() > INT64_MAX) return value.dump();
  if (value.is_number_integer()) return thousands(value.get<std::int64_t>());
  if (value.is_number()) return fmt::format("{:.5g}", value.get<double>());
  std::string text;
  for (const auto& [key, inner] : value.items()) {
    if (!text.empty()) text += ", ";
    if (!value.is_object())
      text += value_text(inner);
    else if (key == "hash")
      text += key + " " + inner.dump();
    else if (inner.is_structured())
      text += inner.empty() ? key + " none" : fmt::format("{} ({})", key, value_text(inner));
    else
      text += fmt::format("{} {}", key, value_text(inner));
  }
  return text.empty() ? "none" : text;
}

/// The text of an entry of Manifest::run. With `whole` it is the stored text; otherwise it is readable and shortened,
/// so that all entries fit on a screen.
std::string run_text(const std::string& key, const std::string& text, bool whole) {
  constexpr int most = 400;
  if (whole || key == "seed") return safe_text(text.substr(0, text.find_last_not_of('\n') + 1));
  const auto json = nlohmann::json::parse(text, nullptr, false);
  return shortened_to_columns(safe_line(json.is_discarded() ? text : value_text(json)), most);
}

/// Tensors that differ, one a line.
std::string table_of(const Checkpoint& a, const std::vector<const checkpoint::Difference*>& rows, int columns) {
  constexpr int narrowest = 12;
  std::vector<std::array<std::string, 3>> cells = {{"tensor", "elements that differ", "largest difference"}};
  for (const checkpoint::Difference* d : rows) {
    const std::string name = safe_line(d->name);
    if (!d->what.empty()) {
      cells.push_back({name, d->what, ""});
      continue;
    }
    const std::string all = thousands(a.find(d->name).shape.count());
    cells.push_back({name, fmt::format("{} of {}", thousands(d->elements), all), fmt::format("{:.3g}", d->largest)});
  }
  std::array<int, 3> widths{};
  for (const auto& line : cells)
    for (std::size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], columns_of(line[i]));
  const int others = widths[1] + widths[2] + 4;
  if (columns > 0 && widths[0] + others > columns) widths[0] = std::max(columns - others, narrowest);
  std::string text;
  for (const auto& [name, elements, largest] : cells) {
    text += padded_to_columns(shortened_to_columns(name, widths[0]), widths[0]);
    text += fmt::format("  {:>{}}", elements, widths[1]);
    text += largest.empty() ? "\n" : fmt::format("  {:>{}}\n", largest, widths[2]);
  }
  return text;
}

}  // namespace

std::string describe_checkpoint(const Checkpoint& saved, bool tensors, bool configuration, int columns) {
  const checkpoint::Manifest& m = saved.manifest();
  std::vector<LabelledValue> rows = {{"checkpoint", safe_line(saved.path().string())}, {"step", thousands(m.step)}};
  if (const auto loss = loss_of(m)) rows.emplace_back("loss", fmt::format("{:.4f}", *loss));
  if (const auto written = m.run.find(written_entry); written != m.run.end())
    rows.emplace_back("written", safe_text(written->second));
  rows.emplace_back("written by", fmt::format("{} = {}", m.mesh, counted(static_cast<std::size_t>(m.ranks), "rank")));
  rows.emplace_back("weights", count_text(saved, ""));
  rows.emplace_back("optimizer", count_text(saved, "optimizer."));
  rows.emplace_back("files", files_text(m, configuration ? m.files.size() : 4));
  for (const auto& [key, text] : m.run) {
    if (key == "tokenizer" || key == written_entry || (key == configuration_entry && !configuration)) continue;
    rows.emplace_back(safe_text(key), run_text(key, text, configuration));
  }
  return aligned_lines(rows, columns) + (tensors ? "\n" + tensor_lines(saved) : std::string());
}

std::string verified_line(const Checkpoint& saved) {
  std::size_t chunks = 0;
  for (const checkpoint::StoredFile& file : saved.manifest().files) chunks += file.chunks.size();
  return fmt::format("{}: step {}, {}, {}, {}: whole\n", safe_line(saved.path().string()), saved.manifest().step,
                     counted(saved.manifest().files.size(), "file"), counted(chunks, "chunk"),
                     size_text(saved.manifest().bytes()));
}

std::string describe_differences(const Checkpoint& a, const Checkpoint& b,
                                 const std::vector<checkpoint::Difference>& differences, int columns) {
  std::set<std::string> all;  // names of the tensors in a or b
  for (const Checkpoint* checkpoint : {&a, &b})
    for (const std::string& name : checkpoint->names()) all.insert(name);
  std::string text = differences.empty() ? fmt::format("equal: {}, bit for bit\n", counted(all.size(), "tensor"))
                                         : fmt::format("different: {} of {}\n",
                                                       thousands(static_cast<std::int64_t>(differences.size())),
                                                       counted(all.size(), "tensor"));
  if (a.manifest().step != b.manifest().step)
    text += fmt::format("steps differ: {} and {}\n", thousands(a.manifest().step), thousands(b.manifest().step));
  if (differences.empty()) return text;
  std::vector<const checkpoint::Difference*> rows;
  rows.reserve(differences.size());
  for (const checkpoint::Difference& d : differences) rows.push_back(&d);
  std::stable_partition(rows.begin(), rows.end(), [](const auto* d) { return !is_state(d->name); });
  return text + "\n" + table_of(a, rows, columns);
}

}  // namespace trireme
