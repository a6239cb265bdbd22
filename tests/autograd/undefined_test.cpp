// Every operation, given an undefined tensor or one that was moved from in the place of each of its inputs: throws.
#include "autograd/conv.h"
#include "autograd/group_norm.h"
#include "autograd/masked_attention.h"
#include "autograd/pool.h"
#include "autograd/recurrent.h"
#include "tests/support/errors.h"
#include "tests/support/gradcheck.h"

using namespace trireme;
using namespace trireme::testing;

namespace undefined_test {
namespace {

using Inputs = std::vector<Tensor>;

/// Whose storage has gone to another tensor, and whose shape is left.
Tensor moved_from(Tensor x) {
  const Tensor target = std::move(x);
  return x;  // NOLINT(bugprone-use-after-move): what is tested
}

Tensor leaf_like(const Tensor& x) {
  Tensor y = Tensor::ones(x.shape(), x.dtype());
  require_grad(y);
  return y;
}

/// `optional`: the inputs that may be undefined.
void check(const std::string& name, const std::function<void(const Inputs&)>& op, const Inputs& in,
           const std::vector<std::size_t>& optional = {}) {
  CAPTURE(name);
  CHECK_NOTHROW(op(in));
  for (std::size_t i = 0; i < in.size(); ++i) {
    CAPTURE(i);
    if (std::find(optional.begin(), optional.end(), i) != optional.end()) continue;
    for (const bool moved : {false, true}) {
      CAPTURE(moved);
      for (const bool recording : {false, true}) {
        Inputs changed = in;
        for (Tensor& x : changed)
          if (recording && is_floating(x.dtype())) x = clone(x), require_grad(x);
        changed[i] = moved ? moved_from(in[i]) : Tensor();
        const Caught error = caught([&] { op(changed); });
        CHECK_MESSAGE(error.code == ExitCode::internal, error.message);
      }
    }
  }
}

}  // namespace

TEST_CASE("an operation with an undefined input, or one that was moved from, throws") {
  const Tensor x = random({2, 3}, 1), y = random({2, 3}, 2), v = random({3}, 3), w = random({4, 3}, 4);
  const Tensor ids = Tensor::from({1, 0}, DType::i32), index = Tensor::from({{0}, {1}}, DType::i32);
  const auto binary = [&](const char* name, const std::function<Tensor(const Tensor&, const Tensor&)>& f) {
    check(name, [&](const Inputs& in) { f(in[0], in[1]); }, {x, y});
  };
  binary("add", [](const Tensor& a, const Tensor& b) { return a + b; });
  binary("subtract", [](const Tensor& a, const Tensor& b) { return a - b; });
  binary("multiply", [](const Tensor& a, const Tensor& b) { return a * b; });
  binary("divide", [](const Tensor& a, const Tensor& b) { return a / b; });
  binary("less", [](const Tensor& a, const Tensor& b) { return a < b; });
  binary("greater or equal", [](const Tensor& a, const Tensor& b) { return a >= b; });
  binary("equal", [](const Tensor& a, const Tensor& b) { return equal(a, b); });
  binary("maximum", [](const Tensor& a, const Tensor& b) { return maximum(a, b); });
  binary("minimum", [](const Tensor& a, const Tensor& b) { return minimum(a, b); });
  binary("concat", [](const Tensor& a, const Tensor& b) { return concat({a, b}, 0); });
  binary("stack", [](const Tensor& a, const Tensor& b) { return stack({a, b}); });
  binary("masked_fill", [](const Tensor& a, const Tensor& b) { return masked_fill(a, b, 1); });
  binary("with_auxiliary_loss", [](const Tensor& a, const Tensor& b) { return with_auxiliary_loss(a, sum(b)); });
  binary("einsum", [](const Tensor& a, const Tensor& b) { return einsum("ij,ij->i", {a, b}); });
  check("where", [](const Inputs& in) { where(in[0], in[1], in[2]); }, {x, y, x});
  check("matmul", [](const Inputs& in) { matmul(in[0], in[1]); }, {x, random({3, 2}, 5)});

  const auto unary = [&](const char* name, const std::function<void(const Tensor&)>& f) {
    check(name, [&](const Inputs& in) { f(in[0]); }, {x});
  };
  unary("scale", [](const Tensor& a) { a * 2.0; });
  unary("add_scalar", [](const Tensor& a) { 1.0 + a; });
  unary("subtract from a number", [](const Tensor& a) { 1.0 - a; });
  unary("divide by a number", [](const Tensor& a) { a / 2.0; });
  unary("divide a number", [](const Tensor& a) { 2.0 / a; });
  unary("less than a number", [](const Tensor& a) { a < 1; });
#define TRIREME_CHECK_UNARY(f) unary(#f, [](const Tensor& a) { f(a); });
  TRIREME_EVERY_UNARY(TRIREME_CHECK_UNARY)
#undef TRIREME_CHECK_UNARY
  unary("cast_to", [](const Tensor& a) { cast_to(a, DType::bf16); });
  unary("dropout", [](const Tensor& a) { dropout(a, 0.5, 1, 2, {.global = {2, 3}, .start = {0, 0}}); });
  unary("reshape", [](const Tensor& a) { reshape(a, {3, 2}); });
  unary("transpose", [](const Tensor& a) { transpose(a, 0, 1); });
  unary("slice", [](const Tensor& a) { slice(a, 0, 0, 1); });
  unary("select", [](const Tensor& a) { select(a, 0, 1); });
  unary("expand", [](const Tensor& a) { expand(a, {5, 2, 3}); });
  unary("permute", [](const Tensor& a) { permute(a, {1, 0}); });
  unary("unsqueeze", [](const Tensor& a) { unsqueeze(a, 0); });
  unary("squeeze", [](const Tensor& a) { squeeze(unsqueeze(a, 0), 0); });
  unary("flatten", [](const Tensor& a) { flatten(a); });
  unary("pad", [](const Tensor& a) { pad(a, 0, 1, 1); });
  unary("flip", [](const Tensor& a) { flip(a, 1); });
  unary("unbind", [](const Tensor& a) { unbind(a); });
  unary("split", [](const Tensor& a) { split(a, 1); });
  unary("chunk", [](const Tensor& a) { chunk(a, 2); });
  unary("clamp", [](const Tensor& a) { clamp(a, 0, 1); });
  unary("maximum with a number", [](const Tensor& a) { maximum(a, 1); });
  unary("pow", [](const Tensor& a) { pow(a, 2); });
  unary("sum", [](const Tensor& a) { sum(a); });
  unary("sum over a dim", [](const Tensor& a) { sum(a, 1); });
  unary("sum over dims", [](const Tensor& a) { sum(a, {0, 1}); });
  unary("mean", [](const Tensor& a) { mean(a); });
  unary("max", [](const Tensor& a) { max(a, 0); });
  unary("max of all", [](const Tensor& a) { max(a); });
  unary("min", [](const Tensor& a) { min(a, 0); });
  unary("softmax", [](const Tensor& a) { softmax(a); });
  unary("log_softmax", [](const Tensor& a) { log_softmax(a); });
  unary("logsumexp", [](const Tensor& a) { logsumexp(a); });
  unary("cumsum", [](const Tensor& a) { cumsum(a, 0); });
  unary("var", [](const Tensor& a) { var(a, 1); });
  unary("var of all", [](const Tensor& a) { var(a); });
  unary("norm", [](const Tensor& a) { norm(a); });
  unary("norm over a dim", [](const Tensor& a) { norm(a, 1); });
  unary("argmax", [](const Tensor& a) { argmax(a); });
  unary("topk", [](const Tensor& a) { topk(a, 2); });
  unary("softcap", [](const Tensor& a) { softcap(a, 2); });
  unary("require_grad", [](Tensor a) { require_grad(a); });
  unary("recompute", [](const Tensor& a) { recompute([](const Tensor& b) { return b * 2.0; }, a); });
  unary("backward", [](const Tensor& a) { backward(a.requires_grad() ? sum(a) : sum(a * leaf_like(a))); });
  check("swiglu", [](const Inputs& in) { swiglu(in[0]); }, {random({2, 4}, 1)});
  check("gated_unit", [](const Inputs& in) { gated_unit(in[0], Unary::gelu); }, {random({2, 4}, 1)});

  check("linear", [](const Inputs& in) { linear(in[0], in[1], in[2], in[3]); },
        {x, w, random({4}, 1), random({2, 4}, 2)}, {2, 3});
  check("mlp",
        [](const Inputs& in) {
          mlp(in[0], {in[1], in[2], in[3], in[4]}, Unary::relu);
        },
        {x, w, random({4}, 1), random({3, 4}, 2), v}, {2, 4});
  check("grouped_linear",
        [](const Inputs& in) {
          grouped_linear(in[0], {0, 2}, in[1], in[2]);
        },
        {x, random({1, 4, 3}, 1), random({1, 4}, 2)}, {2});
  check("layer_norm", [](const Inputs& in) { layer_norm(in[0], in[1], in[2]); }, {x, v, v}, {2});
  check("rms_norm", [](const Inputs& in) { rms_norm(in[0], in[1]); }, {x, v});
  check("embedding", [](const Inputs& in) { embedding(in[0], in[1]); }, {w, ids});
  check("embedding of a part", [](const Inputs& in) { embedding(in[0], in[1], 1); }, {w, ids});
  check("gather_rows", [](const Inputs& in) { gather_rows(in[0], in[1]); }, {w, ids});
  check("pick", [](const Inputs& in) { pick(in[0], in[1]); }, {x, index});
  check("gather", [](const Inputs& in) { gather(in[0], 1, in[1]); }, {x, index});
  check("scatter_add", [](const Inputs& in) { scatter_add(in[0], 1, in[1], in[2]); }, {x, index, random({2, 1}, 1)});
  check("one_hot", [](const Inputs& in) { one_hot(in[0], 4); }, {ids});
  check("in place",
        [](const Inputs& in) {
          const NoGrad guard;
          Tensor a = in[0].defined() ? clone(in[0]) : in[0];
          a += in[1];
        },
        {x, y});
  check("in place with a number",
        [](const Inputs& in) {
          const NoGrad guard;
          Tensor a = in[0];
          a *= 2;
        },
        {clone(x)});
  check("i32", [](const Inputs& in) { in[0] + in[1]; }, {ids, ids});

  const Tensor q = random({1, 2, 2, 4}, 1), mask = Tensor::ones({1, 1, 1, 2}, DType::u8);
  check("attention", [](const Inputs& in) { attention(in[0], in[1], in[2]); }, {q, q, q});
  check("attention_packed", [](const Inputs& in) { attention_packed(in[0]); }, {random({1, 2, 3, 2, 4}, 1)});
  check("masked_attention", [](const Inputs& in) { masked_attention(in[0], in[1], in[2], {.mask = in[3]}); },
        {q, q, q, mask}, {3});
  check("rope", [](const Inputs& in) { rope(in[0], in[1]); }, {q, Tensor::arange(2)});
  const Tensor image = random({1, 2, 4, 4}, 1), kernel = random({3, 2, 3, 3}, 2), gain = random({2}, 3);
  check("conv2d", [](const Inputs& in) { conv2d(in[0], in[1], in[2]); }, {image, kernel, v}, {2});
  check("conv1d", [](const Inputs& in) { conv1d(in[0], in[1], in[2]); },
        {random({1, 2, 4}, 1), random({3, 2, 3}, 2), v}, {2});
  check("max_pool2d", [](const Inputs& in) { max_pool2d(in[0]); }, {image});
  check("avg_pool2d", [](const Inputs& in) { avg_pool2d(in[0]); }, {image});
  check("adaptive_avg_pool2d", [](const Inputs& in) { adaptive_avg_pool2d(in[0]); }, {image});
  check("group_norm", [](const Inputs& in) { group_norm(in[0], 2, in[1], in[2]); }, {image, gain, gain});
  const Tensor h = random({2, 1}, 1);
  check("lstm_steps", [](const Inputs& in) { lstm_steps(in[0], in[1], in[2], in[3]); },
        {random({3, 2, 4}, 1), random({4, 1}, 2), h, h});
  check("gru_steps", [](const Inputs& in) { gru_steps(in[0], in[1], in[2], in[3]); },
        {random({3, 2, 3}, 1), random({3, 1}, 2), v, h}, {2});
}

}  // namespace undefined_test
