// Tensors of given and of random numbers, and their text.
#include <cmath>
#include <sstream>

#include "core/random.h"
#include "tests/support/elements.h"
#include "tests/support/errors.h"
#include "tests/support/tensors.h"

using namespace trireme;
using namespace trireme::testing;

TEST_CASE("Tensor::from takes nested lists of numbers") {
  const Tensor x = Tensor::from({{1, 2.5, 3}, {4, 5, 6}});
  CHECK(x.shape() == Shape{2, 3});
  CHECK(x.dtype() == DType::f32);
  CHECK(values(x) == std::vector<double>{1, 2.5, 3, 4, 5, 6});
  CHECK(Tensor::from({7, 8}).shape() == Shape{2});
  CHECK(Tensor::from(7).shape() == Shape{});
  CHECK(Tensor::from({{1}, {2}}).shape() == Shape{2, 1});
  CHECK(Tensor::from({{1, 2}}).shape() == Shape{1, 2});
  CHECK(Tensor::from({{{1}, {2}}, {{3}, {4}}, {{5}, {6}}}).shape() == Shape{3, 2, 1});
  const Tensor ids = Tensor::from({{1, 2}, {3, 4}}, DType::i32);
  CHECK(ids.dtype() == DType::i32);
  CHECK(values(ids) == std::vector<double>{1, 2, 3, 4});
  CHECK(values(Tensor::from({0.5, -2}, DType::bf16)) == std::vector<double>{0.5, -2});
  const int computed = 3;
  CHECK(values(Tensor::from({computed, computed + 1}, DType::f64)) == std::vector<double>{3, 4});

  CHECK(error_of(
            [] {
              Tensor::from({{1, 2}, {3}});
            },
            ExitCode::internal) ==
        "trireme: [Tensor::from] item 1 of a list has shape [1], and the first item [2]; expected items of one shape");
  CHECK(says(error_of(
                 [] {
                   Tensor::from({1, 1.5}, DType::i32);
                 },
                 ExitCode::internal),
             "[Tensor::from] 1.5 is not a whole number that i32 holds"));
}

TEST_CASE("numbers that a whole dtype does not hold are refused") {
  const auto message = [](const std::function<void()>& f) { return error_of(f, ExitCode::internal); };
  CHECK(says(
      message([] { Tensor::full({2}, 3.7, DType::i32); }),
      "[Tensor::full] 3.7 is not a whole number that i32 holds; expected one from -2147483648 to below 2147483648"));
  CHECK(says(message([] { Tensor::full({2}, 2147483648.0, DType::i32); }), "[Tensor::full] 2147483648 is not"));
  CHECK(says(message([] { Tensor::full({2}, NAN, DType::i64); }), "[Tensor::full] nan is not"));
  CHECK(says(message([] { Tensor::full({2}, -1, DType::u8); }), "expected one from 0 to below 256"));
  CHECK(says(message([] { Tensor::from({300}, DType::u8); }), "[Tensor::from] 300 is not"));
  CHECK(says(message([] { Tensor::arange(257, DType::u8); }), "[Tensor::arange] 256 is not"));
  CHECK(values(Tensor::full({1}, -2147483648.0, DType::i32)) == std::vector<double>{-2147483648.0});
  CHECK(values(Tensor::arange(256, DType::u8)).back() == 255);
  CHECK(std::isnan(Tensor::full({}, NAN).item()));
}

TEST_CASE("ones, arange") {
  CHECK(values(Tensor::ones({2}, DType::f64)) == std::vector<double>{1, 1});
  CHECK(Tensor::arange(3).dtype() == DType::i32);
  CHECK(values(Tensor::arange(3)) == std::vector<double>{0, 1, 2});
  CHECK(Tensor::arange(0).shape() == Shape{0});
  CHECK(values(Tensor::arange(1, 2, 0.25, DType::f64)) == std::vector<double>{1, 1.25, 1.5, 1.75});
  CHECK(values(Tensor::arange(3, -3, -2)) == std::vector<double>{3, 1, -1});
  CHECK(says(error_of([] { Tensor::arange(-1); }, ExitCode::internal), "[Tensor::arange] a count of -1; expected 0"));
  CHECK(says(error_of([] { Tensor::arange(0, 5, -1); }, ExitCode::internal), "from 0 to 5 in steps of -1"));
  CHECK(says(error_of([] { Tensor::arange(0, 5, 0); }, ExitCode::internal), "in steps of 0"));
}

TEST_CASE("random tensors are pure functions of seed, stream and place") {
  const Tensor normal = Tensor::randn({30, 70}, 5, 2), uniform = Tensor::rand({30, 70}, 5, 2);
  CHECK(same_bits(normal, Tensor::randn({30, 70}, 5, 2)));
  CHECK(same_bits(view::reshape(normal, {2100}), Tensor::randn({2100}, 5, 2)));
  for (const std::uint64_t i : {0, 1, 7, 2099}) {
    CHECK(normal.span<float>()[i] == static_cast<float>(random_normal(5, 2, i)));
    CHECK(uniform.span<float>()[i] == random_uniform(5, 2, i));
  }
  CHECK(!same_bits(normal, Tensor::randn({30, 70}, 6, 2)));
  CHECK(!same_bits(normal, Tensor::randn({30, 70}, 5, 3)));
  CHECK(same_bits(Tensor::randn({9}, 1, 0, DType::bf16), cast(Tensor::randn({9}, 1), DType::bf16)));
  CHECK(Tensor::randn({9}, 1, 0, DType::f64).span<double>()[3] == random_normal(1, 0, 3));
  CHECK(
      says(error_of([] { Tensor::rand({2}, 1, 0, DType::i32); }, ExitCode::internal), "[Tensor::rand] random numbers"));
}

TEST_CASE("the text of a tensor") {
  CHECK(to_string(Tensor()) == "undefined");
  CHECK(to_string(Tensor::from(2.5)) == "f32 []\n2.5000");
  CHECK(to_string(Tensor::from({1, -2, 30})) == "f32 [3]\n[ 1., -2., 30.]");
  CHECK(to_string(Tensor::from({{1, 2.5}, {-3.25, 100}}, DType::f64)) ==
        "f64 [2, 2]\n"
        "[[  1.0000,   2.5000],\n"
        " [ -3.2500, 100.0000]]");
  CHECK(to_string(Tensor::arange(4)) == "i32 [4]\n[0, 1, 2, 3]");
  CHECK(to_string(Tensor::from({1e-6, 0.5})) == "f32 [2]\n[1.0000e-06, 5.0000e-01]");
  CHECK(to_string(Tensor::from({{{1, 2}}, {{3, 4}}}, DType::u8)) == "u8 [2, 1, 2]\n[[[1, 2]],\n\n [[3, 4]]]");
  CHECK(to_string(Tensor::from({1.5, INFINITY, -INFINITY, NAN})) == "f32 [4]\n[1.5000,    inf,   -inf,    nan]");
  CHECK(to_string(Tensor::zeros({0, 3})) == "f32 [0, 3]\n[]");
  const Tensor x = Tensor::from({{1, 2, 3}, {4, 5, 6}});
  CHECK(to_string(view::transpose(x, 0, 1)) == "f32 [3, 2]\n[[1., 4.],\n [2., 5.],\n [3., 6.]]");
  CHECK(fmt::format("{}", x) == to_string(x));
  std::ostringstream stream;
  stream << x;
  CHECK(stream.str() == to_string(x));
}

TEST_CASE("of a large tensor, the ends of each dim are printed") {
  CHECK(to_string(Tensor::arange(1001)) == "i32 [1001]\n[   0,    1,    2, ...,  998,  999, 1000]");
  CHECK(to_string(Tensor::zeros({1000})).size() > 1000);
  const Tensor rows = view::reshape(Tensor::arange(2000), {500, 4});
  CHECK(to_string(rows) ==
        "i32 [500, 4]\n"
        "[[   0,    1,    2,    3],\n"
        " [   4,    5,    6,    7],\n"
        " [   8,    9,   10,   11],\n"
        " ...,\n"
        " [1988, 1989, 1990, 1991],\n"
        " [1992, 1993, 1994, 1995],\n"
        " [1996, 1997, 1998, 1999]]");
}
