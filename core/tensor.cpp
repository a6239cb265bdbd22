#include "core/tensor.h"

#include "core/kernels.h"

namespace trireme {

Tensor Tensor::empty(const Shape& shape, DType dtype, Device device) { return make(shape, dtype, device, nullptr); }

Tensor Tensor::empty_pinned(const Shape& shape, DType dtype, Device device) {
  return make(shape, dtype, Device::cpu, shared_backend(device));
}

Tensor Tensor::make(const Shape& shape, DType dtype, Device device, std::shared_ptr<DeviceBackend> pinned_for) {
  for (const std::int64_t extent : shape) {
    require(extent >= 0, "Tensor::empty", "extents must not be negative, got {}", shape);
  }
  Tensor result;
  const auto bytes = static_cast<std::size_t>(shape.count()) * size_of(dtype);
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
  Tensor result = empty(shape, dtype, device);
  kernels(device).fill(result, value);
  return result;
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

void* Tensor::raw() const {
  require(device_ == Device::cpu, "Tensor::data",
          "the tensor {} is on {}, where the host cannot read; expected one on cpu; call to(Device::cpu), or an "
          "operation whose tensors are all on one device",
          shape_, name(device_));
  return device_address();
}

void* Tensor::device_address() const {
  require(defined(), "Tensor::data", "the tensor is undefined (was it an absent gradient or bias?)");
  require(has_elements(), "Tensor::data",
          "the elements of this tensor {} have been released; a sharded parameter is there only inside its unit",
          shape_);
  return static_cast<std::byte*>(storage_->data()) + static_cast<std::size_t>(offset_) * size_of(dtype_);
}

Tensor Tensor::to(Device device) const {
  if (device == device_) return detach();
  Tensor result = empty(shape_, dtype_, device);
  copy(*this, result);
  return result;
}

double Tensor::item() const {
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
  Tensor result = detach();
  result.shape_ = shape;
  result.strides_ = strides;
  result.offset_ += offset;
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
  Tensor result = Tensor::empty(x.shape(), dtype, x.device());
  copy(x, result);
  return result;
}

Tensor clone(const Tensor& x) {
  Tensor result = Tensor::empty(x.shape(), x.dtype(), x.device());
  copy(x, result);
  return result;
}

void copy(const Tensor& from, Tensor& to) {
  require(from.shape() == to.shape(), "copy", "shapes differ: from {}, to {}", from.shape(), to.shape());
  if (from.device() == to.device()) return kernels(to.device()).copy(from, to);
  if (to.count() == 0) return;
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
  std::int64_t known = 1;
  int inferred = -1;
  for (int dim = 0; dim < shape.dims(); ++dim) {
    if (shape[dim] == -1) {
      require(inferred < 0, "reshape", "only one extent may be -1, got {}", shape);
      inferred = dim;
    } else {
      known *= shape[dim];
    }
  }
  if (inferred >= 0 && known > 0) resolved[inferred] = x.count() / known;
  require(resolved.count() == x.count(), "reshape", "{} has {} elements, which do not fill {}", x.shape(), x.count(),
          shape);
  require(x.contiguous(), "reshape", "the tensor {} with strides {} is not dense; call contiguous() first", x.shape(),
          x.strides());
  return x.as_strided(resolved, row_major_strides(resolved), 0);
}

Tensor slice(const Tensor& x, int dim, std::int64_t start, std::int64_t length) {
  require(start >= 0 && length >= 0 && start + length <= x.size(dim), "slice", "[{}, {}) is outside dim {} of {}",
          start, start + length, dim, x.shape());
  return x.as_strided(x.shape().with(dim, length), x.strides(), start * x.strides()[dim]);
}

Tensor select(const Tensor& x, int dim, std::int64_t index) {
  const Tensor one = slice(x, dim, index, 1);
  return one.as_strided(one.shape().without(dim), one.strides().without(dim), 0);
}

Tensor transpose(const Tensor& x, int a, int b) {
  Shape shape = x.shape(), strides = x.strides();
  std::swap(shape[a], shape[b]);
  std::swap(strides[a], strides[b]);
  return x.as_strided(shape, strides, 0);
}

Tensor expand(const Tensor& x, const Shape& shape) {
  require(shape.dims() >= x.dims(), "expand", "{} has more dims than {}", x.shape(), shape);
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
