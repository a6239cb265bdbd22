// Pairs of ranks whose numbers differ in one bit.

#include "parallel/comm/algorithms/parts.h"

namespace trireme::comm {
namespace {

using Action = Step::Action;

/// The chunks of the pieces of members [begin, end).
std::vector<int> chunks_of(const Team& team, int begin, int end) {
  std::vector<int> chunks;
  for (int i = begin; i < end; ++i) chunks.insert(chunks.end(), team.piece(i).begin(), team.piece(i).end());
  return chunks;
}

}  // namespace

// [begin, end) are the members among which this rank's pieces still have to be added up. It sends
// its partner the half that it is not in, and receives the partner's terms of the half that it is in.
void halving_reduce_scatter(Steps& steps, const Team& team) {
  int begin = 0, end = team.size();
  for (int distance = team.size() / 2; distance > 0; distance /= 2) {
    const int middle = begin + distance;
    const bool lower = team.place < middle;
    const int partner = team.member(lower ? team.place + distance : team.place - distance);
    steps.push_back({Action::send, partner, lower ? chunks_of(team, middle, end) : chunks_of(team, begin, middle)});
    (lower ? end : begin) = middle;
    steps.push_back({Action::add, partner, chunks_of(team, begin, end)});
  }
}

// The same exchanges backwards: [begin, begin + distance) are the members whose pieces this rank has.
void doubling_all_gather(Steps& steps, const Team& team) {
  for (int distance = 1; distance < team.size(); distance *= 2) {
    const int begin = team.place / distance * distance;
    const bool lower = begin / distance % 2 == 0;
    const int partner = team.member(lower ? team.place + distance : team.place - distance);
    const int other = lower ? begin + distance : begin - distance;
    steps.push_back({Action::send, partner, chunks_of(team, begin, begin + distance)});
    steps.push_back({Action::receive, partner, chunks_of(team, other, other + distance)});
  }
}

// Chunk n + i begins as what this rank has for member i. The exchange of a bit sends the chunks whose number differs
// from this rank's in that bit, and puts the partner's into their places. After all bits, chunk n + i is from member i.
void hypercube_all_to_all(Steps& steps, const Team& team) {
  const int n = team.size(), me = team.member(team.place);
  for (int i = 0; i < n; ++i) steps.push_back({Action::combine, me, {n + i, i}});
  for (int bit = 1; bit < n; bit *= 2) {
    const int partner = team.member(team.place ^ bit);
    std::vector<int> given;
    for (int i = 0; i < n; ++i)
      if (((i ^ team.place) & bit) != 0) given.push_back(n + i);
    steps.push_back({Action::send, partner, given});
    steps.push_back({Action::receive, partner, given});
  }
}

}  // namespace trireme::comm
