// Attention with masks against PyTorch (tests/golden/make_masked_attention.py), in f64 and f32: outputs and gradients,
// also of the mask; queries that see nothing; agreement with attention(); what is refused.
#include "autograd/masked_attention.h"

#include "tests/support/errors.h"
#include "tests/support/golden.h"
#include "tests/support/gradcheck.h"

using namespace trireme;
using namespace trireme::testing;

namespace masked_attention_test {
namespace {

constexpr double cap = 1.5;
constexpr std::int64_t window = 3;

void check_case(const GoldenFile& file, const std::string& name, AttentionMask options) {
  for (const DType dtype : {DType::f64, DType::f32}) {
    for (const bool dense : {true, false}) {  // or views of [B, H, T, Dh]
      const auto input = [&](const char* what) {
        Tensor x = file.read(name + what, dtype);
        if (!dense) x = view::transpose(clone(view::transpose(x, 1, 2)), 1, 2);
        require_grad(x);
        return x;
      };
      const Tensor q = input(".q"), k = input(".k"), v = input(".v");
      if (file.has(name + ".mask")) {
        options.mask = file.read(name + ".mask", dtype);
        if (file.has(name + ".dmask")) require_grad(options.mask);
      }
      const Tensor out = masked_attention(q, k, v, options);
      check_golden(file, name + ".out", out);
      backward(out, file.read(name + ".dout", dtype));
      check_golden(file, name + ".dq", grad(q));
      check_golden(file, name + ".dk", grad(k));
      check_golden(file, name + ".dv", grad(v));
      if (file.has(name + ".dmask")) check_golden(file, name + ".dmask", grad(options.mask));
    }
  }
}

Tensor ones(const Shape& shape) { return Tensor::full(shape, 1, DType::u8); }

}  // namespace

TEST_CASE("attention with masks, windows and capped scores is PyTorch's, with the gradients") {
  const GoldenFile file("masked_attention");
  check_case(file, "plain", {});
  check_case(file, "window", {.causal = true, .window = window});
  check_case(file, "padding", {});
  check_case(file, "boolean", {.causal = true});
  check_case(file, "bias", {.causal = true});
  check_case(file, "capped", {.softcap = cap});
  check_case(file, "all", {.causal = true, .window = window, .softcap = cap});
}

TEST_CASE("with a mask of ones, masked attention is attention(), also of documents, windows and other scales") {
  const Tensor q = random({2, 6, 4, 3}, 1), k = random({2, 6, 2, 3}, 2), v = random({2, 6, 2, 3}, 3);
  const Tensor starts = Tensor::from(
      std::span<const std::int32_t>(std::vector<std::int32_t>{0, 0, 0, 3, 3, 3, 0, 1, 1, 1, 4, 4}), {2, 6});
  for (const AttentionMask& options :
       {AttentionMask{}, AttentionMask{.causal = true}, AttentionMask{.causal = true, .window = 2},
        AttentionMask{.causal = true, .window = 2, .first_key = starts}, AttentionMask{.first_key = starts},
        AttentionMask{.causal = true, .first_key = starts, .scale = 0.3}}) {
    AttentionMask masked = options;
    masked.mask = ones({1, 1, 1, 6});
    CHECK(relative_difference(masked_attention(q, k, v, masked), masked_attention(q, k, v, options)) < 1e-14);
  }
  CHECK(
      same_bits(masked_attention(q, k, v, {.causal = true, .first_key = starts}), attention(q, k, v, true, 0, starts)));
}

TEST_CASE("gradients of masked attention equal central differences, and those of every dtype agree") {
  Tensor mask = ones({2, 1, 4, 5});
  for (const std::int64_t hidden : {0, 3, 22, 23, 31, 38}) mask.data<std::uint8_t>()[hidden] = 0;
  const std::vector<Tensor> in = {random({2, 4, 2, 3}, 1), random({2, 5, 1, 3}, 2), random({2, 5, 1, 3}, 3)};
  check_op(
      "masked_attention",
      [&](const auto& x) { return masked_attention(x[0], x[1], x[2], {.mask = mask, .causal = true, .softcap = cap}); },
      in);
  check_op(
      "masked_attention, a window",
      [&](const auto& x) { return masked_attention(x[0], x[1], x[2], {.causal = true, .window = 2}); }, in);
  check_op("masked_attention, an added mask",
           [&](const auto& x) { return masked_attention(x[0], x[1], x[2], {.mask = x[3]}); },
           {in[0], in[1], in[2], random({1, 2, 1, 5}, 4)});
}

TEST_CASE("a query that sees no key gets zeros and gives no gradient") {
  Tensor q = random({1, 3, 2, 4}, 1), k = random({1, 5, 2, 4}, 2), v = random({1, 5, 2, 4}, 3);
  for (Tensor* x : {&q, &k, &v}) require_grad(*x);
  Tensor mask = ones({1, 1, 3, 5});
  for (std::int64_t j = 0; j < 5; ++j) mask.data<std::uint8_t>()[5 + j] = 0;  // query 1
  const Tensor out = masked_attention(q, k, v, {.mask = mask});
  backward(out, random(out.shape(), 4));
  for (const double value : values(view::select(out.detach(), 1, 1))) CHECK(value == 0);
  for (const double value : values(view::select(grad(q), 1, 1))) CHECK(value == 0);
  for (const Tensor& x : {q, k, v})
    for (const double value : values(grad(x))) CHECK(std::isfinite(value));
}

TEST_CASE("masks that do not fit, and windows without causal, are refused") {
  const Tensor q = random({2, 3, 4, 2}, 1), k = random({2, 5, 2, 2}, 2);
  const auto message = [&](const AttentionMask& options) {
    return error_of([&] { masked_attention(q, k, k, options); }, ExitCode::internal);
  };
  CHECK(says(message({.mask = ones({2, 2, 3, 5})}),
             "[masked_attention] a mask [2, 2, 3, 5]; expected [B or 1, H or 1, Tq or 1, Tk] of [2, 4, 3, 5]"));
  CHECK(says(message({.mask = Tensor::zeros({1, 1, 1, 5})}), "a mask in f32; expected f64 as q, or u8 on the host"));
  CHECK(says(message({.window = 2}), "a window of 2 keys without causal = true"));
  CHECK(says(message({.softcap = -1}), "a softcap of -1"));
  CHECK(says(message({.first_key = Tensor::zeros({2, 4}, DType::i32)}), "expected a first_key [B, Tq] = [2, 3]"));
  CHECK(says(error_of(
                 [&] {
                   masked_attention(random({2, 6, 4, 2}, 1), k, k, {.causal = true});
                 },
                 ExitCode::internal),
             "at least as many keys as queries, got 5 and 6"));
}

}  // namespace masked_attention_test
