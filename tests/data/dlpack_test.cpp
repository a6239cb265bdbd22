// DLPack: tensors of other libraries, and ours for them.
#include "data/dlpack.h"

#include <array>

#include "tests/support/errors.h"
#include "tests/support/tensors.h"

using namespace trireme;
using namespace trireme::testing;

namespace dlpack_test {
namespace {

int deleted = 0;

/// A tensor of another library: [2, 3] f32 in memory of its own.
struct Foreign {
  std::array<float, 12> data = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  std::array<std::int64_t, 2> shape = {2, 3}, strides = {3, 1};
  dlpack::ManagedTensor managed{.version = dlpack::version,
                                .context = nullptr,
                                .deleter = [](dlpack::ManagedTensor*) { ++deleted; },
                                .flags = 0,
                                .tensor = {.data = data.data(),
                                           .device = {dlpack::DeviceType::cpu, 0},
                                           .dims = 2,
                                           .dtype = {dlpack::TypeCode::floating, 32, 1},
                                           .shape = shape.data(),
                                           .strides = strides.data(),
                                           .byte_offset = 0}};
  Tensor take() { return dlpack::from_dlpack(&managed); }
};

}  // namespace

TEST_CASE("an exported tensor shares memory, with its strides, until the deleter is called") {
  for (const DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16, DType::i64, DType::i32, DType::u8}) {
    Tensor x = Tensor::full({2, 3}, 5, dtype);
    const std::int64_t owners = x.owners();
    dlpack::ManagedTensor* managed = dlpack::to_dlpack(view::transpose(x, 0, 1));
    CHECK(x.owners() == owners + 1);
    CHECK(managed->version.major_number == 1);
    CHECK(managed->tensor.data == x.raw());
    CHECK((managed->tensor.dims == 2 && managed->tensor.shape[0] == 3 && managed->tensor.strides[0] == 1));
    CHECK(managed->tensor.strides[1] == 3);
    CHECK(managed->tensor.dtype.bits == 8 * size_of(dtype));
    managed->deleter(managed);
    CHECK(x.owners() == owners);
  }
}

TEST_CASE("an exported tensor outlives ours, and writes are seen on both sides") {
  Tensor x = Tensor::zeros({4});
  dlpack::UnversionedTensor* managed = dlpack::to_unversioned_dlpack(view::slice(x, 0, 1, 2));
  static_cast<float*>(managed->tensor.data)[0] = 7;
  CHECK(x.data<float>()[1] == 7);
  x = Tensor();
  CHECK(static_cast<float*>(managed->tensor.data)[0] == 7);
  managed->deleter(managed);
}

TEST_CASE("what is exported comes back bit by bit, from any strides") {
  const Tensor x = random({3, 4, 5}, 1);
  for (const Tensor& view : {x, view::transpose(x, 0, 2), view::slice(x, 1, 1, 2), view::select(x, 2, 3)}) {
    CHECK(same_bits(dlpack::from_dlpack(dlpack::to_dlpack(view)), view));
    CHECK(same_bits(dlpack::from_dlpack(dlpack::to_unversioned_dlpack(view)), view));
  }
  const Tensor scalar = Tensor::full({}, 2);
  CHECK(dlpack::from_dlpack(dlpack::to_dlpack(scalar)).item() == 2);
}

TEST_CASE("a tensor of another library is copied, and its deleter called once") {
  deleted = 0;
  Foreign foreign;
  const Tensor x = foreign.take();
  CHECK(deleted == 1);
  CHECK(x.shape() == Shape{2, 3});
  CHECK(x.data<float>()[5] == 5);
  foreign.data.fill(-1);
  CHECK(x.data<float>()[5] == 5);

  Foreign offset;
  offset.managed.tensor.byte_offset = 8;
  CHECK(offset.take().data<float>()[0] == 2);
  Foreign dense;
  dense.managed.tensor.strides = nullptr;
  CHECK(dense.take().data<float>()[4] == 4);
  Foreign column_major;
  column_major.strides = {1, 2};
  CHECK(column_major.take().data<float>()[1] == 2);
  Foreign broadcast;
  broadcast.strides = {0, 1};
  CHECK(broadcast.take().data<float>()[3] == 0);
  Foreign reversed;
  reversed.strides = {3, -1};
  reversed.managed.tensor.byte_offset = 8;
  CHECK(reversed.take().data<float>()[0] == 2);
  Foreign empty;
  empty.shape = {0, 3};
  empty.managed.tensor.data = nullptr;
  CHECK(empty.take().shape() == Shape{0, 3});
  Foreign kept;  // a producer without a deleter
  kept.managed.deleter = nullptr;
  CHECK(kept.take().count() == 6);
}

TEST_CASE("what cannot be taken is refused, and given back") {
  const auto refused = [](const auto& change) {
    Foreign foreign;
    change(foreign);
    deleted = 0;
    const std::string said = error_of([&] { foreign.take(); }, ExitCode::data);
    CHECK(deleted == 1);
    return said;
  };
  CHECK(says(refused([](Foreign& f) { f.managed.version.major_number = 2; }),
             "[dlpack] version 2.1 of DLPack; expected 1"));
  CHECK(says(refused([](Foreign& f) { f.managed.tensor.device.type = dlpack::DeviceType::cuda; }),
             "memory of a device of type 2"));
  CHECK(says(refused([](Foreign& f) { f.managed.tensor.dtype.lanes = 4; }), "32 bits and 4 lanes"));
  CHECK(says(refused([](Foreign& f) { f.managed.tensor.dtype.bits = 8; }), "a dtype of code 2, 8 bits"));
  CHECK(says(refused([](Foreign& f) { f.managed.tensor.dims = 7; }), "7 dims"));
  CHECK(says(refused([](Foreign& f) { f.managed.tensor.dims = -1; }), "-1 dims"));
  CHECK(says(refused([](Foreign& f) { f.managed.tensor.shape = nullptr; }), "2 dims without a shape"));
  CHECK(says(refused([](Foreign& f) { f.shape[0] = -2; }), "an extent of -2 in dim 0"));
  CHECK(says(refused([](Foreign& f) { f.shape = {std::int64_t{1} << 40, std::int64_t{1} << 40}; }), "at most 2^48"));
  CHECK(says(refused([](Foreign& f) { f.managed.tensor.data = nullptr; }), "a tensor [2, 3] without memory"));
  CHECK(says(error_of([] { dlpack::from_dlpack(static_cast<dlpack::ManagedTensor*>(nullptr)); }, ExitCode::internal),
             "the pointer is null"));
}

}  // namespace dlpack_test
