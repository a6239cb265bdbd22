// Tensor: storage + offset + shape + strides + dtype + device + an optional place on the autograd tape.
//
// A Tensor is a handle: copying one copies no elements, and views share storage. It has no arithmetic members;
// autograd/ops.h has the operations and operators. The functions in namespace `view` make views that are *not*
// recorded on the tape: kernels and backward passes use them. A model uses their namesakes in autograd/ops.h.
//
// Storage counts changes of its elements: version(). Backward refuses tensors that were changed after forward saved
// them. These count as changes: data<T>(), span<T>() and raw() of a Tensor variable that is not const, whether or not
// the caller writes (data<const T>() and span<const T>() are for reading, and do not count); the results of kernels;
// copy(); collectives; an optimizer's step. A pointer that was taken earlier is not seen.
// Read next: core/kernels.h (what computes), autograd/node.h (the tape).
#pragma once

#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <iosfwd>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "core/device.h"
#include "core/dtype.h"
#include "core/memory.h"
#include "core/nested_values.h"
#include "core/shape.h"

namespace trireme {

class Node;  // autograd/node.h

/// Elements with a shape: a handle, so copies share them. More at the top of this file.
/// @snippet tensor_test.cpp tensor
class Tensor {
 public:
  /// Undefined: no storage, as for an absent gradient or bias, and after a move. It has no elements, count() and
  /// version() are 0, has_elements() is false, and its dtype and device say nothing. detach() and to() of it are
  /// undefined too. Members that need elements, a dim or the storage throw ExitCode::internal.
  Tensor() = default;

  /// Contents undefined. Throws ExitCode::retryable if not enough memory is free, and ExitCode::usage for a tensor that
  /// is larger than the memory of the machine.
  static Tensor empty(const Shape& shape, DType dtype = DType::f32, Device device = Device::cpu);
  /// On the host, contents undefined, in memory that `device` copies from and to without staging (pinned).
  static Tensor empty_pinned(const Shape& shape, DType dtype, Device device);
  /// 0 in every element.
  static Tensor zeros(const Shape& shape, DType dtype = DType::f32, Device device = Device::cpu);
  static Tensor ones(const Shape& shape, DType dtype = DType::f32,
                     Device device = Device::cpu);  ///< 1 in every element
  /// `value` in every element.
  static Tensor full(const Shape& shape, double value, DType dtype = DType::f32, Device device = Device::cpu);
  /// 0, 1, ..., count - 1, as positions are.
  static Tensor arange(std::int64_t count, DType dtype = DType::i32, Device device = Device::cpu);
  /// first, first + step, ... as long as `end` is not reached: [ceil((end - first) / step)].
  static Tensor arange(double first, double end, double step, DType dtype = DType::f32, Device device = Device::cpu);
  /// Random numbers, uniform in [0, 1) (24 bits), or standard normal. Element i is random_uniform(seed, stream, i), or
  /// random_normal (core/random.h), rounded: a pure function of the arguments, so equal calls return equal tensors.
  static Tensor rand(const Shape& shape, std::uint64_t seed, std::uint64_t stream = 0, DType dtype = DType::f32,
                     Device device = Device::cpu);
  /// Standard normal numbers, as rand.
  static Tensor randn(const Shape& shape, std::uint64_t seed, std::uint64_t stream = 0, DType dtype = DType::f32,
                      Device device = Device::cpu);
  /// A tensor holding a copy of `values`, whose count must be the shape's.
  template <class T>
  static Tensor from(std::span<const T> values, const Shape& shape);
  /// Tensor::from({{1, 2, 3}, {4, 5, 6}}) is f32 [2, 3]. Throws for lists of unequal lengths, and for a fraction if the
  /// dtype is a whole one.
  static Tensor from(const NestedValues& values, DType dtype = DType::f32, Device device = Device::cpu);

  bool defined() const { return storage_ != nullptr; }
  void require_defined(std::string_view where) const;  ///< throws ExitCode::internal, naming `where`, if undefined
  const Shape& shape() const { return shape_; }
  const Shape& strides() const { return strides_; }  ///< in elements
  int dims() const { return shape_.dims(); }
  /// The extent of a dim; negative dims count from the end.
  std::int64_t size(int dim) const {
    if (storage_ == nullptr) [[unlikely]]
      refuse_undefined("Tensor::size");
    return shape_[dim];
  }
  std::int64_t count() const { return storage_ == nullptr ? 0 : shape_.count(); }
  std::int64_t bytes() const { return count() * static_cast<std::int64_t>(size_of(dtype_)); }
  DType dtype() const { return dtype_; }
  Device device() const { return device_; }
  bool contiguous() const;  ///< dense and row-major

  /// The first element, in host memory. Throws unless T is the tensor's element type and the host can read it. To read
  /// only, ask for data<const float>(), or call it on a const Tensor. See version().
  template <class T>
  T* data() const& {
    constexpr DType asked = dtype_of<std::remove_const_t<T>>;
    if (storage_ == nullptr) [[unlikely]]
      refuse_undefined("Tensor::data");
    require(asked == dtype_, "Tensor::data", "the tensor holds {}, asked for {}", name(dtype_), name(asked));
    return static_cast<T*>(raw());
  }
  /// The same for writing: counts as a change, unless T is const.
  template <class T>
  T* data() & {
    if constexpr (!std::is_const_v<T>) mark_written();
    return std::as_const(*this).data<T>();
  }
  void* raw() const&;  ///< data() without its type: throws unless the host can read it
  void* raw() & {
    mark_written();
    return std::as_const(*this).raw();
  }
  /// The first element, as an address on the tensor's device: for kernels of that device only.
  void* device_address() const;
  /// This tensor if it is on `device` already, else a dense copy there; off the tape.
  Tensor to(Device device) const;
  template <class T>
  std::span<T> span() const& {  ///< all elements of a contiguous tensor
    require(contiguous(), "Tensor::span", "the tensor {} is not contiguous; call contiguous() first", shape_);
    return {data<T>(), static_cast<std::size_t>(count())};
  }
  /// The same for writing: counts as a change, unless T is const.
  template <class T>
  std::span<T> span() & {
    if constexpr (!std::is_const_v<T>) mark_written();
    return std::as_const(*this).span<T>();
  }
  double item() const;  ///< the value of a one-element tensor; waits for the device

  /// A view: another shape and other strides over the same storage. `offset` is in elements, relative to this tensor's
  /// first.
  Tensor as_strided(const Shape& shape, const Shape& strides, std::int64_t offset) const;
  /// Whether one is a view of the other, or both of a third.
  bool shares_storage_with(const Tensor& other) const { return storage_ != nullptr && storage_ == other.storage_; }
  std::int64_t owners() const { return storage_.use_count(); }  ///< tensors with this storage
  bool sole_owner() const { return owners() == 1; }             ///< no other tensor sees a change in place
  /// Whether its elements are all that its storage has room for, in order.
  bool fills_storage() const { return contiguous() && static_cast<std::size_t>(bytes()) == block("Tensor").bytes(); }
  /// What the storage is for from here on.
  void set_category(MemoryCategory category) const { block("Tensor::set_category").set_category(category); }
  std::weak_ptr<const MemoryPool::Block> storage() const { return storage_; }

  /// How often the elements of the storage may have changed: see the top of this file.
  std::uint64_t version() const { return storage_ == nullptr ? 0 : storage_->version(); }
  /// Counts a change that this class does not see. Does nothing to an undefined tensor.
  void mark_written() const {
    if (storage_ != nullptr) storage_->set_version(storage_->version() + 1);
  }
  /// For elements that are the same again as they were at this version, such as a weight gathered a second time.
  void set_version(std::uint64_t version) const { block("Tensor::set_version").set_version(version); }

  // Free the memory of a tensor and all its views, and allocate it again: for a weight that is gathered only while it
  // is used.
  /// Until allocate_elements(), touching them is an error.
  void release_elements() const { block("Tensor::release_elements").release(); }
  /// With undefined values; does nothing if they are there.
  void allocate_elements() const { block("Tensor::allocate_elements").acquire(); }
  bool has_elements() const { return storage_ != nullptr && storage_->data() != nullptr; }
  /// Frees the memory until an element of the tensor or of a view is touched for the first time; `fill` then writes all
  /// of them. For a weight of which ZeRO keeps a shard only.
  void fill_on_use(std::function<void()> fill) const { block("Tensor::fill_on_use").fill_on_use(std::move(fill)); }

  /// Says that the last dim is not all of a vocabulary or not only that: it has padding, or is this rank's part of the
  /// whole. For cross_entropy(), softmax() and the like, which would otherwise take all columns for classes. All
  /// tensors of this storage know it. core/columns.h says which others do.
  void set_columns(const MemoryPool::Columns& columns) const { block("Tensor::set_columns").set_columns(columns); }
  /// What set_columns() has said of this tensor's storage; otherwise zeros.
  MemoryPool::Columns columns() const { return storage_ == nullptr ? MemoryPool::Columns() : storage_->columns(); }

  /// Says that all ids of this storage are from `low` to `high`. A copy that to() makes on a device knows it. So
  /// check_ids() need not read ids there, for which the host would wait.
  void set_extremes(std::int32_t low, std::int32_t high) const {
    block("Tensor::set_extremes").set_extremes(low, high);
  }
  /// What is known of the ids; empty after a write.
  std::optional<MemoryPool::Extremes> extremes() const { return block("Tensor::extremes").extremes(); }

  /// The operation that made this tensor, or the leaf that collects its gradient; null when no gradient flows here.
  const std::shared_ptr<Node>& node() const { return node_; }
  bool requires_grad() const { return node_ != nullptr; }
  /// For the engine: puts the tensor on the tape, or with null takes it off.
  void set_node(std::shared_ptr<Node> node) { node_ = std::move(node); }
  Tensor detach() const;  ///< the same elements, off the tape

 private:
  static Tensor make(const Shape& shape, DType dtype, Device device, std::shared_ptr<DeviceBackend> pinned_for);
  [[noreturn]] static void refuse_undefined(std::string_view where);
  /// The storage; throws, naming `where`, if there is none.
  MemoryPool::Block& block(std::string_view where) const {
    if (storage_ == nullptr) [[unlikely]]
      refuse_undefined(where);
    return *storage_;
  }

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
/// Dtype, shape and elements, as NumPy prints an array. Of more than 1000 elements, the first and last three indices of
/// each dim are shown. Waits for the device. fmt::print("{}\n", x) and std::cout << x print it.
std::string to_string(const Tensor& x);
/// Prints to_string(x).
std::ostream& operator<<(std::ostream& stream, const Tensor& x);
/// `dim` counted from the front; negative ones count from the end. Throws, naming `where`, if x has no such dim.
int checked_dim(std::string_view where, const Tensor& x, int dim);
/// Throws ExitCode::internal, naming `where`, unless a tensor of this dtype can hold the number: a whole dtype holds
/// whole numbers of its range only.
void require_whole_number(std::string_view where, double value, DType dtype);
/// Throws unless all defined tensors are on the first one's device; `where` is the operation.
void require_one_device(std::string_view where, std::initializer_list<const Tensor*> tensors);

namespace view {
Tensor reshape(const Tensor& x, const Shape& shape);  ///< of a dense tensor; one extent may be -1: inferred
/// Indices start .. start + length - 1 of dim.
Tensor slice(const Tensor& x, int dim, std::int64_t start, std::int64_t length);
Tensor select(const Tensor& x, int dim, std::int64_t index);  ///< slice of length 1 with the dim removed
Tensor transpose(const Tensor& x, int a, int b);              ///< dims a and b exchanged
Tensor permute(const Tensor& x, std::span<const int> dims);   ///< dim i of the result is dim dims[i] of x
Tensor expand(const Tensor& x, const Shape& shape);           ///< broadcast: extents of 1 repeat with stride 0
}  // namespace view

}  // namespace trireme

template <>
struct fmt::formatter<trireme::Tensor> {
  constexpr auto parse(fmt::format_parse_context& context) { return context.begin(); }
  fmt::format_context::iterator format(const trireme::Tensor& x, fmt::format_context& context) const;
};
