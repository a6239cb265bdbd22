// Arithmetic of i32 tensors: exact, broadcasting, strided; what is refused.
#include "tests/support/errors.h"
#include "tests/support/gradcheck.h"

using namespace trireme;
using namespace trireme::testing;

namespace whole_numbers_test {

using Values = std::vector<double>;

TEST_CASE("i32 tensors are added, subtracted and multiplied exactly, with broadcasting, views and numbers") {
  const Tensor a = Tensor::from({{1, 2, 3}, {4, 5, 6}}, DType::i32), b = Tensor::from({10, 20, 30}, DType::i32);
  CHECK((a + b).dtype() == DType::i32);
  CHECK(values(a + b) == Values{11, 22, 33, 14, 25, 36});
  CHECK(values(b - a) == Values{9, 18, 27, 6, 15, 24});
  CHECK(values(a * b) == Values{10, 40, 90, 40, 100, 180});
  CHECK(values(view::transpose(a, 0, 1) + 1) == Values{2, 5, 3, 6, 4, 7});
  CHECK(values(2 * a - 1) == Values{1, 3, 5, 7, 9, 11});
  CHECK(values(10 - a) == Values{9, 8, 7, 6, 5, 4});
  CHECK(values(-b) == Values{-10, -20, -30});
  CHECK(!(a + b).requires_grad());
  // 46341^2 and 16777217 are beyond f32's whole numbers.
  const Tensor large = Tensor::from({2147483646, -2147483647, 16777216}, DType::i32);
  CHECK(values(large + Tensor::from({1, -1, 1}, DType::i32)) == Values{2147483647, -2147483648.0, 16777217});
  CHECK(values(Tensor::from({46340}, DType::i32) * Tensor::from({46340}, DType::i32)) == Values{2147395600});
  Tensor x = clone(a);
  x += b;
  x *= 2;
  x -= Tensor::from({{1}, {2}}, DType::i32);
  CHECK(values(x) == Values{21, 43, 65, 26, 48, 70});
  Tensor column = view::select(x, 1, 0);
  column += 100;
  CHECK(values(x) == Values{121, 43, 65, 126, 48, 70});
  CHECK((Tensor::zeros({0}, DType::i32) + 1).count() == 0);
}

TEST_CASE("results that are no i32, and numbers that are not whole, are refused") {
  const Tensor large = Tensor::from({1, 2147483647}, DType::i32);
  CHECK(says(
      error_of([&] { large + 1; }, ExitCode::data),
      "[add] a result is 2147483648, which is no i32; expected -2147483648 to 2147483647; cast_to(x, DType::f32)"));
  CHECK(says(error_of([&] { large* large; }, ExitCode::data), "[multiply] a result is"));
  CHECK(says(error_of([&] { -2 - large; }, ExitCode::data), "[subtract] a result is -2147483649"));
  CHECK(says(error_of([&] { large + 0.5; }, ExitCode::internal),
             "[add_scalar] an i32 tensor and the number 0.5; expected a whole one"));
  CHECK(says(error_of([&] { large * 1e10; }, ExitCode::internal), "[scale] an i32 tensor and the number"));
  CHECK(says(error_of([&] { large / 2; }, ExitCode::internal), "[divide] an input i32 [2]; expected a floating dtype"));
  CHECK(says(error_of([&] { large + Tensor::ones({2}); }, ExitCode::internal), "[add] an input i32 [2]"));
  CHECK(says(error_of([&] { large + Tensor::ones({3}, DType::i32); }, ExitCode::internal), "[add] shapes [2] and [3]"));
  Tensor x = clone(large);
  CHECK(says(error_of([&] { x += Tensor::zeros({2, 2}, DType::i32); }, ExitCode::internal), "[operator+=]"));
  CHECK(says(error_of([&] { Tensor::zeros({2}, DType::u8) + 1; }, ExitCode::internal), "an input u8"));
}

}  // namespace whole_numbers_test
