// Lab 8, topology and collectives: what learner.cpp is to contain, and what its functions are given.
// Read next: README.md beside this file, then learner.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "examples/labs/harness/grading.h"

namespace trireme::labs::collectives {

// ---- rings, as in lab 1, of all ranks or of some ------------------------------------------------------------------------

/// Some ranks that work together. `members`: the same on all of them, in the same order.
struct Team {
  std::vector<int> members = {};
  int place = 0;  ///< of this rank among them

  int size() const { return static_cast<int>(members.size()); }
  /// Any i counts round the ring.
  int member(int i) const { return members[at((i % size() + size()) % size())]; }
};

/// Pieces [begin, end) of x [count], which is cut into n pieces of nearly equal length. A view: what is written to it is
/// written to x. A piece is empty where x has fewer than n elements.
inline Tensor pieces(const Tensor& x, int begin, int end, int n) {
  const std::int64_t first = x.count() * begin / n, last = x.count() * end / n;
  return view::slice(x, 0, first, last - first);  // [last - first]
}

/// Piece i of a ring of n; any i counts round the ring.
inline Tensor ring_piece(const Tensor& x, int i, int n) {
  i = (i % n + n) % n;
  return pieces(x, i, i + 1, n);
}

/// Afterwards piece `place` of x is the sum of the members' pieces. The rest of x holds sums of some of them.
inline void ring_reduce_scatter(Rank& rank, const Team& team, const Tensor& x) {
  const int n = team.size(), me = team.place;
  for (int k = 0; k + 1 < n; ++k) {
    rank.send(ring_piece(x, me - 1 - k, n), team.member(me + 1));
    add_into(ring_piece(x, me - 2 - k, n), rank.receive(team.member(me - 1)));
  }
}

/// Every member has its piece of x, and gets all others'.
inline void ring_all_gather(Rank& rank, const Team& team, const Tensor& x) {
  const int n = team.size(), me = team.place;
  for (int k = 0; k + 1 < n; ++k) {
    rank.send(ring_piece(x, me - k, n), team.member(me + 1));
    Tensor to = ring_piece(x, me - 1 - k, n);
    copy(rank.receive(team.member(me - 1)), to);
  }
}

/// x becomes the sum of the ranks' x.
inline void ring(Rank& rank, const Tensor& x) {
  Team all{.place = rank.rank()};
  for (int r = 0; r < rank.size(); ++r) all.members.push_back(r);
  ring_reduce_scatter(rank, all, x);
  ring_all_gather(rank, all, x);
}

/// Seconds of it on equal links: each of 2 (n - 1) rounds sends a piece, and waits for the round before.
inline double ring_seconds(int ranks, double bytes, comm::Link link) {
  return 2 * (ranks - 1) * (link.latency + bytes / ranks * link.seconds_per_byte);
}

// ---- what is to be written ----------------------------------------------------------------------------------------------

enum class Method : std::uint8_t { ring, tree, halving, hierarchical };

struct Answers {
  double (*tree_seconds)(int ranks, double bytes, comm::Link link);
  double (*halving_seconds)(int ranks, double bytes, comm::Link link);
  double (*hierarchical_seconds)(int ranks, double bytes, const comm::Links& links);
  double (*tree_up_to)(int ranks, comm::Link link);
  void (*tree)(Rank& rank, Tensor x);
  void (*halving)(Rank& rank, Tensor x);
  void (*hierarchical)(Rank& rank, Tensor x, int ranks_per_node);
  Method (*best)(int ranks, double bytes, const comm::Links& links);
};

void grade(const Answers& answers, Grading& grading);

inline Answer answer(std::string name, Answers answers, std::string expected = {}) {
  return {"08", std::move(name), [answers](Grading& grading) { grade(answers, grading); }, std::move(expected)};
}

}  // namespace trireme::labs::collectives
