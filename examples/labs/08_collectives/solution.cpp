// Lab 8: a solution. The algorithms are those of parallel/comm/algorithms/{tree,halving,algorithm}.cpp, which list the
// same messages as data.
#include "examples/labs/08_collectives/solution.h"

#include <algorithm>
#include <bit>
#include <limits>

namespace trireme::labs::collectives::solution {
namespace {

int log2_down(int n) { return std::bit_width(static_cast<unsigned>(n)) - 1; }
int log2_up(int n) { return std::bit_width(static_cast<unsigned>(n - 1)); }
bool is_power_of_two(int n) { return std::has_single_bit(static_cast<unsigned>(n)); }

}  // namespace

// ---- predictions --------------------------------------------------------------------------------------------------------

// The longest chain of messages has one for each bit that is set in a rank's number: at most log2 n, rounded down. But
// rank 0 has log2 n neighbours, rounded up, and their messages follow each other through its port.
double tree_seconds(int ranks, double bytes, comm::Link link) {
  return 2 * (log2_down(ranks) * link.latency + log2_up(ranks) * bytes * link.seconds_per_byte);
}

// Messages of 1/2, 1/4, ..., 1/n of the tensor, then the same backwards: (n - 1) / n each way.
double halving_seconds(int ranks, double bytes, comm::Link link) {
  return 2 * (log2_up(ranks) * link.latency + bytes * (ranks - 1) / ranks * link.seconds_per_byte);
}

// A ring in each node with the whole tensor, and one between the nodes with 1/g of it.
double hierarchical_seconds(int ranks, double bytes, const comm::Links& links) {
  const int g = links.ranks_per_node;
  return ring_seconds(g, bytes, links.within) + ring_seconds(ranks / g, bytes / g, links.between);
}

// Where the two lines over the bytes meet: the tree's is lower at 0 bytes, and steeper.
double tree_up_to(int ranks, comm::Link link) {
  const double n = ranks;
  return link.latency / link.seconds_per_byte * (n - 1 - log2_down(ranks)) / (log2_up(ranks) - (n - 1) / n);
}

// ---- a tree -------------------------------------------------------------------------------------------------------------

void tree(Rank& rank, Tensor x) {
  const int n = rank.size(), me = rank.rank();
  // The lowest bit of `me` says in which round this rank sends, and to whom: the rank without that bit. Rank 0 has none.
  int bit = 1;
  for (; bit < n && (me & bit) == 0; bit *= 2)
    if (me + bit < n) add_into(x, rank.receive(me + bit));
  if (me != 0) {
    rank.send(x, me - bit);
    copy(rank.receive(me - bit), x);
  }
  // Backwards: the child with the most ranks behind it first.
  for (bit /= 2; bit > 0; bit /= 2)
    if (me + bit < n) rank.send(x, me + bit);
}

// ---- halving and doubling -----------------------------------------------------------------------------------------------

// [begin, end) are the pieces that this rank still adds up. Of two partners, the lower rank keeps the lower half.
void halving_reduce_scatter(Rank& rank, const Tensor& x) {
  const int n = rank.size(), me = rank.rank();
  int begin = 0, end = n;
  for (int distance = n / 2; distance > 0; distance /= 2) {
    const int middle = begin + distance, partner = me ^ distance;
    if (me < middle) {
      rank.send(pieces(x, middle, end, n), partner);
      end = middle;
    } else {
      rank.send(pieces(x, begin, middle, n), partner);
      begin = middle;
    }
    add_into(pieces(x, begin, end, n), rank.receive(partner));
  }
}

// The same exchanges backwards: this rank has pieces [own, own + distance), its partner the other half of a block twice
// as long.
void doubling_all_gather(Rank& rank, const Tensor& x) {
  const int n = rank.size(), me = rank.rank();
  for (int distance = 1; distance < n; distance *= 2) {
    const int own = me / distance * distance, other = own ^ distance, partner = me ^ distance;
    rank.send(pieces(x, own, own + distance, n), partner);
    Tensor to = pieces(x, other, other + distance, n);
    copy(rank.receive(partner), to);
  }
}

void halving(Rank& rank, Tensor x) {
  halving_reduce_scatter(rank, x);
  doubling_all_gather(rank, x);
}

// ---- two levels ---------------------------------------------------------------------------------------------------------

void hierarchical(Rank& rank, Tensor x, int ranks_per_node) {
  const int g = ranks_per_node, node = rank.rank() / g, place = rank.rank() % g;
  Team within{.place = place}, between{.place = node};
  for (int i = 0; i < g; ++i) within.members.push_back(node * g + i);
  for (int i = 0; i < rank.size() / g; ++i) between.members.push_back(i * g + place);

  ring_reduce_scatter(rank, within, x);
  const Tensor own = pieces(x, place, place + 1, g);  // the sum of this node
  ring_reduce_scatter(rank, between, own);
  ring_all_gather(rank, between, own);
  ring_all_gather(rank, within, x);
}

// ---- the choice ---------------------------------------------------------------------------------------------------------

Method best(int ranks, double bytes, const comm::Links& links) {
  const int g = links.ranks_per_node, nodes = ranks / g;
  const double never = std::numeric_limits<double>::infinity();
  // The ring: as if all its links were slow. It is a little faster, and slower than hierarchical all the same. The tree
  // adds up each node before its messages leave the node. Halving first exchanges between nodes, until the ranks of a
  // node have 1/nodes of the tensor to add up.
  const double seconds[] = {ring_seconds(ranks, bytes, nodes > 1 ? links.between : links.within),
                            tree_seconds(g, bytes, links.within) + tree_seconds(nodes, bytes, links.between),
                            !is_power_of_two(ranks) ? never
                                                    : halving_seconds(nodes, bytes, links.between) +
                                                          halving_seconds(g, bytes / nodes, links.within),
                            hierarchical_seconds(ranks, bytes, links)};  // by Method
  return static_cast<Method>(std::ranges::min_element(seconds) - seconds);
}

namespace {
const Registered registered(answer("solution", answers));
}

}  // namespace trireme::labs::collectives::solution
