#include "parallel/comm/algorithms/algorithm.h"

#include <algorithm>
#include <bit>
#include <map>
#include <numeric>

#include "parallel/comm/algorithms/parts.h"

namespace trireme::comm {
namespace {

using Action = Step::Action;

/// All ranks of the group, each with the chunk of its number.
Team everybody(const Plan& plan, int rank) {
  Team team{.members = {}, .place = rank, .pieces = {}};
  for (int r = 0; r < plan.ranks; ++r) {
    team.members.push_back(r);
    team.pieces.push_back({r});
  }
  return team;
}

/// The ranks of a group by node, in the order in which nodes first occur.
std::vector<std::vector<int>> by_node(const Plan& plan) {
  std::vector<std::vector<int>> nodes;
  std::map<int, std::size_t> places;
  for (int r = 0; r < plan.ranks; ++r) {
    const auto [place, is_new] = places.emplace(plan.nodes[static_cast<std::size_t>(r)], nodes.size());
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

Levels levels_of(const Plan& plan, int rank) {
  const std::vector<std::vector<int>> nodes = by_node(plan);
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

void hierarchical(Steps& steps, const Plan& plan, int rank) {
  const Levels levels = levels_of(plan, rank);
  if (plan.kind == Kind::broadcast) {
    // The root's node number and place: between nodes at that place first, then within every node.
    const Levels roots = levels_of(plan, plan.root);
    Team whole = levels.between;
    for (auto& piece : whole.pieces) piece.clear();
    const Team all = everybody(plan, rank);
    whole.pieces.front() = all.all();
    if (levels.within.place == roots.within.place) tree_broadcast(steps, whole, roots.node);
    Team node = levels.within;
    for (auto& piece : node.pieces) piece.clear();
    node.pieces.front() = all.all();
    return tree_broadcast(steps, node, roots.within.place);
  }
  if (plan.kind != Kind::all_gather) {
    ring_reduce_scatter(steps, levels.within);
    ring_reduce_scatter(steps, levels.between);
  }
  if (plan.kind != Kind::reduce_scatter) {
    ring_all_gather(steps, levels.between);
    ring_all_gather(steps, levels.within);
  }
}

/// Everything that a rank has goes to the root, or comes from it.
void with_root(Steps& steps, const Plan& plan, int rank) {
  const bool to_root = plan.kind == Kind::gather || plan.kind == Kind::reduce;
  for (int k = 1; k < plan.ranks; ++k) {
    const int other = (plan.root + k) % plan.ranks;
    if (rank != plan.root && rank != other) continue;
    const bool sends = (rank == plan.root) != to_root;
    const std::vector<int> chunks =
        plan.kind == Kind::broadcast ? everybody(plan, rank).all() : std::vector<int>{other};
    steps.push_back({sends ? Action::send : Action::receive, rank == plan.root ? other : plan.root, chunks});
  }
}

void exact(Steps& steps, const Plan& plan, int rank) {
  const Team team = everybody(plan, rank);
  switch (plan.kind) {
    case Kind::all_reduce:
      direct_reduce_scatter(steps, team);
      return direct_all_gather(steps, team);
    case Kind::reduce_scatter:
      return direct_reduce_scatter(steps, team);
    case Kind::all_gather:
      return direct_all_gather(steps, team);
    case Kind::all_to_all:
      return direct_all_to_all(steps, team);
    case Kind::reduce:
      direct_reduce_scatter(steps, team);
      return with_root(steps, plan, rank);
    default:
      return with_root(steps, plan, rank);
  }
}

void ring(Steps& steps, const Plan& plan, int rank) {
  const Team team = everybody(plan, rank);
  if (plan.kind == Kind::broadcast) return chain_broadcast(steps, team, plan.root);
  if (plan.kind != Kind::all_gather) ring_reduce_scatter(steps, team);
  if (plan.kind != Kind::reduce_scatter) ring_all_gather(steps, team);
}

void halving(Steps& steps, const Plan& plan, int rank) {
  const Team team = everybody(plan, rank);
  if (plan.kind == Kind::all_to_all) return hypercube_all_to_all(steps, team);
  if (plan.kind != Kind::all_gather) halving_reduce_scatter(steps, team);
  if (plan.kind != Kind::reduce_scatter) doubling_all_gather(steps, team);
}

void tree(Steps& steps, const Plan& plan, int rank) {
  const Team team = everybody(plan, rank);
  if (plan.kind == Kind::all_reduce) tree_reduce(steps, team, plan.root);
  tree_broadcast(steps, team, plan.root);
}

std::string no_refusal(const Plan&) { return {}; }

std::string power_of_two(const Plan& plan) {
  if (std::has_single_bit(static_cast<unsigned>(plan.ranks))) return {};
  return fmt::format("halving needs a power of two, and the group has {} ranks; expected 2, 4, 8, ..., or ring",
                     plan.ranks);
}

std::string equal_nodes(const Plan& plan) {
  const std::vector<std::vector<int>> nodes = by_node(plan);
  for (const std::vector<int>& node : nodes)
    if (node.size() != nodes.front().size())
      return fmt::format(
          "hierarchical needs as many ranks on every node, and the group has {} on one and {} on another; expected "
          "equal numbers, or ring",
          nodes.front().size(), node.size());
  return {};
}

/// What there is to know of an algorithm.
struct Entry {
  Algorithm algorithm;
  std::string_view name;
  void (*list)(Steps& steps, const Plan& plan, int rank);
  std::vector<Kind> kinds;  ///< that it makes; the rest is made by `exact`
  std::string (*refusal)(const Plan& plan);
};

// In the order of the enum. To add an algorithm: its name there, its function, and its row here.
const std::vector<Entry>& entries() {
  static const std::vector<Entry> all = {
      {Algorithm::exact, "exact", exact, {}, no_refusal},
      {Algorithm::ring,
       "ring",
       ring,
       {Kind::all_reduce, Kind::reduce_scatter, Kind::all_gather, Kind::broadcast},
       no_refusal},
      {Algorithm::tree, "tree", tree, {Kind::all_reduce, Kind::broadcast}, no_refusal},
      {Algorithm::halving,
       "halving",
       halving,
       {Kind::all_reduce, Kind::reduce_scatter, Kind::all_gather, Kind::all_to_all},
       power_of_two},
      {Algorithm::hierarchical,
       "hierarchical",
       hierarchical,
       {Kind::all_reduce, Kind::reduce_scatter, Kind::all_gather, Kind::broadcast},
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

Algorithm used(Algorithm chosen, Kind kind) {
  const std::vector<Kind>& kinds = entry(chosen).kinds;
  return std::find(kinds.begin(), kinds.end(), kind) == kinds.end() ? Algorithm::exact : chosen;
}

std::string refusal(Algorithm chosen, const Plan& plan) { return entry(chosen).refusal(plan); }

Steps steps_of(Algorithm algorithm, const Plan& plan, int rank) {
  Steps steps;
  entry(algorithm).list(steps, plan, rank);
  return steps;
}

std::vector<Steps> all_steps(Algorithm algorithm, const Plan& plan) {
  std::vector<Steps> all;
  for (int rank = 0; rank < plan.ranks; ++rank) all.push_back(steps_of(algorithm, plan, rank));
  return all;
}

}  // namespace trireme::comm
