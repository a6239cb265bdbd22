// Lab 4: wrong answers, each with a part of the message that it must get. Most give the right gradients; the last two
// try to fool the grader. tests/labs runs them. Do not read this before your own answer: what is wrong shows what is
// right.
#include <cmath>
#include <condition_variable>
#include <deque>
#include <mutex>

#include "examples/labs/04_pipeline/solution.h"
#include "examples/labs/harness/cheats.h"

namespace trireme::labs::pipeline {
namespace {

using Run = double (*)(Rank&, Stage&, const Actions&);

Answer wrong(std::string name, Run run, std::string expected) {
  Answers answers = solution::answers;
  answers.run = run;
  return answer(std::move(name), answers, std::move(expected));
}
Answer wrong(std::string name, List Answers::*which, List list, std::string expected) {
  Answers answers = solution::answers;
  answers.*which = list;
  return answer(std::move(name), answers, std::move(expected));
}

// ---- predictions ----------------------------------------------------------------------------------------------------

/// 1F1B saves memory; it is often said to save time.
const Registered a([] {
  Answers answers = solution::answers;
  answers.one_f_one_b_bubble = [](int ranks, int m) { return static_cast<double>(ranks - 1) / (2 * m); };
  return answer("1F1B has a smaller bubble", answers, "predicted");
}());

/// The share of the whole time, not of the ideal one.
const Registered b([] {
  Answers answers = solution::answers;
  answers.gpipe_bubble = [](int ranks, int m) { return static_cast<double>(ranks - 1) / (m + ranks - 1); };
  return answer("bubble of the total", answers, "predicted");
}());

// ---- run ------------------------------------------------------------------------------------------------------------

/// What comes of a wrong factor, wherever it is.
void multiply_gradients(const Stage& stage, double factor) {
  for (const Tensor& x : {stage.weights().in, stage.weights().in_bias, stage.weights().out, stage.weights().out_bias}) {
    Tensor gradient = grad(x);
    gradient *= factor;
  }
}

/// The last stage starts from 1: the gradients are those of the sum over micro-batches.
double starts_from_1(Rank& rank, Stage& stage, const Actions& actions) {
  const double loss = solution::run(rank, stage, actions);
  multiply_gradients(stage, stage.micro_batches());
  return loss;
}
const Registered c(wrong("loss not divided by micro-batches", starts_from_1, "times what it should be"));

/// The last stage divides, and afterwards every rank its gradients.
double averages_twice(Rank& rank, Stage& stage, const Actions& actions) {
  const double loss = solution::run(rank, stage, actions);
  multiply_gradients(stage, 1.0 / stage.micro_batches());
  return loss;
}
const Registered d(wrong("averaged twice", averages_twice, "the gradient of stage 0's in: every element is"));

/// Every rank divides the gradient that it sends: an earlier stage's are divided more often.
double every_rank_divides(Rank& rank, Stage& stage, const Actions& actions) {
  const double loss = solution::run(rank, stage, actions);
  multiply_gradients(stage, std::pow(stage.micro_batches(), rank.rank() + 1 - rank.size()));
  return loss;
}
const Registered e(wrong("every rank divides", every_rank_divides, "the gradient of stage 0's in: every element is"));

double sum_of_losses(Rank& rank, Stage& stage, const Actions& actions) {
  return stage.micro_batches() * solution::run(rank, stage, actions);
}
const Registered f(wrong("loss is a sum", sum_of_losses, "the loss on rank 1: every element is"));

/// Looks for the gradient of a micro-batch before it sends the activation from which that gradient will come.
double receives_first(Rank& rank, Stage& stage, const Actions& actions) {
  std::map<int, Tensor> gradients;
  double loss = 0;
  for (const Action& action : actions) {
    const int m = action.micro_batch;
    if (stage.last() || action.kind == Kind::backward_weight) {
      loss += solution::run(rank, stage, {action});
    } else if (action.kind == Kind::forward) {
      const Tensor y = stage.forward(m, stage.first() ? Tensor() : rank.receive(rank.rank() - 1));
      gradients[m] = rank.receive(rank.rank() + 1);
      rank.send(y, rank.rank() + 1);
    } else {
      const bool whole = action.kind == Kind::backward;
      const Tensor dx = whole ? stage.backward(m, gradients[m]) : stage.backward_input(m, gradients[m]);
      if (!stage.first()) rank.send(dx, rank.rank() - 1);
    }
  }
  return loss;
}
const Registered g(wrong("receives before it sends", receives_first, "a deadlock: rank 0 waits for a message of rank"));

/// Sends the gradient when the whole backward is done. So the rank before gains nothing from the two parts.
double sends_late(Rank& rank, Stage& stage, const Actions& actions) {
  std::map<int, Tensor> unsent;
  double loss = 0;
  for (const Action& action : actions) {
    const int m = action.micro_batch;
    if (action.kind == Kind::backward_input) {
      unsent[m] = stage.backward_input(
          m, stage.last() ? Tensor::full({}, 1.0 / stage.micro_batches()) : rank.receive(rank.rank() + 1));
    } else {
      loss += solution::run(rank, stage, {action});
      if (action.kind == Kind::backward_weight && !stage.first()) rank.send(unsent[m], rank.rank() - 1);
    }
  }
  return loss;
}
const Registered h(wrong("sends the input's gradient late", sends_late, "a deadlock: rank"));

/// Knows one schedule only.
double always_gpipe(Rank& rank, Stage& stage, const Actions&) {
  return solution::run(rank, stage, solution::gpipe(rank.size(), rank.rank(), stage.micro_batches()));
}
const Registered i(wrong("always GPipe", always_gpipe, "its stage was asked for"));

/// Tells the first rank the loss.
double sends_the_loss(Rank& rank, Stage& stage, const Actions& actions) {
  double loss = solution::run(rank, stage, actions);
  if (rank.size() > 2 && stage.last()) rank.send(Tensor::full({}, loss), 0);
  if (rank.size() > 2 && stage.first()) loss = rank.receive(rank.size() - 1).item();
  return loss;
}
const Registered j(wrong("sends the loss", sends_the_loss, "are enough"));

// ---- gpipe ----------------------------------------------------------------------------------------------------------

/// The last forward is the first to go back, but on the last rank only.
Actions newest_first(int ranks, int rank, int micro_batches) {
  Actions actions = solution::gpipe(ranks, rank, micro_batches);
  if (rank == ranks - 1) std::reverse(actions.begin() + micro_batches, actions.end());
  return actions;
}
const Registered k(wrong("newest first on the last rank", &Answers::gpipe, newest_first, "backwards in another order"));

/// A micro-batch goes through all stages and back before the next one begins.
Actions one_after_the_other(int, int, int micro_batches) {
  Actions actions;
  for (int m = 0; m < micro_batches; ++m) {
    actions.push_back({Kind::forward, m});
    actions.push_back({Kind::backward, m});
  }
  return actions;
}
const Registered l(wrong("stages one after the other", &Answers::gpipe, one_after_the_other,
                         "who waits, and for what"));
const Registered m(wrong("GPipe is 1F1B", &Answers::gpipe, solution::one_f_one_b, "a forward comes after a backward"));

// ---- one_f_one_b ----------------------------------------------------------------------------------------------------

/// 1F1B after so many forwards.
Actions warmed_up(int warm_up, int micro_batches) {
  warm_up = std::clamp(warm_up, 0, micro_batches);
  return solution::one_f_one_b(warm_up + 1, 0, micro_batches);
}
Actions one_more(int ranks, int rank, int micro_batches) { return warmed_up(ranks - rank, micro_batches); }
Actions one_less(int ranks, int rank, int micro_batches) { return warmed_up(ranks - 2 - rank, micro_batches); }
Actions all_alike(int ranks, int, int micro_batches) { return warmed_up(ranks - 1, micro_batches); }
const Registered n(wrong("one forward more to warm up", &Answers::one_f_one_b, one_more, "at the same time; expected"));
const Registered o(wrong("one forward less to warm up", &Answers::one_f_one_b, one_less, "who waits, and for what"));
const Registered p(wrong("the same warm-up everywhere", &Answers::one_f_one_b, all_alike,
                         "at the same time; expected"));
const Registered q(wrong("1F1B is GPipe", &Answers::one_f_one_b, solution::gpipe, "at the same time; expected"));

/// Forwards for each later rank, though there are fewer micro-batches.
Actions more_than_there_are(int ranks, int rank, int micro_batches) {
  Actions actions = solution::one_f_one_b(ranks, rank, micro_batches);
  for (int m = micro_batches; m < ranks - 1 - rank; ++m) actions.push_back({Kind::forward, m});
  return actions;
}
const Registered r(wrong("a warm-up of more than there are", &Answers::one_f_one_b, more_than_there_are,
                         "has a forward of micro-batch"));

/// Two forwards for each backward: keeps more and more.
Actions two_forwards(int ranks, int rank, int micro_batches) {
  Actions actions;
  int forward = 0, backward = 0;
  const auto add = [&](Kind kind, int& m) {
    if (m < micro_batches) actions.push_back({kind, m++});
  };
  while (forward < ranks - 1 - rank && forward < micro_batches) add(Kind::forward, forward);
  while (backward < micro_batches) {
    add(Kind::forward, forward);
    add(Kind::forward, forward);
    add(Kind::backward, backward);
  }
  return actions;
}
const Registered s(wrong("two forwards, one backward", &Answers::one_f_one_b, two_forwards,
                         "at the same time; expected"));

// ---- split_backward -------------------------------------------------------------------------------------------------

/// 1F1B with backwards in two parts, the second `delay` backwards later.
Actions split(int ranks, int rank, int micro_batches, int delay) {
  Actions actions;
  int backward = 0, weight = 0;
  for (const auto [kind, m] : solution::one_f_one_b(ranks, rank, micro_batches)) {
    actions.push_back({kind == Kind::forward ? kind : Kind::backward_input, m});
    if (kind == Kind::backward && ++backward > delay) actions.push_back({Kind::backward_weight, weight++});
  }
  while (weight < micro_batches) actions.push_back({Kind::backward_weight, weight++});
  return actions;
}
Actions at_once(int ranks, int rank, int micro_batches) { return split(ranks, rank, micro_batches, 0); }
Actions at_the_end(int ranks, int rank, int micro_batches) { return split(ranks, rank, micro_batches, micro_batches); }
Actions the_wrong_way_round(int ranks, int rank, int micro_batches) {
  return split(ranks, rank, micro_batches, ranks - 1 - rank);
}
const Registered t(wrong("weights' parts at once", &Answers::split_backward, at_once, "who waits, and for what"));
const Registered u(wrong("weights' parts at the end", &Answers::split_backward, at_the_end,
                         "at the same time; expected"));
const Registered v(wrong("early ranks delay most", &Answers::split_backward, the_wrong_way_round,
                         "at the same time; expected"));
const Registered w(wrong("whole backwards", &Answers::split_backward, solution::one_f_one_b,
                         "who waits, and for what"));

/// The last activations are never freed.
Actions never_freed(int ranks, int rank, int micro_batches) {
  Actions actions = solution::split_backward(ranks, rank, micro_batches);
  if (rank > 0) actions.pop_back();
  return actions;
}
const Registered x(wrong("never freed", &Answers::split_backward, never_freed,
                         "1 backward_input and 0 backward_weight"));

// ---- attempts at cheating -------------------------------------------------------------------------------------------

/// Rank 0 computes all stages, which it finds in the memory of the others.
double one_rank_does_all(Rank& rank, Stage& stage, const Actions&) {
  static cheats::Shared<Stage*> shared;
  const std::map<int, Stage*>& stages = shared.with(rank, &stage);
  const int count = rank.rank() == 0 ? stage.micro_batches() : 0;
  for (int m = 0; m < count; ++m) {
    Tensor y;
    for (int s = 0; s < rank.size(); ++s) y = stages.at(s)->forward(m, y);
    y = Tensor::full({}, 1.0 / count);
    for (int s = rank.size() - 1; s >= 0; --s) y = stages.at(s)->backward(m, y);
  }
  cheats::meet(rank);
  return 0;
}
const Registered y(wrong("cheat: one rank does all", one_rank_does_all, "by messages only"));

/// Messages that no clock sees.
class Boxes {
 public:
  void send(const Tensor& x, int from, int to) {
    const std::scoped_lock lock(mutex_);
    boxes_[{from, to}].push_back(clone(x));
    arrived_.notify_all();
  }
  Tensor receive(int from, int to) {
    std::unique_lock lock(mutex_);
    auto& box = boxes_[{from, to}];
    arrived_.wait(lock, [&] { return !box.empty(); });
    const Tensor x = box.front();
    box.pop_front();
    return x;
  }

 private:
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::map<std::pair<int, int>, std::deque<Tensor>> boxes_;
};

double in_shared_memory(Rank& rank, Stage& stage, const Actions& actions) {
  static Boxes boxes;
  const int own = rank.rank();
  double loss = 0;
  for (const auto& [kind, m] : actions) {
    if (kind == Kind::forward) {
      const Tensor y = stage.forward(m, stage.first() ? Tensor() : boxes.receive(own - 1, own));
      if (stage.last()) loss += y.item() / stage.micro_batches();
      if (!stage.last()) boxes.send(y, own, own + 1);
    } else if (kind == Kind::backward_weight) {
      stage.backward_weight(m);
    } else {
      const Tensor dy = stage.last() ? Tensor::full({}, 1.0 / stage.micro_batches()) : boxes.receive(own + 1, own);
      const Tensor dx = kind == Kind::backward ? stage.backward(m, dy) : stage.backward_input(m, dy);
      if (!stage.first()) boxes.send(dx, own, own - 1);
    }
  }
  return loss;
}
const Registered z(wrong("cheat: shared memory", in_shared_memory, "by messages only"));

}  // namespace
}  // namespace trireme::labs::pipeline
