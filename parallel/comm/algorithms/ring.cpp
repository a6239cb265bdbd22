// Rings and chains: every rank talks to its two neighbours.
#include "parallel/comm/algorithms/parts.h"

namespace trireme::comm {
namespace {

using Action = Step::Action;

int wrapped(int i, const Team& team) { return (i % team.size() + team.size()) % team.size(); }

}  // namespace

// In round k this rank passes on piece place - 1 - k, which then has the terms of the k + 1 members up to this one.
// After size - 1 rounds its own piece arrives, with the terms of all the others.
void ring_reduce_scatter(Steps& steps, const Team& team) {
  const int next = team.member(wrapped(team.place + 1, team)), before = team.member(wrapped(team.place - 1, team));
  for (int k = 0; k + 1 < team.size(); ++k) {
    steps.push_back({Action::send, next, team.piece(wrapped(team.place - 1 - k, team))});
    steps.push_back({Action::add, before, team.piece(wrapped(team.place - 2 - k, team))});
  }
}

// In round k this rank passes on piece place - k: first its own, then what it has just received.
void ring_all_gather(Steps& steps, const Team& team) {
  const int next = team.member(wrapped(team.place + 1, team)), before = team.member(wrapped(team.place - 1, team));
  for (int k = 0; k + 1 < team.size(); ++k) {
    steps.push_back({Action::send, next, team.piece(wrapped(team.place - k, team))});
    steps.push_back({Action::receive, before, team.piece(wrapped(team.place - 1 - k, team))});
  }
}

void chain_broadcast(Steps& steps, const Team& team, int root) {
  const int distance = wrapped(team.place - root, team);
  const bool first = distance == 0, last = distance == team.size() - 1;
  for (const std::vector<int>& piece : team.pieces) {
    if (!first) steps.push_back({Action::receive, team.member(wrapped(team.place - 1, team)), piece});
    if (!last) steps.push_back({Action::send, team.member(wrapped(team.place + 1, team)), piece});
  }
}

}  // namespace trireme::comm
