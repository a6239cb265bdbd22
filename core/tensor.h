// Tensor: storage + offset + shape + strides + dtype + device + an optional place on the autograd tape.
//
// A Tensor is a handle: copying one copies no elements, and views share storage. It has no arithmetic members;
// autograd/ops.h has the operations and operators. The functions in namespace `view` make views that are *not*
// recorded on the tape: kernels and backward passes use them. A model uses their namesakes in autograd/ops.h.
// Read next: core/kernels.h (what computes), autograd/node.h (the tape).
#pragma once

#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include "core/device.h"
#include "core/dtype.h"
#include "core/memory.h"
#include "core/shape.h"

namespace trireme {

class Node;  // autograd/node.h

class Tensor {
 public:
  Tensor() = default;  ///< undefined: no storage, as for an absent gradient or bias

  static Tensor empty(const Shape& shape, DType dtype = DType::f32, Device device = Device::cpu);
  /// On the host, contents undefined, in memory that `device` copies from and to without staging (pinned).
  static Tensor empty_pinned(const Shape& shape, DType dtype, Device device);
  static Tensor zeros(const Shape& shape, DType dtype = DType::f32, Device device = Device::cpu);
  static Tensor full(const Shape& shape, double value, DType dtype = DType::f32, Device device = Device::cpu);
  /// A tensor holding a copy of `values`, whose count must be the shape's.
  template <class T>
  static Tensor from(std::span<const T> values, const Shape& shape);

  bool defined() const { return storage_ != nullptr; }
  const Shape& shape() const { return shape_; }
  const Shape& strides() const { return strides_; }  ///< in elements
  int dims() const { return shape_.dims(); }
  std::int64_t size(int dim) const { return shape_[dim]; }
  std::int64_t count() const { return shape_.count(); }
  std::int64_t bytes() const { return count() * static_cast<std::int64_t>(size_of(dtype_)); }
  DType dtype() const { return dtype_; }
  Device device() const { return device_; }
  bool contiguous() const;  ///< dense and row-major

  /// The first element, in host memory. Throws unless T is the tensor's element type and the host can read it.
  template <class T>
  T* data() const {
    require(dtype_of<T> == dtype_, "Tensor::data", "the tensor holds {}, asked for {}", name(dtype_),
            name(dtype_of<T>));
    return static_cast<T*>(raw());
  }
  void* raw() const;
  /// The first element, as an address on the tensor's device: for kernels of that device only.
  void* device_address() const;
  /// This tensor if it is on `device` already, else a dense copy there; off the tape.
  Tensor to(Device device) const;
  template <class T>
  std::span<T> span() const {  ///< all elements of a contiguous tensor
    require(contiguous(), "Tensor::span", "the tensor {} is not contiguous; call contiguous() first", shape_);
    return {data<T>(), static_cast<std::size_t>(count())};
  }
  double item() const;  ///< the value of a one-element tensor; waits for the device

  /// A view: another shape and other strides over the same storage. `offset` is in elements, relative to this tensor's
  /// first.
  Tensor as_strided(const Shape& shape, const Shape& strides, std::int64_t offset) const;
  bool shares_storage_with(const Tensor& other) const { return storage_ == other.storage_; }
  bool sole_owner() const { return storage_.use_count() == 1; }  ///< no other tensor sees a change in place

  // Free the memory of a tensor and all its views, and allocate it again: for a weight that is gathered only while it
  // is used.
  void release_elements() const { storage_->release(); }   ///< until allocate_elements(), touching them is an error
  void allocate_elements() const { storage_->acquire(); }  ///< with undefined values; does nothing if they are there
  bool has_elements() const { return storage_->data() != nullptr; }

  /// The operation that made this tensor, or the leaf that collects its gradient; null when no gradient flows here.
  const std::shared_ptr<Node>& node() const { return node_; }
  bool requires_grad() const { return node_ != nullptr; }
  void set_node(std::shared_ptr<Node> node) { node_ = std::move(node); }
  Tensor detach() const;  ///< the same elements, off the tape

 private:
  static Tensor make(const Shape& shape, DType dtype, Device device, std::shared_ptr<DeviceBackend> pinned_for);

  std::shared_ptr<MemoryPool::Block> storage_;
  std::int64_t offset_ = 0;  // in elements
  Shape shape_, strides_;
  DType dtype_ = DType::f32;
  Device device_ = Device::cpu;
  std::shared_ptr<Node> node_;
};

template <class T>
Tensor Tensor::from(std::span<const T> values, const Shape& shape) {
  require(static_cast<std::int64_t>(values.size()) == shape.count(), "Tensor::from", "shape {} needs {} values, got {}",
          shape, shape.count(), values.size());
  Tensor result = empty(shape, dtype_of<T>);
  if (!values.empty()) std::memcpy(result.raw(), values.data(), values.size_bytes());
  return result;
}

Tensor contiguous(const Tensor& x);         ///< x itself when dense, else a dense copy; off the tape
Tensor cast(const Tensor& x, DType dtype);  ///< x itself when it has that dtype, else a converted copy; off the tape
Tensor clone(const Tensor& x);              ///< a dense copy; off the tape
void copy(const Tensor& from, Tensor& to);  ///< same shape; converts dtype, follows strides, from any device to any
/// Throws unless all defined tensors are on the first one's device; `where` is the operation.
void require_one_device(std::string_view where, std::initializer_list<const Tensor*> tensors);

namespace view {
Tensor reshape(const Tensor& x, const Shape& shape);  ///< of a dense tensor; one extent may be -1: inferred
Tensor slice(const Tensor& x, int dim, std::int64_t start, std::int64_t length);
Tensor select(const Tensor& x, int dim, std::int64_t index);  ///< slice of length 1 with the dim removed
Tensor transpose(const Tensor& x, int a, int b);
Tensor expand(const Tensor& x, const Shape& shape);  ///< broadcast: extents of 1 repeat with stride 0
}  // namespace view

}  // namespace trireme
