// Products for Ampere: all forms, ragged and unaligned shapes, every epilogue. Results: tests/cuda/gemm_problem.h.
#include "tests/cuda/gemm_problem.h"

namespace gemm_test {
namespace {

template <class T, class Out>
void check(const Case& c, Activation activation = Activation::none) {
  CAPTURE(c.m);
  CAPTURE(c.n);
  CAPTURE(c.k);
  Problem<T, Out> problem(c);
  gemm_sm80(problem.product(activation));
  CHECK(problem.worst(activation) < 1);
}

}  // namespace

TEST_CASE("cuda gemm_sm80: three forms, ragged, tiny and unaligned, equal f64") {
  under_schedules([] {
    for (const Form form : {Form::nn, Form::nt, Form::tn}) {
      CAPTURE(static_cast<int>(form));
      check<bf16, bf16>({form, 64, 64, 64});
      check<bf16, float>({form, 1, 1, 1});
      check<f16, f16>({form, 72, 136, 200});
      check<f16, float>({form, 65, 33, 129, 0, 1});
      check<bf16, float>({form, 40, 24, 48, 8, 8});
      check<bf16, bf16>({form, 17, 70, 31, 3, 0, false, 3});
    }
  });
}

TEST_CASE("cuda gemm_sm80: bias, stored pre-activation, GELU, residual and accumulation, in one epilogue") {
  under_schedules([] {
    check<bf16, bf16>({Form::nn, 48, 72, 40, 0, 0, true}, Activation::gelu);
    check<bf16, float>({Form::nt, 33, 50, 64, 2, 1, true}, Activation::gelu_tanh);
    check<f16, float>({Form::tn, 16, 64, 96, 0, 0, true, 2});
    check<f16, f16>({Form::tn, 1, 5, 3, 0, 0, true});
    check<bf16, bf16>({Form::nt, 24, 40, 16, 0, 0, true}, Activation::silu);
  });
}

TEST_CASE("cuda gemm_sm80: derivatives of activations at what a forward product stored") {
  under_schedules([] {
    for (const Activation activation : kActivations) {
      CAPTURE(static_cast<int>(activation));
      check<bf16, bf16>({Form::nn, 40, 24, 24, 0, 0, true, 1, 1.0F, true}, activation);
      check<f16, float>({Form::nt, 17, 9, 32, 3, 1, true, 2, 0.5F, true}, activation);
    }
  });
}

TEST_CASE("cuda gemm: an epilogue with derivative needs a pre_activation") {
  Problem<bf16, float> problem({Form::nn, 8, 16, 8});
  Gemm<bf16, float> product = problem.product(Activation::none);
  product.epilogue.derivative = true;
  CHECK(cuda_test::error_of([&] { gemm_sm80(product); }).find("no pre_activation; expected [8, 16]") !=
        std::string::npos);
  CHECK(cuda_test::error_of([&] { gemm_sm90(product); }).find("no pre_activation") != std::string::npos);
}

TEST_CASE("cuda gemm_sm80: alpha multiplies the sum, and neither bias, residual nor what c holds") {
  under_schedules([] {
    check<bf16, bf16>({Form::nn, 40, 72, 40, 0, 0, false, 1, -0.25F});
    check<f16, float>({Form::tn, 17, 24, 33, 2, 1, true, 2, 3.0F}, Activation::gelu_tanh);
    check<bf16, float>({Form::nt, 24, 40, 48, 0, 0, true, 1, 0.0F});
  });
}

TEST_CASE("cuda gemm_sm80: the large tile" * doctest::skip(cuda_test::under_asan)) {
  under_schedule(2, [] {
    for (const Form form : {Form::nn, Form::nt, Form::tn}) check<bf16, float>({form, 40, 24, 72, 0, 0, false, 64});
  });
}

// Ragged in M, N and K. TMA needs pitches of a and b that are multiples of 8 elements, so the odd sizes of each form
// are not the row lengths of a and b.
TEST_CASE("cuda gemm_sm80: every choice of an epilogue's steps") {
  under_schedule(2, [] {
    every_epilogue([](const Case& c, Activation activation) {
      check<bf16, bf16>(c, activation);
      check<f16, float>(c, activation);
    });
  });
}

}  // namespace gemm_test
