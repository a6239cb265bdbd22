// Optimizer steps of the CUDA kernel table against the CPU's.
#include "core/device_work.h"
#include "tests/cuda/table_support.h"

using namespace trireme;
using namespace cuda_test;

TEST_CASE("cuda table: adamw over more than one tile, with f32 gradients and a 16-bit copy of the weights") {
  const cuda::ScopedEmulatedDevice device;
  under_schedules([] {
    for (const std::int64_t count : {0, 1, 4096, 5001})
      for (const DType low_dtype : DTypes::training) {
        CAPTURE(count);
        const Tensor gradient = random({count}, 1, DType::f32, uniform(-1, 1));
        Tensor w = random({count}, 2, DType::f32, uniform(-1, 1)), m = random({count}, 3, DType::f32, uniform(-1, 1)),
               v = Tensor::full({count}, 0.3);
        Tensor w2 = there(w), m2 = there(m), v2 = there(v);
        Tensor low = low_dtype == DType::f32 ? Tensor() : Tensor::empty({count}, low_dtype);
        Tensor low2 = low.defined() ? like(low) : Tensor();
        const AdamWOptions options = {
            .lr = 1e-2, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .gradient_scale = 0.5, .step = 3};
        const AdamWUpdate update{gradient, w, m, v, low, 0.1}, update2{there(gradient), w2, m2, v2, low2, 0.1};
        host().adamw(options, {&update, 1});
        gpu().adamw(options, {&update2, 1});
        CHECK(difference(w2, w, 1e-6) < 1);
        CHECK(difference(m2, m, 1e-6) < 1);
        CHECK(difference(v2, v, 1e-6) < 1);
        if (low.defined()) CHECK(same_bits_there(low2, cast(w2.to(Device::cpu), low_dtype)));
      }
  });
}

TEST_CASE("cuda table: sgd by each rule, with and without momentum, with a 16-bit copy of the weights") {
  const cuda::ScopedEmulatedDevice device;
  struct Kind {
    SgdRule rule;
    bool with_momentum = true;
  };
  for (const std::int64_t count : {0, 1, 1030})
    for (const auto& [rule, with_momentum] :
         {Kind{SgdRule::momentum}, Kind{SgdRule::momentum, false}, Kind{SgdRule::nesterov}, Kind{SgdRule::lion}})
      for (const DType low_dtype : DTypes::training) {
        CAPTURE(count);
        const Tensor gradient = random({count}, 1, DType::f32, uniform(-1, 1));
        Tensor w = random({count}, 2, DType::f32, uniform(-1, 1)), w2 = there(w);
        Tensor v = with_momentum ? random({count}, 3, DType::f32, uniform(-1, 1)) : Tensor(), v2 = there(v);
        Tensor low = low_dtype == DType::f32 ? Tensor() : Tensor::empty({count}, low_dtype);
        Tensor low2 = low.defined() ? like(low) : Tensor();
        const SgdOptions options{.lr = 0.1, .momentum = 0.9, .gradient_scale = 0.5, .rule = rule, .blend = 0.8};
        const SgdUpdate update{gradient, w, v, low, 0.01}, update2{there(gradient), w2, v2, low2, 0.01};
        host().sgd(options, {&update, 1});
        gpu().sgd(options, {&update2, 1});
        CHECK(difference(w2, w, 1e-6) < 1);
        if (!with_momentum && count > 0) {
          const SgdOptions nesterov{.rule = SgdRule::nesterov};
          CHECK(contains(error_of([&] { gpu().sgd(nesterov, {&update2, 1}); }), "has no momentum"));
        }
        if (with_momentum) CHECK(difference(v2, v, 1e-6) < 1);
        if (low.defined()) CHECK(same_bits_there(low2, cast(w2.to(Device::cpu), low_dtype)));
      }
}

TEST_CASE("cuda table: lists of tensors take few launches, whatever their copies, decay and number") {
  const cuda::ScopedEmulatedDevice device;
  const std::vector<std::int64_t> counts = {5, 0, 4097, 1};
  std::vector<AdamWUpdate> here, moved;
  std::vector<Tensor> gradients, gradients2;
  for (std::size_t i = 0; i < 148; ++i) {  // as many as GPT-2 has
    const std::int64_t count = counts[i % counts.size()];
    const DType dtype = std::array{DType::f32, DType::bf16, DType::f16}[i % 3];
    gradients.push_back(random({count}, i, DType::f32, uniform(-1, 1)));
    gradients2.push_back(there(gradients.back()));
    const AdamWUpdate update{gradients.back(),
                             random({count}, 200 + i, DType::f32, uniform(-1, 1)),
                             random({count}, 400 + i, DType::f32, uniform(-1, 1)),
                             Tensor::full({count}, 0.3),
                             dtype == DType::f32 ? Tensor() : Tensor::zeros({count}, dtype),
                             i % 2 == 0 ? 0.1 : 0.0};
    here.push_back(update);
    moved.push_back({gradients2.back(), there(update.weight), there(update.m), there(update.v),
                     update.low.defined() ? there(update.low) : Tensor(), update.weight_decay});
  }
  const AdamWOptions options = {.lr = 1e-2, .step = 2};
  host().adamw(options, here);
  std::uint64_t launches = cuda::launch_count();
  gpu().adamw(options, moved);
  CHECK(cuda::launch_count() - launches == 3);  // one for each dtype of copies
  for (std::size_t i = 0; i < here.size(); ++i) {
    CHECK(difference(moved[i].weight, here[i].weight, 1e-6) < 1);
    CHECK(difference(moved[i].v, here[i].v, 1e-6) < 1);
    if (here[i].low.defined())
      CHECK(same_bits_there(moved[i].low, cast(moved[i].weight.to(Device::cpu), here[i].low.dtype())));
  }
  launches = cuda::launch_count();
  CHECK(gpu().sum_squares(gradients2).value() == doctest::Approx(host().sum_squares(gradients).value()).epsilon(1e-12));
  CHECK(cuda::launch_count() - launches == 2);  // 111 tensors are not empty
  CHECK(gpu().sum_squares({}).value() == 0);
  gpu().adamw(options, {});
  gpu().sgd({}, {});
  gradients2[3] = gradients[3];
  CHECK(contains(error_of([&] { (void)gpu().sum_squares(gradients2).value(); }), "is on cpu"));
}

TEST_CASE("cuda table: the squares of many tensors and the factor of an update stay on the device") {
  const cuda::ScopedEmulatedDevice device;
  std::vector<Tensor> here, moved;
  for (std::size_t i = 0; i < 5; ++i) {
    here.push_back(random({i == 3 ? 0 : 100 * static_cast<std::int64_t>(i) + 7}, i, DType::f32, uniform(-1, 1)));
    moved.push_back(there(here.back()));
  }
  Tensor squares = Tensor::empty({1}, DType::f64), scale = Tensor::empty({1});
  Tensor squares2 = there(squares), scale2 = there(scale);
  const Tensor loss = Tensor::full({1}, 2.5, DType::f64), loss2 = there(loss);
  host().squares_to(here, squares);
  host().update_scale(loss, squares, 4, 1.5, scale);
  CHECK(squares.item() == host().sum_squares(here).value());
  const DeviceWork before = device_work();
  gpu().squares_to(moved, squares2);
  gpu().update_scale(loss2, squares2, 4, 1.5, scale2);
  CHECK((device_work() - before).waits == 0);
  CHECK((device_work() - before).launches == 3);
  CHECK(squares2.item() == doctest::Approx(squares.item()).epsilon(1e-13));
  CHECK(scale2.item() == doctest::Approx(scale.item()).epsilon(1e-7));

  // The factor in device memory is the factor that the host gives, bit for bit.
  Tensor w = there(here[4]), m = there(here[4]), v = Tensor::full({407}, 0.3, DType::f32, Device::cuda);
  Tensor w2 = clone(w), m2 = clone(m), v2 = clone(v);
  const AdamWUpdate update{moved[4], w, m, v, {}, 0.1}, update2{moved[4], w2, m2, v2, {}, 0.1};
  gpu().adamw({.lr = 0.1, .gradient_scale = scale2.item()}, {&update, 1});
  gpu().adamw({.lr = 0.1, .scale_there = scale2}, {&update2, 1});
  CHECK(same_bits_there(w2, w.to(Device::cpu)));
  CHECK(same_bits_there(v2, v.to(Device::cpu)));

  gpu().squares_to({}, squares2);
  CHECK(squares2.item() == 0);
}
