// The norm of the whole gradient in closed form: shards, replicas, tied copies and stages, each logical element once.
#include "parallel/data_parallel/gradient_norm.h"

#include "nn/build.h"
#include "tests/support/mesh.h"

using namespace trireme;
using namespace trireme::testing;
using placement::I, placement::R, placement::S;

namespace {

/// Four parameters by global number; number i lives on stage i * pp / 4.
struct Logical {
  Shape shape;
  Placement tp;
  Placement ep = R;
};
const std::vector<Logical> logical = {{{12, 3}, S(0)}, {{7}, I}, {{4, 8, 3}, S(1), S(0)}, {{4, 5}, R, S(0)}};

/// The gradient of element k of parameter i.
double gradient_of(std::size_t i, std::int64_t k) {
  return static_cast<double>(i + 1) + 0.125 * static_cast<double>(k);
}

double closed_form() {
  double squares = 0;
  for (std::size_t i = 0; i < logical.size(); ++i) {
    for (std::int64_t k = 0; k < logical[i].shape.count(); ++k) squares += gradient_of(i, k) * gradient_of(i, k);
  }
  return std::sqrt(squares);
}

Tensor whole_gradient(std::size_t i) {
  Tensor g = Tensor::empty(logical[i].shape);
  for (std::int64_t k = 0; k < g.count(); ++k) g.data<float>()[k] = static_cast<float>(gradient_of(i, k));
  return g;
}

/// The parameters of this rank, with gradients as they are after all sums.
ParameterList make(const MeshPtr& mesh) {
  const nn::Build build(mesh, DType::f32, 1);
  const auto add = [&](std::size_t i, bool copy_of_first) {
    const auto p = build.parameter(std::to_string(i), logical[i].shape, {.ep = logical[i].ep, .tp = logical[i].tp},
                                   nn::Init::zeros(), {.copy_of_earlier_stage = copy_of_first});
    p->grad() = Tensor::empty(p->local.shape());
    Tensor part = whole_gradient(i);
    for (int dim = 0; dim < part.dims(); ++dim)
      part = view::slice(part, dim, p->rectangle.start[dim], p->local.size(dim));
    copy(part, p->grad());
  };
  for (std::size_t i = 0; i < logical.size(); ++i) {
    if (static_cast<int>(i) * mesh->size(Axis::pp) / 4 == mesh->coord(Axis::pp)) add(i, false);
  }
  if (mesh->size(Axis::pp) > 1 && mesh->is_last(Axis::pp)) add(0, true);  // parameter 0 is tied to the last stage
  mark_gradients_summed(build.parameters());
  return build.parameters();
}

}  // namespace

TEST_CASE("every logical element counts once, on any mesh, to the same bits on every rank") {
  for (const std::string& text :
       Meshes{"dp=1", "dp=2", "tp=2", "tp=4", "pp=2", "pp=4", "dp=2,tp=2", "tp=2,pp=2", "dp=2,tp=2,pp=2", "tp=2,pp=4",
              "dp=2,ep=2", "dp=4,ep=2", "dp=4,ep=4", "dp=2,ep=2,tp=2", "dp=2,ep=2,tp=2,pp=2"}) {
    CAPTURE(text);
    std::mutex mutex;
    std::vector<double> norms;
    run_mesh(text, [&](const MeshPtr& mesh) {
      const double norm = gradient_norm(make(mesh), *mesh);
      const std::scoped_lock lock(mutex);
      norms.push_back(norm);
    });
    CHECK(norms.size() == static_cast<std::size_t>(parse_mesh(text, 0).ranks()));
    for (const double norm : norms) {
      CHECK(norm == doctest::Approx(closed_form()).epsilon(1e-14));  // squares of these gradients are exact in f64
      CHECK(std::memcmp(&norm, &norms.front(), sizeof norm) == 0);
    }
  }
}

TEST_CASE("what is not finite stays so on every rank") {
  run_mesh("tp=2,pp=2", [](const MeshPtr& mesh) {
    const ParameterList parameters = make(mesh);
    if (mesh->rank() == 2) parameters.front()->grad().data<float>()[0] = INFINITY;
    CHECK(std::isinf(gradient_norm(parameters, *mesh)));
    if (mesh->rank() == 2) parameters.front()->grad().data<float>()[0] = NAN;
    CHECK(std::isnan(gradient_norm(parameters, *mesh)));
  });
}

TEST_CASE("damage to one rank's copy of a replicated gradient shows on every rank") {
  for (const float damage : {INFINITY, NAN}) {
    run_mesh("dp=2,tp=2", [damage](const MeshPtr& mesh) {
      const ParameterList parameters = make(mesh);
      const ParameterPtr& replicated = parameters[1];
      REQUIRE(!replicated->placements.tp.sharded());
      if (mesh->coord(Axis::tp) == 1) replicated->grad().data<float>()[0] = damage;
      const double norm = gradient_norm(parameters, *mesh);
      CHECK(std::isinf(norm) == std::isinf(damage));
      CHECK(std::isnan(norm) == std::isnan(damage));
    });
  }
}

TEST_CASE("clipping brings the norm down to its limit and never up") {
  CHECK(clip_factor(4.0, 1.0) == 0.25);
  CHECK(clip_factor(1.0, 1.0) == 1.0);
  CHECK(clip_factor(0.5, 1.0) == 1.0);
  CHECK(clip_factor(0.0, 1.0) == 1.0);
  CHECK(clip_factor(1e9, 0.0) == 1.0);  // off
}
