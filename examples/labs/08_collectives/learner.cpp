// Lab 8: your answer. Fill in the eight gaps, marked GAP, and run
//
//   ./trireme lab 8
//
// README.md beside this file says what is asked for; lab.h has the ring of lab 1, and examples/labs/harness/cluster.h
// what a rank can do.
#include "examples/labs/08_collectives/lab.h"

namespace trireme::labs::collectives {
namespace {

// ---- predictions: first, with pencil and paper ----------------------------------------------------------------------
//
// A message of b bytes takes link.latency + b * link.seconds_per_byte, and waits while the port of its sender or of its
// receiver is in use. A port is in use for b * link.seconds_per_byte: latencies of several messages pass at once.

/// Seconds of a tree all-reduce on equal links. `ranks`: a power of two, or three times one.
double tree_seconds(int ranks, double bytes, comm::Link link) {
  return 0;  // GAP 1
}

/// Seconds of halving and doubling on equal links. `ranks`: a power of two.
double halving_seconds(int ranks, double bytes, comm::Link link) {
  return 0;  // GAP 2
}

/// Seconds of a hierarchical all-reduce, made of rings. links.ranks_per_node divides `ranks`; links.within join ranks of
/// one node, links.between those of two.
double hierarchical_seconds(int ranks, double bytes, const comm::Links& links) {
  return 0;  // GAP 3
}

/// Bytes up to which a tree is faster than a ring, on equal links. `ranks`: a power of two.
double tree_up_to(int ranks, comm::Link link) {
  return 0;  // GAP 4
}

// ---- three ways to sum --------------------------------------------------------------------------------------------------
//
// In each, x [count] becomes the sum of all ranks' x. There may be fewer elements than ranks, and there may be one rank.

/// A binomial tree with whole tensors, for any number of ranks.
void tree(Rank& rank, Tensor x) {
  // First sums move to rank 0: in the round of bit 1, 2, 4, ..., ranks with that bit set send, and are done.
  //   for (int bit = 1; bit < rank.size(); bit *= 2) ...
  // Then the sum moves back along the same edges, in the opposite order.
  //   copy(rank.receive(...), x);
  // GAP 5
}

/// Recursive halving, then recursive doubling. rank.size() is a power of two.
void halving(Rank& rank, Tensor x) {
  // First partners at distances n/2, n/4, ..., 1 share the work: each sends the half that it will not add up any more.
  //   rank.send(pieces(x, ..., ..., n), partner);
  //   add_into(pieces(x, ..., ..., n), rank.receive(partner));
  // Then partners at distances 1, 2, ..., n/2 exchange what is finished.
  // GAP 6
}

/// Rings within each node, and between the nodes. Rank r is on node r / ranks_per_node.
void hierarchical(Rank& rank, Tensor x, int ranks_per_node) {
  Team within, between;
  // GAP 7: who is in the two teams? Then four calls of ring_reduce_scatter() and ring_all_gather().
}

// ---- the choice ---------------------------------------------------------------------------------------------------------

/// The fastest of the four on these links. links.ranks_per_node is a power of two, or all ranks; the number of nodes is
/// a power of two, or three times one. Every rank calls this before each all-reduce, and must come to the same result.
Method best(int ranks, double bytes, const comm::Links& links) {
  return Method::ring;  // GAP 8
}

const Registered registered(answer("learner", {tree_seconds, halving_seconds, hierarchical_seconds, tree_up_to, tree,
                                               halving, hierarchical, best}));

}  // namespace
}  // namespace trireme::labs::collectives
