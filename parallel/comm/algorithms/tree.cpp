// A binomial tree: in round k, half of the members that are left send to the other half, and are done.
#include "parallel/comm/algorithms/parts.h"

namespace trireme::comm {
namespace {

using Action = Step::Action;

/// A member, counted from the root: distance 0 is the root.
int at(int distance, const Team& team, int root) { return team.member((distance + root) % team.size()); }
int distance_from(int root, const Team& team) { return (team.place - root + team.size()) % team.size(); }

}  // namespace

// The lowest bit that is set in a member's distance says when it sends, and to whom: to the distance without that bit.
void tree_reduce(Steps& steps, const Team& team, int root) {
  const int me = distance_from(root, team);
  for (int bit = 1; bit < team.size(); bit *= 2) {
    if ((me & bit) != 0) {
      steps.push_back({Action::send, at(me - bit, team, root), team.all()});
      return;
    }
    if (me + bit < team.size()) steps.push_back({Action::add, at(me + bit, team, root), team.all()});
  }
}

void tree_broadcast(Steps& steps, const Team& team, int root) {
  const int me = distance_from(root, team);
  int bit = 1;
  while (bit < team.size() && (me & bit) == 0) bit *= 2;  // received in this round; the root: after the last
  if (me != 0) steps.push_back({Action::receive, at(me - bit, team, root), team.all()});
  for (bit /= 2; bit > 0; bit /= 2)
    if (me + bit < team.size()) steps.push_back({Action::send, at(me + bit, team, root), team.all()});
}

}  // namespace trireme::comm
