// unbind, split and chunk: views, whose gradients meet in one tensor. Lists of inputs: concat of many parts.
#include "tests/support/errors.h"
#include "tests/support/gradcheck.h"

using namespace trireme;
using namespace trireme::testing;

namespace parts_test {
TEST_CASE("parts are views") {
  const Tensor x = leaf({4, 3, 2}, 1);
  for (const Tensor& part : unbind(x, 1)) {
    CHECK(part.shape() == Shape{4, 2});
    CHECK(part.shares_storage_with(x));
  }
  CHECK(unbind(x, -1).size() == 2);
  CHECK(split(x, 3).size() == 2);
  CHECK(split(x, 3)[1].shape() == Shape{1, 3, 2});
  CHECK(split(x, {1, 0, 2}, 1)[1].shape() == Shape{4, 0, 2});
  CHECK(chunk(x, 2, 0)[1].shape() == Shape{2, 3, 2});
  CHECK(unbind(random({0, 3}, 1)).empty());
  CHECK(permute(x, {2, 0, 1}).shares_storage_with(x));
  CHECK(unsqueeze(transpose(x, 0, 1), 1).shares_storage_with(x));
  CHECK(squeeze(unsqueeze(x, -1), 3).shares_storage_with(x));
}

TEST_CASE("parts: those that no loss has used get a gradient of zero; a part may be used twice") {
  const Tensor x = leaf({4, 3}, 1);
  const std::vector<Tensor> parts = unbind(x);
  backward(sum(square(parts[2])) + sum(parts[2]) + sum(parts[0] * parts[3]));
  for (const std::int64_t row : {0, 1, 2, 3}) {
    const Tensor got = view::select(grad(x), 0, row), at = view::select(x.detach(), 0, row);
    const Tensor expected = row == 0   ? view::select(x.detach(), 0, 3)
                            : row == 1 ? at * 0.0
                            : row == 2 ? 2.0 * at + 1.0
                                       : view::select(x.detach(), 0, 0);
    CHECK(relative_difference(got, expected) < 1e-15);
  }
}

TEST_CASE("parts: x has other uses, is itself a result, or is split twice") {
  check_gradients("other uses",
                  [](const std::vector<Tensor>& i) {
                    const Tensor x = tanh(i[0]);
                    const std::vector<Tensor> columns = unbind(x, 1), rows = split(x, 2);
                    return sum(x) + sum(columns[0] * columns[2]) + sum(square(rows[1])) + sum(columns[1]);
                  },
                  {random({3, 4}, 1)});
  check_gradients("parts of parts",
                  [](const std::vector<Tensor>& i) {
                    const std::vector<Tensor> rows = unbind(i[0]);
                    const std::vector<Tensor> halves = chunk(rows[1], 2);
                    return halves[0] * halves[1] + split(rows[0], 2)[1];
                  },
                  {random({2, 4}, 1)});
}

TEST_CASE("parts: backward moves about as much memory as x has, for any number of parts") {
  const Tensor x = leaf({1000, 100}, 1);
  const Tensor y = x * 1.0;
  Tensor total;
  for (const Tensor& part : unbind(y)) total = total.defined() ? total + sum(part) : sum(part);
  MemoryPool::current()->reset_peaks();
  const std::int64_t before = MemoryPool::current()->total().live;
  backward(total);
  CHECK(MemoryPool::current()->total().peak - before < 5 * x.bytes());  // slices would also pass over x 1000 times
  CHECK(relative_difference(grad(x), Tensor::ones(x.shape(), DType::f64)) == 0);
}

TEST_CASE("parts: the gradient of a parameter stays f32, and a second backward is refused") {
  Tensor w = random({3, 4}, 1, DType::bf16);
  require_grad(w);
  leaf_of(w)->set_parameter();
  const std::vector<Tensor> parts = unbind(w);
  CHECK(parts[1].node()->in_f32());
  backward(sum(parts[0] * parts[1]));
  CHECK(grad(w).dtype() == DType::f32);
  CHECK(says(error_of([&] { backward(sum(parts[2])); }, ExitCode::internal),
             "[parts] a second backward over the same graph"));
}

TEST_CASE("concat of many parts: as many nodes as parts, and gradients that are parts of dy") {
  std::vector<Tensor> parts;
  for (std::uint64_t i = 0; i < 1024; ++i) parts.push_back(leaf({1, 3}, i));
  const Tensor whole = concat(parts, 0), weights = random({1024, 3}, 99);
  CHECK(whole.node()->inputs().size() == 1024);
  backward(whole, weights);
  for (std::size_t i = 0; i < parts.size(); i += 100) {
    CHECK(same_bits(whole.detach().to(Device::cpu).as_strided({1, 3}, {3, 1}, static_cast<std::int64_t>(3 * i)),
                    parts[i]));
    CHECK(same_bits(grad(parts[i]), view::slice(weights, 0, static_cast<std::int64_t>(i), 1)));
  }
  // Some parts need no gradient; one is there twice.
  const Tensor x = leaf({2}, 1), plain = random({2}, 2);
  backward(sum(square(concat({plain, x, x}, 0))));
  CHECK(relative_difference(grad(x), 4.0 * x.detach()) < 1e-15);
  CHECK(!concat({plain, plain}, 0).requires_grad());
}

}  // namespace parts_test
