#include "data/dlpack.h"

#include <array>
#include <cstring>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "core/extents.h"

namespace trireme::dlpack {
namespace {

struct Row {
  DType dtype;
  TypeCode code;
  int bits;
};
constexpr std::array<Row, 7> rows = {{{DType::f64, TypeCode::floating, 64},
                                      {DType::f32, TypeCode::floating, 32},
                                      {DType::f16, TypeCode::floating, 16},
                                      {DType::bf16, TypeCode::bfloat, 16},
                                      {DType::i64, TypeCode::integer, 64},
                                      {DType::i32, TypeCode::integer, 32},
                                      {DType::u8, TypeCode::unsigned_integer, 8}}};

/// What an exported struct keeps alive: the tensor, and the arrays that the struct points to.
template <class Managed>
struct Exported {
  Managed managed{};
  Tensor tensor;
  Shape shape, strides;
};

template <class Managed>
Managed* exported(const Tensor& x) {
  require(x.defined(), "dlpack", "the tensor is undefined; expected one with elements");
  if (x.device() != Device::cpu)
    fail(ExitCode::usage, "dlpack", "the tensor {} is on a GPU; expected one in host memory; give it x.to(Device::cpu)",
         x.shape());
  auto owner = std::make_unique<Exported<Managed>>();
  owner->tensor = x.detach();
  owner->shape = x.shape();
  owner->strides = x.strides();
  View& view = owner->managed.tensor;
  view.data = std::as_const(owner->tensor).raw();
  view.device = {DeviceType::cpu, 0};
  view.dims = x.dims();
  for (const Row& row : rows)
    if (row.dtype == x.dtype()) view.dtype = {row.code, static_cast<std::uint8_t>(row.bits), 1};
  view.shape = owner->shape.begin();
  view.strides = owner->strides.begin();
  owner->managed.context = owner.get();
  owner->managed.deleter = [](Managed* self) { delete static_cast<Exported<Managed>*>(self->context); };
  return &owner.release()->managed;
}

DType dtype_of_view(const View& view) {
  for (const Row& row : rows)
    if (row.code == view.dtype.code && row.bits == view.dtype.bits && view.dtype.lanes == 1) return row.dtype;
  fail(ExitCode::data, "dlpack",
       "a dtype of code {}, {} bits and {} lanes; expected f64, f32, f16, bf16, i64, i32 or u8; convert it first",
       static_cast<int>(view.dtype.code), view.dtype.bits, view.dtype.lanes);
}

/// Copies the elements in row-major order.
void copy_elements(const View& view, const std::byte* from, int dim, std::size_t element, std::byte*& to) {
  if (dim == view.dims) {
    std::memcpy(to, from, element);
    to += element;
    return;
  }
  std::int64_t stride = 1;
  if (view.strides != nullptr) {
    stride = view.strides[dim];
  } else {
    for (int inner = dim + 1; inner < view.dims; ++inner) stride *= view.shape[inner];
  }
  const bool dense_row = dim == view.dims - 1 && stride == 1;
  if (dense_row) {
    const std::size_t bytes = static_cast<std::size_t>(view.shape[dim]) * element;
    std::memcpy(to, from, bytes);
    to += bytes;
    return;
  }
  for (std::int64_t i = 0; i < view.shape[dim]; ++i)
    copy_elements(view, from + i * stride * static_cast<std::int64_t>(element), dim + 1, element, to);
}

Tensor copied(const View& view) {
  if (view.device.type != DeviceType::cpu && view.device.type != DeviceType::cuda_host)
    fail(ExitCode::data, "dlpack", "memory of a device of type {}; expected the host's (1); copy it there first",
         static_cast<int>(view.device.type));
  const DType dtype = dtype_of_view(view);
  if (view.dims < 0 || view.dims > Shape::max_dims || (view.dims > 0 && view.shape == nullptr))
    fail(ExitCode::data, "dlpack", "{} dims{}; expected 0 to {}, with their extents", view.dims,
         view.shape == nullptr ? " without a shape" : "", Shape::max_dims);
  std::vector<std::int64_t> extents;
  for (int dim = 0; dim < view.dims; ++dim) {
    extents.push_back(view.shape[dim]);
    if (!are_possible(extents))
      fail(ExitCode::data, "dlpack", "an extent of {} in dim {}; expected at least 0, and at most 2^48 elements",
           extents.back(), dim);
  }
  const Tensor tensor = Tensor::empty(Shape(std::span<const std::int64_t>(extents)), dtype);
  if (tensor.count() == 0) return tensor;
  if (view.data == nullptr)
    fail(ExitCode::data, "dlpack", "a tensor {} without memory; expected a pointer to its elements", tensor.shape());
  auto* to = static_cast<std::byte*>(tensor.raw());
  copy_elements(view, static_cast<const std::byte*>(view.data) + view.byte_offset, 0, size_of(dtype), to);
  return tensor;
}

/// Calls the deleter when it is destroyed.
template <class Managed>
struct Release {
  Managed* tensor;
  explicit Release(Managed* managed) : tensor(managed) {
    require(tensor != nullptr, "dlpack", "the pointer is null; expected a tensor");
  }
  ~Release() {
    if (tensor->deleter != nullptr) tensor->deleter(tensor);
  }
  Release(const Release&) = delete;
  Release& operator=(const Release&) = delete;
};

}  // namespace

ManagedTensor* to_dlpack(const Tensor& x) {
  ManagedTensor* const result = exported<ManagedTensor>(x);
  result->version = version;
  return result;
}

UnversionedTensor* to_unversioned_dlpack(const Tensor& x) { return exported<UnversionedTensor>(x); }

Tensor from_dlpack(ManagedTensor* tensor) {
  const Release release(tensor);
  if (tensor->version.major_number != version.major_number)
    fail(ExitCode::data, "dlpack", "version {}.{} of DLPack; expected {}; ask the producer for that version",
         tensor->version.major_number, tensor->version.minor_number, version.major_number);
  return copied(tensor->tensor);
}

Tensor from_dlpack(UnversionedTensor* tensor) {
  const Release release(tensor);
  return copied(tensor->tensor);
}

}  // namespace trireme::dlpack
