// Lab 4: your answer. Fill in the ten gaps, marked GAP, and run
//
//   ./trireme lab 4
//
// README.md beside this file says what is asked for; lab.h and examples/labs/harness/cluster.h have what you may use.
#include <algorithm>

#include "examples/labs/04_pipeline/lab.h"

namespace trireme::labs::pipeline {
namespace {

// ---- predictions: first, with pencil and paper ----------------------------------------------------------------------
// There are at least as many micro-batches as ranks, and all stages take the same time. A bubble is the time in which a
// rank does not compute, until the last rank is done, divided by the time in which it does.

/// The bubble of GPipe.
double gpipe_bubble(int ranks, int micro_batches) {
  return -1;  // GAP 1
}

/// The bubble of 1F1B.
double one_f_one_b_bubble(int ranks, int micro_batches) {
  return -1;  // GAP 2
}

/// The most micro-batches whose activations this rank keeps at the same time, under GPipe.
int gpipe_alive(int ranks, int rank, int micro_batches) {
  return 0;  // GAP 3
}

/// The same under 1F1B.
int one_f_one_b_alive(int ranks, int rank, int micro_batches) {
  return 0;  // GAP 4
}

/// Messages that this rank sends in a step, under either.
int messages_sent(int ranks, int rank, int micro_batches) {
  return 0;  // GAP 5
}

// ---- part 1: an executor --------------------------------------------------------------------------------------------

/// Does what the list says, in its order, and exchanges messages with the ranks before and after. Returns the loss of
/// the step, the mean over all micro-batches, on the last rank; 0 on the others. The gradients of the weights become
/// those of that loss.
double run(Rank& rank, Stage& stage, const Actions& actions) {
  double loss = 0;
  for (const auto [kind, m] : actions) {
    switch (kind) {
      case Kind::forward: {
        // Where does the input come from, and where does the output go? stage.first() and stage.last() differ.
        Tensor x;  // [B, D]
        const Tensor y = stage.forward(m, x);
        // GAP 6
        break;
      }
      case Kind::backward:
      case Kind::backward_input: {
        // The same the other way. Which gradient does the last stage start from?
        Tensor dy;  // of the shape of y
        const Tensor dx = kind == Kind::backward ? stage.backward(m, dy) : stage.backward_input(m, dy);
        // GAP 7
        break;
      }
      case Kind::backward_weight:
        stage.backward_weight(m);
        break;
    }
  }
  return loss;
}

// ---- part 2: schedules as lists -------------------------------------------------------------------------------------

/// GPipe: all forwards, then all backwards.
Actions gpipe(int ranks, int rank, int micro_batches) {
  Actions actions;
  // actions.push_back({Kind::forward, m});
  // GAP 8
  return actions;
}

/// 1F1B: some forwards to warm up, as few as possible; then a forward and a backward in turns; then what is left. There
/// may be fewer micro-batches than ranks.
Actions one_f_one_b(int ranks, int rank, int micro_batches) {
  Actions actions;
  // GAP 9
  return actions;
}

// ---- part 3: a schedule of your own ---------------------------------------------------------------------------------

/// With backwards in two parts. No rank keeps more than P micro-batches, and the bubble is at most half of 1F1B's; with
/// fewer micro-batches than ranks, no more than 1F1B's.
Actions split_backward(int ranks, int rank, int micro_batches) {
  Actions actions;
  // GAP 10
  return actions;
}

const Registered registered(answer("learner", {run, gpipe, one_f_one_b, split_backward, gpipe_bubble,
                                               one_f_one_b_bubble, gpipe_alive, one_f_one_b_alive, messages_sent}));

}  // namespace
}  // namespace trireme::labs::pipeline
