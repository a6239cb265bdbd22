// Masks, and what the goldens do not show: NaN, infinities, ids.
#include <cmath>
#include <limits>

#include "core/parallel_for.h"
#include "tests/support/errors.h"
#include "tests/support/gradcheck.h"

using namespace trireme;
using namespace trireme::testing;

namespace compare_test {

constexpr double inf = std::numeric_limits<double>::infinity();

TEST_CASE("a comparison gives 1 or 0 in the dtype of what it compares, f32 for whole numbers") {
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16}) {
    const Tensor x = Tensor::from({1, 2, NAN, 3}, dtype), y = Tensor::from({2, 2, 2, 2}, dtype);
    CHECK((x < y).dtype() == dtype);
    CHECK(values(x < y) == std::vector<double>{1, 0, 0, 0});
    CHECK(values(x <= y) == std::vector<double>{1, 1, 0, 0});
    CHECK(values(x > y) == std::vector<double>{0, 0, 0, 1});
    CHECK(values(x >= 2) == std::vector<double>{0, 1, 0, 1});
    CHECK(values(x < 2) == std::vector<double>{1, 0, 0, 0});
    CHECK(values(equal(x, y)) == std::vector<double>{0, 1, 0, 0});
    CHECK(values(not_equal(x, 2)) == std::vector<double>{1, 0, 1, 1});
  }
  const Tensor ids = Tensor::from({{3, 0}, {2147483647, -5}}, DType::i32);
  CHECK(not_equal(ids, 0).dtype() == DType::f32);
  CHECK(values(not_equal(ids, 0)) == std::vector<double>{1, 0, 1, 1});
  CHECK(values(ids > 2147483646) == std::vector<double>{0, 0, 1, 0});
  CHECK(values(equal(ids, Tensor::from({3, -5}, DType::i32))) == std::vector<double>{1, 0, 0, 1});
  Tensor x = random({3}, 1);
  require_grad(x);
  CHECK(!(x > 0).requires_grad());
  CHECK(sum(random({10, 10}, 1) > 0).item() == doctest::Approx(50).epsilon(0.4));
}

TEST_CASE("what where does not choose may be NaN or infinite, and its gradient is 0") {
  Tensor x = Tensor::from({4, -1, 0}, DType::f64);
  require_grad(x);
  const Tensor y = where(x > 0, sqrt(x), 0.0);
  CHECK(values(y) == std::vector<double>{2, 0, 0});
  Tensor scores = Tensor::from({1, 2, 3}, DType::f64);
  require_grad(scores);
  const Tensor masked = masked_fill(scores, Tensor::from({0, 1, 0}, DType::u8), -inf);
  CHECK(values(masked) == std::vector<double>{1, -inf, 3});
  backward(softmax(masked), Tensor::from({1, 2, 3}, DType::f64));
  CHECK(values(grad(scores))[1] == 0);
  Tensor a = Tensor::from({1, 2}, DType::f64), b = Tensor::from({NAN, inf}, DType::f64);
  require_grad(a);
  require_grad(b);
  backward(sum(where(Tensor::ones({2}), a, b)));
  CHECK(values(grad(a)) == std::vector<double>{1, 1});
  CHECK(values(grad(b)) == std::vector<double>{0, 0});
}

TEST_CASE("where: a mask that is written to before backward is refused") {
  Tensor x = random({3}, 1), mask = Tensor::ones({3}, DType::f64);
  require_grad(x);
  const Tensor loss = sum(where(mask, x, 0.0));
  mask *= 0.0;
  CHECK(says(error_of([&] { backward(loss); }, ExitCode::internal), "[where] mask [3] was written to"));
}

TEST_CASE("maximum, clamp, abs and pow of special values") {
  const Tensor x = Tensor::from({NAN, 1, -0.0}, DType::f64);
  CHECK(std::isnan(values(maximum(x, 0.0))[0]));
  CHECK(std::isnan(values(clamp(x, 0, 1))[0]));
  CHECK(!std::signbit(values(abs(x))[2]));
  CHECK(values(pow(Tensor::from({-2, 2}, DType::f64), 3)) == std::vector<double>{-8, 8});
  CHECK(std::isnan(pow(Tensor::from(-2, DType::f64), 1.5).item()));
  Tensor zero = Tensor::from({0, 2}, DType::f64);
  require_grad(zero);
  const Tensor ones = pow(zero, 0);
  backward(sum(ones));
  CHECK(values(ones) == std::vector<double>{1, 1});
  CHECK(values(grad(zero)) == std::vector<double>{0, 0});
}

TEST_CASE("log_softmax treats rows a few at a time: each is what it is alone, for any number of threads") {
  const int before = threads();
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Tensor x = random({300, 700}, 1, dtype), dy = random({300, 700}, 2, dtype);
    const auto results = [](Tensor in, const Tensor& gradient) {
      require_grad(in);
      const Tensor y = log_softmax(in);
      backward(y, gradient);
      return std::pair(y.detach(), grad(in));
    };
    set_threads(1);
    const auto [y, dx] = results(clone(x), dy);
    for (const int team : {2, 5}) {
      set_threads(team);
      const auto [again, dx_again] = results(clone(x), dy);
      CHECK(same_bits(y, again));
      CHECK(same_bits(dx, dx_again));
    }
    for (const std::int64_t row : {0, 46, 47, 299}) {
      const auto part = [row](const Tensor& of) { return clone(view::slice(of, 0, row, 1)); };
      const auto [alone, dx_alone] = results(part(x), part(dy));
      CHECK(same_bits(part(y), alone));
      CHECK(same_bits(part(dx), dx_alone));
    }
  }
  set_threads(before);
}

TEST_CASE("logsumexp and log_softmax: large numbers, and rows without a finite number") {
  const Tensor large = Tensor::from({{1e5, 1e5}, {-1e5, -1e5}});
  CHECK(relative_difference(logsumexp(large), Tensor::from({1e5 + std::log(2), -1e5 + std::log(2)})) < 1e-6);
  CHECK(relative_difference(log_softmax(large), Tensor::full({2, 2}, -std::log(2))) < 1e-6);
  Tensor x = Tensor::from({{-inf, -inf}, {0, inf}, {-inf, 0}}, DType::f64);
  require_grad(x);
  const Tensor y = logsumexp(x);
  CHECK(values(y) == std::vector<double>{-inf, inf, 0});
  backward(sum(y));
  CHECK(values(view::select(grad(x), 0, 0)) == std::vector<double>{0, 0});
  CHECK(values(view::select(grad(x), 0, 2)) == std::vector<double>{0, 1});
  CHECK(std::isnan(logsumexp(Tensor::from({1, NAN})).item()));
}

}  // namespace compare_test
