// A step of the pipeline, as the grader runs it: a model, a list for each rank, what came of it, and a drawing.
// Read next: grader.cpp.
#pragma once

#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "examples/labs/04_pipeline/stage.h"
#include "examples/labs/harness/grading.h"

namespace trireme::labs::pipeline {

inline Model model_of(Grading& grading, int stages, int micro_batches) {
  const int rows = grading.pick(2, 4), d = grading.pick(5, 8), h = grading.pick(9, 12);
  Model model;
  for (int stage = 0; stage < stages; ++stage)
    model.stages.push_back(
        {grading.random({h, d}) * 0.4, grading.random({h}), grading.random({d, h}) * 0.3, grading.random({d})});
  model.x = grading.random({micro_batches, rows, d});
  model.target = grading.random({micro_batches, rows, d});
  return model;
}

/// All ranks' lists, and what came of running them.
struct Step {
  std::vector<Actions> lists;
  Model model;
  std::vector<std::unique_ptr<Stage>> stages;
  double loss = 0;  // on the last rank
  Run run;
  Timeline timeline;

  int ranks() const { return static_cast<int>(lists.size()); }
  int micro_batches() const { return static_cast<int>(model.x.size(0)); }
  int alive(int rank) const { return stages[at(rank)]->most_alive(); }
  double ideal() const { return 3 * seconds_per_part * micro_batches(); }
  double bubble() const { return timeline.seconds / ideal() - 1; }
  std::string size() const { return fmt::format("P = {}, M = {}", ranks(), micro_batches()); }
};

inline Step step_of(Grading& grading, int micro_batches, std::vector<Actions> lists,
                    double (*run)(Rank&, Stage&, const Actions&)) {
  Step step;
  step.lists = std::move(lists);
  step.model = model_of(grading, step.ranks(), micro_batches);
  step.stages.resize(step.lists.size());
  step.run = run_ranks({.ranks = step.ranks()}, [&](Rank& rank) {
    const auto r = at(rank.rank());
    step.stages[r] = std::make_unique<Stage>(step.model, rank);
    const double loss = run(rank, *step.stages[r], step.lists[r]);
    if (rank.rank() + 1 == rank.size()) step.loss = loss;
  });
  step.timeline = timed(step.run, equal_links(1e-12, 1e15));
  return step;
}

/// The grader's executor.
inline double run_list(Rank& rank, Stage& stage, const Actions& actions) {
  const int before = rank.rank() - 1, after = rank.rank() + 1;
  for (const auto& [kind, m] : actions) {
    if (kind == Kind::forward) {
      const Tensor y = stage.forward(m, stage.first() ? Tensor() : rank.receive(before));
      if (!stage.last()) rank.send(y, after);
    } else if (kind == Kind::backward_weight) {
      stage.backward_weight(m);
    } else {
      const Tensor dy = stage.last() ? Tensor::full({}, 1.0 / stage.micro_batches()) : rank.receive(after);
      const Tensor dx = kind == Kind::backward ? stage.backward(m, dy) : stage.backward_input(m, dy);
      if (!stage.first()) rank.send(dx, before);
    }
  }
  return 0;
}

/// Lists for run() and for predictions. On rank r a backward follows `ahead` + `slope` (P - 1 - r) forwards after its
/// own. The weights' part follows `delay` backwards later; with -1, backwards are whole.
inline std::vector<Actions> test_lists(int ranks, int micro_batches, int slope, int ahead, int delay = -1) {
  std::vector<Actions> lists(at(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    const auto add = [&](Kind kind, int m) {
      if (m >= 0 && m < micro_batches) lists[at(rank)].push_back({kind, m});
    };
    const int lag = ahead + slope * (ranks - 1 - rank);
    for (int step = 0; step < micro_batches + lag + std::max(0, delay); ++step) {
      add(Kind::forward, step);
      add(delay < 0 ? Kind::backward : Kind::backward_input, step - lag);
      if (delay >= 0) add(Kind::backward_weight, step - lag - delay);
    }
  }
  return lists;
}

/// A line for each rank, a column for each ms. F3: forward of micro-batch 3; B3: its backward, or the input's part of
/// that; W3: the weights' part.
inline std::string drawing(const Step& step, std::string_view title) {
  constexpr std::size_t cell = 3, columns = 37;
  std::string text = fmt::format("{}: a bubble of {:.3f}; micro-batches kept:", title, step.bubble());
  for (int rank = 0; rank < step.ranks(); ++rank) text += fmt::format(" {}", step.alive(rank));
  for (int rank = 0; rank < step.ranks(); ++rank) {
    const auto place = [](double time) { return cell * at(std::lround(time / seconds_per_part)); };
    std::string line;
    for (const Span& span : step.timeline.ranks[at(rank)]) {
      if (span.kind != Span::Kind::compute) continue;
      while (line.size() < place(span.begin)) line += line.size() % cell == 0 ? '.' : ' ';
      const char letter = span.what.starts_with('f') ? 'F' : span.what.starts_with("backward_w") ? 'W' : 'B';
      line += letter + span.what.substr(span.what.rfind(' ') + 1);
      while (line.size() < place(span.end)) line += line.size() % cell == cell - 1 ? ' ' : '-';
    }
    line = line.substr(0, cell * columns);
    text += fmt::format("\nrank {} |{}", rank, line.substr(0, line.find_last_not_of(' ') + 1));
  }
  return text + "\n\n";
}

}  // namespace trireme::labs::pipeline
