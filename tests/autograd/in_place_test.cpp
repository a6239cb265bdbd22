// Operators that write in place: what they compute, and where they are refused.
#include "tests/support/errors.h"
#include "tests/support/gradcheck.h"

using namespace trireme;
using namespace trireme::testing;

namespace in_place_test {
TEST_CASE("in place: the values of the operators that make new tensors, seen through every view") {
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16}) {
    const Tensor start = random({3, 4}, 1, dtype), y = random({3, 4}, 2, dtype), row = random({4}, 3, dtype);
    const auto check = [&](const auto& change, const Tensor& expected) {
      Tensor x = clone(start), other = x;
      change(x);
      CHECK(same_bits(x, expected));
      CHECK(same_bits(other, expected));
      Tensor turned = view::transpose(contiguous(view::transpose(start, 0, 1)), 0, 1);  // not dense
      change(turned);
      CHECK(same_bits(turned, expected));
    };
    check([&](Tensor& x) { x += y; }, start + y);
    check([&](Tensor& x) { x -= row; }, start - row);
    check([&](Tensor& x) { x *= y; }, start * y);
    check([&](Tensor& x) { x /= y; }, start / y);
    check([&](Tensor& x) { x += 1.5; }, start + 1.5);
    check([&](Tensor& x) { x -= 1.5; }, start - 1.5);
    check([&](Tensor& x) { x *= 1.5; }, start * 1.5);
    check([&](Tensor& x) { x /= 1.5; }, start / 1.5);
    check([&](Tensor& x) { (x += 1.0) *= 2.0; }, (start + 1.0) * 2.0);
    check([&](Tensor& x) { x += x; }, start + start);
  }
}

TEST_CASE("in place: an operand that shares memory is read before it is written") {
  Tensor x = random({4, 4}, 1);
  const Tensor expected = x + transpose(x, 0, 1);
  x += transpose(x, 0, 1);
  CHECK(same_bits(x, expected));
  Tensor part = slice(x, 0, 1, 3);
  const Tensor shifted = slice(x, 0, 1, 3) * slice(x, 0, 0, 3);
  part *= slice(x, 0, 0, 3);
  CHECK(same_bits(slice(x, 0, 1, 3), shifted));
}

TEST_CASE("in place: the update of a weight inside NoGrad; the leaf stays the same") {
  Tensor w = leaf({3}, 1);
  const Tensor before = clone(w);
  backward(sum(square(w)));
  {
    const NoGrad guard;
    w -= 0.1 * grad(w);
  }
  CHECK(relative_difference(w, before * 0.8) < 1e-15);
  CHECK(leaf_of(w) != nullptr);
  backward(sum(w));
  CHECK(relative_difference(grad(w), before * 2.0 + 1.0) < 1e-15);
}

TEST_CASE("in place: refused where a gradient would be lost or wrong, and for operands that do not fit") {
  Tensor w = leaf({2, 3}, 1), plain = random({2, 3}, 2);
  const std::string remedy = "requires a gradient, and a write in place is not recorded; expected tensors without one";
  CHECK(says(error_of([&] { w += plain; }, ExitCode::internal), "[operator+=] the left side [2, 3] " + remedy));
  CHECK(says(error_of([&] { plain *= w; }, ExitCode::internal), "[operator*=] the right side [2, 3] " + remedy));
  CHECK(says(error_of([&] { w -= 1.0; }, ExitCode::internal), "[operator-=] the left side"));

  const Tensor loss = sum(w * plain);
  plain += 1.0;  // multiply has saved it
  CHECK(says(error_of([&] { backward(loss); }, ExitCode::internal),
             "[multiply] input 1 [2, 3] was written to between forward and backward"));

  Tensor row = random({3}, 3), repeated = view::expand(row, {2, 3}), low = random({3}, 4, DType::bf16);
  CHECK(says(error_of([&] { row += plain; }, ExitCode::internal),
             "[operator+=] [2, 3] does not broadcast to [3], into which the result is written"));
  CHECK(says(error_of([&] { repeated += plain; }, ExitCode::internal), "[copy] the target [2, 3] repeats"));
  CHECK(says(error_of([&] { row /= low; }, ExitCode::internal), "[operator/=] dtypes differ: f64 and bf16"));
  Tensor ids = Tensor::arange(3);
  CHECK(says(error_of([&] { ids /= 1; }, ExitCode::internal), "[operator/=] an input i32 [3]"));
  CHECK(says(error_of([&] { ids += 0.5; }, ExitCode::internal), "[operator+=] an i32 tensor and the number 0.5"));
}

TEST_CASE("the text of a tensor says that it requires a gradient") {
  CHECK(to_string(leaf({0}, 1)) == "f64 [0], requires a gradient\n[]");
}

}  // namespace in_place_test
