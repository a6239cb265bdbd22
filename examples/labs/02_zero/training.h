// What the grader of lab 2 trains: a random task, on one rank with the whole batch, and on ranks that run an answer.
// Read next: examples/labs/02_zero/grader.cpp.
#pragma once

#include <string>
#include <vector>

#include "autograd/engine.h"
#include "autograd/ops.h"
#include "examples/labs/02_zero/lab.h"
#include "examples/labs/harness/difference.h"

namespace trireme::labs::zero {

/// Sizes that few numbers of ranks divide.
inline Task task_of(Grading& grading, int ranks, int layers, int steps) {
  Task task;
  for (int i = 0; i <= layers; ++i) task.widths.push_back(grading.pick(18, 22));
  for (std::size_t i = 0; i + 1 < task.widths.size(); ++i) {
    const Tensor initial = grading.random({task.widths[i + 1] * (task.widths[i] + 1)});
    for (float& w : Tensor(initial).span<float>()) w *= 1.3F / std::sqrt(static_cast<float>(task.widths[i]));
    task.initial.push_back(initial);
  }
  const std::int64_t rows = std::int64_t{3} * ranks;
  for (int step = 0; step < steps; ++step) {
    task.inputs.push_back(grading.random({rows, task.widths.front()}));
    task.targets.push_back(grading.random({rows, task.widths.back()}));
  }
  return task;
}

/// The gradient of each layer's weights on the whole batch: by autograd, in f64.
inline std::vector<Tensor> gradients_of_one_rank(const Task& task, const std::vector<Tensor>& weights, int step) {
  const auto s = at(step);
  std::vector<Tensor> leaves;
  Tensor x = cast(task.inputs[s], DType::f64);  // [rows, in]
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const std::int64_t in = task.widths[i], out = task.widths[i + 1];
    Tensor w = cast(weights[i], DType::f64);
    require_grad(w);
    leaves.push_back(w);
    x = tanh(linear(x, reshape(slice(w, 0, 0, out * in), {out, in}), slice(w, 0, out * in, out)));  // [rows, out]
  }
  const Tensor error = x - cast(task.targets[s], DType::f64);
  backward(sum(error * error) * (0.5 / static_cast<double>(x.size(0))));
  std::vector<Tensor> gradients;
  gradients.reserve(leaves.size());
  for (const Tensor& w : leaves) gradients.push_back(cast(grad(w), DType::f32));
  return gradients;
}

/// The weights [count] of each layer before each step.
inline std::vector<std::vector<Tensor>> weights_of_one_rank(const Task& task) {
  std::vector<Tensor> weights, first, second;
  for (const Tensor& initial : task.initial) {
    weights.push_back(clone(initial));
    for (auto* moments : {&first, &second}) moments->push_back(Tensor::zeros(initial.shape()));
  }
  std::vector<std::vector<Tensor>> before;
  for (int step = 0; step < task.steps(); ++step) {
    auto& now = before.emplace_back();
    for (const Tensor& w : weights) now.push_back(clone(w));
    const std::vector<Tensor> gradients = gradients_of_one_rank(task, weights, step);
    for (std::size_t i = 0; i < weights.size(); ++i) adam(weights[i], gradients[i], first[i], second[i], step + 1);
  }
  return before;
}

/// zero_1, zero_2 or zero_3.
using Train = void (*)(Rank& rank, Model& model, int steps);

/// What an answer did.
struct Trained {
  Run run;
  std::vector<std::vector<Model::Weights>> seen;  // by rank, step, layer
  std::vector<MemorySeen> memory;                 // by rank

  Trained(Train train, const Task& task, int ranks) : seen(at(ranks)), memory(at(ranks)) {
    run = run_ranks({.ranks = ranks, .collectives = true}, [&](Rank& rank) {
      const auto pool = MemoryPool::current()->shared_from_this();  // the answer may set another
      Model model(rank, task);
      train(rank, model, task.steps());
      require(model.done(), "steps", "{} begun; expected {}, each with forward and backward of all layers",
              model.seen().size(), task.steps());
      const auto r = at(rank.rank());
      seen[r] = model.seen();
      memory[r] = model.memory();
      memory[r].look(*pool, &MemoryUse::peak);
    });
  }
};

inline Tensor tensor_of(const std::vector<float>& values) {
  return Tensor::from(std::span<const float>(values), {static_cast<std::int64_t>(values.size())});
}

/// The first layer, in the order of time, that had other weights than on one rank; empty if there is none.
inline std::string wrong_weights(const Trained& trained, const Task& task) {
  const std::vector<std::vector<Tensor>> want = weights_of_one_rank(task);
  for (std::size_t step = 0; step < want.size(); ++step) {
    for (std::size_t layer = 0; layer < want[step].size(); ++layer) {
      for (std::size_t rank = 0; rank < trained.seen.size(); ++rank) {
        const auto& seen = trained.seen[rank];
        std::string problem =
            difference(fmt::format("forward of step {}, weights of layer {} on rank {}", step + 1, layer, rank),
                       tensor_of(seen[step][layer]), want[step][layer],
                       {.before = step > 0 ? tensor_of(seen[step - 1][layer]) : Tensor()});
        if (!problem.empty()) return problem;
      }
    }
  }
  return {};
}

}  // namespace trireme::labs::zero
