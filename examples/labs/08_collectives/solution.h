// What the wrong answers of lab 8 take from its solution: all but the function in which they are wrong.
#pragma once

#include "examples/labs/08_collectives/lab.h"

namespace trireme::labs::collectives::solution {

double tree_seconds(int ranks, double bytes, comm::Link link);
double halving_seconds(int ranks, double bytes, comm::Link link);
double hierarchical_seconds(int ranks, double bytes, const comm::Links& links);
double tree_up_to(int ranks, comm::Link link);
void tree(Rank& rank, Tensor x);
void halving_reduce_scatter(Rank& rank, const Tensor& x);
void doubling_all_gather(Rank& rank, const Tensor& x);
void halving(Rank& rank, Tensor x);
void hierarchical(Rank& rank, Tensor x, int ranks_per_node);
Method best(int ranks, double bytes, const comm::Links& links);

inline constexpr Answers answers = {tree_seconds, halving_seconds, hierarchical_seconds, tree_up_to,
                                    tree,         halving,         hierarchical,         best};

}  // namespace trireme::labs::collectives::solution
