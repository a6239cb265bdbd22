// Norms, products and attention of the CUDA kernel table against the CPU's, and what is refused.
// The other families: the table_*_test.cpp beside this.
#include "tests/cuda/table_support.h"

using namespace trireme;
using namespace cuda_test;

TEST_CASE("cuda table: layer_norm and its backward") {
  const cuda::ScopedEmulatedDevice device;
  under_schedules([] {
    for (const DType dtype : DTypes::training)
      for (const bool with_beta : {true, false}) {
        const Tensor x = random({5, 67}, dtype, 1), gamma = random({67}, dtype, 2), dy = random({5, 67}, dtype, 4);
        const Tensor beta = with_beta ? random({67}, dtype, 3) : Tensor();
        Tensor y = Tensor::empty(x.shape(), dtype), mean = Tensor::empty({5}), rstd = Tensor::empty({5});
        Tensor dx = Tensor::empty(x.shape(), dtype), dgamma = Tensor::empty({67});
        Tensor dbeta = with_beta ? Tensor::empty({67}) : Tensor();
        Tensor y2 = like(y), mean2 = like(mean), rstd2 = like(rstd), dx2 = there(dy), dgamma2 = like(dgamma);
        Tensor dbeta2 = with_beta ? like(dbeta) : Tensor();
        host().layer_norm(x, gamma, beta, 1e-5, y, mean, rstd);
        gpu().layer_norm(there(x), there(gamma), there(beta), 1e-5, y2, mean2, rstd2);
        host().layer_norm_backward(x, gamma, mean, rstd, dy, dx, dgamma, dbeta);
        gpu().layer_norm_backward(there(x), there(gamma), mean2, rstd2, dx2, dx2, dgamma2, dbeta2);  // in place
        CHECK(difference(y2, y) < 1);
        CHECK(difference(mean2, mean) < 1);
        CHECK(difference(rstd2, rstd) < 1);
        CHECK(difference(dx2, dx) < 1);
        CHECK(difference(dgamma2, dgamma) < 1);
        if (with_beta) CHECK(difference(dbeta2, dbeta) < 1);
      }
  });
}

TEST_CASE("cuda table: rms_norm and its backward") {
  const cuda::ScopedEmulatedDevice device;
  under_schedules([] {
    for (const DType dtype : DTypes::training) {
      const Tensor x = random({4, 130}, dtype, 1), gamma = random({130}, dtype, 2), dy = random({4, 130}, dtype, 3);
      Tensor y = Tensor::empty(x.shape(), dtype), rstd = Tensor::empty({4}), dx = Tensor::empty(x.shape(), dtype);
      Tensor dgamma = Tensor::empty({130}), y2 = like(y), rstd2 = like(rstd), dx2 = like(dx), dgamma2 = like(dgamma);
      host().rms_norm(x, gamma, 1e-5, y, rstd);
      gpu().rms_norm(there(x), there(gamma), 1e-5, y2, rstd2);
      host().rms_norm_backward(x, gamma, rstd, dy, dx, dgamma);
      gpu().rms_norm_backward(there(x), there(gamma), rstd2, there(dy), dx2, dgamma2);
      CHECK(difference(y2, y) < 1);
      CHECK(difference(rstd2, rstd) < 1);
      CHECK(difference(dx2, dx) < 1);
      CHECK(difference(dgamma2, dgamma) < 1);
    }
  });
}

TEST_CASE("cuda table: gemm of views, batches, f32 sums, bias and accumulation") {
  const cuda::ScopedEmulatedDevice device;
  const auto check = [](DType dtype, const Shape& a_shape, bool a_turned, const Shape& b_shape, bool b_turned,
                        const Shape& c_shape, DType c_dtype, bool bias, double beta) {
    const Tensor a = random(a_shape, dtype, 1), b = random(b_shape, dtype, 2);
    const Tensor a2 = there(a), b2 = there(b);
    const auto turn = [](const Tensor& x, bool turned) { return turned ? view::transpose(x, -1, -2) : x; };
    const Tensor shift = bias ? random({c_shape[-1]}, dtype, 3) : Tensor();
    Tensor c = random(c_shape, c_dtype, 4), c2 = there(c);
    host().gemm(turn(a, a_turned), turn(b, b_turned), c, {.beta = beta, .bias = shift});
    gpu().gemm(turn(a2, a_turned), turn(b2, b_turned), c2, {.beta = beta, .bias = there(shift)});
    CHECK(difference(c2, c, 2e-5) < 1);
  };
  for (const DType dtype : DTypes::half) {
    check(dtype, {33, 40}, false, {40, 24}, false, {33, 24}, dtype, true, 0);
    check(dtype, {33, 40}, false, {17, 40}, true, {33, 17}, DType::f32, false, 1);
    check(dtype, {19, 31}, true, {19, 23}, false, {31, 23}, DType::f32, false, 0);
    check(dtype, {2, 3, 9, 16}, false, {2, 3, 16, 8}, false, {2, 3, 9, 8}, dtype, false, 0);
    check(dtype, {1, 5}, false, {5, 1}, false, {1, 1}, dtype, false, 0);
  }
  // One matrix for all products of a batch: stride 0.
  const Tensor a = random({3, 8, 16}, DType::bf16, 5), b = random({16, 8}, DType::bf16, 6);
  Tensor c = Tensor::empty({3, 8, 8}, DType::bf16), c2 = like(c);
  host().gemm(a, view::expand(b, {3, 16, 8}), c, {});
  gpu().gemm(there(a), view::expand(there(b), {3, 16, 8}), c2, {});
  CHECK(difference(c2, c) < 1);
}

TEST_CASE("cuda table: attention, with grouped heads, parts of a packed tensor, causal and not") {
  const cuda::ScopedEmulatedDevice device;
  for (const DType dtype : DTypes::half)
    for (const bool causal : {true, false}) {
      const Tensor packed = random({2, 37, 8, 16}, dtype, 1), packed2 = there(packed);  // [B, T, H + 2 Hkv, Dh]
      const auto part = [](const Tensor& x, std::int64_t first, std::int64_t heads) {
        return view::slice(x, 2, first, heads);
      };
      Tensor out = Tensor::empty({2, 37, 4, 16}, dtype), lse = Tensor::empty({2, 4, 37});
      Tensor out2 = like(out), lse2 = like(lse);
      host().attention(part(packed, 0, 4), part(packed, 4, 2), part(packed, 6, 2), 0.25, causal, {}, out, lse);
      gpu().attention(part(packed2, 0, 4), part(packed2, 4, 2), part(packed2, 6, 2), 0.25, causal, {}, out2, lse2);
      CHECK(difference(out2, out, dtype == DType::bf16 ? 4e-3 : 5e-4) < 1);  // probabilities are rounded to T
      CHECK(difference(lse2, lse) < 1);
    }
}

TEST_CASE("cuda table: what has no kernel is refused by name, never done elsewhere") {
  const cuda::ScopedEmulatedDevice device;
  Tensor x = Tensor::zeros({4, 8}, DType::f32, Device::cuda), half = Tensor::zeros({4, 8}, DType::bf16, Device::cuda);
  Tensor low = half, square = Tensor::zeros({8, 8}, DType::bf16, Device::cuda);
  check_refused([&] { gpu().gemm(x, x, x, {}); }, "gemm has no cuda kernel for f32, only for bf16 and f16");
  check_refused([&] { gpu().gemm(half, square, half, {.alpha = 2}); }, "gemm has no cuda kernel for alpha = 2");
  check_refused([&] { gpu().adamw({}, x, x, x, x, low); },
                "adamw has no cuda kernel for f32 gradients with a bf16 copy");
}
