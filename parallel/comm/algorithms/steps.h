// What one rank does in a collective, as data: messages to and from other ranks, and sums, in order. An algorithm is a
// function that lists the steps of a rank, so the same list can be run, timed on a model of links, and drawn.
//
// A collective of n ranks works on a buffer of n chunks, numbered 0 to n - 1. Chunks n to 2n - 1 are a second row, as
// large as this rank's chunk each, for algorithms that must keep what they receive:
//
//   all_reduce, broadcast, reduce  the tensor, cut into n chunks of nearly equal length; the second row receives
//   reduce_scatter, scatter        x, whose chunk i is for rank i
//   all_gather, gather             y, whose chunk i is from rank i
//   all_to_all                     x, whose chunk i is for rank i; the second row is y
//
// Read next: parallel/comm/algorithms/algorithm.h.
#pragma once

#include <cstdint>
#include <vector>

namespace trireme::comm {

struct Step {
  /// send: chunks to `peer`, as one message. receive: a message replaces chunks. add: a message is added to chunks (or
  /// the larger element kept). combine: the first chunk becomes the sum of the others, in their order. A send waits
  /// until the message has left, not for the receiver.
  enum class Action : std::uint8_t { send, receive, add, combine };

  Action action;
  int peer;  ///< a rank of the group; of combine: this one
  std::vector<int> chunks;
};
using Steps = std::vector<Step>;

/// Some ranks of a group that run a part of an algorithm among themselves, each with a piece of the buffer.
struct Team {
  std::vector<int> members;              ///< ranks of the group
  int place;                             ///< of this rank among them
  std::vector<std::vector<int>> pieces;  ///< chunks, by member

  int size() const { return static_cast<int>(members.size()); }
  int member(int i) const { return members[static_cast<std::size_t>(i)]; }
  const std::vector<int>& piece(int i) const { return pieces[static_cast<std::size_t>(i)]; }
  std::vector<int> all() const;  ///< the chunks of all pieces
};

}  // namespace trireme::comm
