// The steps of LSTM and GRU: gradients against central differences in all dtypes, of dense and strided inputs, in both
// directions. Values against PyTorch are in tests/nn/recurrent_test.cpp.
#include "autograd/recurrent.h"

#include "tests/support/errors.h"
#include "tests/support/gradcheck.h"

using namespace trireme;
using namespace trireme::testing;

namespace recurrent_test {
namespace {

constexpr std::int64_t T = 4, B = 2, H = 3;

Tensor small(const Shape& shape, std::uint64_t stream) { return random(shape, stream, DType::f64, normal(0.5)); }

}  // namespace

TEST_CASE("gradients of the steps of an LSTM equal central differences") {
  for (const bool reverse : {false, true}) {
    for (const std::int64_t steps : {std::int64_t{1}, T}) {
      check_op("lstm_steps", [=](const auto& in) { return lstm_steps(in[0], in[1], in[2], in[3], reverse); },
               {small({steps, B, 4 * H}, 1), small({4 * H, H}, 2), small({B, H}, 3), small({B, H}, 4)});
    }
  }
}

TEST_CASE("gradients of the steps of a GRU equal central differences") {
  for (const bool reverse : {false, true}) {
    for (const std::int64_t steps : {std::int64_t{1}, T}) {
      const std::vector<Tensor> in = {small({steps, B, 3 * H}, 1), small({3 * H, H}, 2), small({B, H}, 3)};
      check_op(
          "gru_steps", [=](const auto& x) { return gru_steps(x[0], x[1], {}, x[2], reverse); }, in);
      check_op("gru_steps with a bias", [=](const auto& x) { return gru_steps(x[0], x[1], x[3], x[2], reverse); },
               {in[0], in[1], in[2], small({3 * H}, 5)});
    }
  }
}

TEST_CASE("many steps of several rows, which share a dense copy of the weight, have right gradients too") {
  constexpr std::int64_t steps = 9, rows = 4;
  check_op("lstm_steps", [](const auto& in) { return lstm_steps(in[0], in[1], in[2], in[3]); },
           {small({steps, rows, 4 * H}, 1), small({4 * H, H}, 2), small({rows, H}, 3), small({rows, H}, 4)});
  check_op("gru_steps", [](const auto& in) { return gru_steps(in[0], in[1], in[3], in[2]); },
           {small({steps, rows, 3 * H}, 1), small({3 * H, H}, 2), small({rows, H}, 3), small({3 * H}, 5)});
  const Tensor gates = random({steps, rows, 4 * H}, 1), weight = random({4 * H, H}, 2), h = random({rows, H}, 3),
               c = random({rows, H}, 4), whole = lstm_steps(gates, weight, h, c);
  const Tensor alone =
      lstm_steps(view::slice(gates, 1, 2, 1), weight, view::slice(h, 0, 2, 1), view::slice(c, 0, 2, 1));
  CHECK(relative_difference(view::slice(whole, 2, 2, 1), alone) < 1e-14);
}

TEST_CASE("steps that keep nothing for backward give the same bits as those that do, at widths around a vector's") {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64}) {
    for (const std::int64_t width : {1, 16, 37}) {
      const Tensor gates = random({T, B, 4 * width}, 1, dtype), weight = random({4 * width, width}, 2, dtype),
                   h = random({B, width}, 3, dtype), c = random({B, width}, 4, dtype);
      const Tensor of_gru = clone(view::slice(gates, 2, 0, 3 * width)),
                   gru_weight = clone(view::slice(weight, 0, 0, 3 * width));
      const Tensor lstm = lstm_steps(gates, weight, h, c), gru = gru_steps(of_gru, gru_weight, {}, h);
      Tensor recorded = clone(gates), recorded_gru = clone(of_gru);
      require_grad(recorded);
      require_grad(recorded_gru);
      CHECK(same_bits(lstm, lstm_steps(recorded, weight, h, c).detach()));
      CHECK(same_bits(gru, gru_steps(recorded_gru, gru_weight, {}, h).detach()));
    }
  }
}

TEST_CASE("transposed inputs of the steps have the results of dense ones") {
  const auto transposed = [](const Tensor& x) { return view::transpose(clone(view::transpose(x, 0, 1)), 0, 1); };
  const Tensor gates = random({T, B, 4 * H}, 1), weight = random({4 * H, H}, 2), h = random({B, H}, 3),
               c = random({B, H}, 4);
  CHECK(same_bits(lstm_steps(gates, weight, h, c),
                  lstm_steps(transposed(gates), transposed(weight), transposed(h), transposed(c))));
  const Tensor a = view::slice(gates, 2, 0, 3 * H), w = view::slice(weight, 0, 0, 3 * H);
  CHECK(same_bits(gru_steps(clone(a), clone(w), {}, h), gru_steps(a, transposed(w), {}, transposed(h))));
}

TEST_CASE("steps with inputs that do not fit are refused") {
  const Tensor gates = random({T, B, 4 * H}, 1), weight = random({4 * H, H}, 2), h = random({B, H}, 3);
  CHECK(says(error_of(
                 [&] {
                   lstm_steps(gates, weight, random({B, H + 1}, 3), h);
                 },
                 ExitCode::internal),
             "[lstm_steps] expected gates [T, B, 4 H], a weight [4 H, H] and a first state [B, H], got [4, 2, 12]"));
  CHECK(says(error_of(
                 [&] {
                   lstm_steps(gates, weight, h, random({B + 1, H}, 3));
                 },
                 ExitCode::internal),
             "a first cell [3, 3]; expected one like the first state, f64 [2, 3]"));
  CHECK(says(error_of([&] { gru_steps(gates, weight, {}, h); }, ExitCode::internal), "expected gates [T, B, 3 H]"));
  CHECK(says(error_of([&] { lstm_steps(cast(gates, DType::f32), weight, h, h); }, ExitCode::internal),
             "dtypes differ: gates f32, weight f64, first state f64"));
}

}  // namespace recurrent_test
