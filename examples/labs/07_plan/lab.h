// Lab 7, a 3D plan: what learner.cpp is to contain, and what its functions are given.
// Read next: README.md beside this file, then learner.cpp.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "examples/labs/harness/grading.h"

namespace trireme::labs::planning {

/// A GPT-2: learned positions, MLPs of 4 x width, a head that is the embedding.
struct Model {
  double layers, width, heads, vocab, context;  ///< whole numbers: as doubles, no product of them overflows
  DType dtype;                                  ///< of weights and activations: bf16 or f32

  double element() const { return dtype == DType::bf16 ? 2 : 4; }  ///< bytes
};

/// How a step is made. Ranks of tp are neighbours, then come those of dp, then those of pp: rank = (pp, dp, tp).
struct Setting {
  int dp = 1, tp = 1, pp = 1;
  int micro_batch = 1;     ///< sequences
  int micro_batches = 1;   ///< of each pipeline in a step, with 1F1B
  int zero = 0;            ///< 0 or 1
  bool recompute = false;  ///< a block keeps its input alone, and runs forward again before its backward

  bool operator==(const Setting&) const = default;
};
std::string to_string(const Setting& setting);

/// Bytes of one rank.
struct Memory {
  double parameters = 0, gradients = 0, optimizer = 0, activations = 0;
  double total() const { return parameters + gradients + optimizer + activations; }
};

/// Some devices, with the figures of examples/machines/h100_sxm_ndr.json.
struct Cluster {
  struct Link {
    double latency, bytes_per_second;
  };
  int devices = 16, per_node = 8;
  double memory = 0;               ///< bytes that tensors of a rank may take
  double flops = 0;                ///< FLOP/s of a device in bf16, at its peak
  double efficiency = 0.75;        ///< share of it that products and attention of large blocks reach
  double memory_speed = 0;         ///< bytes/s that other kernels reach
  Link within = {}, between = {};  ///< of one rank, to ranks of its node and to other nodes
};

/// Seconds of an all-reduce of `bytes` by `ranks` ranks, each `stride` after the one before. On one node it is the ring
/// of lab 1. On several, each rank of a node sends a part through its own port to the other nodes.
inline double all_reduce_seconds(const Cluster& c, double bytes, int ranks, int stride) {
  if (ranks == 1) return 0;
  const int here = std::clamp(c.per_node / stride, 1, ranks), nodes = ranks / here;  // ranks of the group on a node
  const double rate =
      nodes == 1 ? c.within.bytes_per_second : std::min(c.within.bytes_per_second, here * c.between.bytes_per_second);
  const double latency = (here - 1) * c.within.latency + std::ceil(std::log2(nodes)) * c.between.latency;
  return 2 * (latency + bytes * (ranks - 1) / ranks / rate);
}

/// Seconds of the kernels of a block that only move data, in forward and backward of a micro-batch: norms, sums, copies
/// around collectives. Together they move about 40 times the block's input, whatever tp.
inline double moving_seconds(const Model& m, const Cluster& c, const Setting& s) {
  const double input = m.element() * s.micro_batch * m.context * m.width;  // [B, T, D]
  return 40 * input / c.memory_speed;
}

/// Seconds of AdamW's update of so many parameters: it moves about 30 bytes for each.
inline double update_seconds(const Cluster& c, double parameters) { return 30 * parameters / c.memory_speed; }

/// The functions of learner.cpp.
struct Growth {
  double tp, dp, pp;
};
struct Answers {
  double (*state_bytes)(DType dtype);
  double (*zero_saves)(double parameters, int dp);
  Growth (*when_micro_batches_double)();
  Memory (*memory)(const Model& model, const Setting& setting, int stage);
  double (*step_seconds)(const Model& model, const Cluster& cluster, const Setting& setting);
  Setting (*choose)(const Model& model, const Cluster& cluster, const std::vector<Setting>& candidates);
};

void grade(const Answers& answers, Grading& grading);

inline Answer answer(std::string name, Answers answers, std::string expected = {}) {
  return {"07", std::move(name), [answers](Grading& grading) { grade(answers, grading); }, std::move(expected)};
}

}  // namespace trireme::labs::planning
