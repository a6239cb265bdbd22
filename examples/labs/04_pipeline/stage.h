// The stage of a rank, which the learner's executor drives: real tensors on the tape, and the time that they take.
// Read next: learner.cpp.
#pragma once

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <vector>

#include "autograd/deferred.h"
#include "autograd/engine.h"
#include "autograd/ops.h"
#include "core/error.h"
#include "examples/labs/harness/cluster.h"

namespace trireme::labs::pipeline {

/// What a rank can do with a micro-batch. It has one stage: rank r has stage r.
enum class Kind : std::uint8_t {
  forward,
  backward,         ///< both of the following parts at once
  backward_input,   ///< the gradient of the stage's input, for which the stage before waits
  backward_weight,  ///< the gradients of the stage's weights, any time after it
};
/// One step of a rank.
struct Action {
  Kind kind;
  int micro_batch;
};
/// All steps of a rank, in order.
using Actions = std::vector<Action>;

inline std::string to_string(const Action& action) {
  constexpr std::array<std::string_view, 4> kinds = {"forward", "backward", "backward_input", "backward_weight"};
  return fmt::format("{} of micro-batch {}", kinds[at(action.kind)], action.micro_batch);
}

/// The time of a forward and of each part of a backward, on every stage. A whole backward takes twice as long.
inline constexpr double seconds_per_part = 1e-3;

/// The weights of a stage.
struct Weights {
  Tensor in, in_bias, out, out_bias;  // [H, D], [H], [D, H], [D]
};
/// The stages, and a batch in M micro-batches of B rows.
struct Model {
  std::vector<Weights> stages;
  Tensor x, target;  // [M, B, D]
};

/// What a stage computes: [.., D] -> [.., D].
inline Tensor block(const Tensor& x, const Weights& weights) {
  return x + linear(tanh(linear(x, weights.in, weights.in_bias)), weights.out, weights.out_bias);
}
inline Tensor loss_of(const Tensor& y, const Tensor& target) { return mean(square(y - target)); }

/// A copy of the weights that collects gradients.
inline Weights parameters(const Weights& weights, DType dtype) {
  const auto parameter = [&](const Tensor& x) {
    Tensor copy = clone(cast(x, dtype));
    require_grad(copy);
    leaf_of(copy)->set_parameter();
    return copy;
  };
  return {parameter(weights.in), parameter(weights.in_bias), parameter(weights.out), parameter(weights.out_bias)};
}

/// Keeps the activations of a micro-batch from its forward to the end of its backward.
class Stage {
 public:
  Stage(const Model& model, Rank& rank)
      : model_(model), rank_(rank), number_(rank.rank()), weights_(parameters(model.stages[at(number_)], DType::f32)) {}
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;

  bool first() const { return number_ == 0; }
  bool last() const { return number_ + 1 == static_cast<int>(model_.stages.size()); }
  int micro_batches() const { return static_cast<int>(model_.x.size(0)); }  ///< of a step: M
  const Weights& weights() const { return weights_; }                       ///< grad() of each is its gradient so far
  int most_alive() const { return most_alive_; }  ///< micro-batches whose activations it has kept at the same time

  /// x [B, D] -> [B, D], for the next stage. The first stage has the batch: there x is {}. The last stage returns the
  /// loss of the micro-batch, [], the mean over its elements.
  Tensor forward(int micro_batch, const Tensor& x) {
    const std::string what = to_string({Kind::forward, micro_batch});
    require(micro_batch >= 0 && micro_batch < micro_batches(), "stage", "{}; there are {}", what, micro_batches());
    require(!alive_.contains(micro_batch), "stage", "{} a second time; expected its backward", what);
    if (!first()) check_shape(what, "the activation of the stage before", x, {model_.x.size(1), model_.x.size(2)});
    Alive& alive = alive_[micro_batch];
    most_alive_ = std::max(most_alive_, static_cast<int>(alive_.size()));
    rank_.compute(seconds_per_part, what);
    alive.x = first() ? view::select(model_.x, 0, micro_batch) : x.detach();  // [B, D]
    if (!first()) require_grad(alive.x);
    alive.y = block(alive.x, weights_);  // [B, D]
    if (last()) alive.y = loss_of(alive.y, view::select(model_.target, 0, micro_batch));
    return alive.y.detach();
  }

  /// `gradient`: of what forward returned, and of its shape. Adds to the gradients of the weights, and returns that of
  /// x, [B, D]; {} on the first stage.
  Tensor backward(int micro_batch, const Tensor& gradient) {
    Alive& alive = begin({Kind::backward, micro_batch}, 2 * seconds_per_part);
    const Tensor dx = propagate(alive, gradient);  // [B, D]
    alive_.erase(micro_batch);
    return dx;
  }
  /// The same in two parts: first this ...
  Tensor backward_input(int micro_batch, const Tensor& gradient) {
    Alive& alive = begin({Kind::backward_input, micro_batch}, seconds_per_part);
    const DeferWeightGradients scope(alive.later);
    return propagate(alive, gradient);
  }
  /// ... then this. Activations are kept until now, because the weights' gradients are made of them.
  void backward_weight(int micro_batch) {
    Alive& alive = begin({Kind::backward_weight, micro_batch}, seconds_per_part);
    require(!alive.later.empty(), "stage", "the weights' part of micro-batch {}; expected the input's before",
            micro_batch);
    alive.later.run();
    alive_.erase(micro_batch);
  }

 private:
  struct Alive {
    Tensor x, y;
    DeferredGradients later;
  };

  static void check_shape(std::string_view what, std::string_view name, const Tensor& x, const Shape& shape) {
    require(x.defined() && x.shape() == shape, "stage", "{}: {} is {}; expected {}", what, name,
            x.defined() ? to_string(x.shape()) : "missing", shape);
  }

  Alive& begin(const Action& action, double seconds) {
    const auto place = alive_.find(action.micro_batch);
    require(place != alive_.end(), "stage", "{}, of which stage {} keeps nothing; expected its forward before",
            to_string(action), number_);
    rank_.compute(seconds, to_string(action));
    return place->second;
  }

  Tensor propagate(const Alive& alive, const Tensor& gradient) const {
    check_shape("backward", "the gradient of the stage's output", gradient, alive.y.shape());
    trireme::backward(alive.y, gradient);
    return first() ? Tensor() : grad(alive.x);
  }

  const Model& model_;
  Rank& rank_;
  int number_;
  Weights weights_;
  std::map<int, Alive> alive_;  // by micro-batch
  int most_alive_ = 0;
};

}  // namespace trireme::labs::pipeline
