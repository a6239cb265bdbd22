// The layers of lab 3 as its grader sees them: their parameters by name, one rank's results, and those of an answer.
// Read next: grader.cpp.
#pragma once

#include <array>
#include <cmath>
#include <string_view>
#include <vector>

#include "examples/labs/03_tensor_parallel/lab.h"

namespace trireme::labs::tensor_parallel {

using Tensors = std::vector<Tensor>;

/// A parameter of a layer, and the dim along which it is cut; `whole`: every rank has all of it.
template <class Weights>
struct Parameter {
  std::string_view name;
  Tensor Weights::*tensor;
  int cut;
};
constexpr int whole = -1;

inline Tensor part_of(const Tensor& x, int cut, int rank, int tp) {
  if (cut == whole) return clone(x);
  const std::int64_t length = x.size(cut) / tp;
  return clone(view::slice(x, cut, rank * length, length));
}

struct Sizes {
  int tp;
  std::int64_t batch, tokens, heads, head_width, hidden;
  std::int64_t width() const { return heads * head_width; }
  Shape stream() const { return {batch, tokens, width()}; }
};

inline Tensor random_weight(Grading& grading, std::int64_t out, std::int64_t in) {
  return grading.random({out, in}) * (1 / std::sqrt(static_cast<double>(in)));
}

struct MlpLayer {
  using Weights = Mlp;
  using Kept = MlpKept;
  static constexpr std::string_view name = "mlp";
  static constexpr std::array<Parameter<Mlp>, 4> parameters = {{{"up", &Mlp::up, 0},
                                                                {"up_bias", &Mlp::up_bias, 0},
                                                                {"down", &Mlp::down, 1},
                                                                {"down_bias", &Mlp::down_bias, whole}}};
  static Mlp random(Grading& grading, const Sizes& sizes) {
    return {random_weight(grading, sizes.hidden, sizes.width()), grading.random({sizes.hidden}),
            random_weight(grading, sizes.width(), sizes.hidden), grading.random({sizes.width()})};
  }
  static Tensor on_one_rank(const Mlp& mlp, const Tensor& x) {
    return linear(gelu(linear(x, mlp.up, mlp.up_bias)), mlp.down, mlp.down_bias);
  }
  static auto forward(const Answers& answers) { return answers.mlp_forward; }
  static auto backward(const Answers& answers) { return answers.mlp_backward; }
};

struct AttentionLayer {
  using Weights = Attention;
  using Kept = AttentionKept;
  static constexpr std::string_view name = "attention";
  static constexpr std::array<Parameter<Attention>, 5> parameters = {{{"q", &Attention::q, 0},
                                                                      {"k", &Attention::k, 0},
                                                                      {"v", &Attention::v, 0},
                                                                      {"out", &Attention::out, 1},
                                                                      {"out_bias", &Attention::out_bias, whole}}};
  static Attention random(Grading& grading, const Sizes& sizes) {
    const auto square = [&] { return random_weight(grading, sizes.width(), sizes.width()); };
    return {square(), square(), square(), square(), grading.random({sizes.width()}), sizes.head_width};
  }
  static Tensor on_one_rank(const Attention& weights, const Tensor& x) {
    const auto product = [&](const Tensor& weight) { return linear(x, weight, {}); };
    const Tensor mixed = mix(product(weights.q), product(weights.k), product(weights.v), weights.head_width);
    return linear(mixed, weights.out, weights.out_bias);
  }
  static auto forward(const Answers& answers) { return answers.attention_forward; }
  static auto backward(const Answers& answers) { return answers.attention_backward; }
};

/// A layer with random weights and inputs: what one rank makes of them in f64, and what an answer's ranks make.
template <class Layer>
class Trial {
 public:
  using Weights = typename Layer::Weights;
  Trial(Grading& grading, const Sizes& of)
      : sizes(of),
        weights(Layer::random(grading, of)),
        x(grading.random(of.stream())),
        dy(grading.random(of.stream())),
        forward(at(of.tp)),
        backward(at(of.tp)) {
    Weights wide = weights;
    for (const auto& parameter : Layer::parameters) wide.*parameter.tensor = leaf(weights.*parameter.tensor);
    const Tensor wide_x = leaf(x);
    const Tensor result = Layer::on_one_rank(wide, wide_x);
    trireme::backward(result, cast(dy, DType::f64));
    y = result.detach();
    dx = grad(wide_x);
    for (const auto& parameter : Layer::parameters) gradients.push_back(grad(wide.*parameter.tensor));
  }

  void forward_on(Rank& rank, const Answers& answers) {
    forward[at(rank.rank())] = Layer::forward(answers)(rank, part(rank.rank()), clone(x));
  }
  void backward_on(Rank& rank, const Answers& answers) {
    const auto r = at(rank.rank());
    backward[r] = Layer::backward(answers)(rank, part(rank.rank()), forward[r].kept, clone(dy));
  }
  // Two runs, so that their messages are counted apart.
  void run_forward(const Answers& answers) {
    forward_run = run_ranks({.ranks = sizes.tp, .collectives = true}, [&](Rank& rank) { forward_on(rank, answers); });
  }
  void run_backward(const Answers& answers) {
    backward_run = run_ranks({.ranks = sizes.tp, .collectives = true}, [&](Rank& rank) { backward_on(rank, answers); });
  }

  Weights part(int rank) const {
    Weights result = weights;
    for (const auto& parameter : Layer::parameters)
      result.*parameter.tensor = part_of(weights.*parameter.tensor, parameter.cut, rank, sizes.tp);
    return result;
  }

  Sizes sizes;
  Weights weights;
  Tensor x, dy;                                        // [B, T, D]
  Tensor y, dx;                                        // [B, T, D], one rank's
  Tensors gradients;                                   // one rank's, in the order of Layer::parameters
  std::vector<Forward<typename Layer::Kept>> forward;  // by rank
  std::vector<Backward<Weights>> backward;             // by rank
  Run forward_run, backward_run;

 private:
  static Tensor leaf(const Tensor& x) {
    Tensor wide = cast(x, DType::f64);
    require_grad(wide);
    return wide;
  }
};

}  // namespace trireme::labs::tensor_parallel
