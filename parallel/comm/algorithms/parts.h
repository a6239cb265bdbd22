// The parts that algorithms are made of. Each appends what this rank does to `steps`. All members of the team call the
// same parts in the same order.
// Read next: parallel/comm/algorithms/algorithm.cpp, which puts them together.
#pragma once

#include "parallel/comm/algorithms/steps.h"

namespace trireme::comm {

// Before a reduce-scatter every member has its own terms of all pieces; after it, member i has the sum of piece i.
// Before an all-gather member i has piece i; after it, every member has all.

/// size - 1 rounds; in each, every member passes a piece to the next one.
void ring_reduce_scatter(Steps& steps, const Team& team);
void ring_all_gather(Steps& steps, const Team& team);

/// log2(size) rounds, with partners at distances size / 2, ..., 1 (the gather: 1, ..., size / 2). size: a power of two.
void halving_reduce_scatter(Steps& steps, const Team& team);
void doubling_all_gather(Steps& steps, const Team& team);

/// Every member exchanges with every other. The sum of a piece is taken in the order of members, in the second row of
/// chunks: so a piece is one chunk, and the team is the whole group.
void direct_reduce_scatter(Steps& steps, const Team& team);
void direct_all_gather(Steps& steps, const Team& team);

/// A binomial tree over the members, whose root is the member `root`. All pieces go up, and are added, or down.
void tree_reduce(Steps& steps, const Team& team, int root);
void tree_broadcast(Steps& steps, const Team& team, int root);
/// From member to member, piece after piece: a piece goes on while the next one arrives.
void chain_broadcast(Steps& steps, const Team& team, int root);

// all_to_all: chunk i of the first row goes to member i, and what comes from it is chunk n + i.

/// Every member sends to every other: message k goes to the member k places behind.
void direct_all_to_all(Steps& steps, const Team& team);
/// log2(size) rounds; in each, a message of half of all chunks. size: a power of two.
void hypercube_all_to_all(Steps& steps, const Team& team);

}  // namespace trireme::comm
