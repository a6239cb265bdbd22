#include "core/tensor.h"

#include "core/columns.h"
#include "core/dry_kernels.h"
#include "core/dry_run.h"
#include "core/ids.h"
#include "core/kernels.h"

namespace trireme {

Tensor Tensor::empty(const Shape& shape, DType dtype, Device device) { return make(shape, dtype, device, nullptr); }

Tensor Tensor::empty_pinned(const Shape& shape, DType dtype, Device device) {
  return make(shape, dtype, Device::cpu, shared_backend(device));
}

Tensor Tensor::make(const Shape& shape, DType dtype, Device device, std::shared_ptr<DeviceBackend> pinned_for) {
  Tensor result;
  const auto bytes = static_cast<std::size_t>(shape.count("Tensor::empty")) * size_of(dtype);
  result.storage_ = std::make_shared<MemoryPool::Block>(MemoryPool::current()->on(device), bytes,
                                                        MemoryScope::category(), std::move(pinned_for));
  result.shape_ = shape;
  result.strides_ = row_major_strides(shape);
  result.dtype_ = dtype;
  result.device_ = device;
  return result;
}

Tensor Tensor::zeros(const Shape& shape, DType dtype, Device device) { return full(shape, 0.0, dtype, device); }

Tensor Tensor::full(const Shape& shape, double value, DType dtype, Device device) {
  require_whole_number("Tensor::full", value, dtype);
  Tensor result = empty(shape, dtype, device);
  kernels(device).fill(result, value);
  return result;
}

void Tensor::refuse_undefined(std::string_view where) {
  fail(
      ExitCode::internal, where,
      "the tensor is undefined: it was never given a value, was moved from, or is an absent gradient or bias; expected "
      "one with elements; ask defined() first");
}

void Tensor::require_defined(std::string_view where) const {
  if (storage_ == nullptr) refuse_undefined(where);
}

bool Tensor::contiguous() const {
  std::int64_t expected = 1;
  for (int dim = dims() - 1; dim >= 0; --dim) {
    if (shape_[dim] == 1) continue;
    if (strides_[dim] != expected) return false;
    expected *= shape_[dim];
  }
  return true;
}

void* Tensor::raw() const& {
  if (storage_ == nullptr) [[unlikely]]
    refuse_undefined("Tensor::data");
  require(device_ == Device::cpu, "Tensor::data",
          "the tensor {} is on {}, where the host cannot read; expected one on cpu; call to(Device::cpu), or an "
          "operation whose tensors are all on one device",
          shape_, name(device_));
  return device_address();
}

void* Tensor::device_address() const {
  if (storage_ == nullptr) [[unlikely]]
    refuse_undefined("Tensor::data");
  void* const contents = storage_->contents();
  require(contents != nullptr, "Tensor::data",
          "the elements of this tensor {} have been released; a sharded parameter is there only inside its unit",
          shape_);
  return static_cast<std::byte*>(contents) + static_cast<std::size_t>(offset_) * size_of(dtype_);
}

Tensor Tensor::to(Device device) const {
  if (device == device_ || storage_ == nullptr) return detach();
  Tensor result = empty(shape_, dtype_, device);
  copy(*this, result);
  if (device_ == Device::cpu && dtype_ == DType::i32) note_extremes(*this, result);
  return with_columns_of(*this, result);
}

double Tensor::item() const {
  if (storage_ == nullptr) [[unlikely]]
    refuse_undefined("Tensor::item");
  require(count() == 1, "Tensor::item", "expected one element, got shape {}", shape_);
  if (device_ != Device::cpu) return to(Device::cpu).item();
  return visit_any(dtype_, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (std::is_arithmetic_v<T>) {
      return static_cast<double>(*data<T>());
    } else {
      return static_cast<double>(static_cast<float>(*data<T>()));
    }
  });
}

Tensor Tensor::as_strided(const Shape& shape, const Shape& strides, std::int64_t offset) const {
  if (storage_ == nullptr) [[unlikely]]
    refuse_undefined("Tensor::as_strided");
  Tensor result = detach();
  result.shape_ = shape;
  result.strides_ = strides;
  result.offset_ += offset;
  if (shape.count() == 0) return result;
  // Of the elements, in the storage. In f64, as products of i64 may overflow.
  double first = static_cast<double>(offset_) + static_cast<double>(offset), last = first;
  for (int dim = 0; dim < shape.dims(); ++dim) {
    const double reach = static_cast<double>(shape[dim] - 1) * static_cast<double>(strides[dim]);
    (reach < 0 ? first : last) += reach;
  }
  const std::int64_t held = storage_->bytes() / size_of(dtype_);
  require(shape.dims() == strides.dims() && first >= 0 && last < static_cast<double>(held), "as_strided",
          "the view {} with strides {} and offset {} has elements {:.0f} to {:.0f} of a storage that holds {}; "
          "expected a view inside the storage",
          shape, strides, offset, first, last, held);
  return result;
}

Tensor Tensor::detach() const {
  Tensor result = *this;
  result.node_ = nullptr;
  return result;
}

Tensor contiguous(const Tensor& x) { return x.contiguous() ? x.detach() : clone(x); }

Tensor cast(const Tensor& x, DType dtype) {
  if (x.dtype() == dtype) return x.detach();
  x.require_defined("cast");
  Tensor result = Tensor::empty(x.shape(), dtype, x.device());
  copy(x, result);
  return with_columns_of(x, result);
}

Tensor clone(const Tensor& x) {
  x.require_defined("clone");
  Tensor result = Tensor::empty(x.shape(), x.dtype(), x.device());
  copy(x, result);
  return with_columns_of(x, result);
}

void copy(const Tensor& from, Tensor& to) {
  from.require_defined("copy");
  to.require_defined("copy");
  require(from.shape() == to.shape(), "copy", "shapes differ: from {}, to {}", from.shape(), to.shape());
  if (to.count() == 0) return;
  for (int dim = 0; dim < to.dims(); ++dim)
    require(
        to.size(dim) < 2 || to.strides()[dim] != 0, "copy",
        "the target {} repeats its elements along dim {}, so that several values would go to one; expected a tensor "
        "that was not expanded; copy into a clone of it",
        to.shape(), dim);
  to.mark_written();
  if (from.device() == to.device()) return kernels(to.device()).copy(from, to);
  if (DryRun::on() && !is_looked_at(from)) return;
  // Only dense bytes are moved between devices; a device's own copy kernel handles strides and dtypes.
  const auto bytes = static_cast<std::size_t>(from.bytes());
  if (to.device() == Device::cpu) {
    const Tensor dense = contiguous(from);
    Tensor here = to.contiguous() && to.dtype() == from.dtype() ? to : Tensor::empty(from.shape(), from.dtype());
    backend(from.device()).download(here.raw(), dense.device_address(), bytes);
    if (!here.shares_storage_with(to)) kernels(Device::cpu).copy(here, to);
  } else if (from.device() == Device::cpu) {
    const Tensor dense = contiguous(cast(from, to.dtype()));
    Tensor there = to.contiguous() ? to : Tensor::empty(to.shape(), to.dtype(), to.device());
    backend(to.device()).upload(there.device_address(), dense.raw(), static_cast<std::size_t>(to.bytes()));
    if (!there.shares_storage_with(to)) kernels(to.device()).copy(there, to);
  } else {
    copy(from.to(Device::cpu), to);
  }
}

int checked_dim(std::string_view where, const Tensor& x, int dim) {
  require(dim >= -x.dims() && dim < x.dims(), where, "{} has no dim {}; expected {}", x.shape(), dim,
          x.dims() == 0 ? "a tensor with at least one dim" : fmt::format("{} to {}", -x.dims(), x.dims() - 1));
  return dim < 0 ? dim + x.dims() : dim;
}

void require_one_device(std::string_view where, std::initializer_list<const Tensor*> tensors) {
  const Tensor* first = nullptr;
  for (const Tensor* tensor : tensors) {
    if (!tensor->defined()) continue;
    if (first == nullptr) first = tensor;
    require(tensor->device() == first->device(), where,
            "tensors on two devices: {} on {} and {} on {}; expected all on one; move one with to(Device)",
            first->shape(), name(first->device()), tensor->shape(), name(tensor->device()));
  }
}

namespace view {

Tensor reshape(const Tensor& x, const Shape& shape) {
  Shape resolved = shape;
  int inferred = -1;
  for (int dim = 0; dim < shape.dims(); ++dim) {
    if (shape[dim] != -1) continue;
    require(inferred < 0, "reshape", "only one extent may be -1, got {}", shape);
    inferred = dim;
    resolved[dim] = 1;
  }
  if (inferred >= 0) {
    const std::int64_t known = resolved.count("reshape");
    require(known > 0, "reshape", "-1 in {} could be any number beside an extent of 0; expected all extents", shape);
    resolved[inferred] = x.count() / known;
  }
  require(resolved.count("reshape") == x.count(), "reshape", "{} has {} elements, which do not fill {}", x.shape(),
          x.count(), shape);
  require(x.contiguous(), "reshape", "the tensor {} with strides {} is not dense; call contiguous() first", x.shape(),
          x.strides());
  return x.as_strided(resolved, row_major_strides(resolved), 0);
}

Tensor slice(const Tensor& x, int given, std::int64_t start, std::int64_t length) {
  const int dim = checked_dim("slice", x, given);
  const bool inside = start >= 0 && length >= 0 && start <= x.size(dim) && length <= x.size(dim) - start;
  require(inside, "slice", "[{}, {}) is outside dim {} of {}; expected a part of [0, {})", start,
          static_cast<std::uint64_t>(start) + static_cast<std::uint64_t>(length), dim, x.shape(), x.size(dim));
  return x.as_strided(x.shape().with(dim, length), x.strides(), start * x.strides()[dim]);
}

Tensor select(const Tensor& x, int dim, std::int64_t index) {
  static_cast<void>(checked_dim("select", x, dim));
  require(index >= 0 && index < x.size(dim), "select", "index {} is outside dim {} of {}; expected 0 to {}", index, dim,
          x.shape(), x.size(dim) - 1);
  const Tensor one = slice(x, dim, index, 1);
  return one.as_strided(one.shape().without(dim), one.strides().without(dim), 0);
}

Tensor transpose(const Tensor& x, int first, int second) {
  const int a = checked_dim("transpose", x, first), b = checked_dim("transpose", x, second);
  Shape shape = x.shape(), strides = x.strides();
  std::swap(shape[a], shape[b]);
  std::swap(strides[a], strides[b]);
  return x.as_strided(shape, strides, 0);
}

Tensor permute(const Tensor& x, std::span<const int> dims) {
  require(static_cast<int>(dims.size()) == x.dims(), "permute",
          "{} dims for a tensor {}; expected each of its dims once", dims.size(), x.shape());
  Shape shape = x.shape(), strides = x.strides();
  unsigned seen = 0;
  for (int i = 0; i < x.dims(); ++i) {
    const int dim = checked_dim("permute", x, dims[static_cast<std::size_t>(i)]);
    require((seen >> dim & 1U) == 0, "permute", "dim {} of {} is named twice; expected each dim once", dim, x.shape());
    seen |= 1U << dim;
    shape[i] = x.size(dim);
    strides[i] = x.strides()[dim];
  }
  return x.as_strided(shape, strides, 0);
}

Tensor expand(const Tensor& x, const Shape& shape) {
  require(shape.dims() >= x.dims(), "expand", "{} has more dims than {}", x.shape(), shape);
  for (const std::int64_t extent : shape)
    require(extent >= 0, "expand", "extents must not be negative, got {} for {}; give a dim that stays its own extent",
            shape, x.shape());
  Shape strides = shape;
  for (int i = 1; i <= shape.dims(); ++i) {
    const bool present = i <= x.dims();
    require(!present || x.size(-i) == shape[-i] || x.size(-i) == 1, "expand", "{} does not broadcast to {}", x.shape(),
            shape);
    strides[-i] = present && x.size(-i) != 1 ? x.strides()[-i] : 0;
  }
  return x.as_strided(shape, strides, 0);
}

}  // namespace view
}  // namespace trireme
