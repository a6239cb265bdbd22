// Recurrent layers: LSTM and GRU of several layers, in one direction or both. Formulas, order of the gates and names of
// the parameters are those of torch.nn.LSTM and torch.nn.GRU: weight_ih_l0 [4 H, in], weight_hh_l0 [4 H, H], bias_ih_l0
// and bias_hh_l0 [4 H] (3 H for a GRU), then l1, ..; of the reverse direction with the suffix _reverse. The input of
// layer 1 and later is the output of the layer before, and its width H or, with both directions, 2 H.
//
//   nn::Lstm lstm(b / "lstm", {.input = 32, .hidden = 64, .layers = 2, .dropout = 0.1});
//   const Tensor y = lstm(x);                                // [B, T, 32] -> [B, T, 64], from zero states
//   const auto [output, last] = lstm.run(x, previous);       // with the states of an earlier part of the sequence
//   lstm.run(x, {}, Tensor::from({5, 3}, DType::i32));       // sequences of 5 and 3 steps, padded to T
//
// With lengths the results are those of PyTorch's pack_padded_sequence: the output of steps beyond a length is 0, the
// final state is that of the last step of each sequence, the reverse direction begins there, and what x holds beyond it
// counts for nothing, even NaN. All T steps are computed.
//
// A recurrent layer mixes positions, so a rank needs whole sequences: cp > 1 and sequence parallelism are refused. All
// tp ranks hold all weights and compute the same. The weights start uniform in +-1/sqrt(H), as in PyTorch.
// Read next: autograd/recurrent.h (the formulas).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "nn/module.h"

namespace trireme::nn {

/// Sizes and choices of an Lstm or a Gru.
struct RecurrentOptions {
  std::int64_t input = 0;   ///< features of x
  std::int64_t hidden = 0;  ///< H
  int layers = 1;
  bool bidirectional = false;  ///< the outputs of both directions, one after the other
  bool bias = true;
  double dropout = 0;       ///< of the outputs of all layers but the last, in training
  bool batch_first = true;  ///< x [B, T, in]; false: [T, B, in]. PyTorch's default is false

  int directions() const { return bidirectional ? 2 : 1; }
  std::int64_t output() const { return directions() * hidden; }  ///< features of the output
};

/// One layer in one direction: its parameters.
struct RecurrentWeights {
  ParameterPtr input, hidden, input_bias, hidden_bias;
};

/// What LSTM and GRU share: parameters, layers, directions, dropout.
class RecurrentLayers : public Module {
 public:
  const RecurrentOptions& options() const { return options_; }

 protected:
  /// One layer in one direction: x [T, B, in] -> the operation's result. `layer`: its number among all layers and
  /// directions, in PyTorch's order: l0, l0_reverse, l1, ..
  using Scan = std::function<Tensor(const Tensor& x, const RecurrentWeights& weights, int layer, bool reverse)>;

  RecurrentLayers(const Build& b, const RecurrentOptions& options, const char* kind, std::int64_t gates);
  /// Where the sequences of a batch end; without lengths, after the last step.
  class Ends {
   public:
    /// lengths [B] i32, 1 .. T each, or undefined. Throws ExitCode::internal for another shape or dtype, ExitCode::data
    /// for a length out of range.
    Ends(const char* kind, const Tensor& lengths, std::int64_t steps, std::int64_t batch);
    bool given() const { return kept_.defined(); }
    Tensor kept(const Tensor& x) const;      ///< [T, B, F]: zeros beyond the lengths
    Tensor reversed(const Tensor& x) const;  ///< [T, B, F]: the steps of each sequence in reverse order, then zeros
    /// The state [1, B, H] of states [T, B, H] after the last step; `reverse`: that is step 0.
    Tensor last(const Tensor& states, bool reverse) const;

   private:
    Tensor kept_, reversed_, last_;  // i32 [T B], [T B] and [B]: rows of [T B, F]; -1: zeros
  };

  /// The output, in the layout of x.
  Tensor run_layers(const Tensor& x, const Ends& ends, const Scan& scan);
  Ends ends_of(const Tensor& x, const Tensor& lengths) const;  ///< of the sequences of x
  /// `state`, or zeros if it is undefined, at `layer` -> [B, H]. state [layers * directions, B, H].
  Tensor state_of(const Tensor& state, const Tensor& x, int layer) const;
  /// Throws ExitCode::internal unless x and a defined state have the right shapes. `what` names the state.
  void check_state(const Tensor& x, const Tensor& state, const char* what) const;
  std::int64_t batch_of(const Tensor& x) const { return x.size(options_.batch_first ? 0 : 1); }  ///< B of x
  int count() const { return options_.layers * options_.directions(); }

 private:
  RecurrentOptions options_;
  const char* kind_;
  std::vector<RecurrentWeights> weights_;           // by layer and direction
  std::vector<std::unique_ptr<Dropout>> dropouts_;  // after each layer but the last
};

/// [layers * directions, B, H] each; undefined: zeros.
struct LstmState {
  Tensor h, c;
};
/// What Lstm::run() returns.
struct LstmOutput {
  Tensor output;    ///< [B, T, H] (2 H with both directions), or [T, B, H]
  LstmState state;  ///< after the last step of each layer and direction
};

/// Long short-term memory (Hochreiter and Schmidhuber 1997), with PyTorch's formulas and names.
/// @snippet modules_test.cpp lstm
class Lstm : public RecurrentLayers {
 public:
  Lstm(const Build& b, const RecurrentOptions& options) : RecurrentLayers(b, options, "lstm", 4) {}
  Tensor forward(const Tensor& x) override { return run_from(x, {}, {}, nullptr); }
  /// Output and final states; undefined initial states are 0. lengths: i32 [B], the steps of each sequence of x, 1 to
  /// T; undefined: T for all.
  LstmOutput run(const Tensor& x, const LstmState& initial = {}, const Tensor& lengths = {});

 private:
  Tensor run_from(const Tensor& x, const LstmState& initial, const Tensor& lengths, LstmState* last);
};

/// What Gru::run() returns.
struct GruOutput {
  Tensor output, state;  ///< as for the LSTM; the state is h
};

/// Gated recurrent unit (Cho et al. 2014), with PyTorch's formulas and names.
class Gru : public RecurrentLayers {
 public:
  Gru(const Build& b, const RecurrentOptions& options) : RecurrentLayers(b, options, "gru", 3) {}
  Tensor forward(const Tensor& x) override { return run_from(x, {}, {}, nullptr); }
  /// Output and final state; an undefined initial state is 0. lengths: as of the LSTM.
  GruOutput run(const Tensor& x, const Tensor& initial = {}, const Tensor& lengths = {});

 private:
  Tensor run_from(const Tensor& x, const Tensor& initial, const Tensor& lengths, Tensor* last);
};

}  // namespace trireme::nn
