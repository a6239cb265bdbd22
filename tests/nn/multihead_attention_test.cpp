// MultiheadAttention against PyTorch (tests/golden/make_multihead_attention.py): values and all gradients, with every
// kind of mask; the same on tp; what is refused.
#include "nn/multihead_attention.h"

#include "tests/support/errors.h"
#include "tests/support/golden.h"
#include "tests/support/mesh.h"

using namespace trireme;
using namespace trireme::testing;

namespace multihead_attention_test {
namespace {

constexpr std::int64_t width = 12, heads = 4, keys = 7;

nn::MultiheadAttentionOptions options_of(const std::string& name) {
  nn::MultiheadAttentionOptions o{.width = width, .heads = heads, .bias = name != "without_bias"};
  if (name == "other_widths") o.key_width = 8, o.value_width = 6;
  return o;
}

Tensor leaf(Tensor x) {
  require_grad(x);
  return x;
}

void check_case(const GoldenFile& file, const std::string& name, DType dtype, const MeshPtr& mesh, bool sequence) {
  CAPTURE(name);
  const nn::Build b(mesh, dtype, 1, {.sequence = sequence});
  nn::MultiheadAttention layer(b, options_of(name));
  for (const ParameterPtr& p : b.parameters()) set_whole(*p, file.read(name + ".weights." + p->name));
  // Strided inputs: transposed copies.
  const auto input = [&](const char* what) {
    const Tensor whole = file.read(name + what, dtype);
    return leaf(view::transpose(clone(view::transpose(whole, 0, 2)), 0, 2));
  };
  const Tensor q = input(".q"), k = input(".k"), v = input(".v");
  AttentionMask mask;
  if (name == "lengths") mask.mask = nn::length_mask(Tensor::from({7, 4, 1}, DType::i32), keys);
  if (name == "boolean") mask.mask = cast(file.read(name + ".mask"), DType::u8);
  if (name == "added") mask.mask = leaf(file.read(name + ".mask", dtype));
  const Tensor y = layer(q, k, v, mask);
  check_golden(file, name + ".y", y);
  backward(sum(y * file.read(name + ".wy", dtype)));
  check_golden(file, name + ".dq", grad(q));
  check_golden(file, name + ".dk", grad(k));
  check_golden(file, name + ".dv", grad(v));
  if (name == "added") check_golden(file, name + ".dmask", grad(mask.mask));
  for (const ParameterPtr& p : b.parameters()) {
    const Tensor gradient = whole(p->grad(), *p, *mesh);
    if (p->name == "k.bias")  // adds one number to all scores of a query, which the softmax ignores
      CHECK(max(abs(cast(gradient, DType::f64))).item() < (dtype == DType::f64 ? 1e-12 : 1e-4));
    else
      check_golden(file, name + ".grads." + p->name, gradient);
  }
}

}  // namespace

TEST_CASE("multi-head attention is PyTorch's, with every gradient, on one rank and split over tp") {
  const GoldenFile file("multihead_attention");
  for (const std::string name : {"plain", "other_widths", "without_bias", "lengths", "boolean", "added"})
    for (const DType dtype : {DType::f64, DType::f32})
      for (const char* mesh_text : {"tp=1", "tp=2", "tp=4"})
        run_mesh(mesh_text, [&](const MeshPtr& mesh) { check_case(file, name, dtype, mesh, false); });
}

TEST_CASE("with sequence parallelism, each rank has its positions of queries and keys") {
  run_mesh("tp=2", [](const MeshPtr& mesh) {
    const auto run = [&](bool sequence) {
      const nn::Build b(mesh, DType::f64, 1, {.sequence = sequence});
      nn::MultiheadAttention layer(b / "layer", {.width = width, .heads = heads, .key_width = 8, .value_width = 8});
      const Tensor x = random({2, 4, width}, 1), memory = random({2, 6, 8}, 2);
      const auto own = [&](const Tensor& t) {  // this rank's positions
        const std::int64_t half = t.size(1) / 2;
        return sequence ? clone(view::slice(t, 1, mesh->coord(Axis::tp) * half, half)) : t;
      };
      return layer(own(x), own(memory), {.mask = nn::length_mask(Tensor::from({6, 3}, DType::i32), 6)}).detach();
    };
    const Tensor whole = run(false), part = run(true);
    CHECK(relative_difference(part, clone(view::slice(whole, 1, mesh->coord(Axis::tp) * 2, 2))) < 1e-14);
  });
}

TEST_CASE("attention with wrong sizes, masks and meshes is refused") {
  const nn::Build b(std::make_shared<const DeviceMesh>(self_group(), MeshShape{}), DType::f32, 1);
  const auto made = [&](const nn::MultiheadAttentionOptions& o) {
    return error_of([&] { nn::MultiheadAttention(b / "x", o); }, ExitCode::usage);
  };
  CHECK(says(made({}), "[multihead_attention] x: widths 0, 0 and 0; expected each to be at least 1"));
  CHECK(says(made({.width = 10, .heads = 3}), "3 heads; expected a divisor of the width 10, and a multiple of tp=1"));
  CHECK(says(error_of(
                 [&] {
                   run_mesh("cp=2", [](const MeshPtr& mesh) {
                     nn::MultiheadAttention(nn::Build(mesh, DType::f32, 1) / "x", {.width = 4});
                   });
                 },
                 ExitCode::usage),
             "x: attention to all tokens needs whole sequences on a rank, got cp=2"));
  nn::MultiheadAttention layer(b / "layer", {.width = 4, .heads = 2});
  const Tensor x = Tensor::ones({2, 3, 4}), memory = Tensor::ones({2, 5, 4});
  const auto called = [&](const Tensor& q, const Tensor& k, const Tensor& v, const AttentionMask& mask = {}) {
    return error_of([&] { layer(q, k, v, mask); }, ExitCode::internal);
  };
  CHECK(says(called(x, Tensor(), memory), "got an undefined one; in the layer 'layer'"));
  CHECK(says(called(Tensor::ones({3, 4}), memory, memory), "expected inputs [B, T, features], got [3, 4]"));
  CHECK(says(called(x, memory, x), "query [2, 3, 4], key [2, 5, 4] and value [2, 3, 4]; expected one batch size"));
  CHECK(says(called(x, memory, memory, {.mask = Tensor::zeros({2, 1, 1, 3}, DType::u8)}), "a mask [2, 1, 1, 3]"));
  CHECK(says(error_of([&] { nn::length_mask(Tensor::from({6, 1}, DType::i32), 5); }, ExitCode::data), "length 6"));
  CHECK(says(error_of([&] { nn::length_mask(Tensor::from({6, 1}), 5); }, ExitCode::internal), "expected lengths i32"));
}

}  // namespace multihead_attention_test
