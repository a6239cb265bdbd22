// What each function of Unary should be: formulas in f64, for the tests of its kernels and of its gradient.
// Read next: core/formulas.h, which is tested.
#pragma once

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numbers>

#include "core/kernels.h"

namespace trireme::testing {

struct UnaryFunction {
  Unary op;
  const char* name;
  double low, high;  ///< where it is tested; low > 0: it takes positive numbers only
  double (*value)(double);
  double (*derivative)(double);
};

namespace exact {
inline double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
inline double normal_density(double x) { return std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi); }
inline double normal_distribution(double x) { return std::erfc(-x / std::numbers::sqrt2) / 2; }
inline double gelu_tanh(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
}
}  // namespace exact

inline constexpr UnaryFunction unary_functions[] = {
    {Unary::negate, "negate", -5, 5, [](double x) { return -x; }, [](double) { return -1.0; }},
    {Unary::exp, "exp", -8, 8, [](double x) { return std::exp(x); }, [](double x) { return std::exp(x); }},
    {Unary::log, "log", 0.01, 9, [](double x) { return std::log(x); }, [](double x) { return 1 / x; }},
    {Unary::sqrt, "sqrt", 0.01, 9, [](double x) { return std::sqrt(x); }, [](double x) { return 0.5 / std::sqrt(x); }},
    {Unary::square, "square", -5, 5, [](double x) { return x * x; }, [](double x) { return 2 * x; }},
    {Unary::tanh, "tanh", -6, 6, [](double x) { return std::tanh(x); },
     [](double x) { return 1 / (std::cosh(x) * std::cosh(x)); }},
    {Unary::relu, "relu", -5, 5, [](double x) { return std::max(x, 0.0); }, [](double x) { return x > 0 ? 1.0 : 0.0; }},
    {Unary::sigmoid, "sigmoid", -9, 9, exact::sigmoid, [](double x) { return exact::sigmoid(x) * exact::sigmoid(-x); }},
    {Unary::silu, "silu", -9, 9, [](double x) { return x * exact::sigmoid(x); },
     [](double x) { return exact::sigmoid(x) + x * exact::sigmoid(x) * exact::sigmoid(-x); }},
    {Unary::gelu, "gelu", -6, 6, [](double x) { return x * exact::normal_distribution(x); },
     [](double x) { return exact::normal_distribution(x) + x * exact::normal_density(x); }},
    {Unary::gelu_tanh, "gelu_tanh", -6, 6, exact::gelu_tanh,
     [](double x) {  // the central difference of the formula above, with an error below 2e-9
       return (exact::gelu_tanh(x + 1e-4) - exact::gelu_tanh(x - 1e-4)) / 2e-4;
     }},
    {Unary::abs, "abs", -5, 5, [](double x) { return std::fabs(x); },
     [](double x) { return x > 0   ? 1.0
                           : x < 0 ? -1.0
                                   : 0.0; }},
    {Unary::relu2, "relu2", -5, 5, [](double x) { return x > 0 ? x * x : 0.0; },
     [](double x) { return x > 0 ? 2 * x : 0.0; }},
    {Unary::sin, "sin", -40, 40, [](double x) { return std::sin(x); }, [](double x) { return std::cos(x); }},
    {Unary::cos, "cos", -40, 40, [](double x) { return std::cos(x); }, [](double x) { return -std::sin(x); }},
};
static_assert(std::size(unary_functions) == 0 TRIREME_EVERY_UNARY(TRIREME_COUNT), "a function has no row here");

}  // namespace trireme::testing
