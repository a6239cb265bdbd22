// What the wrong answers of lab 2 take from its solution: all but the function in which they are wrong.
#pragma once

#include <vector>

#include "examples/labs/02_zero/lab.h"

namespace trireme::labs::zero::solution {

Bytes bytes_held(int stage, int ranks, std::int64_t weights, std::int64_t largest);
std::int64_t bytes_sent(int stage, int ranks, std::int64_t weights);
std::int64_t shard_length(std::int64_t count, int ranks);
Tensor mean_shard(Rank& rank, const Tensor& gradient);

struct Layer {
  Tensor weights, gradients, first, second;
};
Tensor own(const Rank& rank, const Tensor& whole);
std::vector<Layer> allocate(const Rank& rank, const Model& model, int stage);
void forward(Model& model, const std::vector<Layer>& layers);  // ZeRO 1 and 2
Tensor gather(Rank& rank, const Tensor& shard);

void zero_1(Rank& rank, Model& model, int steps);
void zero_2(Rank& rank, Model& model, int steps);
void zero_3(Rank& rank, Model& model, int steps);

inline constexpr Answers answers = {bytes_held, bytes_sent, shard_length, mean_shard, zero_1, zero_2, zero_3};

}  // namespace trireme::labs::zero::solution
