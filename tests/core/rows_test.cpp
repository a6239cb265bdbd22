// Kernels over rows: softmax, top_k, layer norm, RMS norm, embedding, gather and scatter_add; forward and backward.
#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "core/random.h"
#include "support.h"

using namespace trireme;
using namespace trireme::testing;

namespace {

const Shape row_shapes[] = {{1, 1}, {3, 5}, {7, 16}, {19, 65}, {300, 33}, {2, 1025}, {2, 5000}};

struct Rows {
  std::size_t rows, columns;
  explicit Rows(const Shape& shape)
      : rows(static_cast<std::size_t>(shape[0])), columns(static_cast<std::size_t>(shape[1])) {}
};

std::vector<double> softmax_reference(const Tensor& x) {
  std::vector<double> y = values(x);
  const Rows size(x.shape());
  for (std::size_t r = 0; r < size.rows; ++r) {
    double* row = y.data() + r * size.columns;
    const double top = *std::max_element(row, row + size.columns);
    double sum = 0;
    for (std::size_t j = 0; j < size.columns; ++j) sum += row[j] = std::exp(row[j] - top);
    for (std::size_t j = 0; j < size.columns; ++j) row[j] /= sum;
  }
  return y;
}

struct NormReference {
  std::vector<double> y, mean, rstd, dx, dgamma, dbeta;
};

// Layer norm, or with `centred` false RMS norm: formulas as in the papers, in f64.
NormReference norm_reference(const Tensor& x, const Tensor& gamma, const Tensor& beta, const Tensor& dy, double eps,
                             bool centred) {
  const Rows size(x.shape());
  const std::vector<double> in = values(x), g = values(gamma), d = values(dy);
  const std::vector<double> b = beta.defined() ? values(beta) : std::vector<double>(size.columns, 0);
  const auto count = static_cast<double>(size.columns);
  NormReference out{in, {}, {}, in, std::vector<double>(size.columns, 0), std::vector<double>(size.columns, 0)};
  for (std::size_t r = 0; r < size.rows; ++r) {
    const double* row = in.data() + r * size.columns;
    double mean = 0, square = 0, mean_e = 0, mean_en = 0;
    for (std::size_t j = 0; centred && j < size.columns; ++j) mean += row[j] / count;
    for (std::size_t j = 0; j < size.columns; ++j) square += (row[j] - mean) * (row[j] - mean) / count;
    const double rstd = 1 / std::sqrt(square + eps);
    out.mean.push_back(mean);
    out.rstd.push_back(rstd);
    for (std::size_t j = 0; j < size.columns; ++j) {
      const double n = (row[j] - mean) * rstd, e = d[r * size.columns + j] * g[j];
      out.y[r * size.columns + j] = n * g[j] + b[j];
      out.dgamma[j] += d[r * size.columns + j] * n;
      out.dbeta[j] += d[r * size.columns + j];
      mean_e += centred ? e / count : 0;
      mean_en += e * n / count;
    }
    for (std::size_t j = 0; j < size.columns; ++j) {
      const double n = (row[j] - mean) * rstd, e = d[r * size.columns + j] * g[j];
      out.dx[r * size.columns + j] = rstd * (e - mean_e - n * mean_en);
    }
  }
  return out;
}

std::vector<double> plus(std::vector<double> sum, const Tensor& x) {
  const std::vector<double> more = values(x);
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += more[i];
  return sum;
}

}  // namespace

TEST_CASE("softmax: forward and backward, also in place") {
  for (const DType dtype : floating_dtypes) {
    for (const Shape& shape : row_shapes) {
      const double error = 4 * rounding(dtype);
      const Tensor x = random(shape, 1, dtype, uniform(-6, 6)), dy = random(shape, 2, dtype, uniform(-2, 2));
      Tensor y = Tensor::empty(shape, dtype), dx = Tensor::empty(shape, dtype);
      table.softmax(x, y);
      check_close(y, softmax_reference(x), error, 1e-7 * error);

      table.softmax_backward(y, dy, dx);
      std::vector<double> expected = values(y);
      const std::vector<double> p = expected, d = values(dy);
      const Rows size(shape);
      for (std::size_t r = 0; r < size.rows; ++r) {
        double mean = 0;
        for (std::size_t i = r * size.columns; i < (r + 1) * size.columns; ++i) mean += p[i] * d[i];
        for (std::size_t i = r * size.columns; i < (r + 1) * size.columns; ++i) expected[i] = p[i] * (d[i] - mean);
      }
      check_close(dx, expected, error, error);

      Tensor in_place = clone(x), gradient = clone(dy);
      table.softmax(in_place, in_place);
      check_close(in_place, values(y), 0, 0);
      table.softmax_backward(y, gradient, gradient);
      check_close(gradient, values(dx), 0, 0);
    }
  }
}

TEST_CASE("top_k: the largest in order against a stable sort, a NaN above all numbers") {
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16})
    for (const auto& [rows, width, k] :
         {std::array<std::int64_t, 3>{1, 1, 1}, {7, 8, 2}, {500, 64, 6}, {3, 70, 70}, {9, 700, 1}, {4, 300, 40}}) {
      CAPTURE(fmt::format("{} {} of {}", name(dtype), k, width));
      std::vector<double> values(static_cast<std::size_t>(rows * width));
      for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] = std::floor(20 * random_uniform(4, 1, i)) - 10;  // many are equal
        if (i % 23 == 5) values[i] = i % 2 == 0 ? NAN : -INFINITY;
        if (i % 31 == 7) values[i] = i % 2 == 0 ? -NAN : INFINITY;
      }
      const Tensor x = cast(Tensor::from<double>(values, {rows, width}), dtype);
      Tensor chosen = Tensor::empty({rows, k}, DType::i32);
      table.top_k(x, chosen);
      for (std::int64_t row = 0; row < rows; ++row) {
        const double* const of_row = values.data() + row * width;
        std::vector<std::int32_t> order(static_cast<std::size_t>(width));
        std::iota(order.begin(), order.end(), 0);
        std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
          if (std::isnan(of_row[a]) || std::isnan(of_row[b])) return std::isnan(of_row[a]) && !std::isnan(of_row[b]);
          return of_row[a] > of_row[b];
        });
        CHECK(std::equal(order.begin(), order.begin() + k, chosen.data<std::int32_t>() + row * k));
      }
    }
}

TEST_CASE("softmax: large inputs stay finite") {
  Tensor x = Tensor::empty({2, 4}), y = Tensor::empty({2, 4});
  assign(x, {3e38, 3e38, -3e38, 0, -1e30, -1e30, -1e30, -1e30});
  table.softmax(x, y);
  check_close(y, {0.5, 0.5, 0, 0, 0.25, 0.25, 0.25, 0.25}, 1e-6, 0);
}

TEST_CASE("layer_norm: forward and backward, with and without beta") {
  for (const DType dtype : floating_dtypes) {
    for (const Shape& shape : row_shapes) {
      for (const bool with_beta : {true, false}) {
        const DType acc = acc_of(dtype);
        const Tensor x = random(shape, 1, dtype, uniform(-1, 3)), dy = random(shape, 2, dtype, uniform(-2, 2));
        const Tensor gamma = random({shape[1]}, 3, dtype, uniform(-2, 2)),
                     beta = with_beta ? random({shape[1]}, 4, dtype, uniform(-2, 2)) : Tensor();
        Tensor y = Tensor::empty(shape, dtype), mean = Tensor::empty({shape[0]}, acc),
               rstd = Tensor::empty({shape[0]}, acc);
        Tensor dx = Tensor::empty(shape, dtype), dgamma = Tensor::empty({shape[1]}, acc);
        Tensor dbeta = with_beta ? Tensor::empty({shape[1]}, acc) : Tensor();
        const double eps = shape[1] == 1 ? 0.1 : 1e-5;
        table.layer_norm(x, gamma, beta, eps, y, mean, rstd);
        table.layer_norm_backward(x, gamma, mean, rstd, dy, {}, dx, dgamma, dbeta);

        const NormReference expected = norm_reference(x, gamma, beta, dy, eps, true);
        const double error = 8 * rounding(dtype), sum_error = 8 * rounding(acc);
        check_close(mean, expected.mean, sum_error, sum_error);
        check_close(rstd, expected.rstd, sum_error, 0);
        check_close(y, expected.y, error, error);
        check_close(dx, expected.dx, error, error);
        check_close(dgamma, expected.dgamma, 10 * sum_error, 10 * sum_error);
        if (with_beta) check_close(dbeta, expected.dbeta, 10 * sum_error, 10 * sum_error);
        Tensor in_place = clone(dy);
        table.layer_norm_backward(x, gamma, mean, rstd, in_place, {}, in_place, dgamma, dbeta);
        check_close(in_place, values(dx), 0, 0);
        table.layer_norm_backward(x, gamma, mean, rstd, dy, y, dx, dgamma, dbeta);
        check_close(dx, plus(expected.dx, y), error, error);
      }
    }
  }
}

TEST_CASE("rms_norm: forward and backward") {
  for (const DType dtype : floating_dtypes) {
    for (const Shape& shape : row_shapes) {
      const DType acc = acc_of(dtype);
      const Tensor x = random(shape, 1, dtype, uniform(-1, 3)), dy = random(shape, 2, dtype, uniform(-2, 2)),
                   gamma = random({shape[1]}, 3, dtype, uniform(-2, 2));
      Tensor y = Tensor::empty(shape, dtype), rstd = Tensor::empty({shape[0]}, acc);
      Tensor dx = Tensor::empty(shape, dtype), dgamma = Tensor::empty({shape[1]}, acc);
      table.rms_norm(x, gamma, 1e-2, y, rstd);
      table.rms_norm_backward(x, gamma, rstd, dy, {}, dx, dgamma);
      const NormReference expected = norm_reference(x, gamma, {}, dy, 1e-2, false);
      const double error = 8 * rounding(dtype), sum_error = 8 * rounding(acc);
      check_close(rstd, expected.rstd, sum_error, 0);
      check_close(y, expected.y, error, error);
      check_close(dx, expected.dx, error, error);
      check_close(dgamma, expected.dgamma, 10 * sum_error, 10 * sum_error);
      Tensor in_place = clone(dy);
      table.rms_norm_backward(x, gamma, rstd, in_place, {}, in_place, dgamma);
      check_close(in_place, values(dx), 0, 0);
      table.rms_norm_backward(x, gamma, rstd, dy, y, dx, dgamma);
      check_close(dx, plus(expected.dx, y), error, error);
    }
  }
}

TEST_CASE("embedding: rows of a slice of the vocabulary; repeated and absent ids") {
  for (const DType dtype : floating_dtypes) {
    const std::int64_t first = 20, here = 30, width = 37, tokens = 200;
    const Tensor weight = random({here, width}, 1, dtype, uniform(-2, 2)),
                 dy = random({tokens, width}, 2, dtype, uniform(-2, 2));
    const Tensor ids = random_ids({tokens}, 3, 0, 64);
    Tensor y = Tensor::empty({tokens, width}, dtype);
    Tensor dweight = random({here, width}, 4, acc_of(dtype), uniform(-2, 2));
    std::vector<double> rows(static_cast<std::size_t>(tokens * width), 0), sums = values(dweight);
    const std::vector<double> w = values(weight), d = values(dy), id = values(ids);
    for (std::int64_t n = 0; n < tokens; ++n) {
      const auto local = static_cast<std::int64_t>(id[static_cast<std::size_t>(n)]) - first;
      if (local < 0 || local >= here) continue;
      for (std::int64_t j = 0; j < width; ++j) {
        const auto at = static_cast<std::size_t>(local * width + j), token = static_cast<std::size_t>(n * width + j);
        rows[token] = w[at];
        sums[at] += d[token];
      }
    }
    table.embedding(weight, ids, first, y);
    check_close(y, rows, 0, 0);
    table.embedding_backward(dy, ids, first, dweight);
    check_close(dweight, sums, 4 * rounding(acc_of(dtype)), 4 * rounding(acc_of(dtype)));
  }
}

TEST_CASE("gather and scatter_add: along any dim, of views, with smaller indices and some out of range") {
  for (const DType dtype : floating_dtypes) {
    for (const int dim : {0, 1, 2}) {
      const Tensor x = view::transpose(random({70, 5, 6}, 1, dtype), 0, 2);  // [6, 5, 70]
      const Shape picks = Shape{6, 4, 60}.with(dim, 80);
      const Tensor index = random_ids(picks, 2, -1, static_cast<int>(x.size(dim)) + 1);
      const Tensor added = random(picks, 3, dtype), first = random(x.shape(), 4, acc_of(dtype));
      std::vector<double> picked(static_cast<std::size_t>(picks.count()), 0), sums = values(first);
      const std::vector<double> from = values(contiguous(x)), add = values(added), id = values(index);
      const Shape strides = row_major_strides(x.shape());
      for (std::int64_t i = 0; i < picks.count(); ++i) {
        Shape at = {i / (picks[1] * picks[2]), i / picks[2] % picks[1], i % picks[2]};
        at[dim] = static_cast<std::int64_t>(id[static_cast<std::size_t>(i)]);
        if (at[dim] < 0 || at[dim] >= x.size(dim)) continue;
        const auto place = static_cast<std::size_t>(at[0] * strides[0] + at[1] * strides[1] + at[2]);
        picked[static_cast<std::size_t>(i)] = from[place];
        sums[place] += add[static_cast<std::size_t>(i)];
      }
      Tensor y = Tensor::empty(picks, dtype);
      table.gather(x, dim, index, y);
      check_close(y, picked, 0, 0);
      Tensor total = clone(first);
      table.scatter_add(added, dim, index, total);
      check_close(total, sums, 4 * rounding(acc_of(dtype)), 16 * rounding(acc_of(dtype)));
      check_same_for_any_threads([&] {
        Tensor again = clone(first);
        table.scatter_add(added, dim, index, again);
        return again;
      });
    }
  }
}

TEST_CASE("rows: the same for any number of threads") {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Shape shape{517, 190};
    const Tensor x = random(shape, 1, dtype, uniform(-2, 2)), dy = random(shape, 2, dtype, uniform(-2, 2)),
                 gamma = random({190}, 3, dtype, uniform(-2, 2));
    const Tensor ids = random_ids({517}, 4, 0, 40);
    Tensor mean = Tensor::empty({517}), rstd = Tensor::empty({517}), y = Tensor::empty(shape, dtype);
    Tensor dx = Tensor::empty(shape, dtype), dgamma = Tensor::empty({190}), dbeta = Tensor::empty({190});
    check_same_for_any_threads([&] { return table.softmax(x, y), y; });
    check_same_for_any_threads([&] { return table.softmax_backward(x, dy, dx), dx; });
    check_same_for_any_threads([&] { return table.layer_norm(x, gamma, gamma, 1e-5, y, mean, rstd), y; });
    check_same_for_any_threads(
        [&] { return table.layer_norm_backward(x, gamma, mean, rstd, dy, {}, dx, dgamma, dbeta), dx; });
    check_same_for_any_threads(
        [&] { return table.layer_norm_backward(x, gamma, mean, rstd, dy, {}, dx, dgamma, dbeta), dgamma; });
    check_same_for_any_threads(
        [&] { return table.layer_norm_backward(x, gamma, mean, rstd, dy, {}, dx, dgamma, dbeta), dbeta; });
    check_same_for_any_threads([&] { return table.rms_norm(x, gamma, 1e-5, y, rstd), y; });
    check_same_for_any_threads([&] { return table.rms_norm_backward(x, gamma, rstd, dy, {}, dx, dgamma), dgamma; });
    check_same_for_any_threads([&] {
      Tensor dweight = Tensor::zeros({40, 190});
      table.embedding_backward(dy, ids, 0, dweight);
      return dweight;
    });
  }
}
