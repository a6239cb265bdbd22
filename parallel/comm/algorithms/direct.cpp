// Every rank sends to every other: the fewest rounds, and sums in the order of ranks. Each rank begins with its right
// neighbour, so that not all send to one.
#include "parallel/comm/algorithms/parts.h"

namespace trireme::comm {
namespace {

using Action = Step::Action;

int other(const Team& team, int k) { return (team.place + k) % team.size(); }

}  // namespace

void direct_reduce_scatter(Steps& steps, const Team& team) {
  const int n = team.size(), own = team.piece(team.place).front();
  for (int k = 1; k < n; ++k) steps.push_back({Action::send, team.member(other(team, k)), team.piece(other(team, k))});
  std::vector<int> sum = {own};
  for (int i = 0; i < n; ++i) {
    if (i != team.place) steps.push_back({Action::receive, team.member(i), {n + i}});
    sum.push_back(i == team.place ? own : n + i);
  }
  steps.push_back({Action::combine, team.member(team.place), sum});
}

void direct_all_gather(Steps& steps, const Team& team) {
  for (int k = 1; k < team.size(); ++k)
    steps.push_back({Action::send, team.member(other(team, k)), team.piece(team.place)});
  for (int k = team.size() - 1; k > 0; --k)
    steps.push_back({Action::receive, team.member(other(team, k)), team.piece(other(team, k))});
}

void direct_all_to_all(Steps& steps, const Team& team) {
  const int n = team.size();
  steps.push_back({Action::combine, team.member(team.place), {n + team.place, team.place}});
  for (int k = 1; k < n; ++k) steps.push_back({Action::send, team.member(other(team, k)), {other(team, k)}});
  for (int k = 1; k < n; ++k)
    steps.push_back({Action::receive, team.member(other(team, n - k)), {n + other(team, n - k)}});
}

}  // namespace trireme::comm
