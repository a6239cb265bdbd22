// Products and attention of the CUDA kernel table against the CPU's: ragged shapes, views, every dtype, and each
// implementation that has a name.
#include "core/device_work.h"
#include "cuda/choices.h"
#include "cuda/device/persistent.h"
#include "cuda/kernels/gemm_cut.h"
#include "tests/cuda/table_support.h"

using namespace trireme;
using namespace cuda_test;

namespace table_products_test {
namespace {

/// An operand: the shape of a stored tensor, and the view of it that the table gets.
struct Operand {
  Shape shape;
  bool turned = false;      ///< the last two dims are stored the other way round
  std::int64_t margin = 0;  ///< elements left out at the end of each stored row
  Shape expanded{};         ///< repeated to this shape at the end

  Tensor view_of(const Tensor& stored) const {
    Tensor x = margin > 0 ? view::slice(stored, -1, 0, stored.size(-1) - margin) : stored;
    if (turned) x = view::transpose(x, -1, -2);
    return expanded.dims() > 0 ? view::expand(x, expanded) : x;
  }
};

struct Product {
  Operand a, b;
  Shape c;
  GemmOptions options{};
  bool bias = false, f32_out = false;
  std::int64_t c_margin = 0;
};

void check(DType dtype, const Product& p) {
  CAPTURE(name(dtype));
  CAPTURE(p.c);
  const Tensor a = random(p.a.shape, 1, dtype, uniform(-1, 1)), b = random(p.b.shape, 2, dtype, uniform(-1, 1));
  const Tensor bias = p.bias ? random({p.c[-1]}, 3, dtype, uniform(-1, 1)) : Tensor();
  Shape room = p.c;
  room[-1] += p.c_margin;
  const Tensor c = random(room, 4, p.f32_out ? DType::f32 : dtype, uniform(-1, 1)), c2 = there(c);
  Tensor part = view::slice(c, -1, 0, p.c[-1]), part2 = view::slice(c2, -1, 0, p.c[-1]);
  GemmOptions options = p.options, options2 = p.options;
  options.bias = bias;
  options2.bias = there(bias);
  host().gemm(p.a.view_of(a), p.b.view_of(b), part, options);
  gpu().gemm(p.a.view_of(there(a)), p.b.view_of(there(b)), part2, options2);
  CHECK(difference(c2, c, 2e-5) < 1);  // the margin too: it must not change
}

/// The sizes of an attention problem.
struct Heads {
  std::int64_t batch, queries, keys, heads, kv_heads, dim;
  bool causal;
  bool documents = false;
};

/// How [B, T, H, Dh] lies in memory.
enum class Lies : std::uint8_t { dense, packed, heads_first, spaced };

Tensor laid_out(Lies lies, std::int64_t batch, std::int64_t tokens, std::int64_t heads, std::int64_t dim, DType dtype,
                std::uint64_t seed) {
  if (lies == Lies::packed)
    return view::select(random({batch, tokens, 3, heads, dim}, seed, dtype, uniform(-1, 1)), 2, 1);
  if (lies == Lies::heads_first)
    return view::transpose(random({batch, heads, tokens, dim}, seed, dtype, uniform(-1, 1)), 1, 2);
  if (lies == Lies::spaced)
    return view::slice(random({batch, tokens, heads, dim + 3}, seed, dtype, uniform(-1, 1)), 3, 1, dim);
  return random({batch, tokens, heads, dim}, seed, dtype, uniform(-1, 1));
}

/// A copy of x on the GPU with the same strides.
Tensor moved(const Tensor& x, Lies lies) {
  const std::int64_t batch = x.size(0), tokens = x.size(1), heads = x.size(2), dim = x.size(3);
  if (lies == Lies::dense) return there(x);
  if (lies == Lies::heads_first) return view::transpose(there(contiguous(view::transpose(x, 1, 2))), 1, 2);
  Tensor room = lies == Lies::packed ? Tensor::zeros({batch, tokens, 3, heads, dim}, x.dtype(), Device::cuda)
                                     : Tensor::zeros({batch, tokens, heads, dim + 3}, x.dtype(), Device::cuda);
  Tensor part = lies == Lies::packed ? view::select(room, 2, 1) : view::slice(room, 3, 1, dim);
  gpu().copy(there(contiguous(x)), part);
  return part;
}

void check(DType dtype, const Heads& h, Lies q_lies, Lies k_lies, Lies v_lies) {
  CAPTURE(name(dtype));
  CAPTURE(h.dim);
  CAPTURE(h.queries);
  CAPTURE(h.keys);
  const Tensor q = laid_out(q_lies, h.batch, h.queries, h.heads, h.dim, dtype, 1);
  const Tensor k = laid_out(k_lies, h.batch, h.keys, h.kv_heads, h.dim, dtype, 2);
  const Tensor v = laid_out(v_lies, h.batch, h.keys, h.kv_heads, h.dim, dtype, 3);
  const Tensor dout = laid_out(v_lies, h.batch, h.queries, h.heads, h.dim, dtype, 4);
  Tensor first_key;
  if (h.documents) {
    std::vector<std::int32_t> starts;
    for (std::int64_t i = 0; i < h.batch * h.queries; ++i)
      starts.push_back(static_cast<std::int32_t>(i % 11 == 7 ? h.keys + 3 : i * 5 % h.keys - 2));
    first_key = Tensor::from<std::int32_t>(starts, {h.batch, h.queries});
  }
  Tensor out = laid_out(q_lies, h.batch, h.queries, h.heads, h.dim, dtype, 5);
  Tensor lse = Tensor::empty({h.batch, h.heads, h.queries});
  Tensor dq = laid_out(q_lies, h.batch, h.queries, h.heads, h.dim, dtype, 6);
  Tensor dk = laid_out(k_lies, h.batch, h.keys, h.kv_heads, h.dim, dtype, 7);
  Tensor dv = laid_out(v_lies, h.batch, h.keys, h.kv_heads, h.dim, dtype, 8);
  const Tensor q2 = moved(q, q_lies), k2 = moved(k, k_lies), v2 = moved(v, v_lies), dout2 = moved(dout, v_lies);
  Tensor out2 = moved(out, q_lies), lse2 = like(lse), dq2 = moved(dq, q_lies), dk2 = moved(dk, k_lies);
  Tensor dv2 = moved(dv, v_lies);
  host().attention(q, k, v, 0.3, h.causal, first_key, out, lse);
  gpu().attention(q2, k2, v2, 0.3, h.causal, there(first_key), out2, lse2);
  host().attention_backward(q, k, v, out, lse, dout, 0.3, h.causal, first_key, dq, dk, dv);
  gpu().attention_backward(q2, k2, v2, out2, lse2, dout2, 0.3, h.causal, there(first_key), dq2, dk2, dv2);
  // In 16 bits, out, probabilities and their gradients are rounded to T before they are multiplied and summed.
  const double room = dtype == DType::f32 ? 2e-5 : dtype == DType::bf16 ? 1.0 / 128 : 1.0 / 1024;
  CHECK(difference(out2, out, room) < 1);
  CHECK(difference(lse2, lse, 1e-5) < 1);
  CHECK(difference(dq2, dq, room) < 1);
  CHECK(difference(dk2, dk, 2 * room) < 1);
  CHECK(difference(dv2, dv, 2 * room) < 1);
}

}  // namespace

TEST_CASE("cuda table: gemm of views, ragged and batched, in every dtype, by every implementation") {
  const cuda::ScopedEmulatedDevice device;
  for (const std::string_view name : {"trireme", "sm80"}) {
    const Selected selected(name);
    for (const DType dtype : DTypes::training) {
      check(dtype, {{{33, 40}}, {{40, 24}}, {33, 24}, {}, true});
      check(dtype, {{{33, 40}}, {{17, 40}, true}, {33, 17}, {.beta = 1}, false, true});
      check(dtype, {{{19, 31}, true}, {{19, 23}}, {31, 23}, {}, false, true, 2});
      check(dtype, {{{1, 5}}, {{5, 1}}, {1, 1}});
      check(dtype, {{{9, 13}, false, 3}, {{7, 14}, true, 4}, {9, 7}, {}, true});
      check(dtype, {{{0, 5}}, {{5, 3}}, {0, 3}});
      check(dtype, {{{4, 0}}, {{0, 3}}, {4, 3}, {}, true});
    }
  }
}

TEST_CASE("cuda table: gemm's leading dims: batches, repeats, and runs that are no single batch") {
  const cuda::ScopedEmulatedDevice device;
  for (const DType dtype : DTypes::training) {
    check(dtype, {{{2, 3, 9, 16}}, {{2, 3, 16, 8}}, {2, 3, 9, 8}});
    check(dtype, {{{3, 8, 16}}, {{16, 8}, false, 0, {3, 16, 8}}, {3, 8, 8}, {}, true});             // a taller product
    check(dtype, {{{3, 8, 16}}, {{16, 10}, false, 2, {3, 16, 8}}, {3, 8, 8}, {}, true, false, 1});  // the same
    check(dtype, {{{8, 16}, false, 0, {3, 8, 16}}, {{3, 16, 8}}, {3, 8, 8}});                       // one a for all
    check(dtype, {{{2, 1, 5, 6}, false, 0, {2, 3, 5, 6}}, {{2, 3, 4, 6}, true}, {2, 3, 5, 4}, {}, true});  // two runs
    check(dtype, {{{1, 3, 6, 5}, true, 0, {2, 3, 5, 6}}, {{2, 1, 6, 4}, false, 0, {2, 3, 6, 4}}, {2, 3, 5, 4}});
    // Heads of a packed projection, [B, T, H, Dh] seen as [B, H, T, Dh].
    const Tensor x = random({2, 7, 3, 8}, 1, dtype, uniform(-1, 1)), x2 = there(x);
    const auto heads = [](const Tensor& t) { return view::transpose(t, 1, 2); };
    Tensor c = Tensor::empty({2, 3, 7, 7}, dtype), c2 = like(c);
    host().gemm(heads(x), view::transpose(heads(x), -1, -2), c, {});
    gpu().gemm(heads(x2), view::transpose(heads(x2), -1, -2), c2, {});
    CHECK(difference(c2, c) < 1);
  }
}

TEST_CASE("cuda table: gemm of two transposed operands, and with any alpha, beta and bias") {
  const cuda::ScopedEmulatedDevice device;
  for (const DType dtype : DTypes::training) {
    check(dtype, {{{19, 31}, true}, {{23, 19}, true}, {31, 23}, {}, true});
    check(dtype, {{{19, 5}, true}, {{23, 19}, true}, {5, 23}, {.beta = 1}, false, true});
    check(dtype, {{{6, 5}, true, 0, {3, 5, 6}}, {{3, 4, 6}, true}, {3, 5, 4}});
    for (const bool f32_out : {true, false})
      for (const std::int64_t margin : {0, 3}) {
        check(dtype, {{{9, 13}}, {{13, 7}}, {9, 7}, {.alpha = 0.5}, false, f32_out, margin});
        check(dtype, {{{9, 13}}, {{13, 7}}, {9, 7}, {.alpha = -2, .beta = 0.5}, true, f32_out, margin});
        check(dtype, {{{9, 13}}, {{13, 7}}, {9, 7}, {.alpha = 1, .beta = -3}, true, f32_out, margin});
      }
    // beta = 0 ignores what c holds: new device memory is NaN.
    const Tensor a = random({5, 8}, 1, dtype, uniform(-1, 1)), b = random({8, 8}, 2, dtype, uniform(-1, 1));
    Tensor c = Tensor::empty({5, 8}, dtype), c2 = like(c);
    host().gemm(a, b, c, {.alpha = 3});
    gpu().gemm(there(a), there(b), c2, {.alpha = 3});
    CHECK(difference(c2, c, 1e-4) < 1);
  }
}

TEST_CASE("cuda table: gemm by sm90: what TMA can read equals the CPU's, anything else is refused with the reason") {
  const cuda::ScopedEmulatedDevice device;
  const Selected selected("sm90");
  CHECK(cuda::selected_gemm() == "sm90");
  for (const DType dtype : DTypes::half) {
    check(dtype, {{{33, 40}}, {{40, 24}}, {33, 24}, {}, true});
    check(dtype, {{{33, 40}}, {{17, 40}, true}, {33, 17}, {.beta = 1}, false, true});
    check(dtype, {{{19, 32}, true}, {{19, 24}}, {32, 24}, {}, false, true, 2});
    check(dtype, {{{2, 3, 9, 16}}, {{2, 3, 16, 8}}, {2, 3, 9, 8}});
    check(dtype, {{{3, 8, 16}}, {{16, 8}, false, 0, {3, 16, 8}}, {3, 8, 8}, {}, true});
    check(dtype, {{{8, 16}, false, 0, {3, 8, 16}}, {{3, 16, 8}}, {3, 8, 8}, {.alpha = 2}});
    const auto refusal = [&](const Product& p) {
      const Tensor a = p.a.view_of(there(random(p.a.shape, 1, dtype, uniform(-1, 1))));
      const Tensor b = p.b.view_of(there(random(p.b.shape, 2, dtype, uniform(-1, 1))));
      Tensor c = Tensor::zeros(p.c, dtype, Device::cuda);
      return error_of([&] { gpu().gemm(a, b, c, p.options); });
    };
    const std::string pitch = refusal({{{9, 13}}, {{13, 8}}, {9, 8}});
    CHECK_MESSAGE(contains(pitch, "--gemm sm90 cannot take a call: rows of a are 13 elements apart"), pitch);
    CHECK_MESSAGE(contains(pitch, "use --gemm auto"), pitch);
    CHECK(contains(refusal({{{4, 0}}, {{0, 8}}, {4, 8}}), "k is 0"));
    const Tensor a = view::slice(there(random({4, 24}, 1, dtype, uniform(-1, 1))), 1, 1, 16),
                 b = there(random({16, 8}, 2, dtype, uniform(-1, 1)));
    Tensor c = Tensor::zeros({4, 8}, dtype, Device::cuda);
    CHECK(contains(error_of([&] { gpu().gemm(a, b, c, {}); }), "a begins 2 bytes after a multiple of 16"));
  }
  check(DType::f32, {{{9, 13}}, {{13, 7}}, {9, 7}});  // f32 has one product, whatever is selected
}

TEST_CASE("cuda table: gemm gives sums of a's rows, with the product or after it, by every implementation") {
  const cuda::ScopedEmulatedDevice device;
  struct Case {
    Product product;
    int launches;  // by sm90 in 16 bits; 0: any number
  };
  const Case cases[] = {
      {{{{40, 72}, true}, {{40, 24}}, {72, 24}, {}, false, true}, 1},
      {{{{333, 40}, true}, {{333, 24}}, {40, 24}, {.alpha = 0.5, .beta = 1}, false, true}, 1},
      {{{{40, 72}, true}, {{40, 24}}, {72, 24}, {}, true, true}, 1},              // with a bias
      {{{{40, 72}, true}, {{40, 24}}, {72, 24}, {}, false, false}, 2},            // a result of 16 bits
      {{{{33, 40}}, {{40, 24}}, {33, 24}, {}, false, true}, 2},                   // a as it is stored
      {{{{33, 40}}, {{24, 40}, true}, {33, 24}, {}, false, true}, 2},             // b transposed
      {{{{16, 24}, true}, {{40, 16}, true}, {24, 40}, {}, false, true}, 0},       // both
      {{{{40, 72}, true}, {{40, 24}}, {72, 24}, {.beta = 0.5}, false, true}, 0},  // a factor
      {{{{40, 72}, true}, {{40, 0}}, {72, 0}, {}, false, true}, 1},               // no columns
  };
  for (const std::string_view selected_name : {"trireme", "sm80", "sm90"}) {
    const Selected selected(selected_name);
    CAPTURE(selected_name);
    for (const DType dtype : DTypes::training)
      for (const auto& [p, launches] : cases) {
        CAPTURE(name(dtype));
        CAPTURE(p.a.shape);
        CAPTURE(p.c);
        const bool by_sm90 = selected_name == "sm90" && dtype != DType::f32;
        check(dtype, p);
        const Tensor a = random(p.a.shape, 1, dtype, uniform(-1, 1)), b = random(p.b.shape, 2, dtype, uniform(-1, 1));
        Tensor c = Tensor::zeros(p.c, p.f32_out ? DType::f32 : dtype), c2 = there(c), c3 = there(c);
        Tensor sums = Tensor::full({p.c[0]}, NAN), sums2 = there(sums);
        GemmOptions options = p.options;
        gpu().gemm(p.a.view_of(there(a)), p.b.view_of(there(b)), c3, options);
        options.row_sums = sums;
        host().gemm(p.a.view_of(a), p.b.view_of(b), c, options);
        options.row_sums = sums2;
        const Tensor a2 = p.a.view_of(there(a)), b2 = p.b.view_of(there(b));
        const std::uint64_t before = device_work().launches;
        gpu().gemm(a2, b2, c2, options);
        if (by_sm90 && launches > 0) CHECK(device_work().launches - before == static_cast<std::uint64_t>(launches));
        CHECK(difference(sums2, sums, 2e-5) < 1);
        CHECK(same_bits_there(c2, c3.to(Device::cpu)));
        Tensor expected = Tensor::zeros({p.c[0], 1}, DType::f64);
        host().reduce(Reduction::sum, cast(p.a.view_of(a), DType::f64), expected);
        CHECK(difference(sums2, cast(view::reshape(expected, sums.shape()), DType::f32), 2e-5) < 1);
      }
  }
  const Tensor x = Tensor::zeros({2, 8, 8}, DType::bf16, Device::cuda);
  Tensor c = Tensor::zeros({2, 8, 8}, DType::f32, Device::cuda), sums = Tensor::zeros({8}, DType::f32, Device::cuda);
  CHECK(contains(error_of([&] { gpu().gemm(x, x, c, {.row_sums = sums}); }), "row sums of a batch"));
  const Tensor one = view::select(x, 0, 0);
  Tensor narrow = Tensor::zeros({8}, DType::bf16, Device::cuda), of_one = view::select(c, 0, 0);
  CHECK(contains(error_of([&] { gpu().gemm(one, one, of_one, {.row_sums = narrow}); }), "expected f32 [8], dense"));
}

TEST_CASE("cuda table: gemm by sm90 divides a long sum among multiprocessors, and finds memory for the parts") {
  const cuda::ScopedEmulatedDevice device;
  const Selected selected("sm90");
  constexpr int k = 64 * 42;
  CHECK(cuda::sm90::cut(64, 64, k, 1, cuda::sm90::resident_of_gemm(), true, cuda::Epilogues::simple).shares.tiles() ==
        1);
  check(DType::bf16, {{{k, 64}, true}, {{k, 64}}, {64, 64}, {}, false, true});
  const Tensor a = random({k, 64}, 1, DType::bf16, uniform(-1, 1)), on_gpu = there(a);
  Tensor c = Tensor::zeros({64, 64}, DType::f32, Device::cuda), sums = Tensor::zeros({64}, DType::f32, Device::cuda);
  gpu().gemm(view::transpose(on_gpu, 0, 1), on_gpu, c, {.row_sums = sums});
  Tensor expected = Tensor::zeros({1, 64}, DType::f32);
  host().reduce(Reduction::sum, a, expected);
  CHECK(difference(sums, view::reshape(expected, {64}), 2e-5) < 1);
}

TEST_CASE("cuda table: attention and its backward: dtypes, grouped heads, documents, head dims that are padded") {
  const cuda::ScopedEmulatedDevice device;
  for (const DType dtype : DTypes::training) {
    check(dtype, {2, 37, 37, 4, 2, 16, true}, Lies::dense, Lies::dense, Lies::dense);
    check(dtype, {2, 9, 12, 3, 1, 4, true, true}, Lies::packed, Lies::packed, Lies::packed);
    if (under_asan) continue;
    check(dtype, {1, 20, 33, 2, 2, 5, false, true}, Lies::dense, Lies::dense, Lies::dense);
    check(dtype, {1, 70, 70, 1, 1, 72, true, true}, Lies::dense, Lies::dense, Lies::dense);
  }
  const Selected selected("auto", "sm80");
  CHECK(cuda::selected_attention() == "sm80");
  for (const DType dtype : DTypes::training)
    check(dtype, {1, 5, 9, 2, 1, 12, true}, Lies::packed, Lies::packed, Lies::packed);
}

TEST_CASE("cuda table: attention by sm90 equals the CPU's; what it cannot take is refused with the reason") {
  const cuda::ScopedEmulatedDevice device;
  const Selected selected("auto", "sm90");
  CHECK(cuda::selected_attention() == "sm90");
  for (const DType dtype : DTypes::half) {
    check(dtype, {2, 37, 37, 4, 2, 16, true}, Lies::packed, Lies::packed, Lies::packed);
    check(dtype, {1, 9, 140, 3, 1, 4, true, true}, Lies::dense, Lies::spaced, Lies::heads_first);
  }
  Tensor q = Tensor::zeros({1, 2, 1, 8}, DType::bf16, Device::cuda), out = like(q);
  Tensor lse = Tensor::zeros({1, 1, 2}, DType::f32, Device::cuda);
  const std::string error = error_of([&] { gpu().attention(q, q, q, -1, true, {}, out, lse); });
  CHECK_MESSAGE(contains(error, "--attention sm90 cannot take a call: a scale of -1"), error);
  CHECK_MESSAGE(contains(error, "use --attention auto"), error);
}

TEST_CASE("cuda table: a refusal by auto does not suggest auto") {
  const cuda::ScopedEmulatedDevice device;
  const std::string error = error_of([] { cuda::attention_choice(DType::bf16, 16, 1, 1, 136); });
  CHECK_MESSAGE(contains(error, "--attention auto cannot take a call: head dims of 136"), error);
  CHECK_FALSE(contains(error, "use --attention auto"));
  CHECK(contains(error, "use --device cpu"));
}

TEST_CASE("cuda table: attention of tensors with strides of their own") {
  const cuda::ScopedEmulatedDevice device;
  for (const DType dtype : DTypes::training) {
    if (under_asan && dtype == DType::f16) continue;
    check(dtype, {2, 11, 13, 2, 1, 8, true}, Lies::packed, Lies::dense, Lies::packed);
    check(dtype, {2, 11, 13, 1, 1, 8, false, true}, Lies::heads_first, Lies::spaced, Lies::heads_first);
    check(dtype, {2, 7, 7, 2, 1, 6, true}, Lies::spaced, Lies::heads_first, Lies::dense);
    check(dtype, {3, 1, 5, 2, 1, 8, true}, Lies::packed, Lies::packed, Lies::packed);
  }
}

TEST_CASE("cuda table: activations and residuals after a product, forward and backward, by every implementation") {
  const cuda::ScopedEmulatedDevice device;
  for (const std::string_view selected_name : {"sm80", "sm90"}) {
    const Selected selected(selected_name);
    CAPTURE(selected_name);
    for (const DType dtype : DTypes::training) {
      if (dtype == DType::f32 && selected_name == "sm90") continue;  // f32 has one product
      CAPTURE(name(dtype));
      const Shape shape = {2, 19, 24};
      const Tensor a = random({2, 19, 40}, 1, dtype, uniform(-1, 1)), b = random({24, 40}, 2, dtype, uniform(-1, 1)),
                   bias = random({24}, 3, dtype, uniform(-1, 1));
      const Tensor residual = random(shape, 4, dtype, uniform(-1, 1)), before = random(shape, 5, dtype, uniform(-1, 1));
      const auto multiply = [&](const Tensor& left, const Tensor& right, const GemmOptions& options) {
        Tensor c = Tensor::empty(shape, left.dtype(), left.device());
        const Tensor wide = view::expand(view::transpose(right, 0, 1), {2, 40, 24});
        kernels(left.device()).gemm(left, wide, c, options);
        return c;
      };
      for (const Unary op : {Unary::gelu, Unary::gelu_tanh, Unary::silu, Unary::relu}) {
        const Tensor u = Tensor::empty(shape, dtype), u2 = like(u);
        multiply(a, b, {.bias = bias, .activation = op, .pre_activation = u});
        const Tensor c2 = multiply(there(a), there(b), {.bias = there(bias), .activation = op, .pre_activation = u2});
        CHECK(difference(u2, u, 2e-5) < 1);
        Tensor again = like(c2), on_cpu = Tensor::empty(shape, dtype);
        gpu().unary(op, u2, again);
        CHECK(same_bits_there(c2, again.to(Device::cpu)));  // what is computed again from u has these bits
        host().unary(op, u2.to(Device::cpu), on_cpu);
        CHECK(difference(c2, on_cpu, 2e-5) < 1);
        const Tensor d = multiply(a, b, {.activation = op, .derivative = true, .pre_activation = before});
        const Tensor d2 =
            multiply(there(a), there(b), {.activation = op, .derivative = true, .pre_activation = there(before)});
        CHECK(difference(d2, d, 2e-5) < 1);
      }
      // The reference is in f32, because the GPU rounds once, at the end.
      const auto wide = [](const Tensor& x) { return cast(x, DType::f32); };
      const Tensor c = multiply(wide(a), wide(b), {.bias = wide(bias), .residual = wide(residual)});
      const Tensor c2 = multiply(there(a), there(b), {.bias = there(bias), .residual = there(residual)});
      CHECK(difference(c2, cast(c, dtype), 2e-5) < 1);
    }
  }
  const Tensor x = Tensor::zeros({8, 8}, DType::bf16, Device::cuda);
  Tensor c = Tensor::zeros({8, 8}, DType::bf16, Device::cuda);
  CHECK(contains(error_of([&] { gpu().gemm(x, x, c, {.beta = 1, .activation = Unary::gelu}); }), "with beta 1"));
}

TEST_CASE("cuda table: products without a kernel and unknown names are refused") {
  const cuda::ScopedEmulatedDevice device;
  Tensor wide = Tensor::zeros({4, 4}, DType::f64, Device::cuda);
  check_refused([&] { gpu().gemm(wide, wide, wide, {}); }, "gemm has no cuda kernel for f64");
  Tensor heads = Tensor::zeros({1, 2, 1, 136}, DType::bf16, Device::cuda), lse = Tensor::zeros({1, 1, 2});
  Tensor small = Tensor::zeros({1, 2, 1, 8}, DType::bf16, Device::cuda);
  check_refused(
      [&] {
        gpu().attention(small, small, small, {1, 30}, true, {}, small, lse);
      },
      "a softcap of scores, 30");
  check_refused([&] { gpu().attention(heads, heads, heads, 1, true, {}, heads, lse); },
                "attention has no cuda kernel for head dims of 136");
  check_refused(
      [&] { gpu().attention_backward(heads, heads, heads, heads, lse, heads, 1, true, {}, heads, heads, heads); },
      "attention_backward has no cuda kernel for head dims of 136");
  CHECK(contains(error_of([] { cuda::select_gemm("abacus"); }),
                 "unknown --gemm 'abacus'; expected one of: auto, trireme, sm90"));
  // The emulated device has none of NVIDIA's libraries.
  CHECK(contains(error_of([] { cuda::select_gemm("cublaslt"); }), "configured without that library"));
  CHECK(contains(error_of([] { cuda::select_attention("abacus"); }), "expected one of: auto"));
  CHECK(cuda::selected_gemm() == "auto");
}

}  // namespace table_products_test
