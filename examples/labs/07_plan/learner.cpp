// Lab 7: your answer. Fill in the eleven gaps, marked GAP, and run
//
//   ./trireme lab 7
//
// README.md beside this file says what is asked for; lab.h has what you may use. All bytes and seconds are of one rank.
#include "examples/labs/07_plan/lab.h"

namespace trireme::labs::planning {
namespace {

// ---- predictions: first, with pencil and paper ----------------------------------------------------------------------

/// Bytes that a parameter takes with AdamW: the weight, its gradient, and optimizer state.
double state_bytes(DType dtype) {
  return 0;  // GAP 1
}

/// Bytes that ZeRO 1 saves a rank that has so many parameters, in bf16.
double zero_saves(double parameters, int dp) {
  return 0;  // GAP 2
}

/// Micro-batches become twice as large, and a step has as many of them as before. The bytes that a rank sends in a step
/// grow by which factor, along each axis?
Growth when_micro_batches_double() {
  return {.tp = 0, .dp = 0, .pp = 0};  // GAP 3
}

// ---- part 1: memory of a rank of pipeline stage `stage`, 0 to pp - 1 ------------------------------------------------

/// Elements of the weights on it. Biases and norms may be left out.
double parameters(const Model& m, const Setting& s, int stage) {
  return 0;  // GAP 4
}

/// Numbers that a block keeps for its backward, for each token, if it does not recompute.
double block_numbers(const Model& m, const Setting& s) {
  return 0;  // GAP 5
}

Memory memory(const Model& m, const Setting& s, int stage) {
  const double count = parameters(m, s, stage);
  Memory memory;
  // GAP 6: memory.parameters, .gradients and .optimizer, with ZeRO stage s.zero; m.element() is 2 or 4.

  // GAP 7: memory.activations, when they are most. How many micro-batches has the stage kept? What has each kept? And
  // what is there only for a moment: the logits, a block that is computed again, gradients of a block's activations?
  (void)count;
  return memory;
}

// ---- part 2: seconds of a step --------------------------------------------------------------------------------------

/// Of a stage's blocks, forward and backward of a micro-batch: FLOPs, moving_seconds(), and tp's all-reduces.
double blocks_seconds(const Model& m, const Cluster& c, const Setting& s) {
  return 0;  // GAP 8
}

/// Of the logits, forward and backward of a micro-batch.
double head_seconds(const Model& m, const Cluster& c, const Setting& s) {
  const double tokens = s.micro_batch * m.context;
  const double flops = 3 * 2 * tokens * m.width * m.vocab / s.tp;
  const double stream = m.element() * tokens * m.width;  // bytes of [B, T, D]
  return flops / (c.flops * c.efficiency) + 2 * all_reduce_seconds(c, stream, s.tp, 1);
}

double step_seconds(const Model& m, const Cluster& c, const Setting& s) {
  const double count = parameters(m, s, 0), updated = s.zero == 1 ? count / s.dp : count;
  const double blocks = blocks_seconds(m, c, s), slowest = blocks + head_seconds(m, c, s);  // a micro-batch, by stage
  const double pipeline = 0;  // GAP 9: all micro-batches, and the bubble
  const double dp = 0;        // GAP 10: dp's collectives, as far as nothing hides them
  return pipeline + dp + update_seconds(c, updated);
}

// ---- part 3: a plan -------------------------------------------------------------------------------------------------

/// The candidate that your formulas find fastest, of those whose fullest rank leaves a tenth of c.memory free.
Setting choose(const Model& m, const Cluster& c, const std::vector<Setting>& candidates) {
  return {};  // GAP 11
}

const Registered registered(answer("learner",
                                   {state_bytes, zero_saves, when_micro_batches_double, memory, step_seconds, choose}));

}  // namespace
}  // namespace trireme::labs::planning
