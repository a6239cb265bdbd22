// What the wrong answers of lab 1 take from its solution: all but the function in which they are wrong.
#pragma once

#include "examples/labs/01_gradient_buckets/lab.h"

namespace trireme::labs::gradient_buckets::solution {

std::int64_t bytes_sent(int ranks, std::int64_t count);
std::int64_t messages_sent(int ranks);
double all_reduce_seconds(int ranks, std::int64_t count, double latency, double bytes_per_second);
double step_seconds(int buckets, double compute, double all_reduce);
Tensor piece(const Tensor& x, int i, int n);
void all_reduce(Rank& rank, Tensor x);
void synchronize(Rank& rank, Backward& backward, std::int64_t bucket);

inline constexpr Answers answers = {all_reduce,    synchronize,        bytes_sent,
                                    messages_sent, all_reduce_seconds, step_seconds};

}  // namespace trireme::labs::gradient_buckets::solution
