// Lab 7: a solution. The framework's own planner has no such formulas: it runs the program itself without memory
// (docs/planner.md). Formulas are what one has before there is a program.
#include "examples/labs/07_plan/solution.h"

#include <limits>

namespace trireme::labs::planning::solution {

// A weight, its gradient, and optimizer state. Gradients and AdamW's two moments are f32 in any dtype. In bf16 there is
// a master weight too, in f32, since many an update is smaller than the last digit of a bf16 weight.
double state_bytes(DType dtype) { return dtype == DType::bf16 ? 2 + 4 + 12 : 4 + 4 + 8; }

// In bf16: of the 12 bytes of optimizer state, a rank keeps its share.
double zero_saves(double parameters, int dp) { return 12 * parameters * (dp - 1) / dp; }

// tp and pp send activations. dp sends gradients: once a step, and as many as there are weights.
Growth when_micro_batches_double() { return {.tp = 2, .dp = 1, .pp = 2}; }

double parameters(const Model& m, const Setting& s, int stage) {
  const double table = m.vocab * m.width / s.tp;
  const bool first = stage == 0, last = stage == s.pp - 1;
  double sum = m.layers / s.pp * 12 * m.width * m.width / s.tp;  // q, k, v, proj: 4; MLP: 4 + 4
  if (first || last) sum += table;                               // tied, but on two ranks
  if (first) sum += m.context * m.width;  // positions, whole: with sequence parallelism each rank has other positions
  return sum;
}

// Numbers that a block keeps for backward, for one token.
double block_numbers(const Model& m, const Setting& s) {
  const double kept = s.tp == 1 ? 16 : 2 + 14.0 / s.tp;
  return kept * m.width;
}

Memory memory(const Model& m, const Setting& s, int stage) {
  const double weights = parameters(m, s, stage), layers = m.layers / s.pp;
  const double optimizer = weights * (m.dtype == DType::bf16 ? 12 : 8);
  const int kept = std::min(s.micro_batches, s.pp - stage);  // micro-batches
  const double stored = kept * layers * (s.recompute ? m.width / s.tp : block_numbers(m, s));
  const double rebuilt = s.recompute ? block_numbers(m, s) : 0;  // one block at a time
  const double logits = stage == s.pp - 1 ? m.vocab / s.tp : 0;
  const double gradients = (2 + 4.0 / s.tp) * m.width;  // of an MLP's output, hidden units and input
  // The logits are gone before the first block is rebuilt.
  const double numbers = stored + std::max(logits, rebuilt) + gradients;
  return {.parameters = weights * m.element(),
          .gradients = weights * 4,
          .optimizer = s.zero == 1 ? optimizer / s.dp : optimizer,
          .activations = numbers * m.element() * s.micro_batch * m.context};
}

double tokens(const Model& m, const Setting& s) { return s.micro_batch * m.context; }

/// One of tp's all-reduces.
double tp_seconds(const Model& m, const Cluster& c, const Setting& s) {
  return all_reduce_seconds(c, m.element() * tokens(m, s) * m.width, s.tp, 1);
}

// Forward, the two products of backward for each of forward, and forward again.
double blocks_seconds(const Model& m, const Cluster& c, const Setting& s) {
  const double forwards = s.recompute ? 4 : 3, all_reduces = s.recompute ? 6 : 4;
  const double forward =
      tokens(m, s) * (2 * 12 * m.width * m.width + 2 * m.context * m.width);  // causal: half of the scores
  const double block = forwards * forward / s.tp / (c.flops * c.efficiency) + forwards / 3 * moving_seconds(m, c, s) +
                       all_reduces * tp_seconds(m, c, s);
  return m.layers / s.pp * block;
}

double head_seconds(const Model& m, const Cluster& c, const Setting& s) {
  const double flops = tokens(m, s) * 3 * 2 * m.vocab * m.width / s.tp;
  return flops / (c.flops * c.efficiency) + 2 * tp_seconds(m, c, s);
}

double dp_seconds(const Model& m, const Cluster& c, const Setting& s) {
  const double count = parameters(m, s, 0);
  const auto all_reduce = [&](double bytes) { return all_reduce_seconds(c, bytes * count, s.dp, s.tp); };
  const double backward = blocks_seconds(m, c, s) * (s.recompute ? 0.75 : 2.0 / 3);
  if (s.zero == 0) return std::max(0.0, all_reduce(4) - backward);
  return std::max(0.0, all_reduce(4) / 2 - backward) + all_reduce(m.element()) / 2;
}

double step_seconds(const Model& m, const Cluster& c, const Setting& s) {
  const double blocks = blocks_seconds(m, c, s), updated = parameters(m, s, 0) / (s.zero == 1 ? s.dp : 1);
  const double slowest = blocks + head_seconds(m, c, s);  // the last stage, which all others wait for
  return s.micro_batches * slowest + (s.pp - 1) * blocks + dp_seconds(m, c, s) + update_seconds(c, updated);
}

bool fits(const Model& m, const Cluster& c, const Setting& s) {
  for (int stage = 0; stage < s.pp; ++stage)
    if (memory(m, s, stage).total() > 0.9 * c.memory) return false;  // the rest is for what the formulas leave out
  return true;
}

Setting choose(const Model& m, const Cluster& c, const std::vector<Setting>& candidates) {
  Setting best;
  double least = std::numeric_limits<double>::infinity();
  for (const Setting& s : candidates) {
    if (!fits(m, c, s)) continue;
    if (const double seconds = step_seconds(m, c, s); seconds < least) {
      least = seconds;
      best = s;
    }
  }
  return best;
}

namespace {
const Registered registered(answer("solution", answers));
}

}  // namespace trireme::labs::planning::solution
