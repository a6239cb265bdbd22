// Every operation on tensors with extents of 0, 1, 3 and 2^31: a result of the right shape with right gradients, or an
// error that begins with the operation's name. Memory is filled with NaN before, so that elements that nobody writes
// are seen.
#include <cmath>

#include "autograd/conv.h"
#include "autograd/group_norm.h"
#include "autograd/masked_attention.h"
#include "autograd/pool.h"
#include "autograd/recurrent.h"
#include "core/extents.h"
#include "tests/support/errors.h"
#include "tests/support/gradcheck.h"

using namespace trireme;
using namespace trireme::testing;

namespace extents_test {
namespace {

constexpr std::int64_t huge = std::int64_t{1} << 31;

using Inputs = std::vector<Tensor>;
using Run = std::function<Tensor(const Inputs& in)>;
using Refused = std::function<bool(std::int64_t n, std::int64_t d)>;

/// An operation for sizes n and d.
struct Row {
  std::string name;
  std::function<std::vector<Shape>(std::int64_t n, std::int64_t d)> inputs;
  Run run;
  std::function<Shape(std::int64_t n, std::int64_t d)> result;
  Refused refused = [](std::int64_t, std::int64_t) { return false; };
};

/// The pool hands these blocks out next.
void fill_memory_with_nan() {
  std::vector<Tensor> blocks;
  for (const std::int64_t count : {1, 3, 4, 9, 12, 27, 36, 64})
    for (int i = 0; i < 8; ++i) blocks.push_back(Tensor::full({count}, NAN));
}

void require_finite(const Tensor& x) {
  const Tensor dense = contiguous(x);
  for (const float value : dense.span<const float>()) CHECK(std::isfinite(value));
}

void check(const Row& row, std::int64_t n, std::int64_t d) {
  CAPTURE(row.name);
  CAPTURE(n);
  CAPTURE(d);
  Inputs in;
  for (const Shape& shape : row.inputs(n, d)) require_grad(in.emplace_back(Tensor::full(shape, 0.5)));
  fill_memory_with_nan();
  const auto run = [&] {
    const Tensor y = row.run(in);
    CHECK(y.shape() == row.result(n, d));
    require_finite(y);
    fill_memory_with_nan();
    if (y.requires_grad()) backward(y, Tensor::ones(y.shape()));
    for (const Tensor& x : in) {
      if (!grad(x).defined()) continue;
      CHECK(grad(x).shape() == x.shape());
      require_finite(grad(x));
    }
  };
  const Caught error = caught(run);
  if (row.refused(n, d)) {
    CHECK_MESSAGE(error.message.rfind(fmt::format("trireme: [{}] ", row.name), 0) == 0, error.message);
    CHECK((error.code == ExitCode::internal || error.code == ExitCode::data));
  } else {
    CHECK_MESSAGE(error.message.empty(), error.message);
  }
}

/// Whether its tensors fit a test: of most operations, those of extents 2^31 and 0 are empty.
bool is_small(const Row& row, std::int64_t n, std::int64_t d) {
  std::int64_t largest = row.result(n, d).count();
  for (const Shape& shape : row.inputs(n, d)) largest = std::max(largest, shape.count());
  return largest < 1000;
}

/// `huge_too`: also 2^31 beside 0, for operations whose own memory is then empty.
void check_all(const std::vector<Row>& rows, bool huge_too = false) {
  for (const Row& row : rows) {
    for (const std::int64_t n : {0, 1, 3})
      for (const std::int64_t d : {0, 1, 3}) check(row, n, d);
    for (const auto& [n, d] : {std::pair{huge, std::int64_t{0}}, std::pair{std::int64_t{0}, huge}})
      if (huge_too && is_small(row, n, d)) check(row, n, d);
  }
}

std::vector<Shape> matrix(std::int64_t n, std::int64_t d) { return {{n, d}}; }
std::vector<Shape> two_matrices(std::int64_t n, std::int64_t d) { return {{n, d}, {n, d}}; }
Shape same(std::int64_t n, std::int64_t d) { return {n, d}; }
Shape number(std::int64_t, std::int64_t) { return {}; }
Shape without_n(std::int64_t, std::int64_t d) { return {d}; }
Shape without_d(std::int64_t n, std::int64_t) { return {n}; }
bool no_n(std::int64_t n, std::int64_t) { return n == 0; }
bool no_d(std::int64_t, std::int64_t d) { return d == 0; }
bool nothing(std::int64_t n, std::int64_t d) { return n == 0 || d == 0; }

Tensor ids(const Shape& shape) { return Tensor::zeros(shape, DType::i32); }

}  // namespace

TEST_CASE("extents: elementwise operations, views and copies") {
  check_all(
      {
          {"add", two_matrices, [](const Inputs& in) { return in[0] + in[1]; }, same},
          {"multiply",
           [](auto n, auto d) {
             return std::vector<Shape>{{n, d}, {d}};
           },
           [](const Inputs& in) { return in[0] * in[1]; }, same},
          {"divide",
           [](auto n, auto d) {
             return std::vector<Shape>{{n, d}, {n, 1}};
           },
           [](const Inputs& in) { return in[0] / in[1]; }, same},
          {"subtract", two_matrices, [](const Inputs& in) { return 1.0 - in[0] - in[1]; }, same},
          {"maximum", two_matrices, [](const Inputs& in) { return maximum(in[0], in[1]); }, same},
          {"where", two_matrices, [](const Inputs& in) { return where(in[0] < 1.0, in[0], in[1]); }, same},
          {"clamp", matrix, [](const Inputs& in) { return clamp(in[0], 0, 1); }, same},
          {"pow", matrix, [](const Inputs& in) { return pow(in[0], 2); }, same},
          {"unary", matrix, [](const Inputs& in) { return gelu(exp(in[0])); }, same},
          {"cast", matrix, [](const Inputs& in) { return cast_to(cast_to(in[0], DType::bf16), DType::f32); }, same},
          {"softcap", matrix, [](const Inputs& in) { return softcap(in[0], 2); }, same},
          {"dropout", matrix,
           [](const Inputs& in) {
             return dropout(in[0], 0.5, 1, 1, {.global = in[0].shape(), .start = {0, 0}});
           },
           same},
          {"reshape", matrix,
           [](const Inputs& in) {
             return reshape(in[0], {in[0].size(1), in[0].size(0)});
           },
           [](auto n, auto d) {
             return Shape{d, n};
           }},
          {"reshape", matrix,
           [](const Inputs& in) {
             return reshape(in[0], {in[0].size(1), -1});
           },
           [](auto n, auto d) {
             return Shape{d, n};
           },
           no_d},
          {"flatten", matrix, [](const Inputs& in) { return flatten(in[0]); },
           [](auto n, auto d) { return Shape{n * d}; }},
          {"transpose", matrix, [](const Inputs& in) { return contiguous(transpose(in[0], 0, 1)); },
           [](auto n, auto d) {
             return Shape{d, n};
           }},
          {"permute", matrix,
           [](const Inputs& in) {
             return permute(in[0], {1, 0});
           },
           [](auto n, auto d) {
             return Shape{d, n};
           }},
          {"unsqueeze", matrix, [](const Inputs& in) { return squeeze(unsqueeze(in[0], 1), 1); }, same},
          {"slice", matrix, [](const Inputs& in) { return slice(in[0], 0, in[0].size(0), 0); },
           [](auto, auto d) {
             return Shape{0, d};
           }},
          {"select", matrix, [](const Inputs& in) { return select(in[0], 0, 0); }, without_n, no_n},
          {"expand",
           [](auto, auto d) {
             return std::vector<Shape>{{1, d}};
           },
           [](const Inputs& in) {
             return expand(in[0], {3, in[0].size(1)});
           },
           [](auto, auto d) {
             return Shape{3, d};
           }},
          {"pad", matrix, [](const Inputs& in) { return pad(in[0], 0, 1, 2); },
           [](auto n, auto d) {
             return Shape{n + 3, d};
           }},
          {"flip", matrix, [](const Inputs& in) { return flip(in[0], 1); }, same},
          {"concat", two_matrices, [](const Inputs& in) { return concat(in, 1); },
           [](auto n, auto d) {
             return Shape{n, 2 * d};
           }},
          {"stack", two_matrices, [](const Inputs& in) { return stack(in, 1); },
           [](auto n, auto d) {
             return Shape{n, 2, d};
           }},
          {"chunk", matrix, [](const Inputs& in) { return chunk(in[0], 1, 1)[0]; }, same},
          {"split", matrix,
           [](const Inputs& in) {
             return split(in[0], {0, in[0].size(0)}, 0)[1];
           },
           same},
          {"recompute", matrix,
           [](const Inputs& in) { return recompute([](const Tensor& x) { return exp(x); }, in[0]); }, same},
          {"with_auxiliary_loss", matrix, [](const Inputs& in) { return with_auxiliary_loss(in[0], sum(in[0])); },
           same},
      },
      true);
}

TEST_CASE("extents: reductions") {
  check_all(
      {
          {"sum", matrix, [](const Inputs& in) { return sum(in[0]); }, number},
          {"sum", matrix, [](const Inputs& in) { return sum(in[0], 0); }, without_n},
          {"sum", matrix, [](const Inputs& in) { return sum(in[0], 1); }, without_d},
          {"mean", matrix, [](const Inputs& in) { return mean(in[0]); }, number, nothing},
          {"mean", matrix, [](const Inputs& in) { return mean(in[0], 1); }, without_d, no_d},
          {"max", matrix, [](const Inputs& in) { return max(in[0]); }, number, nothing},
          {"max", matrix, [](const Inputs& in) { return max(in[0], 0); }, without_n, no_n},
          {"max", matrix,
           [](const Inputs& in) {
             return max(in[0], {0, 1});
           },
           number, nothing},
          {"min", matrix, [](const Inputs& in) { return min(in[0], 1); }, without_d, no_d},
          {"var", matrix, [](const Inputs& in) { return var(in[0], 1, 0); }, without_d, no_d},
          {"norm", matrix, [](const Inputs& in) { return norm(in[0]); }, number},
          {"norm", matrix, [](const Inputs& in) { return norm(in[0], 1); }, without_d},
          {"cumsum", matrix, [](const Inputs& in) { return cumsum(in[0], 0); }, same},
          {"softmax", matrix, [](const Inputs& in) { return softmax(in[0]); }, same},
          {"softmax", matrix, [](const Inputs& in) { return softmax(in[0], 0); }, same},
          {"log_softmax", matrix, [](const Inputs& in) { return log_softmax(in[0]); }, same, no_d},
          {"logsumexp", matrix, [](const Inputs& in) { return logsumexp(in[0]); }, without_d, no_d},
          {"argmax", matrix, [](const Inputs& in) { return cast(argmax(in[0], 1), DType::f32); }, without_d, no_d},
          {"argmin", matrix, [](const Inputs& in) { return cast(argmin(in[0], 0), DType::f32); }, without_n, no_n},
          {"topk", matrix, [](const Inputs& in) { return topk(in[0], 1, 1).values; },
           [](auto n, auto) {
             return Shape{n, 1};
           },
           no_d},
          {"layer_norm",
           [](auto n, auto d) {
             return std::vector<Shape>{{n, d}, {d}, {d}};
           },
           [](const Inputs& in) { return layer_norm(in[0], in[1], in[2]); }, same},
          {"rms_norm",
           [](auto n, auto d) {
             return std::vector<Shape>{{n, d}, {d}};
           },
           [](const Inputs& in) { return rms_norm(in[0], in[1]); }, same},
          {"group_norm",
           [](auto n, auto d) {
             return std::vector<Shape>{{n, 2, d}, {2}, {2}};
           },
           [](const Inputs& in) { return group_norm(in[0], 2, in[1], in[2]); },
           [](auto n, auto d) {
             return Shape{n, 2, d};
           },
           no_d},
      },
      true);
}

TEST_CASE("extents: products") {
  const auto layer = [](auto n, auto d) { return std::vector<Shape>{{n, d}, {3, d}, {3}, {n, 3}}; };
  const auto outputs = [](auto n, auto) { return Shape{n, 3}; };
  check_all({
      {"matmul",
       [](auto n, auto d) {
         return std::vector<Shape>{{n, d}, {d, 3}};
       },
       [](const Inputs& in) { return matmul(in[0], in[1]); }, outputs},
      {"matmul",
       [](auto n, auto d) {
         return std::vector<Shape>{{d, 3, n}, {n, 3}};
       },
       [](const Inputs& in) { return matmul(in[0], in[1]); },
       [](auto, auto d) {
         return Shape{d, 3, 3};
       }},
      {"linear", layer, [](const Inputs& in) { return linear(in[0], in[1], in[2], in[3]); }, outputs},
      {"linear", layer, [](const Inputs& in) { return linear(in[0], in[1], {}); }, outputs},
      {"linear",
       [](auto n, auto d) {
         return std::vector<Shape>{{n, 3}, {d, 3}, {d}};
       },
       [](const Inputs& in) { return linear(in[0], in[1], in[2]); }, same},
      {"mlp",
       [](auto n, auto d) {
         return std::vector<Shape>{{n, 3}, {d, 3}, {d}, {3, d}, {3}};
       },
       [](const Inputs& in) {
         return mlp(in[0], {in[1], in[2], in[3], in[4]}, Unary::gelu);
       },
       outputs},
      {"mlp",
       [](auto n, auto d) {
         return std::vector<Shape>{{n, d}, {3, d}, {3}, {d, 3}, {d}, {n, d}};
       },
       [](const Inputs& in) {
         return mlp(in[0], {in[1], in[2], in[3], in[4]}, Unary::gelu, in[5]);
       },
       same},
      {"grouped_linear",
       [](auto n, auto d) {
         return std::vector<Shape>{{n, d}, {2, 3, d}, {2, 3}};
       },
       [](const Inputs& in) {
         return grouped_linear(in[0], {0, 0, in[0].size(0)}, in[1], in[2]);
       },
       outputs},
      {"grouped_linear",
       [](auto n, auto d) {
         return std::vector<Shape>{{n, 3}, {2, d, 3}, {2, d}};
       },
       [](const Inputs& in) {
         return grouped_linear(in[0], {0, 0, in[0].size(0)}, in[1], in[2]);
       },
       same},
      {"einsum",
       [](auto n, auto d) {
         return std::vector<Shape>{{n, d}, {3, d}};
       },
       [](const Inputs& in) { return einsum("nd,kd->nk", in); }, outputs},
      {"swiglu",
       [](auto n, auto d) {
         return std::vector<Shape>{{n, 2 * d}};
       },
       [](const Inputs& in) { return swiglu(in[0]); }, same},
      {"gated_unit",
       [](auto n, auto d) {
         return std::vector<Shape>{{n, 2 * d}};
       },
       [](const Inputs& in) { return gated_unit(in[0], Unary::gelu); }, same},
      {"lstm_steps",
       [](auto n, auto d) {
         return std::vector<Shape>{{2, n, 4 * d}, {4 * d, d}, {n, d}, {n, d}};
       },
       [](const Inputs& in) { return lstm_steps(in[0], in[1], in[2], in[3], false); },
       [](auto n, auto d) {
         return Shape{2, 2, n, d};
       }},
      {"gru_steps",
       [](auto n, auto d) {
         return std::vector<Shape>{{2, n, 3 * d}, {3 * d, d}, {3 * d}, {n, d}};
       },
       [](const Inputs& in) { return gru_steps(in[0], in[1], in[2], in[3], false); },
       [](auto n, auto d) {
         return Shape{2, n, d};
       }},
      {"conv2d",
       [](auto n, auto d) {
         return std::vector<Shape>{{n, 2, d, 3}, {2, 2, 1, 1}, {2}};
       },
       [](const Inputs& in) { return conv2d(in[0], in[1], in[2]); },
       [](auto n, auto d) {
         return Shape{n, 2, d, 3};
       },
       no_d},
      {"conv1d",
       [](auto n, auto d) {
         return std::vector<Shape>{{3, n, 3}, {2, n, d}, {2}};
       },
       [](const Inputs& in) { return conv1d(in[0], in[1], in[2]); },
       [](auto, auto d) {
         return Shape{3, 2, 4 - d};
       },
       [](auto, auto d) { return d == 0 || d == huge; }},
      {"max_pool2d",
       [](auto n, auto d) {
         return std::vector<Shape>{{n, 2, d, 3}};
       },
       [](const Inputs& in) { return max_pool2d(in[0], {.kernel = 1}); },
       [](auto n, auto d) {
         return Shape{n, 2, d, 3};
       },
       no_d},
  });
}

TEST_CASE("extents: ids and attention") {
  check_all({
      {"embedding", matrix,
       [](const Inputs& in) {
         return embedding(in[0], ids({2, 3}));
       },
       [](auto, auto d) {
         return Shape{2, 3, d};
       },
       no_n},
      {"embedding", matrix,
       [](const Inputs& in) {
         return embedding(in[0], ids({2, 0}));
       },
       [](auto, auto d) {
         return Shape{2, 0, d};
       }},
      {"gather_rows", matrix, [](const Inputs& in) { return gather_rows(in[0], Tensor::full({3}, -1, DType::i32)); },
       [](auto, auto d) {
         return Shape{3, d};
       }},
      {"pick", matrix,
       [](const Inputs& in) {
         return pick(in[0], ids({in[0].size(0), 1}));
       },
       [](auto n, auto) {
         return Shape{n, 1};
       },
       [](auto n, auto d) { return n > 0 && d == 0; }},
      {"gather", matrix,
       [](const Inputs& in) {
         return gather(in[0], 0, ids({2, in[0].size(1)}));
       },
       [](auto, auto d) {
         return Shape{2, d};
       },
       [](auto n, auto d) { return n == 0 && d > 0; }},
      {"scatter_add", two_matrices, [](const Inputs& in) { return scatter_add(in[0], 1, ids(in[1].shape()), in[1]); },
       same},
      {"one_hot", matrix, [](const Inputs& in) { return one_hot(cast(in[0], DType::i32), 3); },
       [](auto n, auto d) {
         return Shape{n, d, 3};
       }},
      {"attention",
       [](auto n, auto d) {
         return std::vector<Shape>(3, Shape{2, n, 2, d});
       },
       [](const Inputs& in) { return attention(in[0], in[1], in[2]); },
       [](auto n, auto d) {
         return Shape{2, n, 2, d};
       }},
      {"attention",
       [](auto n, auto) {
         return std::vector<Shape>{{2, 3, 2, 4}, {2, n, 2, 4}, {2, n, 2, 4}};
       },
       [](const Inputs& in) { return attention(in[0], in[1], in[2], false); },
       [](auto, auto) {
         return Shape{2, 3, 2, 4};
       },
       [](auto n, auto) { return n == huge; }},
      {"attention",
       [](auto n, auto d) {
         return std::vector<Shape>{{d, n, 3, 2, 4}};
       },
       [](const Inputs& in) { return attention_packed(in[0]); },
       [](auto n, auto d) {
         return Shape{d, n, 2, 4};
       }},
      {"masked_attention",
       [](auto n, auto d) {
         return std::vector<Shape>(3, Shape{2, n, 2, d});
       },
       [](const Inputs& in) { return masked_attention(in[0], in[1], in[2], {}); },
       [](auto n, auto d) {
         return Shape{2, n, 2, d};
       }},
      {"rope",
       [](auto n, auto d) {
         return std::vector<Shape>{{n, 3, d, 2}};
       },
       [](const Inputs& in) { return rope(in[0], Tensor::arange(3), RopeOptions{}); },
       [](auto n, auto d) {
         return Shape{n, 3, d, 2};
       }},
  });
}

TEST_CASE("extents: what no memory holds, and what is negative, is refused") {
  const auto refused = [](const std::function<void()>& f, const std::string& said) {
    const Caught error = caught(f);
    CHECK_MESSAGE(error.code == ExitCode::internal, error.message);
    CHECK(says(error.message, said));
  };
  constexpr std::int64_t large = std::int64_t{1} << 62, half = std::int64_t{1} << 32;
  const Tensor x = Tensor::ones({6}), none = Tensor::ones({0}), one = Tensor::ones({1});
  for (const Shape& shape : {Shape{large}, Shape{half, half}, Shape{half, half, 0}, Shape{0, large, 4}})
    refused([&] { Tensor::empty(shape); },
            "[Tensor::empty] " + to_string(shape) + " has more elements than memory can");
  refused([&] { Tensor::zeros({2, -1}); }, "[Tensor::empty] extents must not be negative, got [2, -1]");
  refused([&] { reshape(x, {-2, -3}); }, "[reshape] extents must not be negative, got [-2, -3]");
  refused([&] { reshape(x, {-1, -6}); }, "[reshape] extents must not be negative");
  refused([&] { reshape(none, {half, half}); }, "[reshape] [4294967296, 4294967296] has more elements");
  refused([&] { reshape(none, {half, half, -1}); }, "[reshape]");
  refused([&] { expand(one, {large}); }, "has more elements than memory can hold");
  refused([&] { static_cast<void>(one.as_strided({half}, {half}, 0)); }, "has elements 0 to 18446744069414584320");
  refused([&] { pad(x, 0, large, large); }, "[pad] 4611686018427387904 before and 4611686018427387904 after; expected");
  refused([&] { pad(x, 0, most_elements, most_elements); }, "[Tensor::empty]");
  refused([&] { Tensor::arange(0, 1e300, 1e-3); }, "[Tensor::arange]");
}

}  // namespace extents_test
