#include "train/step/non_finite.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

#include "parallel/comm/texts.h"

namespace trireme {
namespace {

/// The finding of one rank, and the rank's place.
struct Seen {
  std::string where;
  NonFinite found;

  /// Smaller means closer to the origin. A loss comes before all gradients.
  auto order() const {
    return std::tuple(found.tensor != "loss", found.microbatch, -found.stage, found.order, found.tensor);
  }
};

std::string to_text(const NonFinite& f, const DeviceMesh& mesh) {
  // With experts, ranks of several dp coordinates exchange activations, so all ranks form one group.
  const int group = mesh.size(Axis::ep) > 1 ? 0 : mesh.coord(Axis::dp);
  return nlohmann::json{{"where", mesh.where()},      {"group", group},   {"tensor", f.tensor},  {"stage", f.stage},
                        {"microbatch", f.microbatch}, {"order", f.order}, {"samples", f.samples}}
      .dump();
}

std::string describe(const std::vector<Seen>& origins) {
  constexpr std::size_t shown = 4;
  const NonFinite& f = origins.front().found;
  std::string ranks;
  for (std::size_t i = 0; i < std::min(shown, origins.size()); ++i)
    ranks += fmt::format("{}{}", i == 0 ? "" : ", ", origins[i].where);
  if (origins.size() > shown) ranks += fmt::format(" and {} more", origins.size() - shown);
  std::vector<std::int64_t> samples = f.samples;
  for (const Seen& seen : origins) samples.insert(samples.end(), seen.found.samples.begin(), seen.found.samples.end());
  return fmt::format("{} on {}{}, samples {}", f.tensor == "loss" ? "the loss" : "the gradient of " + f.tensor, ranks,
                     f.microbatch < 0 ? "" : fmt::format(", micro-batch {}", f.microbatch), ranges(samples));
}

}  // namespace

std::string steadier(const TrainOptions& options) {
  std::string text = options.optimizer.clip > 0 ? "lower --lr or --clip, raise --warmup-steps"
                                                : "lower --lr, set --clip 1, raise --warmup-steps";
  if (options.precision.dtype == DType::f16) text += ", use --dtype bf16";
  if (options.precision.dtype == DType::bf16) text += ", use --dtype f32";
  return text + ", or look at the samples";
}

std::string ranges(const std::vector<std::int64_t>& numbers) {
  std::vector<std::int64_t> sorted = numbers;
  std::sort(sorted.begin(), sorted.end());
  sorted.erase(std::unique(sorted.begin(), sorted.end()), sorted.end());
  std::string text;
  for (std::size_t i = 0; i < sorted.size();) {
    std::size_t end = i + 1;
    while (end < sorted.size() && sorted[end] == sorted[end - 1] + 1) ++end;
    if (!text.empty()) text += ", ";
    text += end == i + 1 ? std::to_string(sorted[i]) : fmt::format("{}-{}", sorted[i], sorted[end - 1]);
    i = end;
  }
  return text;
}

std::string origin_of(const NonFinite& found, const DeviceMesh& mesh) {
  const std::vector<std::string> texts = gather_texts(mesh.world(), found.tensor.empty() ? "" : to_text(found, mesh));
  std::map<int, std::vector<Seen>> origins;  // by group: all findings that are equally close to the origin
  for (const std::string& text : texts) {
    if (text.empty()) continue;
    const nlohmann::json json = nlohmann::json::parse(text);
    Seen seen{.where = json["where"],
              .found = {.tensor = json["tensor"],
                        .stage = json["stage"],
                        .microbatch = json["microbatch"],
                        .order = json["order"],
                        .samples = json["samples"]}};
    std::vector<Seen>& nearest = origins[json["group"]];
    if (!nearest.empty() && nearest.front().order() < seen.order()) continue;
    if (!nearest.empty() && seen.order() < nearest.front().order()) nearest.clear();
    nearest.push_back(std::move(seen));
  }
  constexpr int shown = 4;
  std::string all;
  int count = 0;
  for (const auto& [group, nearest] : origins)
    if (++count <= shown) all += (all.empty() ? "" : "; ") + describe(nearest);
  if (count > shown) all += fmt::format("; and on {} more dp coordinates", count - shown);
  return broadcast_text(mesh.world(), all);
}

}  // namespace trireme
