#include "parallel/parameters/same_model.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <sstream>
#include <utility>

#include "core/hash.h"
#include "parallel/comm/call_site.h"
#include "parallel/comm/texts.h"
#include "parallel/comm/values.h"
#include "parallel/mesh/verify.h"

namespace trireme {
namespace {

/// Which ranks of a stage hold copies of a parameter: all, those with the same coordinate on ep or tp, or on both.
enum CopyKind : std::size_t { everywhere, cut_over_ep, cut_over_tp, cut_over_both, kinds };

CopyKind copy_kind_of(const Parameter& p) {
  const bool ep = p.placements.ep.sharded(), tp = p.placements.tp.sharded();
  return ep && tp ? cut_over_both : ep ? cut_over_ep : tp ? cut_over_tp : everywhere;
}

/// What a rank tells all others.
struct Record {
  std::uint64_t description = 0;
  std::array<std::uint64_t, kinds> values{};  // of the parameters of each kind

  bool operator==(const Record&) const = default;
};

/// What ranks have in common that hold copies of the parameters of a kind: their stage, and the coordinates on ep and tp
/// that cut those parameters.
using Holders = std::array<int, 3>;

Holders holders_of(int rank, std::size_t kind, const DeviceMesh& mesh) {
  const int tp = mesh.size(Axis::tp), data = mesh.size(Axis::data);
  const bool ep_matters = kind == cut_over_ep || kind == cut_over_both;
  const bool tp_matters = kind == cut_over_tp || kind == cut_over_both;
  return {rank / tp / data, ep_matters ? rank / tp % data % mesh.size(Axis::ep) : 0, tp_matters ? rank % tp : 0};
}

std::string line_of(const Parameter& p) {
  const Shape& shape = p.global_shape.dims() > 0 ? p.global_shape : p.local.shape();
  return fmt::format("{} {} {} of seed {}, {}{}, with placements {}, {} and {} on edp, ep and tp", p.name,
                     name(p.local.dtype()), shape, p.seed, p.requires_grad() ? "trained" : "frozen",
                     p.decay ? " with weight decay" : "", to_string(p.placements.edp), to_string(p.placements.ep),
                     to_string(p.placements.tp));
}

struct OwnDescription {
  std::vector<std::string> descriptions;
  std::vector<std::uint64_t> hashes;
  Record record;
};

OwnDescription describe(const ParameterList& parameters) {
  OwnDescription mine;
  std::array<Hasher, kinds> values;
  Hasher all;
  for (const ParameterPtr& p : parameters) {
    mine.descriptions.push_back(line_of(*p));
    // Values that are still to be drawn are equal: they are a function of what the description says.
    mine.hashes.push_back(p->local.has_elements() ? hash_of(p->local.detach()) : 0);
    all.add(std::as_bytes(std::span(mine.descriptions.back())));
    values.at(copy_kind_of(*p)).add(std::as_bytes(std::span(&mine.hashes.back(), 1)));
  }
  mine.record.description = all.value();
  for (std::size_t kind = 0; kind < kinds; ++kind) mine.record.values.at(kind) = values.at(kind).value();
  return mine;
}

/// The first two ranks that differ, in what they describe or else in values.
struct Difference {
  int first, second;
  std::optional<std::size_t> kind;  // of the values; empty: they describe different parameters
};

std::optional<Difference> find_difference(const std::vector<Record>& records, const DeviceMesh& mesh) {
  const int ranks = static_cast<int>(records.size());
  const auto record = [&](int rank) -> const Record& { return records[static_cast<std::size_t>(rank)]; };
  if (std::all_of(records.begin(), records.end(), [&](const Record& r) { return r == records[0]; }))
    return std::nullopt;
  for (std::size_t what = 0; what <= kinds; ++what) {  // descriptions come first: they explain differences of values
    const std::size_t kind = what == 0 ? everywhere : what - 1;
    std::map<Holders, int> firsts;
    for (int b = 0; b < ranks; ++b) {
      const int a = firsts.try_emplace(holders_of(b, kind, mesh), b).first->second;
      const bool same = what == 0 ? record(a).description == record(b).description
                                  : record(a).values.at(kind) == record(b).values.at(kind);
      if (!same) return Difference{a, b, what == 0 ? std::nullopt : std::optional(kind)};
    }
  }
  return std::nullopt;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

/// The lines of the two ranks, on all ranks. Collective.
std::pair<std::vector<std::string>, std::vector<std::string>> lines_of_both(const std::vector<std::string>& mine,
                                                                            const Difference& difference,
                                                                            ProcessGroup& world) {
  std::string text;
  for (const std::string& line : mine) text += line + "\n";
  const std::string first = broadcast_text(world, text, difference.first);
  return {lines_of(first), lines_of(broadcast_text(world, text, difference.second))};
}

[[noreturn]] void refuse_descriptions(const OwnDescription& mine, const Difference& difference, ProcessGroup& world) {
  const auto [a, b] = lines_of_both(mine.descriptions, difference, world);
  const std::size_t shared = std::min(a.size(), b.size());
  const auto at = static_cast<std::size_t>(
      std::mismatch(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(shared), b.begin()).first - a.begin());
  const auto text = [&](const std::vector<std::string>& lines) {
    return at < lines.size() ? lines[at] : fmt::format("nothing after {} parameters", lines.size());
  };
  fail(
      ExitCode::desync, "same_model",
      "ranks {} and {} have built different models: parameter {} is {} on rank {}, and {} on rank {}; expected the "
      "same parameters in the same order, of one seed; give Build the same seed on all ranks, and make the same layers "
      "in the same order, without branches on the rank",
      difference.first, difference.second, at, text(a), difference.first, text(b), difference.second);
}

[[noreturn]] void refuse_values(const OwnDescription& mine, const ParameterList& parameters,
                                const Difference& difference, ProcessGroup& world) {
  std::vector<std::string> hashes;
  for (std::size_t i = 0; i < parameters.size(); ++i)
    if (copy_kind_of(*parameters[i]) == *difference.kind)
      hashes.push_back(fmt::format("{:016x} {}", mine.hashes[i], parameters[i]->name));
  const auto [a, b] = lines_of_both(hashes, difference, world);
  const auto at = std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first;
  fail(ExitCode::desync, "same_model",
       "the values of {} differ between ranks {} and {}, which hold copies of it; expected the same bits; load or "
       "change "
       "weights in the same way on all ranks, before GradSync or Zero is made",
       at == a.end() ? "a parameter" : at->substr(at->find(' ') + 1), difference.first, difference.second);
}

}  // namespace

void require_same_model(const ParameterList& parameters, const DeviceMesh& mesh) {
  require_same_mesh("same_model", parameters, mesh);
  ProcessGroup& world = mesh.world();
  if (world.size() == 1) return;
  const CallSite site("the comparison of the ranks' models");
  const OwnDescription mine = describe(parameters);
  const std::optional<Difference> difference = find_difference(all_gather_values(world, mine.record), mesh);
  if (!difference) return;
  if (!difference->kind) refuse_descriptions(mine, *difference, world);
  refuse_values(mine, parameters, *difference, world);
}

}  // namespace trireme
