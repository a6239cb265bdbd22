// The cuBLASLt descriptors of translated products, read back from the library: names, sizes and values of every
// attribute that a product sets. This needs the library but no GPU.
#include <doctest/doctest.h>

#include <array>
#include <vector>

#include "cuda/libraries/lt_run.h"
#include "cuda/libraries/lt_translate.h"

using namespace trireme;
using namespace trireme::cuda;

namespace cublaslt_library_test {
namespace {

/// The library keeps the shape, leading dimension and stride of a layout. Alignments are given to the search for an
/// algorithm instead.
void check_layout(const LtMatrix& got, LtMatrix expected) {
  expected.alignment = 0;
  CHECK(got == expected);
}

}  // namespace

TEST_CASE("cublaslt library: descriptors hold what was translated") {
  std::vector<bf16> memory(4096);
  for (const Form form : {Form::nn, Form::nt, Form::tn})
    for (const int batch : {1, 3})
      for (const bool bias : {false, true})
        for (const int activation : {0, 1, 2, 3}) {
          if (bias && activation == 3) continue;  // refused
          Gemm<bf16, bf16> p{form, 6, 16, 8, memory.data(), 24, memory.data() + 512, 32, memory.data() + 2048, 40};
          p.batch = batch;
          p.a_stride = 256;
          p.b_stride = 320;
          p.c_stride = 384;
          if (bias) p.epilogue.bias = memory.data() + 4000;
          if (activation > 0) p.epilogue.activation = Activation::gelu_tanh;
          p.epilogue.derivative = activation == 3;
          if (activation > 1) p.epilogue.pre_activation = memory.data() + 3072;
          REQUIRE(cublaslt_cannot(p) == "");
          const LtCall call = translate(p);
          const LtReadBack back = cublaslt_read_back(call);
          check_layout(back.a, call.problem.a);
          check_layout(back.b, call.problem.b);
          check_layout(back.c, call.problem.c);
          check_layout(back.d, call.problem.d);
          CHECK(back.batch == batch);
          CHECK(back.transpose_a == (form == Form::nt));
          CHECK(back.transpose_b == (form == Form::tn));
          // cublasLtEpilogue_t: DEFAULT 1, BIAS 4, GELU 32, DGELU 64, AUX 128; the sum of what applies.
          const unsigned gelu = std::array{0U, 32U, 160U, 192U}[static_cast<std::size_t>(activation)];
          CHECK(back.epilogue == (!bias && gelu == 0 ? 1U : gelu + (bias ? 4U : 0U)));
          CHECK(back.bias == p.epilogue.bias);
          CHECK(back.aux == p.epilogue.pre_activation);
          CHECK(back.aux_ld == (activation > 1 ? 40 : 0));
          CHECK(back.aux_stride == (activation > 1 && batch > 1 ? 384 : 0));
        }
}

TEST_CASE("cublaslt library: every pair of types has descriptors") {
  std::vector<float> memory(1024);
  const auto check = [&](auto in, auto out) {
    using T = decltype(in);
    using Out = decltype(out);
    Gemm<T, Out> p{Form::nt,
                   4,
                   4,
                   4,
                   reinterpret_cast<T*>(memory.data()),
                   8,
                   reinterpret_cast<T*>(memory.data()),
                   8,
                   reinterpret_cast<Out*>(memory.data()),
                   8};
    p.epilogue.accumulate = true;
    REQUIRE(cublaslt_cannot(p) == "");
    CHECK_NOTHROW(cublaslt_read_back(translate(p)));
  };
  check(bf16{}, bf16{});
  check(bf16{}, float{});
  check(f16{}, f16{});
  check(f16{}, float{});
}

}  // namespace cublaslt_library_test
