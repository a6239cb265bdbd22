// Workers that meet rarely. Between two meetings each makes H steps of its own.
//
//   local SGD   at a meeting, weights become the mean of all workers' (Stich 2019, "Local SGD Converges Fast and
//               Communicates Little")
//   DiLoCo      the mean of what the workers have changed is a gradient for a second, outer optimizer: SGD with
//               Nesterov's momentum (Douillard et al. 2023, "DiLoCo: Distributed Low-Communication Training of Language
//               Models")
//   streaming   DiLoCo whose weights meet a part at a time, and whose messages travel while the workers go on: no
//               moment in which all links are in use, and none in which workers wait (Douillard et al. 2025, "Streaming
//               DiLoCo with overlapping communication")
//
// Read next: examples/history/compression.cpp, which sends less at every step.
#include <fmt/format.h>

#include "autograd/ops.h"
#include "examples/history/history.h"

namespace trireme::history {
namespace {

constexpr double outer_rate = 0.7, outer_momentum = 0.6;

struct Method {
  std::string name;
  int local_steps;      // H
  bool outer = false;   // DiLoCo
  int parts = 1;        // streaming: meetings of one part each, evenly spread over H steps
  int steps_under_way;  // that are made while a part's sum travels
};

/// A part of the weights [begin, begin + count) at its meetings.
struct Part {
  std::int64_t begin, count;
  Tensor shared;    // [count]: the weights that all workers agree on
  Tensor momentum;  // [count], of the outer optimizer
  Tensor change;    // [count], the sum of what the workers have changed, travelling
  Work work;
  int arrives = -1;  // the step at which it is used
};

void meet(ProcessGroup& world, Part& part, const Tensor& w, int arrives) {
  part.change = part.shared - view::slice(w, 0, part.begin, part.count);
  part.work = world.all_reduce(part.change, ReduceOp::sum, Launch::background, SumOrder::any);
  part.arrives = arrives;
}

/// The workers' weights become the new shared ones; what a worker has done since the sum began stays on top.
void arrive(ProcessGroup& world, Part& part, const Tensor& w, const Method& method, const Tensor& at_meeting) {
  part.work.wait();
  const Tensor gradient = part.change * (1.0 / world.size());  // the mean change, backwards
  Tensor own = view::slice(w, 0, part.begin, part.count);
  const Tensor since = own - at_meeting;
  if (method.outer) {
    part.momentum = part.momentum * outer_momentum + gradient;
    part.shared = part.shared - (gradient + part.momentum * outer_momentum) * outer_rate;
  } else {
    part.shared = part.shared - gradient;
  }
  copy(part.shared + since, own);
  part.arrives = -1;
}

void train(ProcessGroup& world, const Method& method, int steps, Log& log) {
  Worker worker(world.rank(), world.size());
  if (world.rank() == 0) log.note(worker.loss());
  Tensor w = worker.weights();
  std::vector<Part> parts;
  std::vector<Tensor> at_meeting(static_cast<std::size_t>(method.parts));
  for (int p = 0; p < method.parts; ++p) {
    const std::int64_t begin = w.count() * p / method.parts, end = w.count() * (p + 1) / method.parts;
    const Tensor shared = clone(view::slice(w, 0, begin, end - begin));
    parts.push_back({begin, end - begin, shared, Tensor::zeros({end - begin}), {}, {}});
  }
  const int between = method.local_steps / method.parts;  // steps from one meeting to the next
  for (int step = 0; step < steps; ++step) {
    w = w - worker.gradient() * learning_rate;
    for (std::size_t p = 0; p < parts.size(); ++p)
      if (parts[p].arrives == step) arrive(world, parts[p], w, method, at_meeting[p]);
    if (step % between == between - 1) {
      const auto p = static_cast<std::size_t>(step / between) % parts.size();
      at_meeting[p] = clone(view::slice(w, 0, parts[p].begin, parts[p].count));
      meet(world, parts[p], w, step + method.steps_under_way);
      if (method.steps_under_way == 0) arrive(world, parts[p], w, method, at_meeting[p]);
    }
    worker.set_weights(w);
    if (world.rank() == 0 && step % log_every == log_every - 1) log.note(worker.loss());
  }
  for (Part& part : parts) part.work.wait();
}

}  // namespace

std::vector<Curve> local_sgd(const Setting& setting) {
  std::vector<Curve> curves = {synchronous(setting)};
  for (const Method& method : {Method{"local SGD, H = 10", 10, false, 1, 0}, Method{"DiLoCo, H = 10", 10, true, 1, 0},
                               Method{"streaming DiLoCo, H = 20, 4 parts", 20, true, 4, 4}})
    curves.push_back(measured(
        setting, method.name, setting.workers,
        [&](const std::shared_ptr<ProcessGroup>& world, Log& log) { train(*world, method, setting.steps, log); }));
  return curves;
}

}  // namespace trireme::history
