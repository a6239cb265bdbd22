// Adafactor against plain loops in f64, on one rank and on meshes. pytorch_test.cpp compares it with PyTorch;
// tests/zero has it in the training of a GPT.
#include "optim/adafactor.h"

#include <algorithm>
#include <cmath>

#include "nn/build.h"
#include "optim/whole_matrices.h"
#include "parallel/checkpoint/held_tensor.h"
#include "parallel/zero/zero.h"
#include "tests/support/elements.h"
#include "tests/support/errors.h"
#include "tests/support/mesh.h"

using namespace trireme;
using namespace trireme::testing;

namespace adafactor_test {
namespace {

/// Packed projections, experts, a padded vocabulary, and vectors.
struct Model {
  nn::Build build;
  explicit Model(const MeshPtr& mesh, DType dtype = DType::f32) : build(mesh, dtype, 4) {
    using placement::S;
    const auto init = nn::Init::normal(1.0);
    const nn::Build b = build / fmt::format("stage{}", mesh->coord(Axis::pp));
    b.parameter("qkv", {3, 8, 6}, {.tp = S(1)}, init, {.decay = true, .hidden_matrix = true});
    b.parameter("proj", {6, 8}, {.tp = S(1)}, init, {.decay = true, .hidden_matrix = true});
    b.parameter("experts", {4, 2, 10, 6}, {.ep = S(0), .tp = S(2)}, init, {.decay = true, .hidden_matrix = true});
    b.parameter("vocabulary", {12, 6}, {.tp = S(0)}, init, {.logical_rows = 9, .decay = true});
    b.parameter("qkv bias", {3, 8}, {.tp = S(1)}, init);
    b.parameter("split bias", {12}, {.tp = S(0)}, init);
    b.parameter("bias", {13}, {}, init);
  }
  const ParameterList& parameters() const { return build.parameters(); }
};

/// This rank's part of random numbers that are a function of the name, the step and the place; 0 for padded rows.
Tensor gradient_of(const Parameter& p, int step) {
  Tensor part = random(p.global_shape, stream_of(p.name) + static_cast<std::uint64_t>(step), DType::f32,
                       normal(step % 3 == 0 ? 30 : 1));
  Tensor padding = view::slice(part, 0, p.logical_rows, p.global_shape[0] - p.logical_rows);
  kernels(Device::cpu).fill(padding, 0);
  for (int dim = 0; dim < part.dims(); ++dim) part = view::slice(part, dim, p.rectangle.start[dim], p.local.size(dim));
  return contiguous(part);
}

double lr_of(int step) { return 0.01 / step; }
double scale_of(int step) { return step % 3 == 0 ? 0.25 : 1.0; }

double root_of_mean_square(const double* x, std::int64_t count) {
  double sum = 0;
  for (std::int64_t i = 0; i < count; ++i) sum += x[i] * x[i];
  return std::sqrt(sum / static_cast<double>(count));
}

/// A whole parameter, updated by loops.
struct Reference {
  std::int64_t matrices, rows, columns, padded;  // rows without padding; elements of a matrix with padding
  std::vector<double> w, row, column, v;
  bool decay, vector;

  explicit Reference(const Parameter& p) : w(values(p.local)), v(w.size()), decay(p.decay), vector(!p.decay) {
    columns = p.global_shape[-1];
    rows = vector ? 1 : p.global_shape.dims() == 2 ? p.logical_rows : p.global_shape[-2];
    padded = vector ? columns : p.global_shape[-2] * columns;
    matrices = p.global_shape.count() / padded;
    row.resize(static_cast<std::size_t>(matrices * rows));
    column.resize(static_cast<std::size_t>(matrices * columns));
  }

  void step(const std::vector<double>& gradient, int step, const optim::AdafactorConfig& c) {
    const double beta = 1 - std::pow(step, c.decay);
    for (std::int64_t m = 0; m < matrices; ++m) {
      std::vector<double> g(static_cast<std::size_t>(rows * columns));
      for (std::size_t i = 0; i < g.size(); ++i)
        g[i] = scale_of(step) * gradient[static_cast<std::size_t>(m * padded) + i];
      const std::vector<double> update = vector ? of_vector(m, g, beta, c) : of_matrix(m, g, beta, c);
      double* const weights = &w[static_cast<std::size_t>(m * padded)];
      double factor = lr_of(step) / std::max(1.0, root_of_mean_square(update.data(), rows * columns) / c.clip);
      if (c.scale_by_weight) factor *= std::max(c.eps2, root_of_mean_square(weights, rows * columns));
      for (std::size_t i = 0; i < static_cast<std::size_t>(padded); ++i)
        weights[i] -=
            (i < update.size() ? factor * update[i] : 0) + lr_of(step) * (decay ? c.weight_decay : 0) * weights[i];
    }
  }
  std::vector<double> of_vector(std::int64_t m, const std::vector<double>& g, double beta,
                                const optim::AdafactorConfig& c) {
    std::vector<double> u;
    for (std::size_t i = 0; i < g.size(); ++i) {
      double& mean = v[static_cast<std::size_t>(m * columns) + i];
      mean = beta * mean + (1 - beta) * (g[i] * g[i] + c.eps1);
      u.push_back(g[i] / std::sqrt(mean));
    }
    return u;
  }
  std::vector<double> of_matrix(std::int64_t m, const std::vector<double>& g, double beta,
                                const optim::AdafactorConfig& c) {
    const auto at = [&](std::int64_t i, std::int64_t j) { return g[static_cast<std::size_t>(i * columns + j)]; };
    double *r = &row[static_cast<std::size_t>(m * rows)], *l = &column[static_cast<std::size_t>(m * columns)];
    double mean = 0;
    for (std::int64_t i = 0; i < rows; ++i) {
      double sum = 0;
      for (std::int64_t j = 0; j < columns; ++j) sum += at(i, j) * at(i, j) + c.eps1;
      r[i] = beta * r[i] + (1 - beta) * sum / static_cast<double>(columns);
      mean += r[i] / static_cast<double>(rows);
    }
    for (std::int64_t j = 0; j < columns; ++j) {
      double sum = 0;
      for (std::int64_t i = 0; i < rows; ++i) sum += at(i, j) * at(i, j) + c.eps1;
      l[j] = beta * l[j] + (1 - beta) * sum / static_cast<double>(rows);
    }
    std::vector<double> u;
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < columns; ++j) u.push_back(at(i, j) / std::sqrt(r[i] * l[j] / mean));
    return u;
  }
};

constexpr double rounding = 32 * 0x1p-24;  // of weights, after ten steps that are small parts of them

MeshPtr one_rank() { return std::make_shared<const DeviceMesh>(self_group(), MeshShape{}); }

}  // namespace

TEST_CASE("ten steps of Adafactor are ten steps of the formula: rows, columns, vectors, clipping, padded rows") {
  for (const optim::AdafactorConfig& config :
       {optim::AdafactorConfig{}, optim::AdafactorConfig{.decay = -0.5, .clip = 0.3, .weight_decay = 2},
        optim::AdafactorConfig{.clip = 100, .scale_by_weight = true, .eps2 = 0.9}}) {
    const MeshPtr mesh = one_rank();
    Model model(mesh);
    std::vector<Reference> expected;
    for (const ParameterPtr& p : model.parameters()) expected.emplace_back(*p);
    const auto optimizer = optim::make_adafactor(whole_shards(model.parameters()), *mesh, config);
    for (int step = 1; step <= 10; ++step) {
      for (const ParameterPtr& p : model.parameters()) p->grad() = gradient_of(*p, step);
      optimizer->step(lr_of(step), scale_of(step));
      for (std::size_t i = 0; i < expected.size(); ++i) {
        const Parameter& p = *model.parameters()[i];
        expected[i].step(values(gradient_of(p, step)), step, config);
        CHECK_MESSAGE(relative_difference(values(p.local), expected[i].w) < rounding, p.name, " at step ", step);
      }
    }
    for (const StateTensor& s : optimizer->state()) {
      const auto same = [&](const ParameterPtr& p) { return p->name == s.parameter->name; };
      const auto found = std::find_if(model.parameters().begin(), model.parameters().end(), same);
      const Reference& reference = expected[static_cast<std::size_t>(found - model.parameters().begin())];
      const auto& all = s.name == "row" ? reference.row : s.name == "column" ? reference.column : reference.v;
      std::vector<double> got = values(s.value);
      got.resize(all.size());  // padded rows are the last
      CHECK_MESSAGE(relative_difference(got, all) < rounding, s.full_name());
    }
  }
}

TEST_CASE("Adafactor's state: a row and a column for each matrix, in checkpoints without padding") {
  const MeshPtr mesh = one_rank();
  Model model(mesh);
  const auto optimizer = optim::make_adafactor(whole_shards(model.parameters()), *mesh, {});
  std::map<std::string, Shape> shapes;
  for (const auto& held : checkpoint::held_tensors(optimizer->state(), {}, *mesh)) shapes[held.name] = held.global;
  const std::map<std::string, Shape> expected = {{"optimizer.row.stage0.qkv", {3, 8}},
                                                 {"optimizer.column.stage0.qkv", {3, 6}},
                                                 {"optimizer.row.stage0.proj", {6}},
                                                 {"optimizer.column.stage0.proj", {8}},
                                                 {"optimizer.row.stage0.experts", {4, 2, 10}},
                                                 {"optimizer.column.stage0.experts", {4, 2, 6}},
                                                 {"optimizer.row.stage0.vocabulary", {9}},
                                                 {"optimizer.column.stage0.vocabulary", {6}},
                                                 {"optimizer.v.stage0.qkv bias", {3, 8}},
                                                 {"optimizer.v.stage0.split bias", {12}},
                                                 {"optimizer.v.stage0.bias", {13}}};
  CHECK(shapes == expected);
}

TEST_CASE("Adafactor on any mesh is Adafactor on one rank: sums of equal gradients have equal bits") {
  for (const bool scale_by_weight : {false, true}) {
    std::map<std::string, Tensor> expected, state;
    for (const char* text : {"dp=1", "dp=2", "dp=4", "tp=2", "dp=2,tp=2", "dp=2,ep=2", "dp=4,ep=2,tp=2"}) {
      for (const int stage : {0, 1, 2, 3}) {
        run_mesh(text, [&](const MeshPtr& mesh) {
          Model model(mesh);
          const auto data = make_data_parallel(model.parameters(), model.build.units(), *mesh,
                                               {.stage = stage, .hashed_data = HashedData::all});
          const auto optimizer =
              optim::make_adafactor(data->shards(), *mesh, {.scale_by_weight = scale_by_weight, .eps2 = 0.1});
          optimizer->attach(*data);
          for (int step = 1; step <= 3; ++step) {
            data->zero_grad(1);
            data->last_microbatch(true);
            // On every rank of data its share, a power of two: the sum over ranks has no rounding.
            Tensor loss = Tensor::zeros({});
            for (const ParameterPtr& p : model.parameters()) {
              const double share = 1.0 / mesh->size(p->placements.ep.sharded() ? Axis::edp : Axis::data);
              loss = loss + sum(p->local * scale(gradient_of(*p, step), share));
            }
            backward(loss);
            data->finish();
            optimizer->step(lr_of(step), scale_of(step));
          }
          data->finish_gathers();
          const bool first = text == std::string("dp=1") && stage == 0;
          for (const ParameterPtr& p : model.parameters()) {
            const Tensor all = whole(p->local, *p, *mesh);
            if (first) expected[p->name] = all;
            CHECK_MESSAGE(same_bits(all, expected.at(p->name)), p->name, " on ", text, " stage ", stage);
          }
          for (const auto& held : checkpoint::held_tensors(optimizer->state(), {}, *mesh)) {
            if (first) state[held.name] = clone(held.value);
            Tensor same = state.at(held.name);  // of experts, those of this rank
            if (held.global.dims() > 0) same = view::slice(same, 0, held.start[0], held.value.size(0));
            CHECK_MESSAGE(values(held.value) == values(same), held.name, " on ", text, " stage ", stage);
          }
          verify_copies(data->copies(optimizer->state()));
        });
      }
    }
  }
}

TEST_CASE("whole matrices: vectors, a reader, and numbers that owners share") {
  for (const char* text : {"dp=1", "dp=3", "tp=2", "dp=2,tp=2", "dp=4,ep=2"}) {
    for (const int stage : {0, 1}) {
      run_mesh(text, [&](const MeshPtr& mesh) {
        Model model(mesh);
        const auto data = make_data_parallel(model.parameters(), model.build.units(), *mesh, {.stage = stage});
        std::vector<Tensor> pieces;
        std::vector<std::vector<Tensor>> sums;  // of each matrix
        for (const ShardPtr& shard : data->shards()) {
          const Parameter& p = *shard->parameter;
          pieces.push_back(clone(shard->part(gradient_of(p, 1))));
          const std::int64_t each =
              p.global_shape.dims() == 1 ? p.global_shape.count() : p.global_shape[-1] * p.global_shape[-2];
          const std::int64_t all = p.global_shape.count() / each;
          sums.push_back({Tensor::zeros({p.placements.ep.sharded() ? all / mesh->size(Axis::ep) : all})});
        }
        const optim::WholeMatrices whole(data->shards(), *mesh);
        whole.read(pieces, [&](const optim::WholeMatrices::MatrixId& id, const Tensor& x) {
          CHECK(x.dims() == 2);
          sums[id.shard][0].data<float>()[id.index] = static_cast<float>(sum(x).item());
        });
        whole.share(sums);
        for (std::size_t i = 0; i < sums.size(); ++i) {
          const Parameter& p = *data->shards()[i]->parameter;
          double total = 0;
          for (const double x : values(sums[i][0])) total += x;
          Tensor own = random(p.global_shape, stream_of(p.name) + 1, DType::f32);
          own = view::slice(own, 0, 0, p.logical_rows);
          if (p.placements.ep.sharded()) own = view::slice(own, 0, p.rectangle.start[0], p.local.size(0));
          double expected = 0;
          for (const double x : values(own)) expected += x;
          CHECK_MESSAGE(std::abs(total - expected) < 1e-4, p.name, " on ", text, " stage ", stage);
        }
      });
    }
  }
}

TEST_CASE("Adafactor's refusals") {
  const MeshPtr mesh = one_rank();
  Model model(mesh);
  const ShardList shards = whole_shards(model.parameters());
  const auto said = [&](const optim::AdafactorConfig& config) {
    return error_of([&] { optim::make_adafactor(shards, *mesh, config); }, ExitCode::usage);
  };
  CHECK(says(said({.decay = 0}), "[adafactor] decay is 0; expected below 0"));
  CHECK(says(said({.clip = 0}), "[adafactor] clip is 0; expected above 0"));
  CHECK(says(said({.eps1 = -1}), "[adafactor] eps1 is -1; expected at least 0"));
  const auto optimizer = optim::make_adafactor(shards, *mesh, {});
  CHECK(!optimizer->takes_scale_on_device());
  CHECK(says(error_of([&] { optimizer->store_moments_in_bf16(1); }, ExitCode::usage),
             "do not call store_moments_in_bf16() (--moments bf16)"));
}

}  // namespace adafactor_test
