// What the wrong answers of lab 6 take from its solution: all but the function in which they are wrong.
#pragma once

#include "examples/labs/06_experts/lab.h"

namespace trireme::labs::experts::solution {

std::int64_t bytes_sent(int ranks, std::int64_t tokens, int k, std::int64_t width);
std::int64_t dropped(const std::vector<std::int64_t>& chosen, double capacity_factor);
double balanced_seconds(const Cost& cost);
double hot_seconds(const Cost& cost);

Choices route(Rank& rank, const Tensor& p, const Routing& routing);
double balance_loss(Rank& rank, const Tensor& p, const Routing& routing);

/// What came to this rank, for the experts that it holds.
struct Arrived {
  Tensor counts;             ///< [n, E/n] i32: rows that rank r has for each expert
  std::vector<Tensor> rows;  ///< by expert: [R, D], those of rank 0 first
};
/// [n, E/n] i32: how many of this rank's choices fall on each expert.
Tensor counted(const Choices& choices, const Experts& experts);
/// `from`: what came from each rank, sorted by expert.
Arrived by_expert(const Experts& experts, const Tensor& counts, const std::vector<Tensor>& from);
/// The inverse: the rows of arrived.rows that came from each rank, sorted by expert.
std::vector<Tensor> by_rank(const Arrived& arrived);
Tensor repeated(const Tensor& x, std::int64_t k);  ///< [N, D] -> [N K, D]: one row for each choice
Output weighted(const Choices& choices, const Tensor& x, const Tensor& results);
Arrived dispatch(Rank& rank, const Experts& experts, const Choices& choices, const Tensor& rows);
Tensor give_back(Rank& rank, const Experts& experts, const Choices& choices, const Arrived& arrived);

Output forward(Rank& rank, Experts& experts, const Choices& choices, const Tensor& x);
Gradients backward(Rank& rank, Experts& experts, const Choices& choices, const Tensor& results, const Tensor& dy);

inline constexpr Answers answers = {route,      balance_loss, forward,          backward,
                                    bytes_sent, dropped,      balanced_seconds, hot_seconds};

}  // namespace trireme::labs::experts::solution
