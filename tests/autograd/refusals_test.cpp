// Mistakes of a caller are refused by the operation that is called, by its name: ids out of range, dims, dtypes.
#include <functional>

#include "autograd/op.h"
#include "core/ids.h"
#include "tests/support/errors.h"
#include "tests/support/gradcheck.h"

using namespace trireme;
using namespace trireme::testing;

namespace refusals_test {
namespace {

Tensor ids(const std::vector<std::int32_t>& values, const Shape& shape) {
  return Tensor::from(std::span<const std::int32_t>(values), shape);
}

/// Checks that f throws an Error of this kind that begins with `where` and has these parts.
void refused(const std::function<void()>& f, ExitCode code, std::string_view where,
             const std::vector<std::string>& parts) {
  const Caught error = caught(f);
  CHECK_MESSAGE(error.code == code, error.message);
  CHECK_MESSAGE(error.message.rfind(fmt::format("trireme: [{}] ", where), 0) == 0, error.message);
  for (const std::string& part : parts) CHECK(says(error.message, part));
}

/// An operation whose backward forgets that forward repeated its input.
struct Repeat : Op {
  static constexpr const char* name = "repeat";
  Tensor forward(const Tensor& x) const { return clone(view::expand(x, {4, 3})); }
  Gradients backward(const Tensor& dy) const { return {dy}; }
};

}  // namespace

TEST_CASE("ids and indices out of range are refused, with the id and its place") {
  const Tensor table = random({5, 2}, 1), x = random({4, 3}, 2);
  refused(
      [&] {
        embedding(table, ids({0, 1, 4, 5, 2, 9}, {2, 3}));
      },
      ExitCode::data, "embedding", {"id 5 at [1, 0] of [2, 3] is out of range; expected 0 to 4; change the ids"});
  refused([&] { embedding(table, ids({-1}, {1})); }, ExitCode::data, "embedding", {"id -1 at [0] of [1]"});
  refused(
      [&] {
        gather_rows(x, ids({0, 4}, {2}));
      },
      ExitCode::data, "gather_rows", {"index 4 at [1] of [2] is out of range; expected 0 to 3, or a negative one"});
  refused(
      [&] {
        pick(x, ids({0, 1, 2, 3}, {4, 1}));
      },
      ExitCode::data, "pick", {"column 3 at [3, 0] of [4, 1]", "0 to 2"});
  refused([&] { pick(x, ids({0, 1, -1, 0}, {4, 1})); }, ExitCode::data, "pick", {"column -1 at [2, 0]"});
  refused([&] { embedding(table, Tensor::zeros({2}, DType::i64)); }, ExitCode::internal, "embedding",
          {"in i32, got i64; convert with cast(ids, DType::i32)"});
  CHECK(embedding(table, ids({}, {0})).shape() == Shape{0, 2});
  CHECK(embedding(table, ids({4, 0}, {2})).shape() == Shape{2, 2});
  // A part of a table: ids of other parts give zeros.
  CHECK(view::select(embedding(table, ids({0, 9}, {2}), 5), 0, 0).span<double>()[1] == 0);
  check_ids("test", "id", ids({-7, 3}, {2}), {.first = 0, .end = 4, .negative = true}, "");
  refused([] { check_ids("test", "id", ids({7}, {}), {.first = 0, .end = 4}, "do"); }, ExitCode::data, "test",
          {"id 7 at [] of [] is out of range; expected 0 to 3; do"});
}

TEST_CASE("a dim that a tensor lacks is refused by the operation's name") {
  const Tensor x = random({2, 3}, 1), number = random({}, 2);
  const std::string range = "[2, 3] has no dim 2; expected -2 to 1";
  refused([&] { sum(x, 2); }, ExitCode::internal, "sum", {range});
  refused([&] { mean(x, 2); }, ExitCode::internal, "mean", {range});
  refused([&] { max(x, 2); }, ExitCode::internal, "max", {range});
  refused([&] { transpose(x, 0, 2); }, ExitCode::internal, "transpose", {range});
  refused([&] { slice(x, 2, 0, 1); }, ExitCode::internal, "slice", {range});
  refused([&] { select(x, 2, 0); }, ExitCode::internal, "select", {range});
  refused([&] { select(x, 1, 3); }, ExitCode::internal, "select",
          {"index 3 is outside dim 1 of [2, 3]; expected 0 to 2"});
  refused([&] { concat({x, x}, 2); }, ExitCode::internal, "concat", {range});
  refused([&] { concat({x, number}, 0); }, ExitCode::internal, "concat", {"part 1 is f64 []"});
  refused([&] { softmax(number); }, ExitCode::internal, "softmax",
          {"[] has no dim -1; expected a tensor with at least"});
  refused([&] { view::slice(x, -3, 0, 1); }, ExitCode::internal, "slice", {"has no dim -3"});
  refused([&] { view::transpose(x, 0, 2); }, ExitCode::internal, "transpose", {range});
  refused([&] { view::select(x, 2, 0); }, ExitCode::internal, "select", {range});
}

TEST_CASE("undefined tensors, dtypes and sizes that do not fit are refused by the operation's name") {
  const auto internal = [](const std::function<void()>& f, std::string_view where, const std::string& part) {
    refused(f, ExitCode::internal, where, {part});
  };
  const Tensor x = random({2, 4}, 1), whole = ids({1, 2, 3, 4}, {2, 2});
  const Tensor low = cast(x, DType::bf16), weight = cast(random({3, 4}, 2), DType::bf16), bias = random({3}, 3);
  // Kernels read a bias as the weight's dtype.
  internal([&] { linear(low, weight, bias); }, "linear", "dtypes differ: input bf16, bias f64");
  internal([&] { mlp(low, {weight, bias, transpose(weight, 0, 1), {}}, Unary::gelu); }, "mlp", "input bf16, bias f64");
  internal(
      [&] {
        mlp(x, {random({3, 4}, 2), {}, random({4, 3}, 3), bias}, Unary::gelu);
      },
      "mlp", "the second weight [4, 3] needs a bias of 4 elements, got [3]");
  internal([&] { grouped_linear(low, {0, 2}, reshape(weight, {1, 3, 4}), bias); }, "grouped_linear", "bias f64");
  internal(
      [&] {
        grouped_linear(x, {0, 2, 1, 2}, random({3, 3, 4}, 1), {});
      },
      "grouped_linear", "the starts fall from 2 to 1 after group 1");
  internal([&] { layer_norm(low, random({4}, 1), {}); }, "layer_norm", "needs a gain bf16 [4], got f64 [4]");
  internal([&] { layer_norm(x, random({4}, 1), random({3}, 1)); }, "layer_norm", "needs a shift f64 [4], got f64 [3]");
  internal([&] { rms_norm(low, random({4}, 1)); }, "rms_norm", "needs a gain bf16 [4]");
  internal(
      [&] {
        attention(random({1, 2, 2, 4}, 1), random({1, 2, 2, 4}, 1, DType::bf16), random({1, 2, 2, 4}, 1));
      },
      "attention", "dtypes differ: q f64, k bf16, v f64");
  internal([&] { add(Tensor(), x); }, "add", "an input is undefined");
  internal([&] { matmul(x, Tensor()); }, "matmul", "an input is undefined");
  internal([&] { add(whole, x); }, "add", "an input i32 [2, 2]; expected a floating dtype; cast_to(x, DType::f32)");
  internal([&] { divide(whole, whole); }, "divide", "an input i32 [2, 2]; expected a floating dtype");
  internal([&] { scale(whole, 2.5); }, "scale", "an i32 tensor and the number 2.5; expected a whole one");
  internal([&] { exp(whole); }, "unary", "an input i32");
  internal([&] { mean(whole); }, "mean", "an input i32");
  internal([&] { softmax(whole); }, "softmax", "an input i32");
  internal([&] { matmul(whole, whole); }, "matmul", "an input i32");
  internal([&] { mean(random({0}, 1)); }, "mean", "[0] has no elements");
  internal([&] { max(random({2, 0}, 1), 1); }, "max", "dim 1 of [2, 0] has no elements");
  internal([&] { concat({Tensor(), x}, 0); }, "concat", "part 0 is undefined");
  internal([&] { reshape(x, {-2, -4}); }, "reshape", "extents must not be negative, got [-2, -4]");
  internal([&] { reshape(x, {-1, 0}); }, "reshape", "-1 in [-1, 0] could be any number");
  internal([&] { slice(x, 1, 1, INT64_MAX); }, "slice", "is outside dim 1 of [2, 4]");
  internal([&] { dropout(x, 0.5, 1, 1, {}); }, "dropout", "the tensor [2, 4] at [] is no part of a global one []");
}

TEST_CASE("what cannot be in memory is refused: extents whose product overflows, views beyond the storage") {
  constexpr std::int64_t large = std::int64_t{1} << 40;
  refused(
      [] {
        Tensor::empty({large, large});
      },
      ExitCode::internal, "Tensor::empty", {"has more elements than memory can hold"});
  const Tensor x = random({2, 3}, 1);
  refused(
      [&] {
        x.as_strided({2, 3}, {3, 1}, 1);
      },
      ExitCode::internal, "as_strided",
      {"the view [2, 3] with strides [3, 1] and offset 1 has elements 1 to 6 of a storage that holds 6"});
  CHECK(x.as_strided({3, 2}, {1, 3}, 0).shape() == Shape{3, 2});
  Tensor repeated = view::expand(random({1, 3}, 1), {2, 3});
  refused([&] { copy(x, repeated); }, ExitCode::internal, "copy",
          {"the target [2, 3] repeats its elements along dim 0"});
}

TEST_CASE("mistakes on the tape are named") {
  Tensor x = random({3}, 1);
  require_grad(x);
  Tensor y = square(x);
  refused([&] { require_grad(y); }, ExitCode::internal, "require_grad", {"the tensor [3] is a result of 'unary'"});
  const Tensor loss = sum(y);
  require_grad(x);  // a leaf already: it stays the one that forward has seen
  backward(loss);
  CHECK(grad(x).defined());
  refused([&] { grad(y); }, ExitCode::internal, "grad", {"the tensor [3] is not a leaf but a result of 'unary'"});
  refused([&] { backward(Tensor()); }, ExitCode::internal, "backward", {"the tensor is undefined; expected the loss"});
  CHECK(!cast_to(x, DType::i32).requires_grad());
  refused([&] { recompute([](const Tensor&) { return Tensor(); }, x); }, ExitCode::internal, "recompute",
          {"the result is undefined"});
  const Tensor dropped = sum(recompute([](const Tensor& t) { return t.detach(); }, x));
  refused([&] { backward(dropped); }, ExitCode::internal, "recompute", {"no gradient flows from the result [3]"});
}

TEST_CASE("a gradient of another shape than its input is refused by the operation that returns it") {
  Tensor leaf = random({3}, 1);
  require_grad(leaf);
  for (const Tensor& x : {leaf, leaf * 2.0})
    refused([&] { backward(sum(apply(Repeat{}, x))); }, ExitCode::internal, "repeat",
            {"backward returned a gradient [4, 3] of input 0, which is [3]; expected the shape of the input"});
}

TEST_CASE("empty functions, negative eps and a base of 0 are refused") {
  const Tensor x = random({2, 3}, 1), gain = Tensor::ones({3}, DType::f64);
  refused([&] { recompute({}, x); }, ExitCode::internal, "recompute", {"the function is empty"});
  refused([&] { layer_norm(x, gain, {}, -1); }, ExitCode::internal, "layer_norm", {"an eps of -1"});
  refused([&] { rms_norm(x, gain, -1); }, ExitCode::internal, "rms_norm", {"an eps of -1"});
  refused([] { rope(random({1, 2, 1, 4}, 1), Tensor::arange(2), 0); }, ExitCode::internal, "rope", {"a base of 0"});
  refused(
      [] {
        Tensor y;
        require_grad(y);
      },
      ExitCode::internal, "require_grad", {"the tensor is undefined"});
}

}  // namespace refusals_test
