// Products for Hopper: all forms and tiles, clusters, divided tiles, every epilogue. Results:
// tests/cuda/gemm_problem.h.
#include "tests/cuda/gemm_problem.h"

namespace gemm_test {
namespace {

template <class T, class Out>
void check_sm90(const Case& c, Tile90 tile = Tile90::m64n64, Activation activation = Activation::none) {
  CAPTURE(c.m);
  CAPTURE(c.n);
  CAPTURE(c.k);
  Problem<T, Out> problem(c);
  gemm_sm90(problem.product(activation), nullptr, tile);
  CHECK(problem.worst(activation) < 1);
}

/// Multiplies with a workspace, which must be asked for once; its size must be what the kernels use, because a Buffer
/// has guarded zones.
template <class T, class Out>
void divided_product(const Gemm<T, Out>& product, Tile90 tile) {
  std::unique_ptr<Buffer<float>> workspace;
  gemm_sm90(product, nullptr, tile, [&](std::int64_t floats) {
    REQUIRE(workspace == nullptr);
    workspace = std::make_unique<Buffer<float>>(static_cast<std::size_t>(floats));
    return workspace->data();
  });
  CHECK(workspace != nullptr);
}

template <class T, class Out>
void check_divided(const Case& c, Tile90 tile, Activation activation = Activation::none) {
  CAPTURE(c.m);
  CAPTURE(c.n);
  CAPTURE(c.k);
  Problem<T, Out> problem(c);
  divided_product(problem.product(activation), tile);
  CHECK(problem.worst(activation) < 1);
}

}  // namespace

TEST_CASE("cuda gemm_sm90: three forms, ragged and tiny, equal f64") {
  under_schedules([] {
    for (const Form form : kForms) {
      CAPTURE(static_cast<int>(form));
      check_sm90<bf16, bf16>({form, 64, 64, 64});
      check_sm90<f16, float>({form, 8, 8, 8});
      check_sm90<f16, f16>({form, 72, 136, 200});
      check_sm90<bf16, float>({form, 40, 24, 328, 8, 8});
    }
    check_sm90<bf16, float>({Form::nt, 65, 33, 136});
    check_sm90<f16, f16>({Form::nt, 1, 1, 320});
    check_sm90<bf16, float>({Form::tn, 72, 40, 77});
    check_sm90<bf16, bf16>({Form::nn, 77, 40, 72});
  });
}

TEST_CASE("cuda gemm_sm90: the tiles of two consumers, several to a persistent block") {
  for (std::uint64_t seed = 0; seed < cuda_test::seeds_of_forms(); ++seed) {
    CAPTURE(seed);
    under_schedule(seed, [seed] {
      const Form form = kForms[seed % 3];
      check_sm90<bf16, float>({form, 200, 264, 136}, Tile90::m128n128);
      check_sm90<f16, f16>({form, 136, 520, 72}, Tile90::m128n256);
      check_sm90<bf16, bf16>({kForms[(seed + 1) % 3], 264, 72, 328}, Tile90::m128n256);
    });
  }
}

TEST_CASE("cuda gemm_sm90: clusters of two blocks, also with tiles outside the product") {
  for (std::uint64_t seed = 0; seed < cuda_test::seeds_of_forms(); ++seed) {
    CAPTURE(seed);
    under_schedule(seed, [seed] {
      const Form form = kForms[seed % 3], other = kForms[(seed + 1) % 3];
      check_sm90<bf16, bf16>({form, 264, 392, 328}, Tile90::m256n384);
      check_sm90<f16, float>({other, 72, 200, 200, 8, 8}, Tile90::m256n384);
      check_sm90<bf16, float>({form, 72, 136, 72, 0, 0, false, 3}, Tile90::m256n384);  // a batch
      check_sm90<bf16, bf16>({form, 264, 200, 136, 0, 0, true, 1, 1.0F, false, kBefore | kResidual}, Tile90::m256n384);
    });
  }
}

TEST_CASE("cuda gemm_sm90: consumers that take turns, with one tile, two and more") {
  for (std::uint64_t seed = 0; seed < cuda_test::seeds_of_forms(); ++seed) {
    CAPTURE(seed);
    under_schedule(seed, [seed] {
      const cuda_test::ScopedMultiprocessors one(1);
      const Form form = kForms[seed % 3], other = kForms[(seed + 1) % 3];
      check_sm90<bf16, bf16>({form, 72, 136, 712}, Tile90::m128n192);
      check_sm90<bf16, bf16>({other, 136, 136, 40}, Tile90::m128n192);
      check_sm90<f16, float>({form, 392, 72, 328, 8, 8}, Tile90::m128n192);
      check_sm90<bf16, float>({other, 264, 200, 328}, Tile90::m128n192);
    });
  }
}

TEST_CASE("cuda gemm_sm90: a product has the same bits by one block and by clusters") {
  const auto bits = [](Tile90 tile) {
    Problem<bf16, float> problem({Form::nt, 264, 392, 328});
    gemm_sm90(problem.product(Activation::none), nullptr, tile);
    std::vector<float> values(problem.out.size());
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(problem.out.at(i));
    return values;
  };
  CHECK(bits(Tile90::m256n384) == bits(Tile90::m128n192));
}

TEST_CASE("cuda gemm_sm90: batches, also with one operand for all; bias, GELU, residual, accumulation") {
  under_schedules([] {
    for (const Form form : kForms) check_sm90<bf16, float>({form, 72, 40, 136, 0, 0, false, 5});
    check_sm90<bf16, bf16>({Form::nn, 48, 72, 40, 0, 0, true}, Tile90::m64n64, Activation::gelu);
    check_sm90<bf16, float>({Form::nt, 33, 50, 64, 8, 8, true, 2}, Tile90::m64n64, Activation::gelu_tanh);
    check_sm90<f16, float>({Form::tn, 136, 72, 96, 0, 0, true, 2}, Tile90::m128n128);
    check_sm90<f16, f16>({Form::tn, 8, 264, 3, 0, 0, true}, Tile90::m128n256);
    check_sm90<bf16, bf16>({Form::nt, 200, 203, 72, 0, 0, true}, Tile90::m128n192, Activation::silu);

    Problem<bf16, float> shared({Form::nt, 40, 24, 72, 0, 0, false, 3}), alone({Form::nt, 120, 24, 72});
    Gemm<bf16, float> product = shared.product(Activation::none);
    product.b_stride = 0;  // three times the first b: the same as one product with three times the rows
    gemm_sm90(product);
    Gemm<bf16, float> tall = alone.product(Activation::none);
    tall.a = shared.a.data();
    tall.b = shared.b.data();
    gemm_sm80(tall);
    for (std::size_t i = 0; i < alone.out.size(); ++i)
      CHECK(shared.out.at(i) == doctest::Approx(alone.out.at(i)).epsilon(1e-5));
  });
}

TEST_CASE("cuda gemm_sm90: alpha multiplies the sum, and neither bias, residual nor what c holds") {
  under_schedules([] {
    check_sm90<f16, f16>({Form::nn, 40, 72, 40, 0, 0, false, 1, -0.25F});
    check_sm90<bf16, float>({Form::tn, 24, 40, 33, 8, 0, true, 2, 3.0F}, Tile90::m64n64, Activation::gelu_tanh);
    check_sm90<bf16, bf16>({Form::nt, 72, 40, 136, 0, 0, true, 1, 0.5F}, Tile90::m128n128, Activation::gelu);
  });
}

TEST_CASE("cuda gemm_sm90: SiLU, and derivatives of activations at what a forward product stored") {
  under_schedules([] {
    check_sm90<bf16, float>({Form::nt, 24, 40, 16, 0, 0, true}, Tile90::m64n64, Activation::silu);
    for (const Activation activation : kActivations) {
      CAPTURE(static_cast<int>(activation));
      check_sm90<bf16, bf16>({Form::nn, 40, 24, 24, 0, 0, true, 1, 1.0F, true}, Tile90::m64n64, activation);
      check_sm90<f16, float>({Form::nt, 17, 41, 32, 8, 0, true, 2, 0.5F, true}, Tile90::m128n128, activation);
    }
  });
}

TEST_CASE("cuda gemm_sm90: every choice of an epilogue's steps") {
  under_schedule(2, [] {
    every_epilogue([](const Case& c, Activation activation) {
      check_sm90<bf16, bf16>(c, Tile90::m64n64, activation);
      check_sm90<f16, float>(c, Tile90::m64n64, activation);
    });
    for (const unsigned without :
         {kBefore | kResidual, kBefore | kAccumulate, kBias | kBefore | kAccumulate | kResidual}) {
      CAPTURE(without);
      check_sm90<bf16, bf16>({Form::nt, 150, 200, 72, 0, 0, true, 1, 1.0F, false, without}, Tile90::m128n192);
      check_sm90<f16, float>({Form::tn, 264, 64, 40, 0, 0, true, 1, 1.0F, false, without}, Tile90::m128n192);
      check_sm90<bf16, bf16>({Form::nt, 150, 328, 72, 0, 0, true, 1, 1.0F, false, without}, Tile90::m128n256);
    }
  });
}

TEST_CASE("cuda gemm_sm90: both GELUs and their derivatives in tiles of 128 x 192, in the form that has a kernel") {
  const auto wide = [](const Case& c) {
    CAPTURE(c.n);
    CAPTURE(c.without);
    for (const Activation activation : {Activation::gelu_tanh, Activation::gelu}) {
      CAPTURE(static_cast<int>(activation));
      Problem<bf16, bf16> problem(c);
      const Epilogues epilogues = epilogues_of(problem.product(activation));
      CHECK((c.derivative ? differentiates(epilogues) : activates(epilogues)));
      check_sm90<bf16, bf16>(c, Tile90::m128n192, activation);
      check_sm90<f16, f16>(c, Tile90::m128n192, activation);
    }
  };
  for (const std::uint64_t seed : {2, 0}) {
    if (seed == 0 && cuda_test::slow_build()) break;
    under_schedule(seed, [&] {
      for (const unsigned without : {kAdds, kAdds | kBias, kAdds | kBefore})
        wide({Form::nt, 264, 200, 72, 0, 0, true, 1, 0.5F, false, without});
      wide({Form::nt, 150, 72, 136, 8, 8, true, 1, 1.0F, false, kAdds});
      wide({Form::nn, 264, 200, 72, 0, 0, true, 1, 0.5F, true, kAdds});
      wide({Form::nn, 70, 328, 72, 0, 0, true, 1, 1.0F, true, kAdds | kBias});
    });
  }
  // Others have no such kernel, and 128 x 256 takes their place.
  const Activation activation = Activation::gelu_tanh;
  check_sm90<bf16, bf16>({Form::tn, 72, 200, 72, 0, 0, true, 1, 1.0F, false, kAdds}, Tile90::m128n192, activation);
  check_sm90<bf16, bf16>({Form::nt, 72, 200, 72, 0, 0, true, 1, 1.0F, true, kAdds}, Tile90::m128n192, activation);
}

TEST_CASE("cuda gemm_sm90: same bits on every run, whatever the schedule") {
  for (const Tile90 tile :
       {Tile90::automatic, Tile90::m64n64, Tile90::m128n128, Tile90::m128n256, Tile90::m128n192, Tile90::m256n384}) {
    Problem<bf16, float> first({Form::nn, 72, 136, 328}), again({Form::nn, 72, 136, 328});
    under_schedule(0, [&] { gemm_sm90(first.product(Activation::none), nullptr, tile); });
    under_schedule(2, [&] { gemm_sm90(again.product(Activation::none), nullptr, tile); });
    for (std::size_t i = 0; i < first.out.size(); ++i) CHECK(first.out.at(i) == again.out.at(i));
  }
}

TEST_CASE("cuda gemm_sm90: tiles divided among blocks, alone and after whole waves, equal f64") {
  for (std::uint64_t seed = 0; seed < cuda_test::seeds_of_forms(); ++seed) {
    CAPTURE(seed);
    under_schedule(seed, [seed] {
      const Form form = kForms[seed % 3], other = kForms[(seed + 1) % 3];
      check_divided<bf16, bf16>({form, 64, 200, 2800, 8, 8}, Tile90::m64n64);  // a wave of three, and one divided
      const cuda_test::ScopedMultiprocessors some(7);
      check_divided<bf16, float>({form, 72, 40, 2200}, Tile90::m128n128);
      check_divided<f16, f16>({other, 72, 136, 2200}, Tile90::m128n256);
      check_divided<bf16, bf16>({other, 136, 72, 2000}, Tile90::m128n192);
      check_divided<bf16, bf16>({other, 40, 56, 2600, 0, 0, false, 2}, Tile90::m64n64);  // a tile of each product
    });
  }
}

TEST_CASE("cuda gemm_sm90: tiles divided among clusters, and shares of three items, equal f64") {
  const cuda_test::ScopedMultiprocessors some(7);
  check_divided<bf16, float>({Form::tn, 72, 200, 2600}, Tile90::m256n384);
  check_divided<bf16, bf16>({Form::nt, 300, 64, 10000}, Tile90::m64n64);
}

TEST_CASE("cuda gemm_sm90: divided tiles have every epilogue") {
  const cuda_test::ScopedMultiprocessors some(7);
  for (const Activation activation : kActivations) {
    CAPTURE(static_cast<int>(activation));
    check_divided<bf16, float>({Form::nt, 33, 50, 2000, 8, 8, true}, Tile90::m64n64, activation);
    check_divided<f16, f16>({Form::tn, 72, 136, 2203, 0, 0, true, 1, 0.5F, true}, Tile90::m128n256, activation);
  }
}

TEST_CASE("cuda gemm_sm90: divided tiles have the same bits on every run, whatever the schedule") {
  const cuda_test::ScopedMultiprocessors some(7);
  Problem<bf16, float> first({Form::tn, 72, 40, 2200}), again({Form::tn, 72, 40, 2200});
  under_schedule(0, [&] { divided_product(first.product(Activation::none), Tile90::m128n128); });
  under_schedule(2, [&] { divided_product(again.product(Activation::none), Tile90::m128n128); });
  for (std::size_t i = 0; i < first.out.size(); ++i) CHECK(first.out.at(i) == again.out.at(i));
}

TEST_CASE("cuda gemm_sm90: refuses what TMA cannot read, and names the constraint") {
  const auto refusal = [](const Case& c) {
    Problem<bf16, float> problem(c);
    return cuda_test::error_of([&] { gemm_sm90(problem.product(Activation::none)); });
  };
  CHECK(refusal({Form::nt, 16, 16, 70}).find("the pitch of a is 70 elements, 140 bytes") != std::string::npos);
  CHECK(refusal({Form::nn, 16, 20, 64}).find("pad it to 24 elements, or use gemm_sm80") != std::string::npos);
  CHECK(refusal({Form::nn, 16, 16, 64, 0, 1}).find("a begins 2 bytes after a multiple of 16") != std::string::npos);
  CHECK(refusal({Form::nn, 16, 16, 0, 8}).find("k is 0") != std::string::npos);

  Problem<bf16, float> problem({Form::nn, 8, 8, 8, 0, 0, false, 2});
  Gemm<bf16, float> product = problem.product(Activation::none);
  product.b_stride = 60;
  const std::string message = cuda_test::error_of([&] { gemm_sm90(product); });
  CHECK(message.find("the batch stride of b is 60 elements") != std::string::npos);
}

}  // namespace gemm_test
