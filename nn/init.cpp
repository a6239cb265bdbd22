#include "nn/init.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/dry_run.h"
#include "core/kernels.h"
#include "core/parallel_for.h"
#include "core/random.h"

namespace trireme::nn {
namespace {

/// Calls fill(row, width, index) for every row of the rectangle, in parallel. A row has `width` elements along the last
/// dim; `index` is the place of its first element in the whole tensor.
template <class T, class FillRow>
void for_each_row(T* data, const Shape& local, const Rectangle& rectangle, FillRow fill) {
  const std::int64_t width = local.dims() ? local[-1] : 1, rows = local.count() / std::max<std::int64_t>(width, 1);
  const Shape strides = row_major_strides(rectangle.global);
  parallel_for(rows, 16, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      std::int64_t index = local.dims() ? rectangle.start[-1] : 0, rest = row;
      for (int dim = local.dims() - 2; dim >= 0; --dim) {
        index += (rectangle.start[dim] + rest % local[dim]) * strides[dim];
        rest /= local[dim];
      }
      fill(data + row * width, width, index);
    }
  });
}

/// Sets every element to number(index), with its index in the whole tensor. A part at a time, because an f32 copy of
/// all would take more memory than the parameter.
template <class Number>
void fill_with(Parameter& parameter, const Number& number) {
  constexpr std::int64_t elements_at_once = 1 << 16;
  const std::int64_t rows = parameter.local.size(0);
  const std::int64_t rows_at_once = std::max<std::int64_t>(1, elements_at_once * rows / parameter.local.count());
  for (std::int64_t begin = 0; begin < rows; begin += rows_at_once) {
    Tensor part = view::slice(parameter.local.detach(), 0, begin, std::min(rows_at_once, rows - begin));
    Rectangle rectangle = parameter.rectangle;
    rectangle.start = rectangle.start.with(0, rectangle.start[0] + begin);
    Tensor host = Tensor::empty(part.shape(), DType::f32);
    for_each_row(host.data<float>(), part.shape(), rectangle, [&](float* row, std::int64_t width, std::int64_t first) {
      for (std::int64_t i = 0; i < width; ++i)
        row[i] = static_cast<float>(number(static_cast<std::uint64_t>(first + i)));
    });
    copy(host, part);
  }
}

/// Draws again until |x| <= bound, each time from another stream: the next number of a linear congruential generator
/// (Knuth, MMIX).
double truncated_normal(std::uint64_t seed, std::uint64_t stream, std::uint64_t element, double bound) {
  while (true) {
    const double x = random_normal(seed, stream, element);
    if (std::abs(x) <= bound) return x;
    stream = stream * 6364136223846793005U + 1442695040888963407U;
  }
}

struct Fans {
  std::int64_t in = 1, out = 1;
};

Fans fans_of(const Parameter& parameter, const Init& init) {
  const Shape& shape = parameter.global_shape;
  if (shape.dims() <= init.output_dims)
    fail(ExitCode::usage, "init",
         "[{}] {} has no dim of inputs after {} of outputs; expected a weight [out, in, ..]; give it "
         "Init::normal or Init::uniform",
         parameter.name, shape, init.output_dims);
  Fans fans;
  for (int dim = 0; dim < shape.dims(); ++dim) {
    if (dim < init.output_dims) fans.out *= shape[dim];
    if (dim >= init.output_dims) fans.in *= shape[dim];
    if (dim > init.output_dims) fans.out *= shape[dim];
  }
  return fans;
}

/// The standard deviation of the Kaiming and Xavier initialisations.
double std_from_fans(const Parameter& parameter, const Init& init) {
  const Fans fans = fans_of(parameter, init);
  if (init.kind == Init::Kind::xavier_normal || init.kind == Init::Kind::xavier_uniform)
    return init.value * std::sqrt(2.0 / static_cast<double>(fans.in + fans.out));
  return init.value / std::sqrt(static_cast<double>(init.fan == Fan::in ? fans.in : fans.out));
}

/// Makes each of `count` vectors of `length` numbers orthogonal to those before it, and of length 1: Gram-Schmidt,
/// twice so that rounding does not show. count <= length.
void make_orthonormal(std::vector<double>& numbers, std::int64_t count, std::int64_t length) {
  const auto at = [&](std::int64_t i) { return numbers.data() + i * length; };
  const auto product = [&](const double* x, const double* y) {
    double sum = 0;
    for (std::int64_t k = 0; k < length; ++k) sum += x[k] * y[k];
    return sum;
  };
  for (std::int64_t i = 0; i < count; ++i) {
    double* const x = at(i);
    for (int pass = 0; pass < 2; ++pass) {
      for (std::int64_t j = 0; j < i; ++j) {
        const double part = product(x, at(j));
        for (std::int64_t k = 0; k < length; ++k) x[k] -= part * at(j)[k];
      }
    }
    const double norm = std::sqrt(product(x, x));
    for (std::int64_t k = 0; k < length; ++k) x[k] /= norm;
  }
}

void fill_orthogonal(Parameter& parameter, const Init& init, std::uint64_t seed, std::uint64_t stream) {
  const Shape& shape = parameter.global_shape;
  static_cast<void>(fans_of(parameter, init));
  std::int64_t rows = 1;
  for (int dim = 0; dim < init.output_dims; ++dim) rows *= shape[dim];
  const std::int64_t columns = shape.count() / rows;
  const bool by_rows = rows <= columns;
  std::vector<double> numbers(static_cast<std::size_t>(shape.count()));
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = random_normal(seed, stream, i);
  make_orthonormal(numbers, std::min(rows, columns), std::max(rows, columns));
  fill_with(parameter, [&](std::uint64_t element) {
    const std::int64_t row = static_cast<std::int64_t>(element) / columns;
    const std::int64_t column = static_cast<std::int64_t>(element) % columns;
    return init.value * numbers[static_cast<std::size_t>(by_rows ? row * columns + column : column * rows + row)];
  });
}

void fill_random(Parameter& parameter, const Init& init, std::uint64_t seed) {
  const std::uint64_t stream = stream_of(parameter.name);
  const auto normal = [&](double init_std) {
    fill_with(parameter, [=](std::uint64_t element) { return init_std * random_normal(seed, stream, element); });
  };
  const auto uniform = [&](double low, double high) {
    fill_with(parameter, [=](std::uint64_t i) { return low + (high - low) * random_uniform(seed, stream, i); });
  };
  const double sqrt3 = std::sqrt(3.0);  // half the width of a uniform distribution whose standard deviation is 1
  using Kind = Init::Kind;
  switch (init.kind) {
    case Kind::constant:
      break;
    case Kind::normal:
      return normal(init.value);
    case Kind::uniform:
      return uniform(init.value, init.other);
    case Kind::orthogonal:
      return fill_orthogonal(parameter, init, seed, stream);
    case Kind::kaiming_normal:
    case Kind::xavier_normal:
      return normal(std_from_fans(parameter, init));
    case Kind::kaiming_uniform:
    case Kind::xavier_uniform: {
      const double bound = sqrt3 * std_from_fans(parameter, init);
      return uniform(-bound, bound);
    }
    case Kind::truncated_normal:
      if (!(init.other >= 0.1))
        fail(ExitCode::usage, "init",
             "[{}] a bound of {} standard deviations; expected at least 0.1; for a narrower "
             "range, give Init::uniform",
             parameter.name, init.other);
      fill_with(parameter, [=](std::uint64_t i) { return init.value * truncated_normal(seed, stream, i, init.other); });
  }
}

}  // namespace

void initialise(Parameter& parameter, const Init& init, std::uint64_t seed) {
  if (DryRun::on()) return;
  Tensor& value = parameter.local;
  if (init.kind == Init::Kind::constant) {
    kernels(value.device()).fill(value, init.value);
  } else {
    fill_random(parameter, init, seed);
  }
  // Padded rows are 0 and stay 0, because they get no gradient. So a resumed run, which loads only real rows, has the
  // same bits.
  const std::int64_t rows = value.size(0);
  const std::int64_t real = std::clamp<std::int64_t>(parameter.logical_rows - parameter.rectangle.start[0], 0, rows);
  Tensor padding = view::slice(value, 0, real, rows - real);
  kernels(value.device()).fill(padding, 0);
}

}  // namespace trireme::nn
