// Elements picked, or added to, by an index along one dim; one-hot vectors.
#include "autograd/in_cache.h"
#include "autograd/op.h"
#include "autograd/ops.h"
#include "autograd/support.h"
#include "core/ids.h"

namespace trireme {
namespace {

Tensor picked(const Tensor& x, int dim, const Tensor& index) {
  Tensor y = Tensor::empty(index.shape(), x.dtype(), x.device());
  kernels(x.device()).gather(x, dim, index, y);
  return y;
}

/// `start`, or zeros if it is undefined, to which the values are added where the index says, in acc and in the order of
/// the index. If rows are independent (dim is not 0), they are treated a few at a time.
Tensor sum_at(const Shape& shape, int dim, const Tensor& index, const Tensor& values, const Tensor& start,
              DType dtype) {
  const KernelTable& k = kernels(values.device());
  const DType acc = accumulate_dtype(values);
  const Tensor y = Tensor::empty(shape, dtype, values.device()), dense = contiguous(values);
  const bool by_rows = dim > 0 && shape.count() > 0 && index.size(0) == shape[0];
  const std::int64_t rows = by_rows ? shape[0] : 1;
  const InCache ranges(values.device(), rows, shape.count() / rows);
  ranges.run(
      [&](std::int64_t first, std::int64_t count, const Tensor& room) {
        const auto part = [&](const Tensor& of) { return by_rows ? view::slice(of, 0, first, count) : of; };
        Tensor result = part(y), sums = room.defined() ? view::reshape(room, result.shape()) : result;
        start.defined() ? copy(part(start), sums) : k.fill(sums, 0);
        k.scatter_add(part(dense), dim, part(index), sums);
        if (room.defined()) copy(sums, result);
      },
      dtype == acc ? Tensor() : ranges.scratch(acc));
  return y;
}

/// y[i] = x[index[i]] along dim;  dx[n] = sum of dy[i] over the i with index[i] = n
struct Gather : Op {
  static constexpr const char* name = "gather";
  int dim = 0;
  Tensor index;
  Shape from;
  Tensor forward(const Tensor& x) {
    from = x.shape();
    return picked(x, dim, index);
  }
  Gradients backward(const Tensor& dy) const {
    return {sum_at(from, dim, index, dy, {}, gradient_dtype(0, dy.dtype()))};
  }
};

/// y = x, with values[i] added at index[i] along dim;  dx = dy, dvalues[i] = dy[index[i]]
struct ScatterAdd : Op {
  static constexpr const char* name = "scatter_add";
  int dim = 0;
  Tensor index;
  Tensor forward(const Tensor& x, const Tensor& values) const {
    return sum_at(x.shape(), dim, index, values, x, x.dtype());
  }
  Gradients backward(const Tensor& dy) const { return {dy, needs(1) ? picked(dy, dim, index) : Tensor()}; }
};

/// The index, dense, on the device of x. Throws unless it fits x.
Tensor checked_index(const char* where, const Tensor& x, int dim, const Tensor& index) {
  require(index.defined() && index.dims() == x.dims(), where, "an index {} for {}; expected one with as many dims",
          index.shape(), x.shape());
  for (int i = 0; i < x.dims(); ++i)
    require(i == dim || index.size(i) <= x.size(i), where,
            "the index {} is larger than {} in dim {}; expected at most {} there", index.shape(), x.shape(), i,
            x.size(i));
  check_ids(where, "index", index, {.first = 0, .end = x.size(dim)}, "change the index, or dim");
  return contiguous(index).to(x.device());
}

template <class Operation>
Operation with_index(const Tensor& x, int dim, const Tensor& index) {
  Operation op;
  op.dim = checked_dim(Operation::name, x, dim);
  op.index = checked_index(Operation::name, x, op.dim, index);
  op.saved.add(op.index, "index");
  return op;
}

}  // namespace

Tensor gather(const Tensor& x, int dim, const Tensor& index) {
  require_floating(Gather::name, x);
  return apply(with_index<Gather>(x, dim, index), x);
}

Tensor scatter_add(const Tensor& x, int dim, const Tensor& index, const Tensor& values) {
  require_floating(ScatterAdd::name, x);
  require_floating(ScatterAdd::name, values);
  require(values.dtype() == x.dtype(), ScatterAdd::name, "dtypes differ: {} and {}; cast_to one of them",
          name(x.dtype()), name(values.dtype()));
  require_one_device(ScatterAdd::name, {&x, &values});
  require(values.shape() == index.shape(), ScatterAdd::name, "values {} for an index {}; expected equal shapes",
          values.shape(), index.shape());
  return apply(with_index<ScatterAdd>(x, dim, index), x, values);
}

Tensor one_hot(const Tensor& ids, std::int64_t classes, DType dtype) {
  require(classes > 0, "one_hot", "{} classes; expected at least 1", classes);
  require(is_floating(dtype), "one_hot", "a result of dtype {}; expected a floating dtype", name(dtype));
  check_ids("one_hot", "id", ids, {.first = 0, .end = classes}, "change the ids, or the number of classes");
  const DType exact = classes <= std::int64_t{1} << 24 ? DType::f32 : DType::f64;
  const Tensor numbers = cast(Tensor::arange(classes), exact).to(ids.device());
  return cast(equal(unsqueeze(cast(ids, exact), -1), numbers), dtype);
}

}  // namespace trireme
