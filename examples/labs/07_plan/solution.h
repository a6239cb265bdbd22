// What the wrong answers of lab 7 take from its solution: all but the function in which they are wrong.
#pragma once

#include "examples/labs/07_plan/lab.h"

namespace trireme::labs::planning::solution {

double state_bytes(DType dtype);
double zero_saves(double parameters, int dp);
Growth when_micro_batches_double();
double parameters(const Model& model, const Setting& setting, int stage);
double block_numbers(const Model& model, const Setting& setting);
Memory memory(const Model& model, const Setting& setting, int stage);
double blocks_seconds(const Model& model, const Cluster& cluster, const Setting& setting);
double head_seconds(const Model& model, const Cluster& cluster, const Setting& setting);
double dp_seconds(const Model& model, const Cluster& cluster, const Setting& setting);
double step_seconds(const Model& model, const Cluster& cluster, const Setting& setting);
bool fits(const Model& model, const Cluster& cluster, const Setting& setting);
Setting choose(const Model& model, const Cluster& cluster, const std::vector<Setting>& candidates);

inline constexpr Answers answers = {state_bytes, zero_saves, when_micro_batches_double, memory, step_seconds, choose};

}  // namespace trireme::labs::planning::solution
