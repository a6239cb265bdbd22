// The examples of the reference: tensors, operations and gradients. Doxygen shows what is between two lines `//! [..]`.
#include <doctest/doctest.h>
#include <fmt/core.h>

#include "autograd/engine.h"
#include "autograd/masked_attention.h"
#include "autograd/op.h"
#include "autograd/ops.h"

using namespace trireme;

namespace reference_tensors {

//! [operation]
/// y = x / (1 + |x|);  dx = dy / (1 + |x|)^2
struct Softsign : Op {
  static constexpr const char* name = "softsign";  // errors begin with it
  Tensor x;                                        // what forward keeps for backward

  Tensor forward(const Tensor& input) {
    x = input;
    return x / (1.0 + abs(x));
  }
  Gradients backward(const Tensor& dy) { return {dy / square(1.0 + abs(x))}; }  // one for each input
};

Tensor softsign(const Tensor& x) { return apply(Softsign{}, x); }
//! [operation]

TEST_CASE("reference: tensors") {
  //! [tensor]
  const Tensor x = Tensor::from({{1, 2, 3}, {4, 5, 6}});  // f32 [2, 3]
  const Tensor noise = Tensor::randn({2, 3}, 42);         // a function of the seed
  const Tensor y = x + 0.1 * noise;                       // [2, 3]
  const Tensor columns = transpose(y, 0, 1);              // [3, 2], a view: no element is copied
  const Tensor means = mean(columns, 1);                  // [3]
  fmt::print("{}\n", x);                                  // as NumPy prints
  const double total = sum(x).item();                     // 21: a tensor of one element as a number
  const float first = x.data<const float>()[0];           // 1: elements in memory
  //! [tensor]
  CHECK(total == 21);
  CHECK(first == 1);
  CHECK(means.shape() == Shape{3});
}

TEST_CASE("reference: gradients") {
  //! [backward]
  Tensor w = Tensor::full({3}, 2.0);
  require_grad(w);                           // a leaf: its gradient is collected
  const Tensor loss = sum(square(w)) * 0.5;  // []
  backward(loss);
  const Tensor dw = grad(w);  // [2, 2, 2]
  {
    const NoGrad guard;  // nothing in this scope is recorded
    w -= 0.1 * dw;       // an update in place is allowed here only
  }
  leaf_of(w)->mark_zero();  // the next backward begins at 0
  //! [backward]
  CHECK(dw.shape() == Shape{3});
  CHECK(w.data<const float>()[1] == doctest::Approx(1.8));
}

TEST_CASE("reference: an operation with a gradient") {
  Tensor x = Tensor::from({-1, 0, 3});
  require_grad(x);
  backward(sum(softsign(x)));
  CHECK(grad(x).data<const float>()[0] == doctest::Approx(0.25));
  CHECK(grad(x).data<const float>()[2] == doctest::Approx(1.0 / 16));
}

TEST_CASE("reference: errors") {
  ExitCode code = ExitCode::ok;
  //! [error]
  try {
    const Tensor y = matmul(Tensor::ones({2, 3}), Tensor::ones({2, 3}));
  } catch (const Error& error) {
    fmt::print("{}\n", error.what());  // trireme: [matmul] .., with both shapes
    code = error.code();               // ExitCode::internal: wrong shapes in the code that calls
  }
  //! [error]
  CHECK(code == ExitCode::internal);
}

TEST_CASE("reference: parts of tensors") {
  const Tensor x = Tensor::arange(0, 24, 1).to(Device::cpu);
  //! [operations]
  const Tensor a = reshape(x, {2, 3, 4});                          // [2, 3, 4]
  const Tensor b = permute(a, {2, 0, 1});                          // [4, 2, 3], a view
  const std::vector<Tensor> rows = unbind(a, 1);                   // 3 of [2, 4]
  const Tensor joined = concat({rows[0], rows[2]}, 0);             // [4, 4]
  const Tensor limited = where(joined > 10.0, 10.0, joined);       // [4, 4]
  const Tensor products = einsum("bij,bkj->bik", {a, a});          // [2, 3, 3]
  const Tensor best = argmax(products, -1);                        // i32 [2, 3]
  const Tensor chosen = gather(products, 2, unsqueeze(best, -1));  // [2, 3, 1]
  //! [operations]
  CHECK(b.shape() == Shape{4, 2, 3});
  CHECK(max(limited).item() == 10);
  CHECK(sum(chosen).item() == sum(max(products, 2)).item());
}

TEST_CASE("reference: attention") {
  //! [attention]
  const Tensor q = Tensor::randn({2, 5, 4, 8}, 1);  // [B, T, heads, Dh]
  const Tensor k = Tensor::randn({2, 5, 2, 8}, 2);  // two query heads share a key-value head
  const Tensor v = Tensor::randn({2, 5, 2, 8}, 3);
  const Tensor causal = attention(q, k, v);                                            // [2, 5, 4, 8]
  const Tensor local = masked_attention(q, k, v, {.causal = true, .window = 3});       // the last three keys
  const Tensor capped = masked_attention(q, k, v, {.causal = true, .softcap = 30.0});  // scores within -30 .. 30
  //! [attention]
  CHECK(causal.shape() == q.shape());
  CHECK(local.shape() == capped.shape());
}

}  // namespace reference_tensors
