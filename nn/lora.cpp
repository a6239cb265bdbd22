#include "nn/lora.h"

#include "autograd/ops.h"
#include "nn/sample_dropout.h"

namespace trireme::nn {
namespace {

using placement::R, placement::S;

/// W's shape with another last dim: [out.., last].
Shape with_last(const Shape& out, std::int64_t last) {
  std::vector<std::int64_t> extents(out.begin(), out.end());
  extents.push_back(last);
  return Shape(std::span<const std::int64_t>(extents));
}

struct AdapterPlacements {
  Placement a, b;
};

/// Where a matrix is whole while its output or its input is cut, the ranks' gradients are parts of a sum: R.
AdapterPlacements placements(const Build& build, const AdaptedLayer& layer, const Shape& a) {
  if (layer.split == Split::none) return {build.per_position_placement(), build.per_position_placement()};
  if (layer.split == Split::in) return {S(a.dims() - 1), R};
  return {R, layer.shared_parts > 0 ? R : S(layer.out.dims() - 1)};
}

}  // namespace

bool LoraOptions::adapts(std::string_view layer) const { return rank > 0 && name_fits_any(layer, targets); }

Lora::Lora(const Build& b, const LoraOptions& o, const AdaptedLayer& layer)
    : build_(b), layer_(layer), scale_(o.scale()), dropout_(o.dropout) {
  require(!layer.separate || layer.out.dims() == 2, "lora", "{}: separate adapters of outputs {}; expected [P, F]",
          b.name(), layer.out);
  const Shape a = layer.separate ? Shape{layer.out[0], o.rank, layer.in} : Shape{o.rank, layer.in};
  const AdapterPlacements tp = placements(b, layer, a);
  Init uniform = Init::kaiming_uniform(0.5773502691896258);  // +-1/sqrt(in), as in PyTorch and PEFT
  uniform.output_dims = a.dims() - 1;
  a_ = b.parameter("lora_a", a, {.tp = tp.a}, uniform, {.decay = true});
  b_ = b.parameter("lora_b", with_last(layer.out, o.rank), {.tp = tp.b}, Init::zeros(), {.decay = true});
}

Tensor Lora::add(const Tensor& y, const Tensor& x, bool training) const {
  const Tensor low =
      linear(training && dropout_ > 0 ? dropped(x) : x, a_->value(), {}) * scale_;  // [.., r], or [.., P r]
  Tensor b = b_->value();
  if (layer_.shared_parts > 0) {
    const int dim = layer_.out.dims() - 1;
    const std::int64_t length = b.size(dim) / layer_.shared_parts;
    const std::int64_t part = build_.mesh().coord(Axis::tp) * layer_.shared_parts / build_.mesh().size(Axis::tp);
    b = slice(b, dim, part * length, length);
  }
  if (!layer_.separate) return linear(low, b, {}, y);
  const std::vector<Tensor> inputs = chunk(low, layer_.out[0], -1), matrices = unbind(b, 0);
  std::vector<Tensor> outputs;
  outputs.reserve(inputs.size());
  for (std::size_t p = 0; p < inputs.size(); ++p) outputs.push_back(linear(inputs[p], matrices[p], {}));
  return y + concat(outputs, -1);
}

/// The mask depends on the element of the whole input only, whatever part of it this rank has.
Tensor Lora::dropped(const Tensor& x) const {
  SamplePart part = {.tokens = layer_.split == Split::none ? build_.parallelism() : Parallelism(),
                     .features = layer_.in};
  if (layer_.split == Split::in) part.first_feature = build_.mesh().coord(Axis::tp) * x.size(-1);
  return dropout_in_samples(x, dropout_, build_, build_.name() + ".lora_dropout", part);
}

bool is_adapter(std::string_view parameter) { return parameter.ends_with(".lora_a") || parameter.ends_with(".lora_b"); }

Tensor merged_weight(const Tensor& weight, const Tensor& a, const Tensor& b, double scale) {
  const NoGrad guard;
  const DType acc = accumulate_dtype(weight.dtype());
  const Tensor wide_a = cast(contiguous(a), acc), wide_b = cast(contiguous(b), acc);
  const std::int64_t rank = b.size(-1), in = weight.size(-1);
  const std::int64_t layers = a.dims() == 3 ? a.size(0) : 1, out = weight.count() / in / layers;
  const Tensor product = matmul(view::reshape(wide_b, {layers, out, rank}), view::reshape(wide_a, {layers, rank, in}));
  return cast(contiguous(weight), acc) + view::reshape(product, weight.shape()) * scale;
}

void train_adapters_only(const ParameterList& parameters) {
  for (const ParameterPtr& parameter : parameters) parameter->set_requires_grad(is_adapter(parameter->name));
}

}  // namespace trireme::nn
