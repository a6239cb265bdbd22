// Muon against plain loops in f64, and whole matrices put together from the parts of a mesh. tests/zero has Muon in the
// training of a GPT.
#include "optim/muon.h"

#include <algorithm>
#include <atomic>

#include "nn/build.h"
#include "optim/whole_matrices.h"
#include "parallel/zero/zero.h"
#include "tests/support/elements.h"
#include "tests/support/errors.h"
#include "tests/support/mesh.h"

using namespace trireme;
using namespace trireme::testing;

namespace muon_test {
namespace {

/// A matrix in f64, for references.
struct Matrix {
  std::int64_t rows = 0, columns = 0;
  std::vector<double> x;
  Matrix(std::int64_t r, std::int64_t c, std::vector<double> elements = {})
      : rows(r), columns(c), x(std::move(elements)) {
    x.resize(static_cast<std::size_t>(r * c));
  }
  double& at(std::int64_t i, std::int64_t j) { return x[static_cast<std::size_t>(i * columns + j)]; }
  double at(std::int64_t i, std::int64_t j) const { return x[static_cast<std::size_t>(i * columns + j)]; }
};

Matrix product(const Matrix& a, const Matrix& b) {
  Matrix y(a.rows, b.columns);
  for (std::int64_t i = 0; i < a.rows; ++i)
    for (std::int64_t k = 0; k < a.columns; ++k)
      for (std::int64_t j = 0; j < b.columns; ++j) y.at(i, j) += a.at(i, k) * b.at(k, j);
  return y;
}

Matrix transposed(const Matrix& a) {
  Matrix y(a.columns, a.rows);
  for (std::int64_t i = 0; i < a.rows; ++i)
    for (std::int64_t j = 0; j < a.columns; ++j) y.at(j, i) = a.at(i, j);
  return y;
}

/// The formula of optim::orthogonalised(), without its choice of the smaller side.
Matrix newton_schulz(Matrix x) {
  double norm = 0;
  for (const double v : x.x) norm += v * v;
  for (double& v : x.x) v /= std::sqrt(norm) + 1e-7;
  for (int i = 0; i < 5; ++i) {
    const Matrix gram = product(x, transposed(x)), square = product(gram, gram);
    Matrix polynomial(x.rows, x.rows);
    for (std::size_t j = 0; j < gram.x.size(); ++j) polynomial.x[j] = -4.7750 * gram.x[j] + 2.0315 * square.x[j];
    const Matrix more = product(polynomial, x);
    for (std::size_t j = 0; j < x.x.size(); ++j) x.x[j] = 3.4445 * x.x[j] + more.x[j];
  }
  return x;
}

const std::vector<Shape> shapes = {{5, 9}, {9, 5}, {6, 6}, {1, 7}, {7, 1}, {1, 1}, {33, 17}};

/// q, k and v packed, a layer, and parameters that are no matrices between hidden layers.
struct Model {
  nn::Build build;
  explicit Model(const MeshPtr& mesh, DType dtype = DType::f32) : build(mesh, dtype, 4) {
    using placement::S;
    const auto init = nn::Init::normal(1.0);
    const nn::Build b = build / fmt::format("stage{}", mesh->coord(Axis::pp));
    b.parameter("qkv", {3, 8, 6}, {.tp = S(1)}, init, {.decay = true, .hidden_matrix = true});
    b.parameter("proj", {6, 8}, {.tp = S(1)}, init, {.decay = true, .hidden_matrix = true});
    b.parameter("experts", {4, 2, 10, 6}, {.ep = S(0), .tp = S(2)}, init, {.decay = true, .hidden_matrix = true});
    b.parameter("whole", {34, 5}, {}, init, {.decay = true, .hidden_matrix = true});
    b.parameter("embedding", {12, 6}, {.tp = S(0)}, init, {.decay = true});
    b.parameter("bias", {13}, {}, init);
  }
  const ParameterList& parameters() const { return build.parameters(); }
};

/// This rank's part of random numbers that are a function of the name, the step and the place.
Tensor gradient_of(const Parameter& p, int step) {
  Tensor part = random(p.global_shape, stream_of(p.name) + static_cast<std::uint64_t>(step), DType::f32);
  for (int dim = 0; dim < part.dims(); ++dim) part = view::slice(part, dim, p.rectangle.start[dim], p.local.size(dim));
  return contiguous(part);
}

double lr_of(int step) { return 0.01 / step; }
double scale_of(int step) { return step % 3 == 0 ? 0.25 : 1.0; }

/// A whole parameter, updated by loops.
struct Reference {
  Shape shape;
  std::vector<double> w, m, v;
  bool decay, matrix;
  explicit Reference(const Parameter& p)
      : shape(p.global_shape), w(values(p.local)), m(w.size()), v(w.size()), decay(p.decay), matrix(p.hidden_matrix) {}

  void step(const std::vector<double>& gradient, int step, const optim::MuonConfig& c) {
    const double lr = lr_of(step), wd = decay ? c.adamw.weight_decay : 0;
    if (!matrix) {
      for (std::size_t i = 0; i < w.size(); ++i) {
        const double g = scale_of(step) * gradient[i], b1 = c.adamw.beta1, b2 = c.adamw.beta2;
        m[i] = b1 * m[i] + (1 - b1) * g;
        v[i] = b2 * v[i] + (1 - b2) * g * g;
        const double m_hat = m[i] / (1 - std::pow(b1, step)), v_hat = v[i] / (1 - std::pow(b2, step));
        w[i] -= lr * (m_hat / (std::sqrt(v_hat) + c.adamw.eps) + wd * w[i]);
      }
      return;
    }
    std::vector<double> u(w.size());
    for (std::size_t i = 0; i < w.size(); ++i) {
      const double fresh = (1 - c.momentum) * scale_of(step) * gradient[i];
      m[i] = c.momentum * m[i] + fresh;
      u[i] = c.nesterov ? c.momentum * m[i] + fresh : m[i];
    }
    const std::int64_t rows = shape[-2], columns = shape[-1];
    const double r = static_cast<double>(rows), l = static_cast<double>(columns);
    const double factor =
        c.scale == optim::MuonScale::original ? std::sqrt(std::max(1.0, r / l)) : 0.2 * std::sqrt(std::max(r, l));
    for (std::int64_t first = 0; first < shape.count(); first += rows * columns) {
      const Matrix o = newton_schulz({rows, columns, {u.begin() + first, u.begin() + first + rows * columns}});
      for (std::size_t i = 0; i < o.x.size(); ++i) {
        double& weight = w[static_cast<std::size_t>(first) + i];
        weight -= c.lr_ratio * lr * (factor * o.x[i] + wd * weight);
      }
    }
  }
};

// Rounding of the gradients' sums, 2^-24, may grow 485 times in an update. Its size is that of the update, which is a
// small part of a weight; ten steps.
constexpr double rounding = 485 * 0x1p-24;

}  // namespace

TEST_CASE("Newton-Schulz: the formula in f64, for either side longer, and for views") {
  for (const Shape& shape : shapes) {
    const Tensor x = random(shape, 3, DType::f64);
    const Tensor turned = view::transpose(random({shape[1], shape[0]}, 4, DType::f64), 0, 1);
    for (const Tensor& matrix : {x, turned}) {
      const Matrix expected = newton_schulz({shape[0], shape[1], values(matrix)});
      const Tensor y = optim::orthogonalised(matrix);
      CHECK(y.shape() == shape);
      CHECK(y.contiguous());
      CHECK_MESSAGE(relative_difference(values(y), expected.x) < 1e-12, shape);
      const Tensor single = optim::orthogonalised(cast(matrix, DType::f32));
      CHECK_MESSAGE(relative_difference(values(single), expected.x) < rounding, shape);
    }
  }
}

TEST_CASE("Newton-Schulz: the result is nearly orthogonal, whatever the size of the matrix; zeros stay") {
  for (const double size : {1e-4, 1.0, 1e6}) {
    const Tensor y = optim::orthogonalised(random({4, 40}, 5, DType::f64, normal(size)));
    const Matrix m(4, 40, values(y)), gram = product(m, transposed(m));
    for (std::int64_t i = 0; i < 4; ++i)
      for (std::int64_t j = 0; j < 4; ++j) CHECK(std::abs(gram.at(i, j) - (i == j ? 0.9 : 0)) < 0.45);
  }
  CHECK(values(optim::orthogonalised(Tensor::zeros({3, 4}))) == std::vector<double>(12, 0));
  CHECK(optim::orthogonalised(Tensor::zeros({0, 4})).shape() == Shape{0, 4});
  CHECK_THROWS_WITH_AS(optim::orthogonalised(Tensor::zeros({3})), doctest::Contains("expected a matrix"), Error);
}

TEST_CASE("ten steps of Muon are ten steps of the formula: each packed matrix by itself, AdamW for the others") {
  using optim::MuonScale;
  for (const optim::MuonConfig& config :
       {optim::MuonConfig{}, optim::MuonConfig{.momentum = 0.8, .nesterov = false, .lr_ratio = 7},
        optim::MuonConfig{.scale = MuonScale::match_rms_adamw, .adamw = {.beta2 = 0.99, .weight_decay = 2}}}) {
    const auto mesh = std::make_shared<const DeviceMesh>(self_group(), MeshShape{});
    Model model(mesh);
    std::vector<Reference> expected;
    for (const ParameterPtr& p : model.parameters()) expected.emplace_back(*p);
    const auto optimizer = optim::make_muon(whole_shards(model.parameters()), *mesh, config);
    CHECK(optimizer->state().size() == 4 + 2 * 2);
    for (int step = 1; step <= 10; ++step) {
      for (const ParameterPtr& p : model.parameters()) p->grad() = gradient_of(*p, step);
      optimizer->step(lr_of(step), scale_of(step));
      for (std::size_t i = 0; i < expected.size(); ++i) {
        const Parameter& p = *model.parameters()[i];
        expected[i].step(values(gradient_of(p, step)), step, config);
        CHECK_MESSAGE(relative_difference(values(p.local), expected[i].w) < rounding, p.name, " at step ", step);
      }
    }
  }
}

TEST_CASE("a function of whole matrices on a mesh: each matrix is computed once, and all ranks get their parts of it") {
  // Sums over a whole row and a whole column show each element that is missing, twice there, or in another place.
  const auto f = [](const Tensor& x) {
    const Matrix in(x.size(0), x.size(1), values(x));
    Tensor y = Tensor::empty(x.shape());
    for (std::int64_t i = 0; i < in.rows; ++i)
      for (std::int64_t j = 0; j < in.columns; ++j) {
        double sum = 0;
        for (std::int64_t k = 0; k < in.columns; ++k) sum += in.at(i, k) * static_cast<double>(k + 1);
        for (std::int64_t k = 0; k < in.rows; ++k) sum -= in.at(k, j) * static_cast<double>(k + 2);
        y.data<float>()[i * in.columns + j] = static_cast<float>(sum);
      }
    return y;
  };
  for (const char* text : {"dp=1", "dp=2", "dp=3", "tp=2", "dp=2,tp=2", "dp=4,ep=2", "dp=4,ep=2,tp=2", "dp=2,pp=2"}) {
    for (const std::int64_t batch : {1LL, 100LL, 1LL << 20}) {
      for (const int stage : {0, 1, 3}) {
        std::atomic<int> computed = 0;
        run_mesh(text, [&](const MeshPtr& mesh) {
          Model model(mesh);
          const auto data = make_data_parallel(model.parameters(), model.build.units(), *mesh, {.stage = stage});
          ShardList matrices;
          std::vector<Tensor> pieces;
          for (const ShardPtr& shard : data->shards()) {
            if (!shard->parameter->hidden_matrix) continue;
            matrices.push_back(shard);
            pieces.push_back(clone(shard->part(gradient_of(*shard->parameter, 1))));
          }
          const optim::WholeMatrices whole(matrices, *mesh, batch);
          whole.apply(pieces, [&](const auto&, const Tensor& x) {
            ++computed;
            return f(x);
          });
          for (std::size_t i = 0; i < matrices.size(); ++i) {
            const Parameter& p = *matrices[i]->parameter;
            const Tensor all = random(p.global_shape, stream_of(p.name) + 1, DType::f32);
            Tensor expected = Tensor::empty(p.global_shape);
            const std::int64_t size = p.global_shape[-2] * p.global_shape[-1];
            const Shape flat = {-1, p.global_shape[-2], p.global_shape[-1]};
            for (std::int64_t k = 0; k < p.global_shape.count() / size; ++k) {
              Tensor place = view::select(view::reshape(expected, flat), 0, k);
              copy(f(view::select(view::reshape(all, flat), 0, k)), place);
            }
            for (int dim = 0; dim < expected.dims(); ++dim)
              expected = view::slice(expected, dim, p.rectangle.start[dim], p.local.size(dim));
            CHECK_MESSAGE(values(pieces[i]) == values(matrices[i]->part(expected)), text, " stage ", stage, " ",
                          p.name);
          }
        });
        const int stages = parse_mesh(text, 0).size(Axis::pp);
        CHECK(computed == stages * (3 + 1 + 4 * 2 + 1));
      }
    }
  }
}

TEST_CASE("the ranks share the matrices evenly") {
  run_mesh("dp=2,tp=2", [](const MeshPtr& mesh) {
    const nn::Build build(mesh, DType::f32, 4);
    for (int i = 0; i < 4; ++i)
      build.parameter(fmt::format("qkv{}", i), {3, 8, 8}, {.tp = placement::S(1)}, nn::Init::normal(1),
                      {.hidden_matrix = true});
    CHECK(optim::WholeMatrices(whole_shards(build.parameters()), *mesh).owned() == 3);
  });
}

TEST_CASE("Muon on any mesh is Muon on one rank: sums of equal gradients have equal bits") {
  std::map<std::string, Tensor> expected;
  for (const char* text : {"dp=1", "dp=2", "dp=4", "tp=2", "dp=2,tp=2", "dp=2,ep=2", "dp=4,ep=2,tp=2"}) {
    for (const int stage : {0, 1, 2, 3}) {
      run_mesh(text, [&](const MeshPtr& mesh) {
        Model model(mesh);
        const auto data = make_data_parallel(model.parameters(), model.build.units(), *mesh,
                                             {.stage = stage, .hashed_data = HashedData::all});
        const auto optimizer = optim::make_muon(data->shards(), *mesh, {});
        optimizer->attach(*data);
        for (int step = 1; step <= 3; ++step) {
          data->zero_grad(1);
          data->last_microbatch(true);
          // On every rank of data its share, a power of two: the sum over ranks has no rounding.
          Tensor loss = Tensor::zeros({});
          for (const ParameterPtr& p : model.parameters()) {
            const bool expert = p->placements.ep.sharded();
            const double share = 1.0 / mesh->size(expert ? Axis::edp : Axis::data);
            loss = loss + sum(p->local * scale(gradient_of(*p, step), share));
          }
          backward(loss);
          data->finish();
          optimizer->step(lr_of(step), scale_of(step));
        }
        data->finish_gathers();
        for (const ParameterPtr& p : model.parameters()) {
          const Tensor all = whole(p->local, *p, *mesh);
          if (text == std::string("dp=1") && stage == 0) expected[p->name] = all;
          CHECK_MESSAGE(same_bits(all, expected.at(p->name)), p->name, " on ", text, " stage ", stage);
        }
      });
    }
  }
}

TEST_CASE("Muon's refusals") {
  const auto mesh = std::make_shared<const DeviceMesh>(self_group(), MeshShape{});
  Model model(mesh);
  const ShardList shards = whole_shards(model.parameters());
  CHECK_THROWS_WITH_AS(optim::make_muon(shards, *mesh, {.momentum = 1}),
                       doctest::Contains("[muon] momentum is 1; expected 0 <= momentum < 1"), Error);
  CHECK_THROWS_WITH_AS(optim::make_muon(shards, *mesh, {.adamw = {.eps = -1}}), doctest::Contains("[muon] eps is -1"),
                       Error);
  const auto optimizer = optim::make_muon(shards, *mesh, {});
  CHECK(!optimizer->takes_scale_on_device());
  for (const ParameterPtr& p : model.parameters()) p->grad() = gradient_of(*p, 1);
  CHECK_THROWS_WITH_AS(optimizer->step(0.1, Tensor::full({1}, 1)), doctest::Contains("expected a number"), Error);
  CHECK_THROWS_WITH_AS(model.build.parameter("vector", {3}, {}, nn::Init::zeros(), {.hidden_matrix = true}),
                       doctest::Contains("'vector' is said to be a matrix"), Error);
}

}  // namespace muon_test
