#include "bench/op_cases.h"

#include <memory>
#include <utility>

#include "autograd/conv.h"
#include "autograd/engine.h"
#include "autograd/group_norm.h"
#include "autograd/ops.h"
#include "autograd/pool.h"
#include "bench/timing.h"
#include "nn/batch_norm.h"
#include "nn/containers.h"
#include "nn/cross_entropy.h"
#include "nn/linear.h"
#include "nn/losses.h"
#include "nn/recurrent.h"
#include "optim/optimizer.h"
#include "parallel/data_parallel/gradient_norm.h"

namespace trireme::bench {
namespace {

using Call = std::function<void()>;
using Make = std::function<Call(DType dtype, bool large)>;

/// Repeats the elements of `block` in a tensor of `shape`: large inputs are then made quickly.
Tensor repeated(const Tensor& block, const Shape& shape) {
  Tensor x = Tensor::empty({shape.count()}, block.dtype());
  for (std::int64_t done = 0; done < x.count(); done += block.count()) {
    const std::int64_t n = std::min(block.count(), x.count() - done);
    Tensor part = view::slice(x, 0, done, n);
    copy(view::slice(block, 0, 0, n), part);
  }
  return view::reshape(x, shape);
}

constexpr std::int64_t block_elements = 65521;  // a prime: rows of a large tensor differ

/// In [-0.5, 0.5).
Tensor random(const Shape& shape, DType dtype, std::uint64_t stream = 1) {
  return repeated(random_tensor({std::min(block_elements, shape.count())}, stream, dtype), shape);
}

/// i32 in [0, end).
Tensor random_ids(const Shape& shape, std::int64_t end) {
  const Tensor block = Tensor::empty({std::min(block_elements, shape.count())}, DType::i32);
  for (std::int64_t i = 0; i < block.count(); ++i)
    block.data<std::int32_t>()[i] =
        static_cast<std::int32_t>(random_word(1, 9, static_cast<std::uint64_t>(i)) % static_cast<std::uint32_t>(end));
  return repeated(block, shape);
}

/// A call of f() that records nothing.
template <class F>
Call forward(F f) {
  return [f = std::move(f)] {
    const NoGrad guard;
    static_cast<void>(f());
  };
}

/// A call of f(inputs) and its backward, from a random gradient: new gradients of all inputs.
template <class F>
Call both(std::vector<Tensor> inputs, F f) {
  for (Tensor& x : inputs) require_grad(x);
  Tensor dy;
  {
    const NoGrad guard;
    const Tensor y = f(inputs);
    dy = y.dims() == 0 ? Tensor() : random(y.shape(), y.dtype(), 7);
  }
  return [inputs = std::move(inputs), f = std::move(f), dy] {
    for (const Tensor& x : inputs) leaf_of(x)->set_grad({});
    backward(f(inputs), dy);
  };
}

nn::Build build(DType dtype) { return {std::make_shared<const DeviceMesh>(self_group(), MeshShape{}), dtype, 1}; }

/// Forward and backward of a module that begins without gradients.
Call both_of_module(const std::shared_ptr<nn::Module>& module, Tensor x, const Shape& result, DType dtype) {
  require_grad(x);
  const Tensor dy = random(result, dtype, 7);
  return [module, x, dy] {
    leaf_of(x)->set_grad({});
    nn::zero_grad(*module);
    backward((*module)(x), dy);
  };
}

Shape plane(bool large) { return large ? Shape{2048, 4096} : Shape{64, 64}; }
Shape images(bool large) { return large ? Shape{16, 64, 96, 96} : Shape{2, 8, 16, 16}; }

/// An operation on one tensor of shape plane().
Make of_plane(std::function<Tensor(const Tensor&)> f) {
  return [f = std::move(f)](DType dtype, bool large) {
    const Tensor x = random(plane(large), dtype);
    return forward([f, x] { return f(x); });
  };
}

/// An operation on four quarters of a tensor of shape plane(), cut along dim 1.
Make of_four_parts(std::function<Tensor(const std::vector<Tensor>&)> f) {
  return [f = std::move(f)](DType dtype, bool large) {
    std::vector<Tensor> parts;
    for (std::uint64_t i = 0; i < 4; ++i) parts.push_back(random(plane(large).with(1, plane(large)[1] / 4), dtype, i));
    return forward([f, parts] { return f(parts); });
  };
}

Make of_plane_with_backward(std::function<Tensor(const Tensor&)> f) {
  return [f = std::move(f)](DType dtype, bool large) {
    return both({random(plane(large), dtype)}, [f](const auto& in) { return f(in[0]); });
  };
}

std::vector<OpCase> elementwise_cases() {
  return {
      {"add", false,
       [](DType dtype, bool large) {
         const Tensor a = random(plane(large), dtype, 1), b = random(plane(large), dtype, 2);
         return forward([=] { return a + b; });
       }},
      {"multiply_row", false,
       [](DType dtype, bool large) {
         const Tensor a = random(plane(large), dtype, 1), b = random({plane(large)[1]}, dtype, 2);
         return forward([=] { return a * b; });
       }},
      {"exp", false, of_plane(exp)},
      {"tanh", false, of_plane(tanh)},
      {"gelu", false, of_plane(gelu)},
      {"silu_backward", false, of_plane_with_backward(silu)},
      {"where", false,
       [](DType dtype, bool large) {
         const Tensor a = random(plane(large), dtype, 1), b = random(plane(large), dtype, 2), mask = a > 0.0;
         return forward([=] { return where(mask, a, b); });
       }},
      {"clamp", false, of_plane([](const Tensor& x) { return clamp(x, -0.2, 0.3); })},
      {"dropout", false, of_plane([](const Tensor& x) {
         return dropout(x, 0.1, 1, 2, {x.shape(), Shape{0, 0}});
       })},
  };
}

std::vector<OpCase> reduction_cases() {
  return {
      {"sum_all", false, of_plane([](const Tensor& x) { return sum(x); })},
      {"sum_rows", false, of_plane([](const Tensor& x) { return sum(x, 0); })},
      {"mean_columns", false, of_plane([](const Tensor& x) { return mean(x, 1); })},
      {"var", false, of_plane([](const Tensor& x) { return var(x, 1); })},
      {"max", false, of_plane([](const Tensor& x) { return max(x, 1); })},
      {"argmax", false, of_plane([](const Tensor& x) { return argmax(x, 1); })},
      {"topk", false, of_plane([](const Tensor& x) { return topk(x, 8).values; })},
      {"cumsum", false, of_plane([](const Tensor& x) { return cumsum(x, 1); })},
      {"softmax", false, of_plane([](const Tensor& x) { return softmax(x); })},
      {"softmax_backward", false, of_plane_with_backward([](const Tensor& x) { return softmax(x); })},
      {"log_softmax_backward", false, of_plane_with_backward([](const Tensor& x) { return log_softmax(x); })},
      {"cross_entropy_backward", false,
       [](DType dtype, bool large) {
         const Shape shape = plane(large);
         const Tensor targets = random_ids({shape[0]}, shape[1]);
         const double scale = 1.0 / static_cast<double>(shape[0]);
         return both({random(shape, dtype)},
                     [=](const auto& in) { return nn::cross_entropy(in[0], targets, {.scale = scale}); });
       }},
      {"mse_loss_backward", false,
       [](DType dtype, bool large) {
         const Tensor target = random(plane(large), dtype, 2);
         const double scale = 1.0 / static_cast<double>(target.count());
         return both({random(plane(large), dtype)}, [=](const auto& in) { return nn::mse_loss(in[0], target, scale); });
       }},
      {"layer_norm_backward", false,
       [](DType dtype, bool large) {
         const std::int64_t width = large ? 1024 : 64;
         const Shape shape = {plane(large).count() / width, width};
         return both({random(shape, dtype, 1), random({width}, dtype, 2), random({width}, dtype, 3)},
                     [](const auto& in) { return layer_norm(in[0], in[1], in[2]); });
       }},
      {"rms_norm_backward", false,
       [](DType dtype, bool large) {
         const std::int64_t width = large ? 1024 : 64;
         const Shape shape = {plane(large).count() / width, width};
         return both({random(shape, dtype, 1), random({width}, dtype, 2)},
                     [](const auto& in) { return rms_norm(in[0], in[1]); });
       }},
  };
}

std::vector<OpCase> index_cases() {
  return {
      {"gather", false,
       [](DType dtype, bool large) {
         const Tensor x = random(plane(large), dtype), index = random_ids(x.shape(), x.size(1));
         return forward([=] { return gather(x, 1, index); });
       }},
      {"gather_backward", false,
       [](DType dtype, bool large) {
         const Tensor index = random_ids(plane(large), plane(large)[1]);
         return both({random(plane(large), dtype)}, [=](const auto& in) { return gather(in[0], 1, index); });
       }},
      {"scatter_add", false,
       [](DType dtype, bool large) {
         const Tensor x = random(plane(large), dtype, 1), values = random(plane(large), dtype, 2);
         const Tensor index = random_ids(x.shape(), x.size(1));
         return forward([=] { return scatter_add(x, 1, index, values); });
       }},
      {"one_hot", false,
       [](DType dtype, bool large) {
         const std::int64_t classes = large ? 1024 : 64;
         const Tensor ids = random_ids({large ? 8192 : 64}, classes);
         return forward([=] { return one_hot(ids, classes, dtype); });
       }},
      {"gather_rows", false,
       [](DType dtype, bool large) {
         const Tensor x = random(large ? Shape{32768, 256} : Shape{64, 64}, dtype),
                      index = random_ids({x.size(0)}, x.size(0));
         return forward([=] { return gather_rows(x, index); });
       }},
      {"embedding_backward", false,
       [](DType dtype, bool large) {
         const Shape table = large ? Shape{32768, 256} : Shape{512, 64};
         const Tensor ids = random_ids({large ? 32768 : 64}, table[0]);
         return both({random(table, dtype)}, [=](const auto& in) { return embedding(in[0], ids); });
       }},
  };
}

std::vector<OpCase> shape_cases() {
  return {
      {"permute_copy", false,
       [](DType dtype, bool large) {
         const Tensor x = random(large ? Shape{8, 1024, 16, 64} : Shape{2, 16, 4, 32}, dtype);
         return forward([=] { return contiguous(permute(x, {0, 2, 1, 3})); });
       }},
      {"transpose_copy", false, of_plane([](const Tensor& x) { return contiguous(transpose(x, 0, 1)); })},
      {"concat", false, of_four_parts([](const std::vector<Tensor>& parts) { return concat(parts, 1); })},
      {"stack", false, of_four_parts([](const std::vector<Tensor>& parts) { return stack(parts, 0); })},
      {"chunk_multiply_backward", false, of_plane_with_backward([](const Tensor& x) {
         const std::vector<Tensor> halves = chunk(x, 2, 1);
         return halves[0] * halves[1];
       })},
      {"pad", false, of_plane([](const Tensor& x) { return pad(x, 1, 1, 1); })},
  };
}

std::vector<OpCase> product_cases() {
  const auto linear_inputs = [](DType dtype, bool large) {
    const std::int64_t rows = large ? 512 : 8, in = large ? 512 : 64, out = large ? 2048 : 256;
    return std::vector<Tensor>{random({rows, in}, dtype, 1), random({out, in}, dtype, 2), random({out}, dtype, 3)};
  };
  return {
      {"linear", false,
       [=](DType dtype, bool large) {
         const std::vector<Tensor> in = linear_inputs(dtype, large);
         return forward([in] { return linear(in[0], in[1], in[2]); });
       }},
      {"linear_backward", false,
       [=](DType dtype, bool large) {
         return both(linear_inputs(dtype, large), [](const auto& in) { return linear(in[0], in[1], in[2]); });
       }},
      {"matmul_batched", false,
       [](DType dtype, bool large) {
         const Shape shape = large ? Shape{32, 256, 256} : Shape{4, 32, 32};
         const Tensor a = random(shape, dtype, 1), b = random(shape, dtype, 2);
         return forward([=] { return matmul(a, b); });
       }},
      {"einsum", false,
       [](DType dtype, bool large) {
         const Shape shape = large ? Shape{4, 512, 8, 64} : Shape{2, 16, 4, 32};
         const Tensor q = random(shape, dtype, 1), k = random(shape, dtype, 2);
         return forward([=] { return einsum("bqhd,bkhd->bhqk", {q, k}); });
       }},
      {"attention_backward", false,
       [](DType dtype, bool large) {
         const Shape shape = large ? Shape{2, 1024, 8, 64} : Shape{2, 16, 4, 32};
         return both({random(shape, dtype, 1), random(shape, dtype, 2), random(shape, dtype, 3)},
                     [](const auto& in) { return attention(in[0], in[1], in[2]); });
       }},
  };
}

std::vector<OpCase> layer_cases() {
  return {
      {"conv2d_backward", false,
       [](DType dtype, bool large) {
         const std::int64_t channels = large ? 64 : 8, out = large ? 64 : 16, size = large ? 56 : 16;
         return both({random({large ? 8 : 2, channels, size, size}, dtype, 1), random({out, channels, 3, 3}, dtype, 2),
                      random({out}, dtype, 3)},
                     [](const auto& in) {
                       return conv2d(in[0], in[1], in[2], {.padding = {1, 1}});
                     });
       }},
      {"max_pool2d_backward", false,
       [](DType dtype, bool large) {
         return both({random(images(large), dtype)}, [](const auto& in) { return max_pool2d(in[0]); });
       }},
      {"batch_norm_backward", false,
       [](DType dtype, bool large) {
         const Shape shape = images(large);
         return both_of_module(std::make_shared<nn::BatchNorm2d>(build(dtype), shape[1]), random(shape, dtype), shape,
                               dtype);
       }},
      {"group_norm_backward", false,
       [](DType dtype, bool large) {
         const std::int64_t channels = images(large)[1];
         return both({random(images(large), dtype, 1), random({channels}, dtype, 2), random({channels}, dtype, 3)},
                     [](const auto& in) { return group_norm(in[0], 8, in[1], in[2]); });
       }},
      {"lstm", false,
       [](DType dtype, bool large) {
         const std::int64_t width = large ? 256 : 64;
         const auto layer =
             std::make_shared<nn::Lstm>(build(dtype), nn::RecurrentOptions{.input = width, .hidden = width});
         const Tensor x = random({large ? 32 : 8, large ? 64 : 16, width}, dtype);
         return forward([=] { return (*layer)(x); });
       }},
      {"lstm_backward", false,
       [](DType dtype, bool large) {
         const std::int64_t width = large ? 256 : 64;
         const Shape shape = {large ? 32 : 8, large ? 64 : 16, width};
         return both_of_module(
             std::make_shared<nn::Lstm>(build(dtype), nn::RecurrentOptions{.input = width, .hidden = width}),
             random(shape, dtype), shape, dtype);
       }},
      {"gru_backward", false,
       [](DType dtype, bool large) {
         const std::int64_t width = large ? 256 : 64;
         const Shape shape = {large ? 32 : 8, large ? 64 : 16, width};
         return both_of_module(
             std::make_shared<nn::Gru>(build(dtype), nn::RecurrentOptions{.input = width, .hidden = width}),
             random(shape, dtype), shape, dtype);
       }},
      {"mlp_step", false,
       [](DType dtype, bool large) {
         const std::int64_t width = large ? 1024 : 64, rows = large ? 256 : 32;
         const auto net = std::make_shared<nn::Sequential>(build(dtype));
         for (int layer = 0; layer < 3; ++layer) {
           net->add<nn::Linear>(width, Shape{width}, nn::Split::none, nn::LinearOptions{});
           if (layer < 2) net->add(relu);
         }
         const std::shared_ptr<optim::Optimizer> optimizer = optim::make_sgd(net->parameters(), {});
         const Tensor x = random({rows, width}, dtype, 1), target = random({rows, width}, dtype, 2);
         const double scale = 1.0 / static_cast<double>(target.count());
         return [=] {
           nn::zero_grad(*net);
           backward(nn::mse_loss((*net)(x), target, scale));
           optimizer->step(1e-3, 1.0);
         };
       }},
  };
}

/// A parameter list of one matrix and one bias, with gradients.
std::shared_ptr<nn::Linear> with_gradients(bool large) {
  const std::int64_t in = large ? 2048 : 64, out = large ? 4096 : 64;
  const auto layer =
      std::make_shared<nn::Linear>(build(DType::f32), in, Shape{out}, nn::Split::none, nn::LinearOptions{});
  for (const ParameterPtr& parameter : layer->parameters())
    leaf_of(parameter->value())->set_grad(random(parameter->value().shape(), DType::f32, 5));
  return layer;
}

std::vector<OpCase> update_cases() {
  return {
      {"adamw_step", true,
       [](DType, bool large) -> Call {
         const auto layer = with_gradients(large);
         const std::shared_ptr<optim::Optimizer> optimizer = optim::make_adamw(layer->parameters(), {});
         return [=] { optimizer->step(1e-6, 1.0); };
       }},
      {"gradient_norm", true,
       [](DType, bool large) -> Call {
         const auto layer = with_gradients(large);
         const nn::Build b = build(DType::f32);
         return [=] { gradient_norm(layer->parameters(), b.mesh()); };
       }},
  };
}

}  // namespace

const std::vector<OpCase>& op_cases() {
  static const std::vector<OpCase> all = [] {
    std::vector<OpCase> cases;
    for (auto family :
         {elementwise_cases, reduction_cases, index_cases, shape_cases, product_cases, layer_cases, update_cases})
      for (OpCase& each : family()) cases.push_back(std::move(each));
    return cases;
  }();
  return all;
}

}  // namespace trireme::bench
