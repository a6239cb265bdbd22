// Convolution, pooling and norms over channels against PyTorch: values, gradients of all inputs, running statistics. In
// f64 and f32, with dense inputs and with inputs that are views. README.md says what the file holds.
#include <doctest/doctest.h>

#include "autograd/conv.h"
#include "autograd/group_norm.h"
#include "autograd/pool.h"
#include "data/safetensors.h"
#include "nn/batch_norm.h"
#include "tests/support/mesh.h"

using namespace trireme;
using namespace trireme::testing;

namespace vision_test {
namespace {

const SafetensorsFile& golden() {
  static const SafetensorsFile file("tests/golden/vision.safetensors");
  return file;
}

/// Case `index` of an operation.
struct Reference {
  std::string name;
  Reference(const std::string& operation, int index) : name(fmt::format("{}.{}", operation, index)) {}
  bool exists() const { return has("x"); }
  bool has(const std::string& tensor) const { return golden().contains(name + "." + tensor); }
  Tensor operator[](const std::string& tensor) const { return golden().read(name + "." + tensor); }
  std::int64_t option(std::int64_t i) const {
    return (*this)["options"].span<std::int32_t>()[static_cast<std::size_t>(i)];
  }
  std::array<std::int64_t, 2> pair(std::int64_t i) const { return {option(i), option(i + 1)}; }
};

/// The same elements in memory of another order: the first two dims are exchanged, and there are gaps.
Tensor as_view(const Tensor& x) {
  const NoGrad guard;
  const Tensor wide = Tensor::zeros(x.shape().with(-1, 2 * x.size(-1) + 1), x.dtype());
  const Tensor moved = x.dims() > 1 ? contiguous(view::transpose(wide, 0, 1)) : wide;
  Tensor result = view::slice(x.dims() > 1 ? view::transpose(moved, 0, 1) : moved, -1, 1, x.size(-1));
  copy(x, result);
  return result;
}

/// Compares f of the inputs of a case, in the order of `names`, with the output and the gradients in the file.
void compare(const Reference& reference, const std::vector<std::string>& names,
             const std::function<Tensor(const std::vector<Tensor>&)>& f) {
  CAPTURE(reference.name);
  for (const DType dtype : {DType::f64, DType::f32}) {
    const double tolerance = dtype == DType::f64 ? 1e-13 : 1e-6;
    for (const bool views : {false, true}) {
      CAPTURE(views);
      std::vector<Tensor> inputs;
      for (const std::string& name : names) {
        Tensor x;
        if (reference.has(name)) {
          x = cast(reference[name], dtype);
          if (views) x = as_view(x);
          require_grad(x);
        }
        inputs.push_back(x);
      }
      const Tensor y = f(inputs);
      CHECK(relative_difference(y, reference["y"]) < tolerance);
      const Tensor dy = cast(reference["dy"], dtype);
      backward(y, views ? as_view(dy) : dy);
      for (std::size_t i = 0; i < names.size(); ++i) {
        CAPTURE(names[i]);
        if (inputs[i].defined()) CHECK(relative_difference(grad(inputs[i]), reference["d" + names[i]]) < tolerance);
      }
    }
  }
}

/// Calls body for every case of an operation.
void for_cases(const std::string& operation, const std::function<void(const Reference&)>& body) {
  int count = 0;
  for (; Reference(operation, count).exists(); ++count) body(Reference(operation, count));
  CHECK(count > 0);
}

}  // namespace

TEST_CASE("conv2d is PyTorch's") {
  for_cases("conv2d", [](const Reference& r) {
    const Conv2dOptions o{.stride = r.pair(0), .padding = r.pair(2), .dilation = r.pair(4), .groups = r.option(6)};
    compare(r, {"x", "weight", "bias"}, [&](const auto& in) { return conv2d(in[0], in[1], in[2], o); });
  });
}

TEST_CASE("conv1d is PyTorch's") {
  for_cases("conv1d", [](const Reference& r) {
    const Conv1dOptions o{
        .stride = r.option(0), .padding = r.option(1), .dilation = r.option(2), .groups = r.option(3)};
    compare(r, {"x", "weight", "bias"}, [&](const auto& in) { return conv1d(in[0], in[1], in[2], o); });
  });
}

TEST_CASE("max_pool2d is PyTorch's, also where a window has several largest elements") {
  for_cases("max_pool2d", [](const Reference& r) {
    const MaxPool2dOptions o{.kernel = r.pair(0), .stride = r.pair(2), .padding = r.pair(4), .dilation = r.pair(6)};
    compare(r, {"x"}, [&](const auto& in) { return max_pool2d(in[0], o); });
    compare(r, {"x"}, [&](const auto& in) { return max_pool2d_by_windows(in[0], o); });
  });
}

TEST_CASE("avg_pool2d and adaptive_avg_pool2d are PyTorch's") {
  for_cases("avg_pool2d", [](const Reference& r) {
    const AvgPool2dOptions o{
        .kernel = r.pair(0), .stride = r.pair(2), .padding = r.pair(4), .count_include_pad = r.option(6) != 0};
    compare(r, {"x"}, [&](const auto& in) { return avg_pool2d(in[0], o); });
  });
  for_cases("adaptive_avg_pool2d", [](const Reference& r) {
    compare(r, {"x"}, [&](const auto& in) { return adaptive_avg_pool2d(in[0], r.pair(0)); });
  });
}

TEST_CASE("group_norm is PyTorch's") {
  for_cases("group_norm", [](const Reference& r) {
    compare(r, {"x", "weight", "bias"},
            [&](const auto& in) { return group_norm(in[0], r.option(0), in[1], in[2], 1e-5); });
  });
}

namespace {

std::unique_ptr<nn::BatchNorm> make_batch_norm(const nn::Build& b, const Reference& r) {
  const Tensor numbers = r["numbers"];
  const nn::BatchNormOptions o{.eps = numbers.data<double>()[1], .momentum = numbers.data<double>()[0]};
  const std::int64_t channels = r["weight"].size(0);
  if (r["x"].dims() == 4) return std::make_unique<nn::BatchNorm2d>(b, channels, o);
  return std::make_unique<nn::BatchNorm1d>(b, channels, o);
}

void set_buffers(const nn::Build& b, const Reference& r) {
  for (const BufferPtr& buffer : b.buffers()) copy(r[buffer->name.substr(buffer->name.rfind('.') + 1)], buffer->value);
}

}  // namespace

TEST_CASE("BatchNorm is PyTorch's on one rank and on dp: values, gradients, running statistics, evaluation") {
  for_cases("batch_norm", [](const Reference& r) {
    for (const std::string& text : Meshes{"dp=1", "dp=2", "dp=3", "dp=2,tp=2"}) {
      CAPTURE(text);
      run_mesh(text, [&](const MeshPtr& mesh) {
        const auto part = [&](const Tensor& whole) {  // this rank's samples
          const std::int64_t samples = whole.size(0) / mesh->size(Axis::dp);
          return clone(view::slice(whole, 0, mesh->coord(Axis::dp) * samples, samples));
        };
        for (const DType dtype : {DType::f64, DType::f32}) {
          const double tolerance = dtype == DType::f64 ? 1e-13 : 2e-6;
          const nn::Build b(mesh, dtype, 1);
          const auto norm = make_batch_norm(b / "norm", r);
          for (const ParameterPtr& p : b.parameters()) set_whole(*p, cast(r[p->name.substr(5)], dtype));
          set_buffers(b, r);
          Tensor x = part(cast(r["x"], dtype));
          require_grad(x);
          b.run_state()->training = false;
          CHECK(relative_difference((*norm)(x).detach(), part(r["evaluated"])) < (dtype == DType::f64 ? 1e-7 : 2e-6));
          b.run_state()->training = true;
          const Tensor y = (*norm)(x);
          CHECK(relative_difference(y.detach(), part(r["y"])) < tolerance);
          for (const BufferPtr& buffer : b.buffers())
            CHECK(relative_difference(buffer->value, r["new_" + buffer->name.substr(5)]) < 2e-7);
          backward(y, part(cast(r["dy"], dtype)));
          CHECK(relative_difference(grad(x), part(r["dx"])) < tolerance);
          for (const ParameterPtr& p : b.parameters()) {
            Tensor sum = clone(p->grad());
            mesh->group(Axis::dp).all_reduce(sum).wait();
            CHECK(relative_difference(sum, r["d" + p->name.substr(5)]) < tolerance);
          }
        }
      });
    }
  });
}

}  // namespace vision_test
