// All parts of a tensor along a dim, whose backward is one pass over it.
//
// The slice operation gives x a gradient that is 0 outside the slice, so T slices cost T passes over x. Here the parts
// share one tensor for dx, and each writes its own gradient into it. The engine knows one gradient per tensor, so the
// parts have a common input, Whole, which stands for x. The first part that runs hands dx to Whole, the others add
// nothing to it. Whole writes zeros for the parts that no loss has used.
#include <algorithm>
#include <memory>

#include "autograd/op.h"
#include "autograd/ops.h"
#include "autograd/support.h"

namespace trireme {
namespace {

struct Range {
  std::int64_t start = 0, length = 0;
};

/// What the parts of one tensor share.
struct Parts {
  int dim = 0;
  bool drop_dim = false;  // parts are single indices, without the dim
  Shape shape;            // of x
  std::vector<Range> ranges;
  std::vector<bool> written;  // the parts of dx that have their values
  Tensor dx;

  Tensor part_of(const Tensor& x, std::size_t i) const {
    return drop_dim ? view::select(x, dim, ranges[i].start) : view::slice(x, dim, ranges[i].start, ranges[i].length);
  }
};

/// y = x;  dx = dy, with zeros for the parts that did not write theirs
struct Whole : Op {
  static constexpr const char* name = "parts";
  static constexpr bool keeps_f32 = true;
  std::shared_ptr<Parts> parts;
  Tensor forward(const Tensor& x) const { return x; }
  Gradients backward(const Tensor& dy) const {
    for (std::size_t i = 0; i < parts->ranges.size(); ++i) {
      if (parts->written[i]) continue;
      Tensor unused = parts->part_of(dy, i);
      kernels(dy.device()).fill(unused, 0);
    }
    parts->dx = {};
    parts->written.assign(parts->ranges.size(), false);
    return {dy};
  }
};

/// y = part `index` of x;  dx there = dy
struct Part : Op {
  static constexpr const char* name = "part";
  static constexpr bool keeps_f32 = true;
  std::shared_ptr<Parts> parts;
  std::size_t index = 0;
  Tensor forward(const Tensor& x) const { return parts->part_of(x, index); }
  Gradients backward(const Tensor& dy) const {
    const bool first = !parts->dx.defined();
    if (first) parts->dx = Tensor::empty(parts->shape, dy.dtype(), dy.device());
    Tensor place = parts->part_of(parts->dx, index);
    copy(dy, place);
    parts->written[index] = true;
    return {first ? parts->dx : Tensor()};
  }
};

std::vector<Tensor> cut(const Tensor& x, Parts shared) {
  shared.shape = x.shape();
  shared.written.resize(shared.ranges.size());
  Whole whole;
  whole.parts = std::make_shared<Parts>(std::move(shared));
  const std::shared_ptr<Parts> parts = whole.parts;
  const Tensor all = apply(std::move(whole), x);
  std::vector<Tensor> result;
  result.reserve(parts->ranges.size());
  for (std::size_t i = 0; i < parts->ranges.size(); ++i) {
    Part part;
    part.parts = parts;
    part.index = i;
    result.push_back(apply(std::move(part), all));
  }
  return result;
}

}  // namespace

std::vector<Tensor> unbind(const Tensor& x, int dim) {
  Parts parts;
  parts.dim = checked_dim("unbind", x, dim);
  parts.drop_dim = true;
  for (std::int64_t i = 0; i < x.size(dim); ++i) parts.ranges.push_back({i, 1});
  return cut(x, std::move(parts));
}

std::vector<Tensor> split(const Tensor& x, const std::vector<std::int64_t>& lengths, int dim) {
  Parts parts;
  parts.dim = checked_dim("split", x, dim);
  std::int64_t start = 0;
  for (const std::int64_t length : lengths) {
    require(length >= 0 && length <= x.size(dim) - start, "split",
            "a length of {} after {} indices of dim {} of {}; expected lengths that add up to {}", length, start, dim,
            x.shape(), x.size(dim));
    parts.ranges.push_back({start, length});
    start += length;
  }
  require(start == x.size(dim), "split", "the lengths add up to {}; expected {}, the size of dim {} of {}", start,
          x.size(dim), dim, x.shape());
  return cut(x, std::move(parts));
}

std::vector<Tensor> split(const Tensor& x, std::int64_t length, int dim) {
  static_cast<void>(checked_dim("split", x, dim));
  require(length > 0, "split", "a length of {}; expected at least 1", length);
  std::vector<std::int64_t> lengths;
  for (std::int64_t start = 0; start < x.size(dim); start += length)
    lengths.push_back(std::min(length, x.size(dim) - start));
  return split(x, lengths, dim);
}

std::vector<Tensor> chunk(const Tensor& x, std::int64_t count, int dim) {
  static_cast<void>(checked_dim("chunk", x, dim));
  require(count > 0 && x.size(dim) % count == 0, "chunk",
          "{} chunks of dim {} of {}; expected a number that divides {}; split takes unequal lengths", count, dim,
          x.shape(), x.size(dim));
  return split(x, std::vector<std::int64_t>(static_cast<std::size_t>(count), x.size(dim) / count), dim);
}

}  // namespace trireme
