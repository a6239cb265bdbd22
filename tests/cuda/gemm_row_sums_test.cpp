// Row sums of a beside a product of form TN (cuda/kernels/gemm_row_sums.h): every tile, clusters, divided tiles, and
// the product itself, which must not change.
#include "tests/cuda/gemm_problem.h"

namespace gemm_row_sums_test {
namespace {

using namespace gemm_test;
using trireme::testing::keep_largest;

constexpr Tile90 kTiles[] = {Tile90::m64n64, Tile90::m128n128, Tile90::m128n256, Tile90::m128n192, Tile90::m256n384};

/// A product with row sums. The memory for these is filled with NaN and has guarded zones, and so has the workspace.
template <class T>
struct Product {
  Problem<T, float> problem;
  Buffer<float> sums;
  std::unique_ptr<Buffer<float>> workspace;

  explicit Product(const Case& c) : problem(c), sums(static_cast<std::size_t>(c.m)) { sums.fill(NAN); }

  Gemm<T, float> asked() {
    Gemm<T, float> product = problem.product(Activation::none);
    product.row_sums = sums.data();
    return product;
  }
  /// Workspace: whether tiles may be divided.
  void run(Tile90 tile, bool divided = false) {
    gemm_sm90<T, float>(asked(), nullptr, tile,
                        divided ? Workspace([this](std::int64_t floats) {
                          REQUIRE(workspace == nullptr);
                          workspace = std::make_unique<Buffer<float>>(static_cast<std::size_t>(floats));
                          return workspace->data();
                        })
                                : nullptr);
    CHECK((workspace != nullptr) == divided);
  }
  /// The largest error of the row sums.
  double worst() const {
    double largest = 0;
    for (int i = 0; i < problem.c.m; ++i) {
      double sum = 0;
      for (std::int64_t k = 0; k < problem.c.k; ++k)
        sum += problem.a.at(static_cast<std::size_t>(k * problem.a_pitch + i));
      const double room = 1e-6 * (std::sqrt(problem.c.k) + std::abs(sum));  // roundings of f32, added at random
      keep_largest(largest, std::abs(sums.at(static_cast<std::size_t>(i)) - sum) / room);
    }
    return largest;
  }
};

template <class T>
void check(const Case& c, Tile90 tile, bool divided = false) {
  CAPTURE(c.m);
  CAPTURE(c.n);
  CAPTURE(c.k);
  CAPTURE(static_cast<int>(tile));
  Product<T> product(c);
  product.run(tile, divided);
  CHECK(product.worst() < 1);
  CHECK(product.problem.worst(Activation::none) < 2);  // up to 2800 products, added in f32
}

}  // namespace

TEST_CASE("cuda gemm_sm90: row sums beside a product, ragged and tiny, with every tile") {
  under_schedules([] {
    for (const Tile90 tile : kTiles) {
      check<bf16>({Form::tn, 8, 8, 8}, tile);
      check<f16>({Form::tn, 72, 40, 77}, tile);
      check<bf16>({Form::tn, 200, 264, 136, 8}, tile);  // elements of no row lie between rows
      check<bf16>({Form::tn, 264, 24, 330, 0, 8}, tile);
    }
  });
}

TEST_CASE("cuda gemm_sm90: row sums by persistent blocks with many tiles, of which few begin at n = 0") {
  const cuda_test::ScopedMultiprocessors some(3);
  under_schedules([] {
    check<bf16>({Form::tn, 200, 520, 136}, Tile90::m64n64);
    check<f16>({Form::tn, 392, 600, 72}, Tile90::m128n192);  // consumers take turns
    check<bf16>({Form::tn, 392, 392, 328}, Tile90::m128n192);
    check<bf16>({Form::tn, 392, 304, 136}, Tile90::m128n128);
    check<f16>({Form::tn, 600, 800, 72}, Tile90::m256n384);
  });
}

TEST_CASE("cuda gemm_sm90: row sums of divided tiles, alone and after whole waves") {
  under_schedules([] {
    check<bf16>({Form::tn, 64, 200, 2800, 8, 8}, Tile90::m64n64, true);  // a wave of three, and one divided
    check<f16>({Form::tn, 200, 64, 2800}, Tile90::m64n64, true);         // the divided one begins at n = 0
    const cuda_test::ScopedMultiprocessors some(7);
    check<bf16>({Form::tn, 72, 40, 2203}, Tile90::m128n128, true);
    check<f16>({Form::tn, 72, 136, 2200}, Tile90::m128n256, true);
    check<bf16>({Form::tn, 136, 72, 2000}, Tile90::m128n192, true);
    check<bf16>({Form::tn, 72, 200, 2600}, Tile90::m256n384, true);
    // No tile is whole: two of a row's three tiles take steps of the sums in turns, or four of five.
    const cuda_test::ScopedMultiprocessors more(16);
    check<bf16>({Form::tn, 72, 136, 2200}, Tile90::m64n64, true);
    check<f16>({Form::tn, 64, 264, 2800}, Tile90::m64n64, true);
  });
}

TEST_CASE("cuda gemm_sm90: row sums have the same bits on every run, whatever the schedule, and change no product") {
  if (cuda_test::slow_build()) return;  // the kernels and tiles of the cases above
  const auto same_product = [](Product<bf16>& with, const Case& c, Tile90 tile, bool divided) {
    Product<bf16> without(c);
    Gemm<bf16, float> product = without.asked();
    product.row_sums = nullptr;
    std::unique_ptr<Buffer<float>> workspace;
    gemm_sm90<bf16, float>(product, nullptr, tile,
                           divided ? Workspace([&](std::int64_t floats) {
                             workspace = std::make_unique<Buffer<float>>(static_cast<std::size_t>(floats));
                             return workspace->data();
                           })
                                   : nullptr);
    return cuda_test::same_bits(with.problem.out, without.problem.out);
  };
  const cuda_test::ScopedMultiprocessors some(7);
  for (const Tile90 tile : kTiles)
    for (const bool divided : {false, true}) {
      CAPTURE(static_cast<int>(tile));
      CAPTURE(divided);
      const Case c = {Form::tn, 72, 40, 2203};
      Product<bf16> first(c), again(c);
      under_schedule(0, [&] { first.run(tile, divided); });
      under_schedule(2, [&] { again.run(tile, divided); });
      CHECK(cuda_test::same_bits(first.sums, again.sums));
      // Instead of clusters, which give no row sums, other tiles are divided.
      if (tile != Tile90::m256n384 || !divided) CHECK(same_product(first, c, tile, divided));
    }
}

TEST_CASE("cuda gemm_sm90: row sums are not scaled, and are overwritten where the product is added to c") {
  under_schedule(2, [] {
    const unsigned rest = kBias | kBefore | kResidual;
    check<bf16>({Form::tn, 72, 200, 136, 0, 0, true, 1, 0.5F, false, rest}, Tile90::m128n192);
    check<f16>({Form::tn, 33, 41, 136, 7, 0, true, 1, -2.0F, false, rest}, Tile90::m64n64);
    const cuda_test::ScopedMultiprocessors some(7);
    check<bf16>({Form::tn, 72, 136, 2200, 0, 0, true, 1, 0.5F, false, rest}, Tile90::m128n256, true);
  });
}

TEST_CASE("cuda gemm: row sums of other products are refused, and the reason says which are not") {
  const auto refusal = [](const auto& run) { return cuda_test::error_of(run); };
  const auto contains = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
  Product<bf16> nt({Form::nt, 16, 16, 64}), batch({Form::tn, 16, 16, 64, 0, 0, false, 2}), tn({Form::tn, 16, 16, 64});
  CHECK(contains(refusal([&] { gemm_sm90(nt.asked()); }), "it gives them in form TN"));
  CHECK(contains(refusal([&] { gemm_sm90(batch.asked()); }), "it gives those of one product"));
  CHECK(contains(refusal([&] { gemm_sm80(tn.asked()); }), "use gemm_sm90"));
  Problem<bf16, bf16> narrow({Form::tn, 16, 16, 64});
  Gemm<bf16, bf16> product = narrow.product(Activation::none);
  product.row_sums = tn.sums.data();
  CHECK(contains(refusal([&] { gemm_sm90(product); }), "it gives them beside one in f32"));
}

}  // namespace gemm_row_sums_test
