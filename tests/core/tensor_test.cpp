// Shapes, tensors and views; errors that say what was wrong.
#include "core/tensor.h"

#include <doctest/doctest.h>

#include "support.h"
#include "tests/support/errors.h"

using namespace trireme;
using testing::counting;
using testing::values;

namespace {

void check_throws(const std::function<void()>& action, const std::string& part) {
  CHECK(testing::says(testing::error_of(action, ExitCode::internal), part));
}

}  // namespace

TEST_CASE("shape: extents, counts, strides, text") {
  const Shape shape{2, 3, 4};
  CHECK(shape.dims() == 3);
  CHECK(shape.count() == 24);
  CHECK(shape[-1] == 4);
  CHECK(shape[0] == 2);
  CHECK(Shape{}.count() == 1);
  CHECK(Shape{3, 0}.count() == 0);
  CHECK(row_major_strides(shape) == Shape{12, 4, 1});
  CHECK(shape.without(1) == Shape{2, 4});
  CHECK(shape.with(-1, 9) == Shape{2, 3, 9});
  CHECK(Shape{2, 3} != Shape{2, 3, 1});
  CHECK(to_string(shape) == "[2, 3, 4]");
  CHECK(to_string(Shape{}) == "[]");
  check_throws([&] { (void)shape[3]; }, "dim 3 is out of range for [2, 3, 4]");
  check_throws([] { Shape{1, 2, 3, 4, 5, 6, 7}; }, "at most 6 dims");
}

TEST_CASE("shape: broadcasting by NumPy's rule") {
  CHECK(broadcast_shape({2, 1, 4}, {3, 1}, "add") == Shape{2, 3, 4});
  CHECK(broadcast_shape({}, {5}, "add") == Shape{5});
  CHECK(broadcast_shape({0, 1}, {1, 3}, "add") == Shape{0, 3});
  check_throws([] { broadcast_shape({2, 3}, {4, 3}, "add"); }, "[add] shapes [2, 3] and [4, 3] do not broadcast");
}

TEST_CASE("tensor: making, reading, typing") {
  const Tensor x = Tensor::full({2, 3}, 1.5, DType::bf16);
  CHECK(x.bytes() == 12);
  CHECK(values(x) == std::vector<double>(6, 1.5));
  CHECK(values(Tensor::zeros({4}, DType::u8)) == std::vector<double>(4, 0));
  const std::vector<float> data = {1, 2, 3, 4};
  const Tensor y = Tensor::from(std::span<const float>(data), {2, 2});
  CHECK(values(y) == std::vector<double>{1, 2, 3, 4});
  CHECK(Tensor::full({1, 1}, -3, DType::i64).item() == -3);
  CHECK_FALSE(Tensor().defined());
  CHECK(Tensor::empty({0, 3}).count() == 0);
  check_throws([&] { y.data<double>(); }, "holds f32, asked for f64");
  check_throws([&] { y.item(); }, "expected one element, got shape [2, 2]");
  check_throws([] { Tensor().raw(); }, "undefined");
  check_throws([&] { Tensor::from(std::span<const float>(data), {3}); }, "needs 3 values, got 4");
  check_throws([] { Tensor::empty({2, -1}); }, "must not be negative");
}

TEST_CASE("an undefined tensor: every member returns what it says, or throws") {
  const auto each = [](Tensor x) {
    const Tensor& constant = x;
    CHECK_FALSE(x.defined());
    CHECK(x.count() == 0);
    CHECK(x.bytes() == 0);
    CHECK(x.version() == 0);
    CHECK_FALSE(x.has_elements());
    CHECK_FALSE(x.requires_grad());
    CHECK(x.node() == nullptr);
    CHECK(x.owners() == 0);
    CHECK_FALSE(x.sole_owner());
    CHECK(x.storage().expired());
    CHECK_FALSE(x.shares_storage_with(Tensor()));
    CHECK_FALSE(x.shares_storage_with(Tensor::zeros({2})));
    CHECK(x.columns().width == 0);
    CHECK_FALSE(x.detach().defined());
    CHECK_FALSE(x.to(Device::cpu).defined());
    CHECK_FALSE(x.to(Device::cuda).defined());
    CHECK(to_string(x) == "undefined");
    static_cast<void>(x.shape(), x.strides(), x.dims(), x.dtype(), x.device(), x.contiguous());
    x.mark_written();
    x.set_node(nullptr);
    check_throws([&] { static_cast<void>(x.size(0)); },
                 "[Tensor::size] the tensor is undefined: it was never given a value, was "
                 "moved from, or is an absent gradient or bias; expected one with elements");
    check_throws([&] { x.data<float>(); }, "[Tensor::data] the tensor is undefined");
    check_throws([&] { x.data<std::int32_t>(); }, "[Tensor::data] the tensor is undefined");
    check_throws([&] { static_cast<void>(constant.data<const float>()); }, "[Tensor::data] the tensor is undefined");
    check_throws([&] { x.raw(); }, "[Tensor::data] the tensor is undefined");
    check_throws([&] { static_cast<void>(constant.raw()); }, "[Tensor::data] the tensor is undefined");
    check_throws([&] { static_cast<void>(x.device_address()); }, "[Tensor::data] the tensor is undefined");
    check_throws([&] { x.span<float>(); }, "[Tensor::data] the tensor is undefined");
    check_throws([&] { static_cast<void>(constant.span<const double>()); }, "[Tensor::data] the tensor is undefined");
    check_throws([&] { static_cast<void>(x.item()); }, "[Tensor::item] the tensor is undefined");
    check_throws([&] { static_cast<void>(x.as_strided({1}, {1}, 0)); }, "[Tensor::as_strided] the tensor is undefined");
    check_throws([&] { x.set_version(3); }, "[Tensor::set_version] the tensor is undefined");
    check_throws([&] { x.set_columns({.width = 3, .whole = 2}); }, "[Tensor::set_columns] the tensor is undefined");
    check_throws([&] { x.set_extremes(0, 1); }, "[Tensor::set_extremes] the tensor is undefined");
    check_throws([&] { (void)x.extremes(); }, "[Tensor::extremes] the tensor is undefined");
    check_throws([&] { x.release_elements(); }, "[Tensor::release_elements] the tensor is undefined");
    check_throws([&] { x.allocate_elements(); }, "[Tensor::allocate_elements] the tensor is undefined");
    check_throws([&] { x.fill_on_use([] {}); }, "[Tensor::fill_on_use] the tensor is undefined");
    check_throws([&] { static_cast<void>(clone(x)); }, "[clone] the tensor is undefined");
    check_throws([&] { static_cast<void>(cast(x, DType::bf16)); }, "the tensor is undefined");
    Tensor other = Tensor::zeros({1});
    check_throws([&] { copy(x, other); }, "[copy] the tensor is undefined");
    check_throws([&] { copy(other, x); }, "[copy] the tensor is undefined");
    for (const auto& view :
         {+[](const Tensor& t) { return view::reshape(t, {1}); },
          +[](const Tensor& t) { return view::slice(t, 0, 0, 1); },
          +[](const Tensor& t) { return view::select(t, 0, 0); },
          +[](const Tensor& t) { return view::transpose(t, 0, 1); },
          +[](const Tensor& t) { return view::expand(t, {2}); }, +[](const Tensor& t) { return view::permute(t, {}); }})
      CHECK_THROWS_AS(view(x), Error);
  };
  each(Tensor());
  Tensor moved = Tensor::ones({2, 3});
  const Tensor target = std::move(moved);
  each(moved);  // NOLINT(bugprone-use-after-move): it is undefined then, and says so
}

TEST_CASE(
    "a tensor that is filled on use has no memory until it, or a view of it, is touched; then it is filled once") {
  Tensor x = Tensor::empty({2, 3});
  int fills = 0;
  x.fill_on_use([&] {
    ++fills;
    std::ranges::fill(x.span<float>(), 7.0F);
  });
  const Tensor row = view::select(x, 0, 1);
  CHECK_FALSE(x.has_elements());
  CHECK(fills == 0);
  CHECK(row.data<const float>()[2] == 7);
  CHECK(x.has_elements());
  x.release_elements();
  CHECK_THROWS_WITH_AS(x.data<float>(), doctest::Contains("have been released"), Error);
  x.fill_on_use([&] { ++fills; });
  x.allocate_elements();  // what is allocated is for the caller to fill
  x.data<float>();
  CHECK(fills == 1);
}

TEST_CASE("views: share storage, follow strides") {
  Tensor x = counting({2, 3, 4});
  const Tensor t = view::transpose(x, 0, 2);
  CHECK(t.shape() == Shape{4, 3, 2});
  CHECK(t.shares_storage_with(x));
  CHECK_FALSE(t.contiguous());
  CHECK(values(view::select(t, 0, 1)) == std::vector<double>{1, 13, 5, 17, 9, 21});

  const Tensor s = view::slice(x, 1, 1, 2);
  CHECK(s.shape() == Shape{2, 2, 4});
  CHECK(values(view::select(s, 0, 1)) == std::vector<double>{16, 17, 18, 19, 20, 21, 22, 23});
  CHECK(view::slice(x, 0, 1, 1).contiguous());
  CHECK(view::slice(x, 1, 3, 0).count() == 0);

  const Tensor e = view::expand(view::slice(x, 1, 2, 1), {5, 2, 3, 4});
  CHECK(e.strides() == Shape{0, 12, 0, 1});
  CHECK(values(view::select(view::select(e, 0, 4), 0, 1)) ==
        std::vector<double>{20, 21, 22, 23, 20, 21, 22, 23, 20, 21, 22, 23});

  CHECK(view::reshape(x, {6, -1}).shape() == Shape{6, 4});
  CHECK(values(view::reshape(x, {24})) == values(x));
  x.data<std::int32_t>()[5] = 100;
  CHECK(values(view::select(view::select(t, 0, 1), 0, 1)) == std::vector<double>{100, 17});

  check_throws([&] { view::slice(x, 1, 2, 2); }, "[2, 4) is outside dim 1 of [2, 3, 4]");
  check_throws([&] { view::reshape(x, {5, 5}); }, "24 elements, which do not fill [5, 5]");
  check_throws([&] { view::reshape(t, {24}); }, "not dense");
  check_throws([&] { view::expand(x, {2, 5, 4}); }, "does not broadcast");
  check_throws([&] { view::expand(view::slice(x, 1, 0, 1), {2, -1, 4}); }, "must not be negative, got [2, -1, 4]");
  check_throws([&] { view::expand(x, {-1, 2, 3, 4}); }, "must not be negative");
}

TEST_CASE("contiguous, clone and cast copy only when they must") {
  const Tensor x = counting({3, 4});
  CHECK(contiguous(x).shares_storage_with(x));
  CHECK_FALSE(clone(x).shares_storage_with(x));
  const Tensor t = contiguous(view::transpose(x, 0, 1));
  CHECK(t.contiguous());
  CHECK(values(t) == std::vector<double>{0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11});
  CHECK(cast(x, DType::i32).shares_storage_with(x));
  CHECK(values(cast(x, DType::f16)) == values(x));
}

TEST_CASE("dtype: names, sizes, dispatch") {
  const std::vector<std::size_t> sizes = {8, 4, 2, 2, 8, 4, 1};
  std::size_t i = 0;
  for (const DType dtype : testing::all_dtypes) CHECK(size_of(dtype) == sizes[i++]);
  CHECK(name(DType::bf16) == "bf16");
  CHECK(is_floating(DType::f16));
  CHECK_FALSE(is_floating(DType::i64));
  check_throws([] { visit_floating(DType::u8, "norm", [](auto) {}); },
               "[norm] expected a floating-point tensor, got u8");
}
