// Mistakes of a training loop on a mesh that would otherwise train each rank apart: other seeds, other layers, weights
// loaded on one rank, no GradSync, clipping and stepping before its sums.

#include <doctest/doctest.h>

#include "nn/linear.h"
#include "parallel/data_parallel/gradient_norm.h"
#include "parallel/data_parallel/replicated.h"
#include "tests/grad_sync/support.h"
#include "tests/support/errors.h"
#include "tests/support/mesh.h"

using namespace trireme;
using namespace trireme::testing;

namespace same_model_test {

struct Net {
  nn::Build b;
  nn::Linear up, down;
  Net(const MeshPtr& mesh, std::uint64_t seed)
      : b(mesh, DType::f32, seed),
        up(b / "up", 6, {8}, nn::Split::out, {}),
        down(b / "down", 8, {6}, nn::Split::in, {}) {}
  Tensor loss() { return sum(square(down(up(Tensor::ones({3, 6}))))); }
};

/// What GradSync throws on this mesh, after `make` has made each rank's parameters.
Caught refused(const char* mesh_text, const std::function<ParameterList(const MeshPtr&)>& make) {
  return caught([&] { run_mesh(mesh_text, [&](const MeshPtr& mesh) { const GradSync sync(make(mesh), *mesh); }); });
}

}  // namespace same_model_test

using namespace same_model_test;

TEST_CASE("ranks that build the model with other seeds are told so when GradSync is made") {
  for (const char* mesh_text : {"dp=2", "cp=2", "tp=2", "dp=2,tp=2"}) {
    CAPTURE(mesh_text);
    std::vector<std::unique_ptr<Net>> nets(4);
    const Caught error = refused(mesh_text, [&](const MeshPtr& mesh) {
      auto& net = nets[static_cast<std::size_t>(mesh->rank())];
      net = std::make_unique<Net>(mesh, 7 + static_cast<std::uint64_t>(mesh->rank()));
      return net->b.parameters();
    });
    CHECK(error.code == ExitCode::desync);
    CHECK(says(error.message,
               "[same_model] ranks 0 and 1 have built different models: parameter 0 is up.weight f32 "
               "[8, 6] of seed 7"));
    CHECK(says(error.message, "and up.weight f32 [8, 6] of seed 8"));
    CHECK(says(error.message, "give Build the same seed on all ranks"));
  }
}

TEST_CASE("ranks that make layers in another order, of another shape, or more of them, are told which") {
  const auto with = [](std::initializer_list<std::pair<const char*, std::int64_t>> layers) {
    ParameterList parameters;
    for (const auto& [name, width] : layers) parameters.push_back(make_parameter(name, {width}));
    return parameters;
  };
  const auto error = [&](const ParameterList& other) {
    const Caught e = refused("dp=3", [&](const MeshPtr& mesh) {
      return mesh->rank() == 2 ? other : with({{"a", 3}, {"b", 3}});
    });
    CHECK(e.code == ExitCode::desync);
    return e.message;
  };
  CHECK(says(error(with({{"b", 3}, {"a", 3}})), "ranks 0 and 2 have built different models: parameter 0 is a f32 [3]"));
  CHECK(says(error(with({{"a", 3}, {"b", 4}})), "parameter 1 is b f32 [3]"));
  CHECK(says(error(with({{"a", 3}, {"b", 4}})), "and b f32 [4]"));
  CHECK(
      says(error(with({{"a", 3}, {"b", 3}, {"c", 1}})), "parameter 2 is nothing after 2 parameters on rank 0, and c"));
  ParameterList frozen = with({{"a", 3}, {"b", 3}});
  frozen[1]->set_requires_grad(false);
  CHECK(says(error(frozen), "parameter 1 is b f32 [3] of seed 0, trained"));
}

TEST_CASE("weights that were changed on one rank only are found, wherever ranks hold copies") {
  for (const char* mesh_text : {"dp=2", "cp=2", "tp=2", "dp=2,tp=2", "dp=2,pp=2"}) {
    for (const Placement tp : {placement::I, placement::R, placement::S(0)}) {
      CAPTURE(mesh_text);
      CAPTURE(to_string(tp));
      const Caught error = refused(mesh_text, [&](const MeshPtr& mesh) {
        const std::string stage = fmt::format(" of stage {}", mesh->coord(Axis::pp));
        ParameterList parameters = {make_parameter("whole" + stage, {4}), make_parameter("weight" + stage, {4}, tp)};
        if (mesh->rank() == mesh->world().size() - 1) parameters[1]->local.data<float>()[2] = 1;
        return parameters;
      });
      const bool copies = std::string_view(mesh_text) != "tp=2" || !tp.sharded();
      CHECK(error.code == (copies ? ExitCode::desync : ExitCode::ok));
      if (copies) CHECK(says(error.message, "[same_model] the values of weight of stage"));
      if (copies) CHECK(says(error.message, "differ between ranks"));
    }
  }
}

TEST_CASE("clipping, norms and optimizers refuse gradients that were not summed over ranks") {
  for (const char* mesh_text : {"dp=1", "dp=2"}) {
    CAPTURE(mesh_text);
    run_mesh(mesh_text, [&](const MeshPtr& mesh) {
      Net net(mesh, 7);
      const ParameterList& parameters = net.b.parameters();
      GradSync sync(parameters, *mesh);
      const auto refused = [&](const char* when) {
        CAPTURE(when);
        for (const std::string& message : {error_of([&] { clip_gradients(parameters, *mesh, 1); }, ExitCode::usage),
                                           error_of([&] { gradient_norm(parameters, *mesh); }, ExitCode::usage)})
          CHECK(says(message,
                     "[gradient_norm] the gradient of up.weight is that of this rank's samples: GradSync::finish() was "
                     "not called after the last backward"));
      };
      refused("before the first step");
      for (int step = 0; step < 2; ++step) {
        sync.zero_grad();
        refused("after zero_grad");
        backward(net.loss());
        refused("before finish");
        sync.finish();
        CHECK(clip_gradients(parameters, *mesh, 1) > 0);
        CHECK(says(error_of([&] { sync.finish(); }, ExitCode::internal), "finish() was called twice"));
      }
    });
  }
}

TEST_CASE("a mesh with several samples and no GradSync is refused, and a loop with sums of its own is not") {
  run_mesh("dp=2", [](const MeshPtr& mesh) {
    Net net(mesh, 7);
    const ParameterList& parameters = net.b.parameters();
    nn::zero_grad(net.up);
    nn::zero_grad(net.down);
    backward(net.loss());
    const std::string message = error_of([&] { clip_gradients(parameters, *mesh, 1); }, ExitCode::usage);
    CHECK(says(message,
               "[gradient_norm] the gradient of up.weight is that of this rank's samples, as nothing adds it "
               "up over the ranks of the mesh"));
    CHECK(says(message, "make a GradSync of all parameters after the model"));
    for (const ParameterPtr& p : parameters) mesh->group(Axis::data).all_reduce(p->grad()).wait();
    mark_gradients_summed(parameters);
    CHECK(clip_gradients(parameters, *mesh, 1) > 0);
    zero_grad(parameters);
    CHECK_THROWS_AS(gradient_norm(parameters, *mesh), Error);
    {
      const GradSync sync(parameters, *mesh);
      CHECK(says(error_of([&] { mark_gradients_summed(parameters); }, ExitCode::usage), "call its finish()"));
    }
    CHECK_THROWS_AS(gradient_norm(parameters, *mesh), Error);  // the GradSync is gone
  });
  run_mesh("tp=2", [](const MeshPtr& mesh) {  // nothing to sum
    Net net(mesh, 7);
    zero_grad(net.b.parameters());
    backward(net.loss());
    CHECK(gradient_norm(net.b.parameters(), *mesh) > 0);
  });
}

TEST_CASE("a GradSync, a norm and clipping on another mesh than the model's are refused") {
  run_mesh("dp=2", [](const MeshPtr& mesh) {
    Net net(mesh, 7);
    const DeviceMesh alone(self_group(), {});
    const std::string_view why =
        "up.weight was made for the mesh dp=2,tp=1,pp=1, and is to be used with dp=1,tp=1,pp=1; expected one mesh";
    CHECK(says(error_of([&] { const GradSync sync(net.b.parameters(), alone); }, ExitCode::usage), why));
    GradSync sync(net.b.parameters(), *mesh);
    backward(net.loss());
    sync.finish();
    CHECK(says(error_of([&] { clip_gradients(net.b.parameters(), alone, 1); }, ExitCode::usage), why));
    CHECK(gradient_norm(net.b.parameters(), DeviceMesh(mesh->group(Axis::dp).subgroup({0, 1}, "again"),
                                                       mesh->shape())) > 0);  // another one of this shape
  });
}

TEST_CASE("Replicated asks for finish() too") {
  run_mesh("dp=2", [](const MeshPtr& mesh) {
    Net net(mesh, 7);
    Replicated replicated(net.b.parameters_below(), *mesh);                        // a temporary list
    static_assert(!std::is_constructible_v<GradSync, ParameterList, DeviceMesh>);  // whose mesh would be gone at once
    replicated.zero_grad(1);
    backward(net.loss());
    CHECK(says(error_of([&] { static_cast<void>(replicated.gradient_norm()); }, ExitCode::usage),
               "[gradient_norm] the gradient of up.weight is that of this rank's samples"));
    replicated.finish();
    CHECK(replicated.gradient_norm() > 0);
  });
}
