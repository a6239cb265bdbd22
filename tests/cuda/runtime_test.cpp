// Device::cuda as core sees it, on the emulated GPU: memory, copies, and what is refused.
#include <doctest/doctest.h>

#include <cmath>
#include <numeric>
#include <thread>

#include "core/device_work.h"
#include "core/host_copy.h"
#include "core/kernels.h"
#include "cuda/runtime/emulated.h"
#include "cuda/runtime/open.h"
#include "cuda/runtime/stream.h"
#include "cuda/runtime/uploads.h"
#include "tests/cuda/support.h"
#include "tests/support/tensors.h"

using namespace trireme;
using namespace trireme::cuda;
using cuda_test::error_of;
using testing::contains;
using testing::same_bits;

namespace runtime_test {
namespace {

Tensor numbers(const Shape& shape) {
  std::vector<float> values(static_cast<std::size_t>(shape.count()));
  std::iota(values.begin(), values.end(), 1.0F);
  return Tensor::from<float>(values, shape);
}

}  // namespace

TEST_CASE("cuda tensors: there and back, from views, and into other dtypes on the host") {
  const ScopedEmulatedDevice device;
  const Tensor x = numbers({3, 4});  // [3, 4]
  const Tensor there = x.to(Device::cuda);
  CHECK(there.device() == Device::cuda);
  CHECK(there.dtype() == DType::f32);
  CHECK(same_bits(there.to(Device::cpu), x));
  CHECK(there.to(Device::cuda).shares_storage_with(there));
  CHECK(same_bits(clone(there).to(Device::cpu), x));
  CHECK_FALSE(clone(there).shares_storage_with(there));

  const Tensor turned = view::transpose(x, 0, 1);  // [4, 3]
  CHECK(same_bits(turned.to(Device::cuda).to(Device::cpu), turned));
  CHECK(same_bits(view::slice(there, 0, 1, 2).to(Device::cpu), view::slice(x, 0, 1, 2)));

  Tensor low = Tensor::empty({3, 4}, DType::bf16), low_there = Tensor::empty({3, 4}, DType::bf16, Device::cuda);
  copy(there, low);
  CHECK(same_bits(low, cast(x, DType::bf16)));
  copy(x, low_there);
  CHECK(same_bits(low_there.to(Device::cpu), cast(x, DType::bf16)));
  Tensor wide = Tensor::zeros({3, 8});
  Tensor part = view::slice(wide, 1, 2, 4);
  copy(there, part);
  CHECK(same_bits(part, x));
  CHECK(wide.span<float>()[1] == 0);

  CHECK(Tensor::empty({0, 4}, DType::f32, Device::cuda).to(Device::cpu).count() == 0);
}

TEST_CASE("cuda tensors: a copy to the host that is read later has the values of when it was queued") {
  const ScopedEmulatedDevice device;
  Tensor x = numbers({3, 4}).to(Device::cuda);
  const DeviceWork before = device_work();
  HostCopy copy(view::transpose(x, 0, 1)), dropped(x);
  kernels(Device::cuda).fill(x, 0);
  CHECK((device_work() - before).waits == 0);
  CHECK(same_bits(copy.get(), view::transpose(numbers({3, 4}), 0, 1)));
  CHECK((device_work() - before).waits == 1);
  CHECK(copy.get().shape() == Shape{4, 3});
  CHECK((device_work() - before).waits == 1);
  const Tensor here = numbers({2});
  CHECK(HostCopy(here).get().shares_storage_with(here));
}

TEST_CASE("cuda device: launches, copies, allocations and waits are counted for the thread that makes them") {
  const ScopedEmulatedDevice device;
  const Tensor large = Tensor::empty({static_cast<std::int64_t>(kLargestQueuedUpload) + 1}, DType::u8);
  const auto work = [](const auto& f) {
    const DeviceWork before = device_work();
    f();
    return device_work() - before;
  };
  const auto check = [](const DeviceWork& w, std::uint64_t launches, std::uint64_t copies, std::uint64_t allocations,
                        std::uint64_t waits) {
    CHECK(w.launches == launches);
    CHECK(w.copies == copies);
    CHECK(w.allocations == allocations);
    CHECK(w.waits == waits);
  };
  Tensor x;
  check(work([&] { x = numbers({4}).to(Device::cuda); }), 0, 1, 1, 0);
  check(work([&] { (void)large.to(Device::cuda); }), 0, 1, 1, 1);  // too large to be queued
  check(work([&] { kernels(Device::cuda).unary(Unary::square, x, x); }), 1, 0, 0, 0);
  check(work([&] { kernels(Device::cuda).fill(x, 0); }), 0, 1, 0, 0);
  check(work([&] { (void)x.to(Device::cpu); }), 0, 1, 0, 1);
  check(work([&] { backend(Device::cuda).synchronize(); }), 0, 0, 0, 1);
  check(work([&] { std::thread([&] { (void)x.to(Device::cpu); }).join(); }), 0, 0, 0, 0);
}

TEST_CASE("cuda tensors: fill by value, in every dtype, and item") {
  const ScopedEmulatedDevice device;
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16, DType::i64, DType::i32, DType::u8})
    for (const double value : {0.0, 3.0, 7.0})
      for (const std::int64_t count : {1, 2, 7, 64, 1000}) {
        CAPTURE(name(dtype));
        CAPTURE(count);
        CHECK(same_bits(Tensor::full({count}, value, dtype, Device::cuda).to(Device::cpu),
                        Tensor::full({count}, value, dtype)));
      }
  CHECK(Tensor::full({1, 1}, 2.5, DType::f16, Device::cuda).item() == 2.5);
  Tensor x = Tensor::zeros({4}, DType::f32, Device::cuda), middle = view::slice(x, 0, 1, 2);
  kernels(Device::cuda).fill(middle, 5);
  const std::vector<float> expected = {0, 5, 5, 0};
  CHECK(same_bits(x.to(Device::cpu), Tensor::from<float>(expected, {4})));
  CHECK(std::isnan(Tensor::empty({1}, DType::f32, Device::cuda).item()));  // the emulator poisons new memory
}

TEST_CASE("cuda memory: counted by category, returned, and refused with what is in use") {
  const ScopedEmulatedDevice device(4000);
  const auto pool = MemoryPool::current()->on(Device::cuda);
  const std::int64_t host = MemoryPool::current()->total().live;
  {
    const MemoryScope scope(MemoryCategory::parameters);
    const Tensor weight = Tensor::empty({500}, DType::f32, Device::cuda);
    CHECK(pool->use(MemoryCategory::parameters).live == 2000);
    CHECK(MemoryPool::current()->total().live == host);
    const MemoryScope inner(MemoryCategory::activations);
    const Tensor kept = Tensor::empty({250}, DType::f32, Device::cuda);
    const std::string error = error_of([] { Tensor::empty({1000}, DType::f32, Device::cuda); });
    for (const char* part :
         {"out of device memory", "asked for 4000 bytes for activations", "3000 bytes in use", "parameters 2000",
          "activations 1000", "emulated GPU has 1000 bytes left", "--micro-batch"})
      CHECK_MESSAGE(contains(error, part), error);
    weight.release_elements();
    CHECK(pool->total().live == 1000);
    CHECK(Tensor::empty({700}, DType::f32, Device::cuda).defined());
    CHECK(contains(error_of([&] { weight.to(Device::cpu); }), "released"));
  }
  CHECK(pool->total().live == 0);
  CHECK(pool->total().peak == 3800);
  CHECK(backend(Device::cuda).free_memory() == 4000);
}

TEST_CASE("cuda memory: a helper thread allocates from its rank's pool") {
  const ScopedEmulatedDevice device;
  const auto pool = MemoryPool::current();
  Tensor x;
  std::thread([&] {
    MemoryPool::set_current(pool);
    x = Tensor::zeros({8}, DType::f32, Device::cuda);
  }).join();
  CHECK(pool->on(Device::cuda)->total().live == 32);
}

TEST_CASE("cuda tensors: the host cannot touch them, and operations cannot mix devices") {
  const ScopedEmulatedDevice device;
  const Tensor here = numbers({2, 3}), there = here.to(Device::cuda);
  for (const std::string& error : {error_of([&] { there.raw(); }), error_of([&] { there.span<float>(); })}) {
    CHECK_MESSAGE(contains(error, "is on cuda"), error);
    CHECK_MESSAGE(contains(error, "to(Device::cpu)"), error);
  }
  Tensor y = Tensor::empty({2, 3});
  // A host kernel that is given a device tensor, and the other way round.
  CHECK(contains(error_of([&] { kernels(Device::cpu).binary(Binary::add, here, there, y); }), "is on cuda"));
  Tensor on_cuda = Tensor::empty({2, 3}, DType::f32, Device::cuda), rstd = Tensor::empty({2}, DType::f32, Device::cuda);
  const Tensor gamma = Tensor::full({3}, 1);
  const std::string error = error_of([&] { kernels(Device::cuda).rms_norm(there, gamma, 1e-5, on_cuda, rstd); });
  CHECK_MESSAGE(contains(error, "[rms_norm] a tensor [3] is on cpu; expected all on cuda"), error);
  const std::string mixed = error_of([&] { require_one_device("add", {&here, &there}); });
  CHECK_MESSAGE(contains(mixed, "[add] tensors on two devices"), mixed);
  require_one_device("add", {&here, &gamma});
}

TEST_CASE("cuda backend: without one the device is an error; addresses are checked") {
  CHECK_FALSE(is_available(Device::cuda));
  const std::string absent = error_of([] { Tensor::empty({2}, DType::f32, Device::cuda); });
  CHECK_MESSAGE(contains(absent, "no cuda device was opened"), absent);
  CHECK_MESSAGE(contains(absent, "--device cpu"), absent);
  CHECK(contains(error_of([] { kernels(Device::cuda); }), "no cuda device was opened"));

  const ScopedEmulatedDevice device;
  CHECK(is_available(Device::cuda));
  float host = 0;
  CHECK(
      contains(error_of([&] { backend(Device::cuda).upload(&host, &host, 4); }), "is not an address of device memory"));
  const Tensor x = Tensor::zeros({2}, DType::f32, Device::cuda);
  CHECK(contains(error_of([&] { backend(Device::cuda).set(x.device_address(), 0, 12); }),
                 "12 bytes at 0 of a block of 8"));
  CHECK(contains(error_of([] { open_device(1); }), "no GPU 1"));
}

TEST_CASE("cuda devices, events and pinned memory") {
  const FoundDevices found = find_devices();
  CHECK(found.problem.empty());
  CHECK(to_string(found.devices.at(0)) == "emulated GPU, sm_80, 1.0 GiB");
  CHECK(to_string({"NVIDIA X", 9, 0, 132, std::int64_t{3} << 29}) == "NVIDIA X, sm_90, 1.5 GiB");
  require_device();

  Event copied;
  copied.record(current_stream());
  copied.synchronize();
  const PinnedBuffer buffer(100);
  std::memset(buffer.data(), 1, buffer.bytes());
  CHECK(buffer.bytes() == 100);
}

TEST_CASE(
    "pinned tensors: the host's, counted there, kept for the next one of the size, and given back to their device") {
  const auto previous = MemoryPool::current();
  MemoryPool::set_current(std::make_shared<MemoryPool>());
  MemoryPool& pool = *MemoryPool::current();
  {
    const ScopedEmulatedDevice device;
    Tensor x = Tensor::empty_pinned({100}, DType::f32, Device::cuda);
    CHECK(x.device() == Device::cpu);
    x.data<float>()[99] = 1.5F;
    CHECK(x.to(Device::cuda).to(Device::cpu).data<float>()[99] == 1.5F);
    CHECK(pool.total().live == 400);
    const void* const first = x.raw();
    const std::int64_t pinned = pool.pinned_bytes();
    CHECK(pinned >= 400);
    x = Tensor();
    CHECK(pool.total().live == 0);
    CHECK(pool.pinned_bytes() == pinned);
    x = Tensor::empty_pinned({100}, DType::f32, Device::cuda);
    CHECK(x.raw() == first);
    CHECK(Tensor::empty({100}, DType::f32).raw() != first);
    const ScopedEmulatedDevice another;
    const Tensor y = Tensor::empty_pinned({100}, DType::f32, Device::cuda);
    CHECK(pool.pinned_bytes() == 2 * pinned);
    x = Tensor();  // its device is not the pool's any more: nothing is kept
    CHECK(pool.pinned_bytes() == pinned);
  }
  pool.release_cached();
  CHECK(pool.pinned_bytes() == 0);
  CHECK_THROWS_WITH_AS(Tensor::empty_pinned({1}, DType::f32, Device::cuda),
                       doctest::Contains("no cuda device was opened"), Error);
  MemoryPool::set_current(previous);
}

}  // namespace runtime_test
