// DLPack: tensors between libraries of one process, in memory (dmlc.github.io/dlpack, version 1.1). The structs have
// the layout of the specification's C structs, so that a pointer to one may be passed to any library as a pointer to
// the other:
//
//   dlpack::ManagedTensor* exported = dlpack::to_dlpack(x);      // shares x's memory; its deleter gives it up
//   auto* theirs = reinterpret_cast<DLManagedTensorVersioned*>(exported);
//   const Tensor y = dlpack::from_dlpack(ours);                  // copies the elements, and calls the deleter
//
// Only memory of the host. Read next: data/npy.h, for files.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/tensor.h"

namespace trireme::dlpack {

enum class DeviceType : std::int32_t { cpu = 1, cuda = 2, cuda_host = 3 };  ///< DLDeviceType
/// DLDataTypeCode.
enum class TypeCode : std::uint8_t { integer = 0, unsigned_integer = 1, floating = 2, opaque = 3, bfloat = 4 };

struct DlDevice {  ///< DLDevice
  DeviceType type;
  std::int32_t id;
};

struct DataType {  ///< DLDataType
  TypeCode code;
  std::uint8_t bits;
  std::uint16_t lanes;  ///< 1: not a vector type
};

struct View {  ///< DLTensor
  void* data;
  DlDevice device;
  std::int32_t dims;
  DataType dtype;
  std::int64_t* shape;    ///< [dims]
  std::int64_t* strides;  ///< [dims], in elements; null: dense and row-major
  std::uint64_t byte_offset;
};

struct Version {  ///< DLPackVersion
  std::uint32_t major_number, minor_number;
};
inline constexpr Version version{1, 1};

inline constexpr std::uint64_t read_only = 1;  ///< of ManagedTensor::flags: the receiver must not write
inline constexpr std::uint64_t is_copied = 2;  ///< of the flags: nobody else has this memory

struct ManagedTensor {  ///< DLManagedTensorVersioned, of version 1.0 on
  Version version;
  void* context;                         ///< the producer's
  void (*deleter)(ManagedTensor* self);  ///< the receiver calls it once, when it needs the memory no more; may be null
  std::uint64_t flags;
  View tensor;
};

struct UnversionedTensor {  ///< DLManagedTensor, of versions before 1.0
  View tensor;
  void* context;
  void (*deleter)(UnversionedTensor* self);
};

static_assert(sizeof(View) == 48 && sizeof(ManagedTensor) == 80 && sizeof(UnversionedTensor) == 64);
static_assert(offsetof(View, dtype) == 20 && offsetof(View, shape) == 24 && offsetof(ManagedTensor, tensor) == 32);

/// Shares x's memory, which lives until the deleter was called: writes on either side are seen on the other, and are
/// not counted as changes of x (core/tensor.h). Throws ExitCode::usage for a tensor on a GPU.
/// @snippet files_test.cpp dlpack
ManagedTensor* to_dlpack(const Tensor& x);
/// The same for libraries with DLPack before 1.0.
UnversionedTensor* to_unversioned_dlpack(const Tensor& x);

/// A dense copy. Calls the deleter, also if it throws: ExitCode::data for another device, a dtype that no tensor has,
/// more than 6 dims, negative extents, missing pointers, and another major version (whose deleter it calls, as every
/// version has it at that place).
Tensor from_dlpack(ManagedTensor* tensor);
Tensor from_dlpack(UnversionedTensor* tensor);

}  // namespace trireme::dlpack
