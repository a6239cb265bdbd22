// Lab 8: wrong answers, each with a part of the message that it must get. Most give plausible numbers; the last three try
// to fool the grader. tests/labs runs them. Do not read this before your own answer: what is wrong shows what is right.
#include <bit>

#include "examples/labs/08_collectives/solution.h"
#include "examples/labs/harness/cheats.h"

namespace trireme::labs::collectives {
namespace {

// ---- sums ---------------------------------------------------------------------------------------------------------------

Answer wrong_tree(std::string name, void (*tree)(Rank&, Tensor), std::string expected) {
  Answers answers = solution::answers;
  answers.tree = tree;
  return answer(std::move(name), answers, std::move(expected));
}
Answer wrong_halving(std::string name, void (*halving)(Rank&, Tensor), std::string expected) {
  Answers answers = solution::answers;
  answers.halving = halving;
  return answer(std::move(name), answers, std::move(expected));
}
Answer wrong_hierarchical(std::string name, void (*hierarchical)(Rank&, Tensor, int), std::string expected) {
  Answers answers = solution::answers;
  answers.hierarchical = hierarchical;
  return answer(std::move(name), answers, std::move(expected));
}

/// Only the ranks below the largest power of two are in the tree.
void tree_of_a_power_of_two(Rank& rank, Tensor x) {
  const int n = static_cast<int>(std::bit_floor(static_cast<unsigned>(rank.size()))), me = rank.rank();
  if (me >= n) return;
  int bit = 1;
  for (; bit < n && (me & bit) == 0; bit *= 2) add_into(x, rank.receive(me + bit));
  if (me != 0) {
    rank.send(x, me - bit);
    copy(rank.receive(me - bit), x);
  }
  for (bit /= 2; bit > 0; bit /= 2) rank.send(x, me + bit);
}
const Registered a(wrong_tree("a tree of a power of two", tree_of_a_power_of_two,
                              "the term of rank 4 was added 0 times"));

/// All send to rank 0, and it sends to all.
void star(Rank& rank, Tensor x) {
  for (int other = 1; other < rank.size(); ++other) {
    if (rank.rank() == 0) add_into(x, rank.receive(other));
    if (rank.rank() == other) rank.send(x, 0);
  }
  for (int other = 1; other < rank.size(); ++other) {
    if (rank.rank() == 0) rank.send(x, other);
    if (rank.rank() == other) copy(rank.receive(0), x);
  }
}
const Registered b(wrong_tree("a star", star, "Which messages wait for others"));

/// The way back begins with the nearest child: those with many ranks behind them wait.
void nearest_first(Rank& rank, Tensor x) {
  const int n = rank.size(), me = rank.rank();
  int bit = 1;
  for (; bit < n && (me & bit) == 0; bit *= 2)
    if (me + bit < n) add_into(x, rank.receive(me + bit));
  if (me != 0) {
    rank.send(x, me - bit);
    copy(rank.receive(me - bit), x);
  }
  for (int child = 1; child < bit; child *= 2)
    if (me + child < n) rank.send(x, me + child);
}
const Registered t(wrong_tree("the nearest child first", nearest_first, "Which messages wait for others"));

/// Exchanges whole tensors: log2 n rounds, and the right sum on all ranks.
void whole_tensors(Rank& rank, Tensor x) {
  for (int distance = 1; distance < rank.size(); distance *= 2) {
    rank.send(x, rank.rank() ^ distance);
    add_into(x, rank.receive(rank.rank() ^ distance));
  }
}
const Registered c(wrong_halving("doubling with whole tensors", whole_tensors, "all ranks together sent"));

/// Both partners keep the lower half.
void same_half(Rank& rank, Tensor x) {
  const int n = rank.size(), me = rank.rank();
  int begin = 0, end = n;
  for (int distance = n / 2; distance > 0; distance /= 2) {
    const int middle = begin + distance;
    rank.send(pieces(x, middle, end, n), me ^ distance);
    const Tensor received = rank.receive(me ^ distance);
    if (me < middle) {
      end = middle;
    } else {
      begin = middle;
    }
    if (Tensor kept = pieces(x, begin, end, n); kept.count() == received.count()) add_into(kept, received);
  }
  solution::doubling_all_gather(rank, x);
}
const Registered d(wrong_halving("halves are not swapped", same_half, "At [0], what rank 1 has at ["));

/// Doubling puts what it receives behind what it has, also where the partner is the lower one.
void appends(Rank& rank, Tensor x) {
  solution::halving_reduce_scatter(rank, x);
  const int n = rank.size(), me = rank.rank();
  for (int distance = 1; distance < n; distance *= 2) {
    const int own = me / distance * distance, behind = (own + distance) % n;
    rank.send(pieces(x, own, own + distance, n), me ^ distance);
    const Tensor received = rank.receive(me ^ distance);
    if (Tensor to = pieces(x, behind, behind + distance, n); to.count() == received.count()) copy(received, to);
  }
}
const Registered e(wrong_halving("pieces in the wrong order", appends, "x on rank 1: "));

/// As many bytes, but 2 (n - 1) rounds.
void rings(Rank& rank, Tensor x) { ring(rank, x); }
const Registered f(wrong_halving("a ring", rings, "Each message costs a latency"));

Team node_of(const Rank& rank, int g) {
  Team team{.place = rank.rank() % g};
  for (int i = 0; i < g; ++i) team.members.push_back(rank.rank() / g * g + i);
  return team;
}
Team across(const Rank& rank, int g) {
  Team team{.place = rank.rank() / g};
  for (int i = 0; i < rank.size() / g; ++i) team.members.push_back(i * g + rank.rank() % g);
  return team;
}
void ring_of(Rank& rank, const Team& team, const Tensor& x) {
  ring_reduce_scatter(rank, team, x);
  ring_all_gather(rank, team, x);
}

/// Each node adds up first, and then every rank sends all of it to the other nodes.
void whole_tensors_across(Rank& rank, Tensor x, int g) {
  ring_of(rank, node_of(rank, g), x);
  ring_of(rank, across(rank, g), x);
}
const Registered g(wrong_hierarchical("whole tensors between nodes", whole_tensors_across, "to the slow links"));

/// One rank of each node speaks for it.
void leaders(Rank& rank, Tensor x, int g) {
  const int leader = rank.rank() / g * g;
  if (rank.rank() != leader) {
    rank.send(x, leader);
    return copy(rank.receive(leader), x);
  }
  for (int i = 1; i < g; ++i) add_into(x, rank.receive(leader + i));
  ring_of(rank, across(rank, g), x);
  for (int i = 1; i < g; ++i) rank.send(x, leader + i);
}
const Registered h(wrong_hierarchical("leaders", leaders, ", 0 bytes to other nodes"));

/// A ring of all ranks: a node sends as little as it can, through one port.
void one_ring(Rank& rank, Tensor x, int) { ring(rank, x); }
const Registered i(wrong_hierarchical("one ring", one_ring, "to the slow links"));

/// Rank r is taken to be on node r % nodes.
void nodes_by_remainder(Rank& rank, Tensor x, int g) {
  const Team within = across(rank, rank.size() / g), between = node_of(rank, rank.size() / g);
  ring_reduce_scatter(rank, within, x);
  ring_of(rank, between, pieces(x, within.place, within.place + 1, g));
  ring_all_gather(rank, within, x);
}
const Registered j(wrong_hierarchical("ranks on the wrong nodes", nodes_by_remainder, "to the slow links"));

/// Between the nodes everybody sends to everybody, and adds as it comes.
void everybody_across(Rank& rank, Tensor x, int g) {
  const Team within = node_of(rank, g), between = across(rank, g);
  ring_reduce_scatter(rank, within, x);
  const Tensor own = pieces(x, within.place, within.place + 1, g), sent = clone(own);
  for (int k = 1; k < between.size(); ++k) rank.send(sent, between.member(between.place + k));
  for (int k = 1; k < between.size(); ++k) add_into(own, rank.receive(between.member(between.place + k)));
  ring_all_gather(rank, within, x);
}
const Registered k(wrong_hierarchical("everybody to everybody between nodes", everybody_across, "added in two orders"));

// ---- predictions and choices --------------------------------------------------------------------------------------------

/// As many latencies as rounds.
const Registered l([] {
  Answers answers = solution::answers;
  answers.tree_seconds = [](int ranks, double bytes, comm::Link link) {
    const int rounds = std::bit_width(static_cast<unsigned>(ranks - 1));
    return 2 * rounds * (link.latency + bytes * link.seconds_per_byte);
  };
  return answer("a latency for each round", answers, "predicted");
}());

Answer wrong_best(std::string name, Method (*best)(int, double, const comm::Links&), std::string expected) {
  Answers answers = solution::answers;
  answers.best = best;
  return answer(std::move(name), answers, std::move(expected));
}

/// One size for all clusters.
Method by_bytes(int, double bytes, const comm::Links&) { return bytes < 4e6 ? Method::tree : Method::hierarchical; }
const Registered m(wrong_best("by bytes alone", by_bytes, "chosen: tree"));

/// Counts bytes, which are the same in all four but the tree.
Method by_bandwidth(int, double, const comm::Links&) { return Method::hierarchical; }
const Registered n(wrong_best("by bandwidth alone", by_bandwidth, "chosen: hierarchical"));

Method few_rounds(int ranks, double bytes, const comm::Links& links) {
  const Method best = solution::best(ranks, bytes, links);
  return best == Method::tree ? Method::halving : best;
}
const Registered o(wrong_best("halving for any number", few_rounds, "needs a power of two"));

/// As if all links were like those between nodes.
Method one_level(int ranks, double bytes, const comm::Links& links) {
  return solution::best(ranks, bytes, {.ranks_per_node = 1, .within = links.between, .between = links.between});
}
const Registered p(wrong_best("one kind of link", one_level, "hierarchical: "));

// ---- attempts at cheating ---------------------------------------------------------------------------------------------

const Registered q(wrong_tree("cheat: shared memory", cheats::shared_memory, "by messages only"));
const Registered r(wrong_halving("cheat: remembers", cheats::remembers<solution::halving>, "x on rank"));

/// Messages of half the bytes.
void halves_the_bits(Rank& rank, Tensor x) {
  const int me = rank.rank();
  const auto received = [&](int from) { return cast(rank.receive(from), DType::f32); };
  int bit = 1;
  for (; bit < rank.size() && (me & bit) == 0; bit *= 2)
    if (me + bit < rank.size()) add_into(x, received(me + bit));
  if (me != 0) {
    rank.send(cast(x, DType::bf16), me - bit);
    copy(received(me - bit), x);
  }
  for (bit /= 2; bit > 0; bit /= 2)
    if (me + bit < rank.size()) rank.send(cast(x, DType::bf16), me + bit);
}
const Registered s(wrong_tree("cheat: 16 bits", halves_the_bits, "wrong, by up to 0.0"));

}  // namespace
}  // namespace trireme::labs::collectives
