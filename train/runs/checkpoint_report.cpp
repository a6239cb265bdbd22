#include "train/runs/checkpoint_report.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "data/utf8.h"
#include "train/program/units.h"
#include "train/report/report.h"
#include "train/runs/run_texts.h"

namespace trireme {
namespace {

using checkpoint::Checkpoint;

std::string size_text(std::uint64_t bytes) { return format_bytes(static_cast<double>(bytes)); }

/// "12 tensors, 3400 elements, 13.3 KiB" for the tensors whose names begin with `prefix`. An empty prefix means all
/// tensors except optimizer state.
std::string count_text(const Checkpoint& saved, const std::string& prefix) {
  std::size_t count = 0;
  std::int64_t elements = 0;
  std::uint64_t bytes = 0;
  for (const auto& [name, tensor] : saved.manifest().tensors) {
    const bool state = name.starts_with("optimizer.");
    if (prefix.empty() ? state : !name.starts_with(prefix)) continue;
    ++count;
    elements += tensor.shape.count();
    bytes += static_cast<std::uint64_t>(tensor.shape.count()) * size_of(tensor.dtype);
  }
  return fmt::format("{} tensors, {} elements, {}", count, elements, size_text(bytes));
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
  std::string text = fmt::format("{} in all", size_text(m.bytes()));
  for (std::size_t i = 0; i < std::min(most, m.files.size()); ++i)
    text += fmt::format("\n{} ({}, {} chunks)", m.files[i].name, size_text(m.files[i].bytes), m.files[i].chunks.size());
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

/// An entry of Manifest::run, cut unless it is asked for `whole`: a screen has 24 lines.
std::string run_text(const std::string& text, bool whole) {
  constexpr std::size_t most = 300;
  const std::string shown = safe_text(text.substr(0, text.find_last_not_of('\n') + 1));
  return whole || shown.size() <= most ? shown : fmt::format("{} ... ({} bytes)", shown.substr(0, most), shown.size());
}

}  // namespace

std::string describe_checkpoint(const Checkpoint& saved, bool tensors, bool configuration) {
  const checkpoint::Manifest& m = saved.manifest();
  std::vector<LabelledValue> rows = {{"checkpoint", saved.path().string()}, {"step", std::to_string(m.step)}};
  if (const auto loss = loss_of(m)) rows.emplace_back("loss", fmt::format("{:.4f}", *loss));
  if (const auto written = m.run.find(written_entry); written != m.run.end())
    rows.emplace_back("written", safe_text(written->second));
  rows.emplace_back("written by", fmt::format("{} = {} ranks", m.mesh, m.ranks));
  rows.emplace_back("weights", count_text(saved, ""));
  rows.emplace_back("optimizer", count_text(saved, "optimizer."));
  rows.emplace_back("files", files_text(m, configuration ? m.files.size() : 4));
  for (const auto& [key, text] : m.run) {
    if (key == "tokenizer" || key == written_entry || (key == configuration_entry && !configuration)) continue;
    rows.emplace_back(safe_text(key), run_text(text, configuration));
  }
  return aligned_lines(rows) + (tensors ? "\n" + tensor_lines(saved) : std::string());
}

std::string verified_line(const Checkpoint& saved) {
  std::size_t chunks = 0;
  for (const checkpoint::StoredFile& file : saved.manifest().files) chunks += file.chunks.size();
  return fmt::format("{}: step {}, {} files, {} chunks, {}: whole\n", saved.path().string(), saved.manifest().step,
                     saved.manifest().files.size(), chunks, size_text(saved.manifest().bytes()));
}

std::string describe_differences(const Checkpoint& a, const Checkpoint& b,
                                 const std::vector<checkpoint::Difference>& differences) {
  std::string text;
  std::set<std::string> all;  // names of the tensors in a or b
  for (const Checkpoint* checkpoint : {&a, &b})
    for (const std::string& name : checkpoint->names()) all.insert(name);
  for (const checkpoint::Difference& d : differences)
    text += d.what.empty() ? fmt::format("{}: {} elements differ, first at {}, largest difference {:.3g}\n", d.name,
                                         d.elements, d.first, d.largest)
                           : fmt::format("{}: {}\n", d.name, d.what);
  if (a.manifest().step != b.manifest().step)
    text += fmt::format("steps differ: {} and {}\n", a.manifest().step, b.manifest().step);
  return text + (differences.empty() ? fmt::format("equal: {} tensors, bit for bit\n", a.manifest().tensors.size())
                                     : fmt::format("different: {} of {} tensors\n", differences.size(), all.size()));
}

}  // namespace trireme
