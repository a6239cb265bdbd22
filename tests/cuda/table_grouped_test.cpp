// Grouped products of the CUDA kernel table against the CPU's, whose test is tests/products/grouped_test.cpp: forward,
// gradients of inputs and of weights, ragged and empty groups, every dtype, and each implementation that has a name.
#include "tests/cuda/table_support.h"

using namespace trireme;
using namespace cuda_test;

namespace table_grouped_test {
namespace {

using Starts = std::vector<std::int64_t>;

/// The sizes of a layer of experts: x [R, in], weights [G, out, in].
struct Experts {
  Starts starts;
  std::int64_t in, out;
  std::int64_t rows() const { return starts.back(); }
  std::int64_t groups() const { return static_cast<std::int64_t>(starts.size()) - 1; }
};

/// y = x w^T + b, and dx = dy w.
void check_rows(DType dtype, const Experts& e, bool with_bias = true) {
  CAPTURE(name(dtype));
  CAPTURE(e.rows());
  const Tensor x = random({e.rows(), e.in}, 1, dtype, uniform(-1, 1)),
               w = random({e.groups(), e.out, e.in}, 2, dtype, uniform(-1, 1));
  const Tensor bias = with_bias ? random({e.groups(), e.out}, 3, dtype, uniform(-1, 1)) : Tensor();
  const Tensor dy = random({e.rows(), e.out}, 4, dtype, uniform(-1, 1)), w2 = there(w);
  Tensor y = Tensor::empty({e.rows(), e.out}, dtype), dx = Tensor::empty({e.rows(), e.in}, dtype);
  Tensor y2 = like(y), dx2 = like(dx);
  host().grouped_gemm(x, view::transpose(w, 1, 2), bias, e.starts, y);
  gpu().grouped_gemm(there(x), view::transpose(w2, 1, 2), there(bias), e.starts, y2);
  CHECK(difference(y2, y) < 1);
  host().grouped_gemm(dy, w, {}, e.starts, dx);
  gpu().grouped_gemm(there(dy), w2, {}, e.starts, dx2);
  CHECK(difference(dx2, dx) < 1);
}

/// dw = dy^T x, and dw += dy^T x.
void check_sums(DType dtype, DType sums, const Experts& e) {
  CAPTURE(name(dtype));
  CAPTURE(e.rows());
  const Tensor x = random({e.rows(), e.in}, 1, dtype, uniform(-1, 1)),
               dy = random({e.rows(), e.out}, 2, dtype, uniform(-1, 1));
  const Tensor x2 = there(x), dy2 = there(dy);
  Tensor dw = random({e.groups(), e.out, e.in}, 3, sums, uniform(-1, 1)), dw2 = there(dw);
  for (const bool accumulate : {true, false}) {
    host().grouped_gemm_tn(dy, x, e.starts, accumulate, dw);
    gpu().grouped_gemm_tn(dy2, x2, e.starts, accumulate, dw2);
    CHECK(difference(dw2, dw) < 1);
    dw2 = there(dw);
  }
}

void check_all(DType dtype, const Experts& e) {
  check_rows(dtype, e);
  check_sums(dtype, DType::f32, e);
  check_sums(dtype, dtype, e);
}

constexpr std::array<DType, 2> kHalves = {DType::bf16, DType::f16};

}  // namespace

TEST_CASE("cuda table: grouped products of every dtype, ragged and empty groups, and no rows at all") {
  const cuda::ScopedEmulatedDevice device;
  under_schedules([] {
    for (const DType dtype : DTypes::training) {
      check_all(dtype, {{0, 5, 5, 6, 46, 46}, 40, 24});
      check_all(dtype, {{0, 0, 2, 67}, 33, 17});
      check_all(dtype, {{0, 0, 0}, 8, 8});
      check_rows(dtype, {{0, 3}, 1, 1}, false);
    }
  });
}

TEST_CASE("cuda table: in 16 bits one launch does all groups; in f32 each group has one") {
  const cuda::ScopedEmulatedDevice device;
  const Experts e = {{0, 5, 5, 6, 46, 60}, 16, 8};  // four of five groups have rows
  for (const DType dtype : DTypes::training) {
    const Tensor x = there(random({e.rows(), e.in}, 1, dtype, uniform(-1, 1))),
                 dy = there(random({e.rows(), e.out}, 2, dtype, uniform(-1, 1)));
    const Tensor w = there(random({e.groups(), e.in, e.out}, 3, dtype, uniform(-1, 1)));
    Tensor y = like(dy), dw = Tensor::zeros({e.groups(), e.out, e.in}, DType::f32, Device::cuda);
    std::uint64_t before = cuda::launch_count();
    gpu().grouped_gemm(x, w, {}, e.starts, y);
    CHECK(cuda::launch_count() - before == (dtype == DType::f32 ? 4 : 1));
    before = cuda::launch_count();
    gpu().grouped_gemm_tn(dy, x, e.starts, true, dw);
    CHECK(cuda::launch_count() - before == (dtype == DType::f32 ? 4 : 1));
  }
}

TEST_CASE("cuda table: grouped products by name; sm90 takes no rows at all, and says which pitch it cannot take") {
  const cuda::ScopedEmulatedDevice device;
  for (const std::string_view name : {"sm80", "sm90"}) {
    const Selected selected(name);
    CAPTURE(name);
    for (const DType dtype : kHalves) {
      check_all(dtype, {{0, 5, 5, 6, 46, 46}, 40, 24});
      check_all(dtype, {{0, 0, 0}, 8, 8});
    }
  }
  const Selected selected("sm90");
  const Tensor x = Tensor::zeros({4, 12}, DType::bf16, Device::cuda);
  const Tensor w = Tensor::zeros({2, 12, 16}, DType::bf16, Device::cuda);
  Tensor y = Tensor::zeros({4, 16}, DType::bf16, Device::cuda);
  const Starts starts = {0, 1, 4};
  CHECK(contains(error_of([&] { gpu().grouped_gemm(x, w, {}, starts, y); }),
                 "--gemm sm90 cannot take a call: rows of a are 12 elements apart"));
  Tensor dw = Tensor::zeros({2, 16, 12}, DType::f32, Device::cuda);
  CHECK(contains(error_of([&] { gpu().grouped_gemm_tn(y, x, starts, false, dw); }),
                 "--gemm sm90 cannot take a call: rows of b are 12 elements apart"));
}

TEST_CASE("cuda table: grouped products refuse f64 and host tensors") {
  const cuda::ScopedEmulatedDevice device;
  const Starts starts = {0, 4};
  const Tensor wide = Tensor::zeros({4, 8}, DType::f64, Device::cuda);
  const Tensor matrices = Tensor::zeros({1, 8, 8}, DType::f64, Device::cuda);
  Tensor y = Tensor::zeros({4, 8}, DType::f64, Device::cuda), here = Tensor::zeros({4, 8}, DType::f64);
  check_refused([&] { gpu().grouped_gemm(wide, matrices, {}, starts, y); }, "grouped_gemm has no cuda kernel for f64");
  CHECK_FALSE(error_of([&] { gpu().grouped_gemm(wide, matrices, {}, starts, here); }).empty());
}

}  // namespace table_grouped_test
