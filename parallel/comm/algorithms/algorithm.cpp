#include "parallel/comm/algorithms/algorithm.h"

#include <algorithm>
#include <bit>
#include <map>

#include "parallel/comm/algorithms/parts.h"

namespace trireme::comm {
namespace {

using Action = Step::Action;

/// All ranks of the group, each with the chunk of its number.
Team everybody(const CollectiveSpec& spec, int rank) {
  Team team{.members = {}, .place = rank, .pieces = {}};
  for (int r = 0; r < spec.ranks; ++r) {
    team.members.push_back(r);
    team.pieces.push_back({r});
  }
  return team;
}

/// The ranks of a group by node, in the order in which nodes first occur.
std::vector<std::vector<int>> by_node(const CollectiveSpec& spec) {
  std::vector<std::vector<int>> nodes;
  std::map<int, std::size_t> places;
  for (int r = 0; r < spec.ranks; ++r) {
    const auto [place, is_new] = places.emplace(spec.nodes[static_cast<std::size_t>(r)], nodes.size());
    if (is_new) nodes.emplace_back();
    nodes[place->second].push_back(r);
  }
  return nodes;
}

/// The two teams of a rank. `within`: its node; a member's piece has the chunks of all ranks at its place in a node.
/// `between`: the ranks at this place in every node, each with its own chunk.
struct Levels {
  Team within, between;
  int node = 0;  // of this rank
};

Levels levels_of(const CollectiveSpec& spec, int rank) {
  const std::vector<std::vector<int>> nodes = by_node(spec);
  Levels levels;
  int place = 0;
  for (std::size_t node = 0; node < nodes.size(); ++node) {
    const auto found = std::find(nodes[node].begin(), nodes[node].end(), rank);
    if (found == nodes[node].end()) continue;
    levels.node = static_cast<int>(node);
    place = static_cast<int>(found - nodes[node].begin());
  }
  const std::vector<int>& own = nodes[static_cast<std::size_t>(levels.node)];
  levels.within = {.members = own, .place = place, .pieces = {}};
  for (std::size_t i = 0; i < own.size(); ++i) {
    levels.within.pieces.emplace_back();
    for (const std::vector<int>& node : nodes) levels.within.pieces.back().push_back(node[i]);
  }
  levels.between.place = levels.node;
  for (const std::vector<int>& node : nodes) {
    levels.between.members.push_back(node[static_cast<std::size_t>(place)]);
    levels.between.pieces.push_back({node[static_cast<std::size_t>(place)]});
  }
  return levels;
}

void hierarchical(Steps& steps, const CollectiveSpec& spec, int rank) {
  const Levels levels = levels_of(spec, rank);
  if (spec.kind == CollectiveKind::broadcast) {
    // The root's node number and place: between nodes at that place first, then within every node.
    const Levels roots = levels_of(spec, spec.root);
    Team whole = levels.between;
    for (auto& piece : whole.pieces) piece.clear();
    const Team all = everybody(spec, rank);
    whole.pieces.front() = all.all();
    if (levels.within.place == roots.within.place) tree_broadcast(steps, whole, roots.node);
    Team node = levels.within;
    for (auto& piece : node.pieces) piece.clear();
    node.pieces.front() = all.all();
    return tree_broadcast(steps, node, roots.within.place);
  }
  if (spec.kind != CollectiveKind::all_gather) {
    ring_reduce_scatter(steps, levels.within);
    ring_reduce_scatter(steps, levels.between);
  }
  if (spec.kind != CollectiveKind::reduce_scatter) {
    ring_all_gather(steps, levels.between);
    ring_all_gather(steps, levels.within);
  }
}

/// Each rank sends its data to the root, or receives it from there.
void with_root(Steps& steps, const CollectiveSpec& spec, int rank) {
  const bool to_root = spec.kind == CollectiveKind::gather || spec.kind == CollectiveKind::reduce;
  for (int k = 1; k < spec.ranks; ++k) {
    const int other = (spec.root + k) % spec.ranks;
    if (rank != spec.root && rank != other) continue;
    const bool sends = (rank == spec.root) != to_root;
    const std::vector<int> chunks =
        spec.kind == CollectiveKind::broadcast ? everybody(spec, rank).all() : std::vector<int>{other};
    steps.push_back({sends ? Action::send : Action::receive, rank == spec.root ? other : spec.root, chunks});
  }
}

void exact(Steps& steps, const CollectiveSpec& spec, int rank) {
  const Team team = everybody(spec, rank);
  switch (spec.kind) {
    case CollectiveKind::all_reduce:
      direct_reduce_scatter(steps, team);
      return direct_all_gather(steps, team);
    case CollectiveKind::reduce_scatter:
      return direct_reduce_scatter(steps, team);
    case CollectiveKind::all_gather:
      return direct_all_gather(steps, team);
    case CollectiveKind::all_to_all:
      return direct_all_to_all(steps, team);
    case CollectiveKind::reduce:
      direct_reduce_scatter(steps, team);
      return with_root(steps, spec, rank);
    default:
      return with_root(steps, spec, rank);
  }
}

void ring(Steps& steps, const CollectiveSpec& spec, int rank) {
  const Team team = everybody(spec, rank);
  if (spec.kind == CollectiveKind::broadcast) return chain_broadcast(steps, team, spec.root);
  if (spec.kind != CollectiveKind::all_gather) ring_reduce_scatter(steps, team);
  if (spec.kind != CollectiveKind::reduce_scatter) ring_all_gather(steps, team);
}

void halving(Steps& steps, const CollectiveSpec& spec, int rank) {
  const Team team = everybody(spec, rank);
  if (spec.kind == CollectiveKind::all_to_all) return hypercube_all_to_all(steps, team);
  if (spec.kind != CollectiveKind::all_gather) halving_reduce_scatter(steps, team);
  if (spec.kind != CollectiveKind::reduce_scatter) doubling_all_gather(steps, team);
}

void tree(Steps& steps, const CollectiveSpec& spec, int rank) {
  const Team team = everybody(spec, rank);
  if (spec.kind == CollectiveKind::all_reduce) tree_reduce(steps, team, spec.root);
  tree_broadcast(steps, team, spec.root);
}

std::string no_refusal(const CollectiveSpec&) { return {}; }

std::string power_of_two(const CollectiveSpec& spec) {
  if (std::has_single_bit(static_cast<unsigned>(spec.ranks))) return {};
  return fmt::format("halving needs a power of two, and the group has {} ranks; expected 2, 4, 8, ..., or ring",
                     spec.ranks);
}

std::string equal_nodes(const CollectiveSpec& spec) {
  const std::vector<std::vector<int>> nodes = by_node(spec);
  for (const std::vector<int>& node : nodes)
    if (node.size() != nodes.front().size())
      return fmt::format(
          "hierarchical needs as many ranks on every node, and the group has {} on one and {} on another; expected "
          "equal numbers, or ring",
          nodes.front().size(), node.size());
  return {};
}

/// An algorithm, and what it supports.
struct Entry {
  Algorithm algorithm;
  std::string_view name;
  void (*list)(Steps& steps, const CollectiveSpec& spec, int rank);
  std::vector<CollectiveKind> kinds;  ///< that it runs; `exact` runs the others
  std::string (*refusal)(const CollectiveSpec& spec);
};

// In the order of the enum. To add an algorithm: its name there, its function, and its row here.
const std::vector<Entry>& entries() {
  static const std::vector<Entry> all = {
      {Algorithm::exact, "exact", exact, {}, no_refusal},
      {Algorithm::ring,
       "ring",
       ring,
       {CollectiveKind::all_reduce, CollectiveKind::reduce_scatter, CollectiveKind::all_gather,
        CollectiveKind::broadcast},
       no_refusal},
      {Algorithm::tree, "tree", tree, {CollectiveKind::all_reduce, CollectiveKind::broadcast}, no_refusal},
      {Algorithm::halving,
       "halving",
       halving,
       {CollectiveKind::all_reduce, CollectiveKind::reduce_scatter, CollectiveKind::all_gather,
        CollectiveKind::all_to_all},
       power_of_two},
      {Algorithm::hierarchical,
       "hierarchical",
       hierarchical,
       {CollectiveKind::all_reduce, CollectiveKind::reduce_scatter, CollectiveKind::all_gather,
        CollectiveKind::broadcast},
       equal_nodes}};
  return all;
}

const Entry& entry(Algorithm algorithm) { return entries()[static_cast<std::size_t>(algorithm)]; }

}  // namespace

std::vector<int> Team::all() const {
  std::vector<int> chunks;
  for (const std::vector<int>& piece : pieces) chunks.insert(chunks.end(), piece.begin(), piece.end());
  return chunks;
}

const std::vector<std::pair<std::string, Algorithm>>& algorithms() {
  static const std::vector<std::pair<std::string, Algorithm>> all = [] {
    std::vector<std::pair<std::string, Algorithm>> named;
    for (const Entry& one : entries()) named.emplace_back(one.name, one.algorithm);
    return named;
  }();
  return all;
}

std::string_view name(Algorithm algorithm) { return entry(algorithm).name; }

Algorithm algorithm_for(Algorithm chosen, CollectiveKind kind) {
  const std::vector<CollectiveKind>& kinds = entry(chosen).kinds;
  return std::find(kinds.begin(), kinds.end(), kind) == kinds.end() ? Algorithm::exact : chosen;
}

std::string refusal(Algorithm chosen, const CollectiveSpec& spec) { return entry(chosen).refusal(spec); }

Steps steps_of(Algorithm algorithm, const CollectiveSpec& spec, int rank) {
  Steps steps;
  entry(algorithm).list(steps, spec, rank);
  return steps;
}

std::vector<Steps> all_steps(Algorithm algorithm, const CollectiveSpec& spec) {
  std::vector<Steps> all;
  for (int rank = 0; rank < spec.ranks; ++rank) all.push_back(steps_of(algorithm, spec, rank));
  return all;
}

}  // namespace trireme::comm
