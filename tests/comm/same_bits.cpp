// check_same_bits of suite.h.
#include <cstring>

#include "tests/comm/suite.h"

namespace trireme::testing {
namespace {

/// Values in [-0.5, 0.5) that differ by rank, index and stream. Not of core/random.h, which takes longer: there are
/// many.
Tensor random_tensor(const Shape& shape, DType dtype, int rank, std::uint32_t stream) {
  Tensor x = Tensor::empty(shape);
  std::uint32_t state = 2654435761U * (stream * 64 + static_cast<std::uint32_t>(rank) + 1);
  for (float& value : x.span<float>()) {
    state = 1664525U * state + 1013904223U;
    value = static_cast<float>(state >> 8U) * 0x1p-24F - 0.5F;
  }
  return cast(x, dtype);
}

void expect_same(const char* what, const Tensor& on_device, const Tensor& on_host) {
  verify(on_device.device() == Device::cuda && on_host.device() == Device::cpu, "{}: a result moved", what);
  const Tensor there = on_device.to(Device::cpu);
  verify(std::memcmp(there.raw(), on_host.raw(), static_cast<std::size_t>(there.bytes())) == 0,
         "{} of {} {}: other bits than the host group's", what, on_host.count(), name(on_host.dtype()));
}

using Operation = std::function<Work(ProcessGroup&, const Tensor& x, const Tensor& y, Launch)>;

void compare(const char* what, ProcessGroup& host, ProcessGroup& group, DType dtype, const Shape& x_shape,
             const Shape& y_shape, const Operation& run) {
  for (const Launch launch : {Launch::lazy, Launch::background}) {
    const auto stream = static_cast<std::uint32_t>(launch) * 2;
    const Tensor x = random_tensor(x_shape, dtype, host.rank(), stream);
    const Tensor y = random_tensor(y_shape, dtype, host.rank(), stream + 1);
    const Tensor x_there = x.to(Device::cuda), y_there = y.to(Device::cuda);
    run(host, x, y, launch).wait();
    run(group, x_there, y_there, launch).wait();
    expect_same(what, x_there, x);
    expect_same(what, y_there, y);
  }
}

}  // namespace

void check_same_bits(ProcessGroup& host, ProcessGroup& group) {
  const int n = host.size(), root = n - 1;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64}) {
    for (const std::int64_t count : {1, 129, 40001}) {
      const Shape one = {count}, all = {n, count};
      const auto same = [&](const char* what, const Shape& x, const Shape& y, const Operation& run) {
        compare(what, host, group, dtype, x, y, run);
      };
      same("all_reduce", one, one, [](auto& g, auto& x, auto&, auto l) { return g.all_reduce(x, ReduceOp::sum, l); });
      same("max", one, one, [](auto& g, auto& x, auto&, auto l) { return g.all_reduce(x, ReduceOp::max, l); });
      same("all_gather", one, all, [](auto& g, auto& x, auto& y, auto l) { return g.all_gather(x, y, l); });
      same("reduce_scatter", all, one, [](auto& g, auto& x, auto& y, auto l) { return g.reduce_scatter(x, y, l); });
      same("all_to_all", all, all, [](auto& g, auto& x, auto& y, auto l) { return g.all_to_all(x, y, l); });
      same("broadcast", one, one, [=](auto& g, auto& x, auto&, auto l) { return g.broadcast(x, root, l); });
      same("reduce", one, one, [=](auto& g, auto& x, auto&, auto l) { return g.reduce(x, root, l); });
      same("gather", one, all, [=](auto& g, auto& x, auto& y, auto l) { return g.gather(x, y, root, l); });
      same("scatter", all, one, [=](auto& g, auto& x, auto& y, auto l) { return g.scatter(x, y, root, l); });
    }
  }
}

}  // namespace trireme::testing
