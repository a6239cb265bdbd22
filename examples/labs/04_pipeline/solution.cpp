// Lab 4: a solution. The executor is parallel/pipeline/executor.cpp without its chunks, the lists are those of
// parallel/pipeline/schedule.cpp.
#include "examples/labs/04_pipeline/solution.h"

#include <algorithm>

namespace trireme::labs::pipeline::solution {

// The last rank starts P - 1 forwards late, and after its last backward the first rank waits for P - 1 more. Both
// schedules pay for that, and for nothing else; ideal are M forwards and M backwards.
double gpipe_bubble(int ranks, int micro_batches) { return static_cast<double>(ranks - 1) / micro_batches; }
double one_f_one_b_bubble(int ranks, int micro_batches) { return gpipe_bubble(ranks, micro_batches); }

int gpipe_alive(int, int, int micro_batches) { return micro_batches; }

// Those of the warm-up, one for each later rank, and the one that is on its way through this rank.
int one_f_one_b_alive(int ranks, int rank, int micro_batches) { return std::min(ranks - rank, micro_batches); }

// An activation to the rank after, a gradient to the rank before, if there is one.
int messages_sent(int ranks, int rank, int micro_batches) {
  return micro_batches * ((rank + 1 < ranks ? 1 : 0) + (rank > 0 ? 1 : 0));
}

namespace {

// The loss of the step is the mean over micro-batches. Everything before it is linear in this gradient: it is the only
// place where anything is divided.
Tensor output_gradient(Rank& rank, const Stage& stage) {
  return stage.last() ? Tensor::full({}, 1.0 / stage.micro_batches()) : rank.receive(rank.rank() + 1);
}

}  // namespace

double run(Rank& rank, Stage& stage, const Actions& actions) {
  double loss = 0;
  for (const auto [kind, m] : actions) {
    switch (kind) {
      case Kind::forward: {
        const Tensor y = stage.forward(m, stage.first() ? Tensor() : rank.receive(rank.rank() - 1));
        if (stage.last())
          loss += y.item() / stage.micro_batches();
        else
          rank.send(y, rank.rank() + 1);
        break;
      }
      case Kind::backward:
      case Kind::backward_input: {
        const Tensor gradient = output_gradient(rank, stage);
        const Tensor dx = kind == Kind::backward ? stage.backward(m, gradient) : stage.backward_input(m, gradient);
        if (!stage.first()) rank.send(dx, rank.rank() - 1);
        break;
      }
      case Kind::backward_weight:
        stage.backward_weight(m);
        break;
    }
  }
  return loss;
}

Actions gpipe(int, int, int micro_batches) {
  Actions actions;
  for (int m = 0; m < micro_batches; ++m) actions.push_back({Kind::forward, m});
  for (int m = 0; m < micro_batches; ++m) actions.push_back({Kind::backward, m});
  return actions;
}

// The first gradient comes back after a forward and a backward on each later rank: until then this rank may forward one
// micro-batch for each of them. From then on it frees one before it takes the next.
Actions one_f_one_b(int ranks, int rank, int micro_batches) {
  const int warm_up = std::min(ranks - 1 - rank, micro_batches);
  Actions actions;
  for (int m = 0; m < warm_up; ++m) actions.push_back({Kind::forward, m});
  for (int m = warm_up; m < micro_batches; ++m) {
    actions.push_back({Kind::forward, m});
    actions.push_back({Kind::backward, m - warm_up});
  }
  for (int m = micro_batches - warm_up; m < micro_batches; ++m) actions.push_back({Kind::backward, m});
  return actions;
}

// ZB-H1 (Qi et al. 2023, section 2.3), written as steps. In step s a rank forwards micro-batch s, sends back the
// gradient of one that it forwarded P - 1 - r steps ago, as in 1F1B, and finishes the one of P - 1 steps ago. So it
// keeps P micro-batches at most. The weights' parts, which nobody waits for, come late: at the end they fill the time
// in which a later rank waits for the first gradients and an earlier one for the last.
Actions split_backward(int ranks, int rank, int micro_batches) {
  Actions actions;
  const auto add = [&](Kind kind, int m) {
    if (m >= 0 && m < micro_batches) actions.push_back({kind, m});
  };
  for (int step = 0; step < micro_batches + ranks - 1; ++step) {
    add(Kind::forward, step);
    add(Kind::backward_input, step - (ranks - 1 - rank));
    add(Kind::backward_weight, step - (ranks - 1));
  }
  return actions;
}

namespace {
const Registered registered(answer("solution", answers));
}

}  // namespace trireme::labs::pipeline::solution
