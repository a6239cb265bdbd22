// Initial values of parameters: a pure function of (seed, name, global element index). So every mesh starts from the
// same weights, with no broadcast.
//
//   weight_ = b.parameter("weight", {out, in}, {.tp = b.per_position_placement()}, nn::Init::kaiming_uniform());
//   nn::Linear up(b / "up", 64, {256}, nn::Split::out, {.weight_init = nn::Init::xavier_normal()});
//
// The names are those of torch.nn.init. fan_in is the number of inputs of one output, fan_out that of outputs of one
// input: for a weight [out, in, k..] in * k.. and out * k.., where k.. are the extents of a convolution's kernel.
// Numbers are drawn in f32, in which every dtype has the same weights up to its rounding. PyTorch's generator draws
// other numbers of the same distribution.
// Read next: nn/build.h, parallel/parameters/parameter.h.
#pragma once

#include <cstdint>

#include "parallel/parameters/parameter.h"

namespace trireme::nn {

/// Which of the two numbers a Kaiming initialisation divides by: fan_in keeps the size of activations, fan_out that of
/// gradients.
enum class Fan : std::uint8_t { in, out };

/// How the initial values of a parameter are drawn; a function of seed, name and place.
struct Init {
  /// The distribution.
  enum class Kind : std::uint8_t {
    constant,
    normal,
    uniform,
    truncated_normal,
    orthogonal,
    kaiming_normal,
    kaiming_uniform,
    xavier_normal,
    xavier_uniform,
  };
  Kind kind = Kind::constant;
  double value = 0;     ///< the constant, the standard deviation, the lower end, or the gain
  double other = 0;     ///< uniform: the upper end; truncated_normal: the bound, in standard deviations
  Fan fan = Fan::in;    ///< of the two Kaiming kinds
  int output_dims = 1;  ///< how many of the first dims are outputs; nn::Linear sets it

  static constexpr double relu_gain = 1.4142135623730951;  ///< sqrt(2): relu halves the mean square (He et al. 2015)
  static constexpr double tanh_gain = 5.0 / 3;             ///< PyTorch's gain of tanh

  static Init zeros() { return constant(0); }                             ///< all 0
  static Init ones() { return constant(1); }                              ///< all 1
  static Init constant(double value) { return {Kind::constant, value}; }  ///< all `value`
  /// Normal, with mean 0 and this standard deviation.
  static Init normal(double init_std) { return {Kind::normal, init_std}; }
  static Init uniform(double low, double high) { return {Kind::uniform, low, high}; }  ///< low <= x < high
  /// Normal numbers with |x| <= bound * init_std; others are drawn again. PyTorch's a and b are bounds of x itself.
  static Init truncated_normal(double init_std, double bound = 2) { return {Kind::truncated_normal, init_std, bound}; }
  /// Standard deviation gain / sqrt(fan) (He et al. 2015, "Delving Deep into Rectifiers", section 2.2).
  static Init kaiming_normal(double gain = relu_gain, Fan fan = Fan::in) {
    return {Kind::kaiming_normal, gain, 0, fan};
  }
  /// Uniform with that standard deviation: |x| <= gain sqrt(3 / fan). gain = 1 / sqrt(3) is that of PyTorch's
  /// nn.Linear and nn.Conv2d.
  static Init kaiming_uniform(double gain = relu_gain, Fan fan = Fan::in) {
    return {Kind::kaiming_uniform, gain, 0, fan};
  }
  /// Standard deviation gain sqrt(2 / (fan_in + fan_out)) (Glorot and Bengio 2010, section 4.2.1).
  static Init xavier_normal(double gain = 1) { return {Kind::xavier_normal, gain}; }
  static Init xavier_uniform(double gain = 1) {
    return {Kind::xavier_uniform, gain};
  }  ///< with that standard deviation
  /// The output dims as rows, the others as columns: the rows, or the columns if these are fewer, have length `gain`
  /// and are orthogonal (Saxe et al. 2014). Every rank computes the whole matrix in f64, in rows^2 * columns steps.
  static Init orthogonal(double gain = 1) { return {Kind::orthogonal, gain}; }
};

/// Overwrites the local shard with its part of the initial global tensor. Throws ExitCode::usage, naming the parameter,
/// if an initialisation by fans is given a tensor without inputs and outputs, or for a bound below 0.1.
void initialise(Parameter& parameter, const Init& init, std::uint64_t seed);

}  // namespace trireme::nn
