// Datasets of tensors in memory: the order of rows in an epoch, batches, and what is refused.
#include "data/dataset.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <set>

#include "core/error.h"

using namespace trireme;

namespace {

/// Row r of "x" is (r, 10 r), that of "y" is -r.
Dataset numbered(std::int64_t rows, std::uint64_t seed = 7) {
  const Tensor x = Tensor::empty({rows, 2}), y = Tensor::empty({rows}, DType::i32);
  for (std::int64_t r = 0; r < rows; ++r) {
    x.data<float>()[2 * r] = static_cast<float>(r);
    x.data<float>()[2 * r + 1] = static_cast<float>(10 * r);
    y.data<std::int32_t>()[r] = static_cast<std::int32_t>(-r);
  }
  return Dataset({{"x", x}, {"y", y}}, seed);
}

std::vector<std::int64_t> epoch(const Dataset& data, std::int64_t number) {
  std::vector<std::int64_t> rows;
  for (std::int64_t i = 0; i < data.rows(); ++i) rows.push_back(data.row(number * data.rows() + i));
  return rows;
}

}  // namespace

TEST_CASE("every row comes once in an epoch, in an order of its own") {
  for (const std::int64_t rows : {1, 2, 3, 5, 16, 17, 100, 1000}) {
    CAPTURE(rows);
    const Dataset data = numbered(rows);
    std::set<std::vector<std::int64_t>> orders;
    for (std::int64_t number = 0; number < 4; ++number) {
      std::vector<std::int64_t> order = epoch(data, number);
      orders.insert(order);
      std::sort(order.begin(), order.end());
      for (std::int64_t r = 0; r < rows; ++r) CHECK(order[static_cast<std::size_t>(r)] == r);
    }
    if (rows >= 16) CHECK(orders.size() == 4);
    if (rows >= 16) CHECK(epoch(data, 0) != epoch(numbered(rows, 8), 0));
  }
}

TEST_CASE("without shuffling, every epoch is in the order of the rows") {
  const Dataset data({{"x", Tensor::zeros({5})}}, 1, false);
  for (std::int64_t number = 0; number < 3; ++number)
    CHECK(epoch(data, number) == std::vector<std::int64_t>{0, 1, 2, 3, 4});
}

TEST_CASE("rows move far: a shuffled epoch has few neighbours of the order in memory") {
  const std::vector<std::int64_t> order = epoch(numbered(1000), 0);
  int neighbours = 0;
  for (std::size_t i = 1; i < order.size(); ++i) neighbours += std::abs(order[i] - order[i - 1]) == 1 ? 1 : 0;
  CHECK(neighbours < 10);  // 2 are expected of a random order
}

TEST_CASE("tensors may be views: a column of rows, every second one") {
  const Tensor all = Tensor::empty({3, 4, 2}), columns = view::transpose(view::select(all, 2, 1), 0, 1);  // [4, 3]
  for (std::int64_t i = 0; i < all.count(); ++i) all.data<float>()[i] = static_cast<float>(i);
  const Dataset data({{"x", columns}}, 1);
  const Batch batch = data.make_batch(0, 4);
  for (std::int64_t b = 0; b < 4; ++b)
    for (std::int64_t i = 0; i < 3; ++i)
      CHECK(batch["x"].data<float>()[b * 3 + i] == static_cast<float>(i * 8 + data.row(b) * 2 + 1));
}

TEST_CASE("a batch has the rows of its samples in every tensor, however samples are cut into batches") {
  const Dataset data = numbered(13);
  const Batch whole = data.make_batch(20, 12);
  CHECK(whole.sample_ids.size() == 12);
  for (std::int64_t i = 0; i < 12; ++i) {
    const Batch one = data.make_batch(20 + i, 1);
    const auto row = static_cast<float>(data.row(20 + i));
    CHECK(one.sample_ids == std::vector<std::int64_t>{20 + i});
    for (const float* x : {one["x"].data<float>(), whole["x"].data<float>() + 2 * i}) {
      CHECK(x[0] == row);
      CHECK(x[1] == 10 * row);
    }
    CHECK(one["y"].data<std::int32_t>()[0] == -static_cast<std::int32_t>(row));
    CHECK(whole["y"].data<std::int32_t>()[i] == -static_cast<std::int32_t>(row));
  }
}

TEST_CASE("tensors of different lengths, and a name that a batch does not have, are refused") {
  CHECK_THROWS_WITH_AS(Dataset({{"x", Tensor::zeros({3})}, {"y", Tensor::zeros({4})}}, 1),
                       doctest::Contains("'y' has 4 rows, 'x' 3"), Error);
  CHECK_THROWS_AS(Dataset({}, 1), Error);
  CHECK_THROWS_WITH_AS(Dataset({{"x", Tensor()}}, 1), doctest::Contains("[dataset] 'x' is undefined; expected rows"),
                       Error);
  CHECK_THROWS_WITH_AS(Dataset({{"x", Tensor::ones({})}}, 1), doctest::Contains("'x' is a single number"), Error);
  CHECK_THROWS_AS(Dataset({{"x", Tensor::zeros({0, 2})}}, 1), Error);
  CHECK_THROWS_WITH_AS(static_cast<void>(numbered(3).make_batch(0, 2)["labels"]), doctest::Contains("only: x, y"),
                       Error);
}
