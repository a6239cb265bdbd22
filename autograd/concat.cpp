// Tensors one after the other.
#include <algorithm>

#include "autograd/op.h"
#include "autograd/ops.h"
#include "autograd/support.h"
#include "core/columns.h"
#include "core/cpu/channel_kernels.h"
#include "core/dry_kernels.h"
#include "core/dry_run.h"

namespace trireme {
namespace {

/// y = [x0, x1, ...] along dim;  dx0, dx1, ... = the parts of dy
struct Concat : Op {
  static constexpr const char* name = "concat";
  static constexpr bool keeps_f32 = true;
  int dim = 0;
  std::vector<std::int64_t> lengths;
  Tensor forward(const std::vector<Tensor>& parts) {
    std::int64_t whole = 0;
    for (const Tensor& part : parts) whole += lengths.emplace_back(part.size(dim));
    const Tensor& first = parts.front();
    const Tensor y = Tensor::empty(first.shape().with(dim, whole), first.dtype(), first.device());
    const bool dense = std::all_of(parts.begin(), parts.end(), [](const Tensor& part) { return part.contiguous(); });
    const bool is_read = DryRun::skips_work() && is_looked_at(y);  // ids in a dry run: copies are made
    if (dim > 0 && dense && y.device() == Device::cpu && !is_read) {
      cpu::channel_kernels().concat_dense(parts, dim, y);
    } else {
      copy_parts(parts, y);
    }
    return y;
  }
  void copy_parts(const std::vector<Tensor>& parts, const Tensor& y) const {
    std::int64_t start = 0;
    for (const Tensor& part : parts) {
      Tensor place = view::slice(y, dim, start, part.size(dim));
      copy(part, place);
      start += part.size(dim);
    }
  }
  Gradients backward(const Tensor& dy) const {
    Gradients gradients;
    gradients.reserve(lengths.size());
    std::int64_t start = 0;
    for (const std::int64_t length : lengths) {
      gradients.push_back(view::slice(dy, dim, start, length));
      start += length;
    }
    return gradients;
  }
};

}  // namespace

Tensor concat(const std::vector<Tensor>& given, int dim) {
  require(!given.empty(), "concat", "expected at least one tensor, got none");
  const std::vector<Tensor> parts = in_common_dtype(given);
  const Tensor& first = parts.front();
  require(first.defined(), "concat", "part 0 is undefined; expected a tensor");
  const int along = checked_dim("concat", first, dim);
  const Shape others = first.shape().without(along);
  for (std::size_t i = 1; i < parts.size(); ++i) {
    require(parts[i].defined(), "concat", "part {} is undefined; expected a tensor", i);
    require(parts[i].dims() == first.dims() && parts[i].dtype() == first.dtype() &&
                parts[i].shape().without(along) == others,
            "concat", "part {} is {} {}, which does not continue {} {} along dim {}", i, name(parts[i].dtype()),
            parts[i].shape(), name(first.dtype()), first.shape(), dim);
    require_one_device("concat", {&first, &parts[i]});
  }
  if (parts.size() == 1) return first;
  Concat op;
  op.dim = along;
  Tensor y = apply_to_list(std::move(op), parts);
  for (const Tensor& part : parts) y = with_columns_of(part, y);
  return y;
}

Tensor stack(const std::vector<Tensor>& given, int dim) {
  require(!given.empty(), "stack", "expected at least one tensor, got none");
  const std::vector<Tensor> parts = in_common_dtype(given);
  std::vector<Tensor> raised;
  raised.reserve(parts.size());
  for (std::size_t i = 0; i < parts.size(); ++i) {
    require(parts[i].defined(), "stack", "part {} is undefined; expected a tensor", i);
    require(parts[i].shape() == parts.front().shape() && parts[i].dtype() == parts.front().dtype(), "stack",
            "part {} is {} {}, and part 0 {} {}; expected equal shapes and dtypes", i, name(parts[i].dtype()),
            parts[i].shape(), name(parts.front().dtype()), parts.front().shape());
    raised.push_back(unsqueeze(parts[i], dim));
  }
  return concat(raised, dim);
}

}  // namespace trireme
