#include "nn/recurrent.h"

#include <cmath>

#include "autograd/recurrent.h"
#include "core/ids.h"

namespace trireme::nn {
namespace {

const RecurrentOptions& checked(const RecurrentOptions& o, const Build& b, const char* kind) {
  if (o.input < 1 || o.hidden < 1 || o.layers < 1)
    fail(ExitCode::usage, kind,
         "{}: input {}, hidden {} and layers {}; expected each to be at least 1; set "
         "RecurrentOptions::{}",
         b.name(), o.input, o.hidden, o.layers,
         o.input < 1    ? "input"
         : o.hidden < 1 ? "hidden"
                        : "layers");
  const int cp = b.mesh().size(Axis::cp), tp = b.mesh().size(Axis::tp);
  if (cp > 1 || (b.parallelism().sequence && tp > 1))
    fail(ExitCode::usage, kind,
         "{}: a recurrent layer needs whole sequences on a rank, got cp={}{}; expected cp=1 without sequence "
         "parallelism; change the mesh (--mesh), or Parallelism::sequence (--sequence-parallel off)",
         b.name(), cp,
         b.parallelism().sequence && tp > 1 ? fmt::format(" and sequence parallelism over tp={}", tp) : "");
  return o;
}

/// Rows `index` of x [T, B, F], seen as [T B, F] -> [.., F].
Tensor rows_of(const Tensor& x, const Tensor& index) {
  return gather_rows(reshape(x, {x.size(0) * x.size(1), x.size(2)}), index);
}

}  // namespace

RecurrentLayers::Ends::Ends(const char* kind, const Tensor& lengths, std::int64_t steps, std::int64_t batch) {
  if (!lengths.defined()) return;
  require(lengths.dtype() == DType::i32 && lengths.shape() == Shape{batch}, kind,
          "lengths {} {}; expected i32 [B] = [{}], the steps of each sequence", trireme::name(lengths.dtype()),
          lengths.shape(), batch);
  const Tensor here = contiguous(lengths.to(Device::cpu));
  check_ids(kind, "length", here, {.first = 1, .end = steps + 1}, "leave sequences without steps out of the batch");
  const auto length = here.span<const std::int32_t>();
  kept_ = Tensor::full({steps * batch}, -1, DType::i32);
  reversed_ = clone(kept_);
  last_ = Tensor::empty({batch}, DType::i32);
  for (std::int64_t b = 0; b < batch; ++b) {
    const std::int64_t own = length[static_cast<std::size_t>(b)];
    for (std::int64_t t = 0; t < own; ++t) {
      kept_.data<std::int32_t>()[t * batch + b] = static_cast<std::int32_t>(t * batch + b);
      reversed_.data<std::int32_t>()[t * batch + b] = static_cast<std::int32_t>((own - 1 - t) * batch + b);
    }
    last_.data<std::int32_t>()[b] = static_cast<std::int32_t>((own - 1) * batch + b);
  }
}

Tensor RecurrentLayers::Ends::kept(const Tensor& x) const {
  return given() ? reshape(rows_of(x, kept_), x.shape()) : x;
}

Tensor RecurrentLayers::Ends::reversed(const Tensor& x) const { return reshape(rows_of(x, reversed_), x.shape()); }

Tensor RecurrentLayers::Ends::last(const Tensor& states, bool reverse) const {
  if (given()) return unsqueeze(rows_of(states, last_), 0);
  return slice(states, 0, reverse ? 0 : states.size(0) - 1, 1);
}

RecurrentLayers::RecurrentLayers(const Build& b, const RecurrentOptions& o, const char* kind, std::int64_t gates)
    : Module(b), options_(checked(o, b, kind)), kind_(kind) {
  const double bound = 1 / std::sqrt(static_cast<double>(o.hidden));
  for (int layer = 0; layer < o.layers; ++layer) {
    for (int direction = 0; direction < o.directions(); ++direction) {
      const std::string end = fmt::format("l{}{}", layer, direction == 1 ? "_reverse" : "");
      const auto make = [&](const char* what, const Shape& shape, bool decay) {
        return b.parameter(fmt::format("{}_{}", what, end), shape, {.tp = b.per_position_placement()},
                           Init::uniform(-bound, bound), {.decay = decay});
      };
      const std::int64_t rows = gates * o.hidden;
      RecurrentWeights weights{make("weight_ih", {rows, layer == 0 ? o.input : o.output()}, true),
                               make("weight_hh", {rows, o.hidden}, true),
                               {},
                               {}};
      if (o.bias)
        weights.input_bias = make("bias_ih", {rows}, false), weights.hidden_bias = make("bias_hh", {rows}, false);
      weights_.push_back(std::move(weights));
    }
    if (layer + 1 < o.layers && o.dropout != 0)
      dropouts_.push_back(std::make_unique<Dropout>(b / fmt::format("dropout_l{}", layer), o.dropout));
  }
}

RecurrentLayers::Ends RecurrentLayers::ends_of(const Tensor& x, const Tensor& lengths) const {
  return {kind_, lengths, x.size(options_.batch_first ? 1 : 0), batch_of(x)};
}

Tensor RecurrentLayers::run_layers(const Tensor& x, const Ends& ends, const Scan& scan) {
  Tensor y = ends.kept(options_.batch_first ? transpose(x, 0, 1) : x);  // [T, B, in]
  for (int layer = 0, index = 0; layer < options_.layers; ++layer) {
    std::vector<Tensor> outputs;  // [T, B, H] of each direction
    for (int direction = 0; direction < options_.directions(); ++direction, ++index)
      outputs.push_back(scan(y, weights_[static_cast<std::size_t>(index)], index, direction == 1));
    y = concat(outputs, 2);  // [T, B, H], or 2 H
    if (layer < static_cast<int>(dropouts_.size()))
      y = transpose((*dropouts_[static_cast<std::size_t>(layer)])(transpose(y, 0, 1)), 0, 1);
  }
  return options_.batch_first ? transpose(y, 0, 1) : y;
}

void RecurrentLayers::check_state(const Tensor& x, const Tensor& state, const char* what) const {
  require(x.defined() && x.dims() == 3 && x.size(2) == options_.input, kind_, "expected an input [{}, {}], got {}",
          options_.batch_first ? "B, T" : "T, B", options_.input, x.shape());
  const Shape shape = {count(), batch_of(x), options_.hidden};
  require(!state.defined() || state.shape() == shape, kind_,
          "an initial {} {}; expected [layers * directions, B, H] = {} for an input {}", what, state.shape(), shape,
          x.shape());
}

Tensor RecurrentLayers::state_of(const Tensor& state, const Tensor& x, int layer) const {
  if (!state.defined()) return Tensor::zeros({batch_of(x), options_.hidden}, x.dtype(), x.device());
  return select(state, 0, layer);
}

// With lengths, the reverse direction runs forwards over sequences in reverse order: their padding comes last.
Tensor Lstm::run_from(const Tensor& x, const LstmState& initial, const Tensor& lengths, LstmState* last) {
  check_state(x, initial.h, "h");
  check_state(x, initial.c, "c");
  const Ends ends = ends_of(x, lengths);
  std::vector<Tensor> h, c;  // [1, B, H] of each layer and direction
  const Tensor output = run_layers(x, ends, [&](const Tensor& in, const RecurrentWeights& w, int layer, bool reverse) {
    const bool turned = reverse && ends.given();
    const Tensor bias = w.input_bias ? w.input_bias->value() + w.hidden_bias->value() : Tensor();
    const Tensor gates = linear(turned ? ends.reversed(in) : in, w.input->value(), bias);  // [T, B, 4 H]
    const Tensor states = lstm_steps(gates, w.hidden->value(), state_of(initial.h, x, layer),
                                     state_of(initial.c, x, layer), reverse && !turned);  // [2, T, B, H]
    const Tensor outputs = select(states, 0, 0);                                          // [T, B, H]
    if (last != nullptr) {
      h.push_back(ends.last(outputs, reverse));
      c.push_back(ends.last(select(states, 0, 1), reverse));
    }
    return turned ? ends.reversed(outputs) : ends.kept(outputs);
  });
  if (last != nullptr) *last = {concat(h, 0), concat(c, 0)};
  return output;
}

LstmOutput Lstm::run(const Tensor& x, const LstmState& initial, const Tensor& lengths) {
  LstmOutput result;
  result.output = run_from(x, initial, lengths, &result.state);
  return result;
}

Tensor Gru::run_from(const Tensor& x, const Tensor& initial, const Tensor& lengths, Tensor* last) {
  check_state(x, initial, "state");
  const Ends ends = ends_of(x, lengths);
  std::vector<Tensor> h;  // [1, B, H] of each layer and direction
  const Tensor output = run_layers(x, ends, [&](const Tensor& in, const RecurrentWeights& w, int layer, bool reverse) {
    const bool turned = reverse && ends.given();
    const Tensor gates = linear(turned ? ends.reversed(in) : in, w.input->value(),
                                w.input_bias ? w.input_bias->value() : Tensor());  // [T, B, 3 H]
    const Tensor outputs = gru_steps(gates, w.hidden->value(), w.hidden_bias ? w.hidden_bias->value() : Tensor(),
                                     state_of(initial, x, layer), reverse && !turned);  // [T, B, H]
    if (last != nullptr) h.push_back(ends.last(outputs, reverse));
    return turned ? ends.reversed(outputs) : ends.kept(outputs);
  });
  if (last != nullptr) *last = concat(h, 0);
  return output;
}

GruOutput Gru::run(const Tensor& x, const Tensor& initial, const Tensor& lengths) {
  GruOutput result;
  result.output = run_from(x, initial, lengths, &result.state);
  return result;
}

}  // namespace trireme::nn
