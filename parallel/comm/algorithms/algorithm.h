// The algorithms of collectives that --collectives chooses from. n ranks, a tensor of m bytes; a message of b bytes
// takes alpha + beta b seconds, and a sum of b bytes gamma b.
//
//   exact         every rank sends to every other; rank r adds its part in rank order: all_reduce
//                 2 alpha + (2 beta + gamma) m (n-1)/n, if messages share links only at their ends. Over shared links
//                 the others are faster: there all n (n-1) messages of a phase wait for each other
//   ring          each rank talks to its two neighbours (Patarasuk and Yuan 2009, "Bandwidth optimal all-reduce
//                 algorithms for clusters of workstations"): all_reduce 2 (n-1)(alpha + beta m/n) + gamma m (n-1)/n
//   tree          a binomial tree, whole tensors (Thakur, Rabenseifner and Gropp 2005, "Optimization of collective
//                 communication operations in MPICH", section 4): all_reduce
//                 ceil(log2 n)(2 alpha + (2 beta + gamma) m), or less if n is not a power of two
//   halving       pairs at distances n/2, n/4, ..., 1, which halve what they exchange (the same, section 4.5;
//                 Rabenseifner 2004): all_reduce 2 log2(n) alpha + (2 beta + gamma) m (n-1)/n. n is a power of two
//   hierarchical  rings within each node, and a ring between the nodes for each place in a node: 1/g of the bytes cross
//                 the slow links of nodes of g ranks (Goyal et al. 2017, "Accurate, large minibatch SGD", section 4.2)
//
//                   exact  ring      tree      halving   hierarchical
//   all_reduce        x    x         x         x         x
//   reduce_scatter    x    x                   x         x
//   all_gather        x    x                   x         x
//   broadcast         x    x (chain) x                   x
//   all_to_all        x                        x
//
// Where there is no x, a collective runs as with `exact`; so do reduce, gather and scatter.
//
// All but `exact` add in an order of their own, so they serve sums for which the caller allows any order
// (SumOrder::any); they add 16-bit types in f32, and round once. The order is a function of the number of ranks and of
// elements, and with `hierarchical` of the ranks' nodes: a sum has the same bits on all ranks, and in every run.
// Read next: parallel/comm/algorithms/ring.cpp, parallel/comm/algorithms/message_group.h, which runs the steps.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "parallel/comm/algorithms/steps.h"
#include "parallel/comm/collective.h"

namespace trireme::comm {

enum class Algorithm : std::uint8_t { exact, ring, tree, halving, hierarchical };
std::string_view name(Algorithm algorithm);
/// All of them, by name.
const std::vector<std::pair<std::string, Algorithm>>& algorithms();

/// What the steps of a collective depend on.
struct CollectiveSpec {
  CollectiveKind kind = CollectiveKind::all_reduce;
  int ranks = 1;
  int root = 0;
  /// The node of each rank. hierarchical needs the same number of ranks on every node.
  std::vector<int> nodes = {};
};

/// The algorithm that runs this collective: `chosen`, or `exact` (see the table).
Algorithm algorithm_for(Algorithm chosen, CollectiveKind kind);

/// Why `chosen` cannot serve a group of these ranks, and what to do about it; empty if it can.
std::string refusal(Algorithm chosen, const CollectiveSpec& spec);

/// What `rank` does. `algorithm`: from algorithm_for().
Steps steps_of(Algorithm algorithm, const CollectiveSpec& spec, int rank);

/// The same for all ranks.
std::vector<Steps> all_steps(Algorithm algorithm, const CollectiveSpec& spec);

}  // namespace trireme::comm
