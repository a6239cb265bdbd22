// nn::Embedding: PyTorch's rows, gradients and padding_idx; the same on meshes; ids out of range.
#include "nn/embedding.h"

#include "parallel/data_parallel/grad_sync.h"
#include "tests/support/errors.h"
#include "tests/support/mesh.h"

using namespace trireme;
using namespace trireme::testing;

namespace embedding_test {
namespace {

nn::Build one_rank(DType dtype) { return {std::make_shared<const DeviceMesh>(self_group(), MeshShape{}), dtype, 1}; }

Tensor ids() { return Tensor::from({{1, 3, 0}, {3, 3, 4}}, DType::i32); }

}  // namespace

TEST_CASE("an embedding gives rows of its table, and adds up their gradients") {
  for (const DType dtype : {DType::f64, DType::f32}) {
    const nn::Build b = one_rank(dtype);
    nn::Embedding layer(b / "words", 5, 3);
    const Tensor y = layer(ids());
    CHECK(y.shape() == Shape{2, 3, 3});
    const Tensor weight = layer.weight()->local.detach();
    CHECK(same_bits(view::select(view::select(y.detach(), 0, 1), 0, 2), view::select(weight, 0, 4)));
    const Tensor dy = random({2, 3, 3}, 2, dtype);
    backward(sum(y * dy));
    const Tensor row = layer.weight()->grad();
    const Tensor expected = view::select(view::select(dy, 0, 0), 0, 1) + view::select(view::select(dy, 0, 1), 0, 0) +
                            view::select(view::select(dy, 0, 1), 0, 1);
    CHECK(relative_difference(cast(clone(view::select(row, 0, 3)), DType::f64), cast(expected, DType::f64)) < 1e-6);
    CHECK(sum(abs(view::select(row, 0, 2))).item() == 0);
    CHECK(layer(Tensor::from({2, 2}, DType::i32)).shape() == Shape{2, 3});
  }
}

TEST_CASE("the vector of the padding starts as zeros and has no gradient; a loaded one is used as it is") {
  const nn::Build b = one_rank(DType::f64);
  nn::Embedding layer(b / "words", 5, 3, {.padding = 3});
  const Tensor y = layer(ids());
  CHECK(sum(abs(view::select(view::select(y.detach(), 0, 1), 0, 0))).item() == 0);
  CHECK(sum(abs(view::select(view::select(y.detach(), 0, 1), 0, 2))).item() > 0);
  backward(sum(y));
  CHECK(values(view::select(layer.weight()->grad(), 0, 3)) == std::vector<double>(3, 0));
  CHECK(values(view::select(layer.weight()->grad(), 0, 4)) == std::vector<double>(3, 1));
  {
    const NoGrad guard;
    Tensor row = view::select(layer.weight()->local, 0, 3);
    row += 2.0;
  }
  CHECK(values(view::select(view::select(layer(ids()).detach(), 0, 1), 0, 1)) == std::vector<double>(3, 2));
}

TEST_CASE("on a mesh an embedding has the gradients of one rank") {
  const auto collect = [](const char* mesh_text, bool sequence, Collected& results) {
    run_mesh(mesh_text, [&](const MeshPtr& mesh) {
      const nn::Build b(mesh, DType::f64, 3, {.sequence = sequence});
      nn::Embedding layer(b / "words", 9, 4);
      GradSync sync(b.parameters(), *mesh);
      const Tensor all = random_ids({4, 6}, 1, 0, 9), dy = random({4, 6, 4}, 2);
      const auto own = [&](Tensor x) {  // this rank's samples and, with sequence parallelism, positions
        const std::int64_t rows = x.size(0) / mesh->size(Axis::dp);
        x = view::slice(x, 0, mesh->coord(Axis::dp) * rows, rows);
        const std::int64_t length = x.size(1) / mesh->size(Axis::tp);
        return clone(sequence ? view::slice(x, 1, mesh->coord(Axis::tp) * length, length) : x);
      };
      sync.zero_grad();
      backward(sum(layer(own(all)) * own(dy)));
      sync.finish();
      results.add("gradient", clone(layer.weight()->grad()));
    });
  };
  Collected one, dp, tp, sequence;
  collect("dp=1", false, one);
  collect("dp=2", false, dp);
  collect("tp=2", false, tp);
  collect("dp=2,tp=2", true, sequence);
  for (const Collected* results : {&dp, &tp, &sequence})
    for (const Tensor& gradient : results->all().at("gradient"))
      CHECK(relative_difference(cast(gradient, DType::f64), cast(one.all().at("gradient").front(), DType::f64)) < 1e-6);
}

TEST_CASE("ids out of range and tables without vectors are refused") {
  const nn::Build b = one_rank(DType::f32);
  nn::Embedding layer(b / "words", 5, 3);
  const auto called = [&](const Tensor& x, ExitCode code) { return error_of([&] { layer(x); }, code); };
  CHECK(says(called(Tensor::from({1, 5}, DType::i32), ExitCode::data), "[embedding] id 5 at [1] of [2]"));
  CHECK(says(called(Tensor::from({-1}, DType::i32), ExitCode::data), "[embedding] id -1"));
  CHECK(says(called(Tensor::from({1.0, 2.0}), ExitCode::internal), "i32"));
  CHECK(says(error_of([&] { nn::Embedding(b / "a", 0, 3); }, ExitCode::usage), "a: 0 vectors of width 3"));
  CHECK(says(error_of([&] { nn::Embedding(b / "c", 5, 3, {.padding = 5}); }, ExitCode::usage),
             "c: a padding of 5; expected an id, 0 to 4"));
}

}  // namespace embedding_test
