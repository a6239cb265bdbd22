// Optimizer steps of the CUDA kernel table against the CPU's.
#include "tests/cuda/table_support.h"

using namespace trireme;
using namespace cuda_test;

TEST_CASE("cuda table: adamw over more than one tile, with f32 gradients and a 16-bit copy of the weights") {
  const cuda::ScopedEmulatedDevice device;
  under_schedules([] {
    for (const std::int64_t count : {0, 1, 4096, 5001})
      for (const DType low_dtype : DTypes::training) {
        CAPTURE(count);
        const Tensor gradient = random({count}, DType::f32, 1);
        Tensor w = random({count}, DType::f32, 2), m = random({count}, DType::f32, 3), v = Tensor::full({count}, 0.3);
        Tensor w2 = there(w), m2 = there(m), v2 = there(v);
        Tensor low = low_dtype == DType::f32 ? Tensor() : Tensor::empty({count}, low_dtype);
        Tensor low2 = low.defined() ? like(low) : Tensor();
        const AdamWOptions options = {.lr = 1e-2,
                                      .beta1 = 0.9,
                                      .beta2 = 0.95,
                                      .eps = 1e-8,
                                      .weight_decay = 0.1,
                                      .gradient_scale = 0.5,
                                      .step = 3};
        host().adamw(options, gradient, w, m, v, low);
        gpu().adamw(options, there(gradient), w2, m2, v2, low2);
        CHECK(difference(w2, w, 1e-6) < 1);
        CHECK(difference(m2, m, 1e-6) < 1);
        CHECK(difference(v2, v, 1e-6) < 1);
        if (low.defined()) CHECK(same_bits(low2, cast(w2.to(Device::cpu), low_dtype)));
      }
  });
}

TEST_CASE("cuda table: sgd with and without momentum, with a 16-bit copy of the weights") {
  const cuda::ScopedEmulatedDevice device;
  for (const std::int64_t count : {0, 1, 1030})
    for (const bool with_momentum : {true, false})
      for (const DType low_dtype : DTypes::training) {
        CAPTURE(count);
        const Tensor gradient = random({count}, DType::f32, 1);
        Tensor w = random({count}, DType::f32, 2), w2 = there(w);
        Tensor v = with_momentum ? random({count}, DType::f32, 3) : Tensor(), v2 = there(v);
        Tensor low = low_dtype == DType::f32 ? Tensor() : Tensor::empty({count}, low_dtype);
        Tensor low2 = low.defined() ? like(low) : Tensor();
        host().sgd(0.1, 0.9, 0.01, 0.5, gradient, w, v, low);
        gpu().sgd(0.1, 0.9, 0.01, 0.5, there(gradient), w2, v2, low2);
        CHECK(difference(w2, w, 1e-6) < 1);
        if (with_momentum) CHECK(difference(v2, v, 1e-6) < 1);
        if (low.defined()) CHECK(same_bits(low2, cast(w2.to(Device::cpu), low_dtype)));
      }
}
