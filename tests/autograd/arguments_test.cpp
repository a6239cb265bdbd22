// Wrong arguments of shape operations, choices, reductions, gather and einsum: refused with place, code and remedy.
#include <functional>

#include "tests/support/errors.h"
#include "tests/support/gradcheck.h"

using namespace trireme;
using namespace trireme::testing;

namespace arguments_test {
namespace {

/// Checks that f throws an Error with this code that begins with `text`, after the program's name.
void refused(const std::function<void()>& f, const std::string& text, ExitCode code = ExitCode::internal) {
  const Caught error = caught(f);
  CHECK_MESSAGE(error.code == code, error.message);
  CHECK_MESSAGE(error.message.rfind("trireme: " + text, 0) == 0, error.message, "\nexpected: ", text);
}

const Tensor x = random({2, 3}, 1);
const Tensor narrow = random({2, 3}, 1, DType::bf16);
const Tensor whole = Tensor::from({{1, 2, 3}, {4, 5, 6}}, DType::i32);

}  // namespace

TEST_CASE("arguments of shape operations") {
  refused([] { permute(x, {0}); }, "[permute] 1 dims for a tensor [2, 3]; expected each of its dims once");
  refused([] { permute(x, {0, 0}); }, "[permute] dim 0 of [2, 3] is named twice");
  refused([] { permute(x, {0, 2}); }, "[permute] [2, 3] has no dim 2");
  refused([] { unsqueeze(x, 3); }, "[unsqueeze] no place 3 for a new dim of [2, 3]; expected -3 to 2");
  refused([] { squeeze(x, 0); }, "[squeeze] dim 0 of [2, 3] has size 2; expected 1");
  refused([] { flatten(x, 1, 0); }, "[flatten] dims 1 to 0 of [2, 3]");
  refused([] { flatten(x, 0, 2); }, "[flatten] [2, 3] has no dim 2");
  refused([] { pad(x, 0, -1, 0); }, "[pad] -1 before and 0 after; expected 0 or more");
  refused([] { pad(x, 2, 1, 0); }, "[pad] [2, 3] has no dim 2");
  refused([] { flip(x, 2); }, "[flip] [2, 3] has no dim 2");
  refused([] { stack({}, 0); }, "[stack] expected at least one tensor");
  refused([] { stack({x, Tensor()}, 0); }, "[stack] part 1 is undefined");
  refused([] { stack({x, random({3, 2}, 1)}, 0); }, "[stack] part 1 is f64 [3, 2], and part 0 f64 [2, 3]");
  refused([] { stack({x, narrow}, 0); }, "[stack] part 1 is bf16 [2, 3]");
  refused([] { unbind(x, 2); }, "[unbind] [2, 3] has no dim 2");
  refused([] { split(x, {1, 1}, 1); }, "[split] the lengths add up to 2; expected 3, the size of dim 1 of [2, 3]");
  refused([] { split(x, {2, 2}, 1); }, "[split] a length of 2 after 2 indices of dim 1 of [2, 3]");
  refused([] { split(x, 0); }, "[split] a length of 0; expected at least 1");
  refused([] { chunk(x, 2, 1); }, "[chunk] 2 chunks of dim 1 of [2, 3]; expected a number that divides 3");
}

TEST_CASE("arguments of comparisons and choices") {
  refused([] { static_cast<void>(x < narrow); }, "[less] dtypes differ: f64 and bf16");
  refused([] { equal(x, Tensor()); }, "[equal] an input is undefined");
  refused([] { static_cast<void>(x <= random({4}, 1)); }, "[less_equal] shapes [2, 3] and [4] do not broadcast");
  refused([] { where(x, x, narrow); }, "[where] dtypes differ: f64 and bf16");
  refused([] { where(x, whole, whole); }, "[where] an input i32 [2, 3]; expected a floating dtype");
  refused([] { where(Tensor(), x, x); }, "[where] the mask is undefined");
  refused([] { where(random({2}, 1), x, x); }, "[where] shapes [2, 3] and [2] do not broadcast");
  refused([] { masked_fill(random({3}, 1), x, 0); }, "[masked_fill] the mask [2, 3] does not broadcast to [3]");
  refused([] { maximum(x, narrow); }, "[maximum] dtypes differ");
  refused([] { minimum(whole, 1.0); }, "[minimum] an input i32");
  refused([] { clamp(x, 1, 0); }, "[clamp] a range from 1 to 0");
  refused([] { pow(whole, 3); }, "[pow] an input i32");
}

TEST_CASE("arguments of reductions") {
  refused([] { sum(x, std::vector<int>{}); }, "[sum] no dims to reduce [2, 3] over");
  refused([] { sum(x, {0, 0}); }, "[sum] dim 0 of [2, 3] is named twice");
  refused([] { sum(x, {0, -2}); }, "[sum] dim 0 of [2, 3] is named twice");
  refused([] { mean(x, {0, 2}); }, "[mean] [2, 3] has no dim 2");
  refused([] { max(x, {1, 1}); }, "[max] dim 1 of [2, 3] is named twice");
  refused([] { min(Tensor::zeros({2, 0}), 1); }, "[min] dim 1 of [2, 0] has no elements");
  refused([] { min(Tensor::zeros({2, 0})); }, "[min] [2, 0] has no elements to choose from");
  refused([] { var(Tensor::zeros({1, 3}), 0); }, "[var] 1 elements with a correction of 1; expected more");
  refused([] { var(whole); }, "[var] an input i32");
  refused([] { norm(x, 2); }, "[norm] [2, 3] has no dim 2");
  refused([] { argmax(x, 2); }, "[argmax] [2, 3] has no dim 2");
  refused([] { argmin(Tensor::zeros({0})); }, "[argmin] dim -1 of [0] has no elements");
  refused([] { topk(x, 4); }, "[topk] the 4 largest along dim -1 of [2, 3]; expected 1 to 3");
  refused([] { softmax(x, 2); }, "[softmax] [2, 3] has no dim 2");
  refused([] { log_softmax(x, 2); }, "[log_softmax] [2, 3] has no dim 2");
  refused([] { logsumexp(Tensor::zeros({2, 0})); }, "[logsumexp] dim -1 of [2, 0] has no elements");
  refused([] { cumsum(x, -3); }, "[cumsum] [2, 3] has no dim -3");
}

TEST_CASE("arguments of gather, scatter_add and one_hot") {
  const auto ids = [](const NestedValues& values) { return Tensor::from(values, DType::i32); };
  refused(
      [&] {
        gather(x, 1, ids({{0, 3}}));
      },
      "[gather] index 3 at [0, 1] of [1, 2] is out of range; expected 0 to 2", ExitCode::data);
  refused([&] { gather(x, 0, ids({{0, -1}})); }, "[gather] index -1 at [0, 1]", ExitCode::data);
  refused([&] { gather(x, 0, ids({0, 1})); }, "[gather] an index [2] for [2, 3]; expected one with as many dims");
  refused(
      [&] {
        gather(x, 1, ids({{0}, {0}, {0}}));
      },
      "[gather] the index [3, 1] is larger than [2, 3] in dim 0; expected at most 2 there");
  refused([&] { gather(x, 0, Tensor::zeros({2, 3})); }, "[gather] expected each index in i32, got f32");
  refused([&] { scatter_add(x, 0, whole, x); }, "[scatter_add] index 2 at [0, 1]", ExitCode::data);
  refused([&] { scatter_add(x, 0, ids({{0}}), x); }, "[scatter_add] values [2, 3] for an index [1, 1]");
  refused([&] { scatter_add(x, 1, whole, narrow); }, "[scatter_add] dtypes differ: f64 and bf16");
  refused([&] { one_hot(whole, 6); }, "[one_hot] id 6 at [1, 2] of [2, 3] is out of range; expected 0 to 5",
          ExitCode::data);
  refused([&] { one_hot(whole, 0); }, "[one_hot] 0 classes");
  refused([&] { one_hot(whole, 7, DType::i32); }, "[one_hot] a result of dtype i32");
}

TEST_CASE("arguments of einsum") {
  refused([] { einsum("ij,jk->ik", {x}); }, "[einsum] 'ij,jk->ik' has 2 operands; got 1 tensors");
  refused([] { einsum("i->i", {x}); },
          "[einsum] operand 0 of 'i->i' is 'i'; expected a tensor with 1 dims, got [2, 3]");
  refused(
      [] {
        einsum("ij,jk->ik", {x, x});
      },
      "[einsum] the letter 'j' of 'ij,jk->ik' has size 3, and in operand 1 [2, 3] size 2");
  refused([] { einsum("ij->ik", {x}); }, "[einsum] the letter 'k' of the result of 'ij->ik' is in no operand");
  refused([] { einsum("ii->i", {x}); }, "[einsum] the letter 'i' twice in 'ii' of 'ii->i'");
  refused([] { einsum("ij->jj", {x}); }, "[einsum] the letter 'j' twice");
  refused([] { einsum("...j->j", {x}); }, "[einsum] '.' in '...j->j'; expected letters");
  refused([] { einsum("ij,ij", {x, narrow}); }, "[einsum] dtypes differ: f64 and bf16");
  refused([] { einsum("ij->", {whole}); }, "[einsum] an input i32");
  CHECK(einsum(" i j , j k -> i k ", {x, transpose(x, 0, 1)}).shape() == Shape{2, 2});
  CHECK(same_bits(einsum("ij", {x}), x));
  CHECK(same_bits(einsum("ba", {x}), contiguous(transpose(x, 0, 1))));
}

}  // namespace arguments_test
