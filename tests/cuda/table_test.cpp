// Norms of the CUDA kernel table against the CPU's. The other families are in the other table_*_test.cpp.
#include "tests/cuda/table_support.h"

using namespace trireme;
using namespace cuda_test;

TEST_CASE("cuda table: layer_norm and its backward") {
  const cuda::ScopedEmulatedDevice device;
  under_schedules([] {
    for (const DType dtype : DTypes::training)
      for (const bool with_beta : {true, false}) {
        const Tensor x = random({5, 67}, 1, dtype, uniform(-1, 1)), gamma = random({67}, 2, dtype, uniform(-1, 1)),
                     dy = random({5, 67}, 4, dtype, uniform(-1, 1));
        const Tensor beta = with_beta ? random({67}, 3, dtype, uniform(-1, 1)) : Tensor();
        Tensor y = Tensor::empty(x.shape(), dtype), mean = Tensor::empty({5}), rstd = Tensor::empty({5});
        Tensor dx = Tensor::empty(x.shape(), dtype), dgamma = Tensor::empty({67});
        Tensor dbeta = with_beta ? Tensor::empty({67}) : Tensor();
        Tensor y2 = like(y), mean2 = like(mean), rstd2 = like(rstd), dx2 = there(dy), dgamma2 = like(dgamma);
        Tensor dbeta2 = with_beta ? like(dbeta) : Tensor();
        host().layer_norm(x, gamma, beta, 1e-5, y, mean, rstd);
        gpu().layer_norm(there(x), there(gamma), there(beta), 1e-5, y2, mean2, rstd2);
        host().layer_norm_backward(x, gamma, mean, rstd, dy, {}, dx, dgamma, dbeta);
        gpu().layer_norm_backward(there(x), there(gamma), mean2, rstd2, dx2, {}, dx2, dgamma2, dbeta2);  // in place
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
      const Tensor x = random({4, 130}, 1, dtype, uniform(-1, 1)), gamma = random({130}, 2, dtype, uniform(-1, 1)),
                   dy = random({4, 130}, 3, dtype, uniform(-1, 1));
      Tensor y = Tensor::empty(x.shape(), dtype), rstd = Tensor::empty({4}), dx = Tensor::empty(x.shape(), dtype);
      Tensor dgamma = Tensor::empty({130}), y2 = like(y), rstd2 = like(rstd), dx2 = like(dx), dgamma2 = like(dgamma);
      host().rms_norm(x, gamma, 1e-5, y, rstd);
      gpu().rms_norm(there(x), there(gamma), 1e-5, y2, rstd2);
      host().rms_norm_backward(x, gamma, rstd, dy, y, dx, dgamma);
      gpu().rms_norm_backward(there(x), there(gamma), rstd2, there(dy), there(y), dx2, dgamma2);
      CHECK(difference(y2, y) < 1);
      CHECK(difference(rstd2, rstd) < 1);
      CHECK(difference(dx2, dx) < 1);
      CHECK(difference(dgamma2, dgamma) < 1);
    }
  });
}
