// Ids out of range in the memory of a GPU are refused as those on the host are, with the id and its place; the host
// waits only for ids that the GPU computed.
#include <doctest/doctest.h>

#include "autograd/ops.h"
#include "core/device_work.h"
#include "cuda/runtime/emulated.h"
#include "nn/cross_entropy.h"
#include "tests/support/errors.h"
#include "tests/support/tensors.h"

using namespace trireme;
using namespace trireme::testing;

namespace ids_test {
namespace {

void refused(const std::function<void()>& f, const std::string& said) {
  const Caught error = caught(f);
  CHECK_MESSAGE(error.code == ExitCode::data, error.message);
  CHECK(says(error.message, said));
}

}  // namespace

TEST_CASE("device: ids out of range are refused") {
  const cuda::ScopedEmulatedDevice device;
  const Tensor x = random({4, 3}, 1, DType::f32).to(Device::cuda);
  const Tensor bad = Tensor::from({{0, 1}, {4, -1}}, DType::i32).to(Device::cuda);
  refused([&] { embedding(x, bad); }, "[embedding] id 4 at [1, 0] of [2, 2] is out of range; expected 0 to 3");
  refused([&] { gather_rows(x, bad); }, "[gather_rows] index 4 at [1, 0] of [2, 2]");
  refused([&] { gather(x, 1, bad); }, "[gather] index 4 at [1, 0] of [2, 2]");
  refused([&] { scatter_add(x, 1, bad, random({2, 2}, 2, DType::f32).to(Device::cuda)); }, "[scatter_add] index 4");
  refused([&] { one_hot(bad, 4); }, "[one_hot] id 4 at [1, 0]");
  const Tensor targets = view::reshape(bad, {4});
  refused([&] { nn::cross_entropy(clone(x), targets, {}); }, "[cross_entropy] target 4 at [2] of [4]");
  CHECK(view::slice(targets, 0, 0, 2).extremes());
  CHECK(embedding(x, view::slice(targets, 0, 0, 2)).shape() == Shape{2, 3});  // only others are out of range
}

TEST_CASE("device: the host waits for ids that the GPU computed or changed, and for no others") {
  const cuda::ScopedEmulatedDevice device;
  const Tensor x = random({4, 3}, 1, DType::f32).to(Device::cuda);
  const auto waits = [](const std::function<void()>& f) {
    const std::uint64_t before = device_work().waits;
    f();
    return device_work().waits - before;
  };
  Tensor ids = Tensor::from({3, 0, 1}, DType::i32).to(Device::cuda);
  CHECK(waits([&] { embedding(x, ids); }) == 0);
  CHECK(waits([&] { topk(x, 2); }) == 0);
  kernels(Device::cuda).fill(ids, 4);
  refused([&] { embedding(x, ids); }, "[embedding] id 4 at [0] of [3]");
  const Tensor computed = argmax(x, 1);
  CHECK(waits([&] { embedding(x, computed); }) == 1);
}

}  // namespace ids_test
