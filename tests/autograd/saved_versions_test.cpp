// A tensor that is written in place between forward and backward is refused where its gradient would be wrong; what is
// only read, or is no longer needed, is not.
#include <functional>

#include "core/kernels.h"
#include "tests/support/errors.h"
#include "tests/support/gradcheck.h"

using namespace trireme;
using namespace trireme::testing;

namespace saved_versions_test {
namespace {

/// What backward says if `write` changes x after y = f(x); empty if nothing.
std::string said(const std::function<Tensor(const Tensor&)>& f, const std::function<void(Tensor&)>& write) {
  Tensor x = leaf({2, 3}, 1);
  const Tensor loss = sum(f(x));
  write(x);
  const std::string message = error_of([&] { backward(loss); });
  CHECK_MESSAGE((message.empty() || caught([&] { backward(sum(f(x))); }).code == ExitCode::ok), "a new forward works");
  return message;
}

const auto squared = [](const Tensor& x) { return x * x; };

}  // namespace

TEST_CASE("a write between forward and backward is refused, with operation, shape and both versions") {
  const Tensor other = random({2, 3}, 2);
  const std::vector<std::function<void(Tensor&)>> writes = {
      [](Tensor& x) { x.data<double>()[0] = 7; },
      [](Tensor& x) { x.span<double>()[0] = 7; },
      [](Tensor& x) { static_cast<double*>(x.raw())[0] = 7; },
      [&](Tensor& x) { copy(other, x); },
      [](Tensor& x) { kernels(Device::cpu).fill(x, 7); },
      [](Tensor& x) {
        Tensor row = view::select(x, 0, 1);  // through a view of the same storage
        row.data<double>()[0] = 7;
      },
  };
  for (std::size_t i = 0; i < writes.size(); ++i) {
    CAPTURE(i);
    const std::string message = said(squared, writes[i]);
    CHECK(says(message, "trireme: [multiply] input 0 [2, 3] was written to between forward and backward"));
    CHECK(says(message, "expected version "));
    CHECK(says(message, ", got version "));
    CHECK(says(message, "change a copy of it (clone)"));
  }
  Tensor x = leaf({3}, 1);
  const std::uint64_t before = x.version();
  const Tensor y = sum(x * x);
  x.data<double>()[0] = 1;
  CHECK(says(error_of([&] { backward(y); }, ExitCode::internal),
             fmt::format("expected version {} of its storage, got version {}", before, before + 1)));
}

TEST_CASE("every operation that keeps an input or its output refuses") {
  const auto set = [](Tensor& x) { x.data<double>()[0] = 7; };
  const Tensor gamma = random({3}, 3);
  CHECK(says(said([](auto& x) { return tanh(x); }, set), "[unary] input 0 [2, 3]"));
  CHECK(says(said([](auto& x) { return x / (x + 4.0); }, set), "[divide] input 0 [2, 3]"));
  CHECK(says(said([&](auto& x) { return matmul(x, transpose(x, 0, 1)); }, set), "[matmul] input 0 [2, 3]"));
  CHECK(says(said([&](auto& x) { return linear(x + 0.0, x, {}); }, set), "[linear] input 1 [2, 3]"));
  CHECK(says(said([&](auto& x) { return layer_norm(x, gamma, {}); }, set), "[layer_norm] input 0"));
  CHECK(says(said([&](auto& x) { return rms_norm(x, gamma); }, set), "[rms_norm] input 0"));
  CHECK(says(said([](auto& x) { return max(x, 1); }, set), "[max] input 0"));
  CHECK(says(said([](auto& x) { return recompute([](const Tensor& t) { return t * t; }, x); }, set),
             "[recompute] input 0"));
  // Through a view that an earlier operation made: the storage is the same.
  CHECK(says(said([](auto& x) { return square(reshape(x, {3, 2})); }, set), "[unary] input 0 [3, 2]"));
  Tensor x = leaf({2, 3}, 1), y = softmax(x);
  const Tensor loss = sum(y * 2.0);
  y.data<double>()[0] = 7;
  CHECK(says(error_of([&] { backward(loss); }, ExitCode::internal), "[softmax] its output [2, 3] was written to"));
}

TEST_CASE("ids and positions that a caller writes to again are refused") {
  Tensor table = leaf({5, 2}, 1), ids = random_ids({4}, 2, 0, 5);
  const Tensor rows = sum(embedding(table, ids));
  ids.data<std::int32_t>()[1] = 0;  // the next batch, too early
  CHECK(says(error_of([&] { backward(rows); }, ExitCode::internal), "[embedding] ids [4] was written to"));

  Tensor x = leaf({4, 3}, 3), index = random_ids({6}, 4, -1, 4);
  const Tensor gathered = sum(gather_rows(x, index));
  index.data<std::int32_t>()[0] = 1;
  CHECK(says(error_of([&] { backward(gathered); }, ExitCode::internal), "[gather_rows] index [6] was written to"));

  Tensor heads = leaf({1, 3, 2, 4}, 5), positions = counting({3});
  const Tensor turned = sum(rope(heads, positions));
  positions.data<std::int32_t>()[0] = 9;
  CHECK(says(error_of([&] { backward(turned); }, ExitCode::internal), "[rope] positions [3] was written to"));
}

TEST_CASE("what forward did not keep may be written to") {
  const auto set = [](Tensor& x) { x.data<double>()[0] = 7; };
  CHECK(said([](auto& x) { return x + x; }, set).empty());
  CHECK(said([](auto& x) { return x * 3.0; }, set).empty());
  CHECK(said([](auto& x) { return reshape(x, {3, 2}); }, set).empty());
  CHECK(said([](auto& x) { return sum(x, 1); }, set).empty());
  CHECK(said([](auto& x) { return concat({x, x}, 0); }, set).empty());
  // A result that nobody needs: tanh keeps its input, not its output.
  Tensor x = leaf({3}, 1), y = tanh(x);
  const Tensor loss = sum(y);
  y.data<double>()[0] = 7;
  CHECK(error_of([&] { backward(loss); }).empty());
}

TEST_CASE("reading is no write: const tensors, temporaries, item, copies, kernels' inputs") {
  Tensor x = leaf({2, 3}, 1);
  const Tensor y = tanh(x), loss = sum(y * y);
  double read = std::as_const(x).data<double>()[0] + y.data<double>()[1] + y.span<double>()[2] + loss.item();
  read += contiguous(x).data<double>()[3] + sum(clone(y)).item();
  read += x.data<const double>()[0] + x.span<const double>()[1];
  CHECK(std::isfinite(read));
  CHECK(error_of([&] { backward(loss); }).empty());
}

TEST_CASE("after backward, weights may change; between two forwards of one backward they may not") {
  Tensor w = leaf({3}, 1);
  const auto update = [&] {
    const NoGrad guard;
    kernels(Device::cpu).axpby(-0.1, grad(w), 1.0, w);
  };
  for (int step = 0; step < 3; ++step) {
    backward(sum(square(w)));
    update();
  }
  const Tensor loss = sum(square(w));
  update();
  CHECK(says(error_of([&] { backward(loss); }, ExitCode::internal), "[unary] input 0 [3] was written to"));
}

TEST_CASE("a second backward names the line of the first") {
  Tensor x = leaf({3}, 1);
  const Tensor y = sum(square(x));
  backward(y);
  const int line = __LINE__ - 1;
  const std::string message = error_of([&] { backward(y); }, ExitCode::internal);
  CHECK(says(message, "a second backward over the same graph; the first, at "));
  CHECK(says(message, fmt::format("saved_versions_test.cpp:{}, freed what forward had saved", line)));
  const Tensor shared = square(x), one = sum(shared), two = sum(shared * 2.0);
  backward(one);
  const int shared_line = __LINE__ - 1;
  CHECK(says(error_of([&] { backward(two); }), fmt::format("saved_versions_test.cpp:{}, freed", shared_line)));
}

}  // namespace saved_versions_test
