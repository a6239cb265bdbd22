#include "nn/linear.h"

#include "parallel/mesh/redistribute.h"

namespace trireme::nn {
namespace {

using placement::I, placement::P, placement::R, placement::S;

Shape weight_shape(const Shape& out, std::int64_t in) {
  std::vector<std::int64_t> extents(out.begin(), out.end());
  extents.push_back(in);
  return Shape(std::span<const std::int64_t>(extents));
}

Placement weight_placement(Split split, const Shape& out) {
  switch (split) {
    case Split::none:
      return I;
    case Split::out:
      return S(out.dims() - 1);
    case Split::in:
      return S(out.dims());
  }
  return I;
}

}  // namespace

Linear::Linear(const Build& b, std::int64_t in, const Shape& out, Split split, const LinearOptions& options)
    : Module(b), split_(split) {
  weight_ = b.parameter("weight", weight_shape(out, in), {.tp = weight_placement(split, out)},
                        Init::normal(options.deviation), {.decay = true});
  if (options.bias) {
    const Placement tp = split == Split::out ? S(out.dims() - 1) : I;
    bias_ = b.parameter("bias", out, {.tp = tp}, Init::zeros());
  }
}

Tensor Linear::forward(const Tensor& x) {
  const Tensor bias = bias_ ? bias_->value : Tensor();
  const bool reduced = split_ == Split::in && mesh().size(Axis::tp) > 1;
  const Tensor input = split_ == Split::out ? redistribute(x, mesh(), Axis::tp, I, R) : x;
  if (!reduced) return linear(input, weight_->value, bias);
  const Tensor y = redistribute(linear(input, weight_->value, {}), mesh(), Axis::tp, P, I);
  return bias_ ? y + reshape(bias, {bias.count()}) : y;  // `out` of several dims is flat in y
}

}  // namespace trireme::nn
