// Layers over images on meshes: values, gradients and running statistics are those of one rank with all samples.
#include "nn/batch_norm.h"
#include "nn/conv.h"
#include "nn/group_norm.h"
#include "nn/pool.h"
#include "tests/support/errors.h"
#include "tests/support/mesh.h"

using namespace trireme;
using namespace trireme::testing;

namespace vision_layers_test {
namespace {

/// [N, 3, 9, 8] -> [N, 4]
struct Net : nn::Module {
  nn::Conv2d conv1, conv2;
  nn::BatchNorm2d norm1;
  nn::GroupNorm norm2;
  nn::MaxPool2d max_pool;
  nn::AvgPool2d avg_pool;
  nn::AdaptiveAvgPool2d global_pool;
  nn::Conv1d conv3;
  nn::BatchNorm1d norm3;
  explicit Net(const nn::Build& b)
      : Module(b),
        conv1(b / "conv1", 3, 8, {3, 3}, {.padding = {1, 1}, .bias = false}),
        conv2(b / "conv2", 8, 6, {3, 2}, {.stride = {1, 2}, .padding = {1, 1}, .groups = 2}),
        norm1(b / "norm1", 8),
        norm2(b / "norm2", 3, 6),
        max_pool(b / "max_pool", {.kernel = {3, 3}, .stride = {2, 1}, .padding = {1, 1}}),
        avg_pool(b / "avg_pool", {.kernel = {2, 1}}),
        global_pool(b / "global_pool"),
        conv3(b / "conv3", 6, 4, 1, {.bias = false}),  // a shift before a batch norm has no gradient
        norm3(b / "norm3", 4) {}
  Tensor forward(const Tensor& x) override {
    const Tensor h = max_pool(relu(norm1(conv1(x))));
    const Tensor p = global_pool(avg_pool(relu(norm2(conv2(h)))));
    const Tensor y = norm3(conv3(reshape(p, {p.size(0), p.size(1), 1})));
    return reshape(y, {y.size(0), y.size(1)});
  }
};

constexpr std::int64_t samples = 12;

/// y, dx, gradients and buffers as whole tensors, by name, once per rank.
void run_net(const std::string& text, Collected& results) {
  run_mesh(text, [&](const MeshPtr& mesh) {
    const nn::Build b(mesh, DType::f64, 3);
    Net net(b);
    randomise(b.parameters(), 0.3);
    const std::int64_t each = samples / mesh->size(Axis::dp);
    const auto part = [&](const Tensor& whole) {
      return clone(view::slice(whole, 0, mesh->coord(Axis::dp) * each, each));
    };
    const auto all = [&](const Tensor& local) { return whole_over(local.detach(), placement::S(0), *mesh, Axis::dp); };
    Tensor x = part(random({samples, 3, 9, 8}, 1));
    require_grad(x);
    const Tensor y = net(x);
    backward(y, part(random({samples, 4}, 2)));
    results.add("y", all(y));
    results.add("dx", all(grad(x)));
    for (const ParameterPtr& p : b.parameters()) {
      Tensor sum = clone(p->grad());
      mesh->group(Axis::dp).all_reduce(sum).wait();
      results.add(p->name, sum);
    }
    for (const BufferPtr& buffer : b.buffers()) results.add(buffer->name, clone(buffer->value));
  });
}

}  // namespace

TEST_CASE("a convolutional net on dp and tp is that of one rank: values, gradients, running statistics") {
  Collected one;
  run_net("dp=1", one);
  CHECK(one.all().size() == 2 + 10 + 4);
  for (const std::string& text : Meshes{"dp=2", "dp=3", "dp=2,tp=2", "tp=3"}) {
    Collected results;
    run_net(text, results);
    CHECK(results.all().size() == one.all().size());
    for (const auto& [name, tensors] : results.all()) {
      const Tensor& expected = one.all().at(name).front();
      for (const Tensor& tensor : tensors) {
        CAPTURE(name);
        CAPTURE(text);
        CHECK(largest_difference(values(tensor), values(expected)) < (tensor.dtype() == DType::f32 ? 1e-7 : 1e-11));
        CHECK(same_bits(tensor, tensors.front()));
      }
    }
  }
}

TEST_CASE("BatchNorm is that of one rank also if ranks have different numbers of samples") {
  struct Seen {
    Tensor y, dx, mean, variance;
  };
  const Tensor whole = random({5, 3, 2, 2}, 1), dy = random({5, 3, 2, 2}, 2);
  const auto run = [&](const MeshPtr& mesh, std::int64_t begin, std::int64_t count) {
    nn::BatchNorm2d norm(nn::Build(mesh, DType::f64, 3) / "norm", 3);
    Tensor x = clone(view::slice(whole, 0, begin, count));
    require_grad(x);
    const Tensor y = norm(x);
    backward(y, clone(view::slice(dy, 0, begin, count)));
    return Seen{y.detach(), grad(x), clone(norm.buffers()[0]->value), clone(norm.buffers()[1]->value)};
  };
  Seen one;
  run_mesh("dp=1", [&](const MeshPtr& mesh) { one = run(mesh, 0, 5); });
  run_mesh("dp=2", [&](const MeshPtr& mesh) {
    const bool first = mesh->coord(Axis::dp) == 0;
    const std::int64_t begin = first ? 0 : 2, count = first ? 2 : 3;
    const Seen got = run(mesh, begin, count);
    CHECK(relative_difference(got.y, view::slice(one.y, 0, begin, count)) < 1e-13);
    CHECK(relative_difference(got.dx, view::slice(one.dx, 0, begin, count)) < 1e-12);
    CHECK(relative_difference(got.mean, one.mean) < 1e-6);
    CHECK(relative_difference(got.variance, one.variance) < 1e-6);
  });
}

TEST_CASE("BatchNorm refuses a rank without samples, and one value per channel on one rank") {
  const auto refused = [](const MeshPtr& mesh, std::int64_t samples) {
    nn::BatchNorm1d norm(nn::Build(mesh, DType::f64, 3) / "norm", 3);
    CHECK(says(error_of(
                   [&] {
                     norm(Tensor::zeros({samples, 3}, DType::f64));
                   },
                   ExitCode::internal),
               "whose variance is not defined"));
  };
  run_mesh("dp=1", [&](const MeshPtr& mesh) { refused(mesh, 1); });
  run_mesh("dp=2", [&](const MeshPtr& mesh) { refused(mesh, 0); });
}

TEST_CASE("BatchNorm's positions may be split over cp and tp") {
  // [N, C, L]: L is cut over cp, then over tp with sequence parallelism, as the stream of a sequence model is.
  const auto run = [](const std::string& text, bool sequence, Collected& results) {
    run_mesh(text, [&](const MeshPtr& mesh) {
      const nn::Build b(mesh, DType::f64, 3, {.sequence = sequence});
      nn::BatchNorm1d norm(b / "norm", 5);
      randomise(b.parameters(), 0.3);
      const auto part = [&](Tensor x) {
        const int tp = sequence ? mesh->size(Axis::tp) : 1;
        x = view::slice(x, 0, mesh->coord(Axis::dp) * (x.size(0) / mesh->size(Axis::dp)),
                        x.size(0) / mesh->size(Axis::dp));
        const std::int64_t length = x.size(2) / mesh->size(Axis::cp) / tp;
        return clone(
            view::slice(x, 2, (mesh->coord(Axis::cp) * tp + (sequence ? mesh->coord(Axis::tp) : 0)) * length, length));
      };
      Tensor x = part(random({4, 5, 8}, 1));
      require_grad(x);
      const Tensor y = norm(x);
      backward(y, part(random({4, 5, 8}, 2)));
      const auto add_over_ranks = [&](const std::string& name, const Tensor& value) {
        Tensor sum = clone(value.detach());
        mesh->group(Axis::data).all_reduce(sum).wait();
        if (sequence) mesh->group(Axis::tp).all_reduce(sum).wait();
        results.add(name, sum);
      };
      add_over_ranks("y", sum(square(y.detach())));
      add_over_ranks("dx", sum(square(grad(x))));
      for (const ParameterPtr& p : b.parameters()) add_over_ranks(p->name, p->grad());
      for (const BufferPtr& buffer : b.buffers()) results.add(buffer->name, clone(buffer->value));
    });
  };
  Collected one;
  run("dp=1", false, one);
  for (const auto& [text, sequence] : {std::pair{"dp=2,cp=2", false}, std::pair{"cp=2,tp=2", true}}) {
    Collected results;
    run(text, sequence, results);
    for (const auto& [name, tensors] : results.all()) {
      CAPTURE(name);
      for (const Tensor& tensor : tensors)
        CHECK(largest_difference(values(tensor), values(one.all().at(name).front())) <
              (tensor.dtype() == DType::f32 ? 1e-7 : 1e-12));
    }
  }
}

TEST_CASE("running statistics change in recorded forwards of training only") {
  const nn::Build b(std::make_shared<const DeviceMesh>(self_group(), MeshShape{}), DType::f32, 1);
  nn::BatchNorm1d norm(b / "norm", 3);
  const Tensor x = random({7, 3}, 1, DType::f32);
  const auto statistics = [&] { return concat({b.buffers()[0]->value, b.buffers()[1]->value}, 0); };
  const Tensor before = statistics();
  {
    const NoGrad guard;
    norm(x);
  }
  b.run_state()->training = false;
  norm(x);
  CHECK(same_bits(statistics(), before));
  b.run_state()->training = true;
  norm(x);
  CHECK(!same_bits(statistics(), before));
}

TEST_CASE("a recomputed BatchNorm counts a batch once, and gives the same gradients") {
  const auto run = [](bool recomputed) {
    const nn::Build b(std::make_shared<const DeviceMesh>(self_group(), MeshShape{}), DType::f32, 1);
    nn::BatchNorm1d norm(b / "norm", 3);
    Tensor x = random({7, 3}, 1, DType::f32);
    require_grad(x);
    backward(sum(square(recomputed ? recompute([&](const Tensor& in) { return norm(in); }, x) : norm(x)) * x.detach()));
    return std::vector<Tensor>{grad(x), clone(b.buffers()[0]->value), clone(b.buffers()[1]->value)};
  };
  CHECK(same_bits(run(true), run(false)));
}

TEST_CASE("one number stands for height and width") {
  run_mesh("dp=1", [](const MeshPtr& mesh) {
    const auto built = [&] { return nn::Build(mesh, DType::f64, 3) / "conv"; };  // one name, so the same weights
    const Tensor x = random({2, 3, 9, 8}, 1);
    CHECK(same_bits(nn::Conv2d(built(), 3, 4, 3, {.stride = 2, .padding = 1})(x).detach(),
                    nn::Conv2d(built(), 3, 4, {3, 3}, {.stride = {2, 2}, .padding = {1, 1}})(x).detach()));
    CHECK(same_bits(max_pool2d(x, {.kernel = 3, .stride = 2}), max_pool2d(x, {.kernel = {3, 3}, .stride = {2, 2}})));
    CHECK(same_bits(adaptive_avg_pool2d(x, 2), adaptive_avg_pool2d(x, {2, 2})));
    CHECK(nn::Conv2d(built(), 3, 4, {1, 3})(x).shape() == Shape{2, 4, 9, 6});
  });
}

TEST_CASE("layers over images refuse a mesh that splits samples, and sizes that do not fit") {
  run_mesh("cp=2", [](const MeshPtr& mesh) {
    const nn::Build b(mesh, DType::f32, 1);
    CHECK(says(error_of(
                   [&] {
                     nn::Conv2d(b / "conv", 3, 4, {3, 3});
                   },
                   ExitCode::usage),
               "[conv2d] conv: this layer mixes"));
    CHECK(says(error_of([&] { nn::GroupNorm(b / "norm", 1, 4); }, ExitCode::usage), "cp splits them over ranks"));
    CHECK(says(error_of([&] { nn::MaxPool2d(b / "pool"); }, ExitCode::usage), "use cp=1"));
  });
  run_mesh("tp=2", [](const MeshPtr& mesh) {
    const nn::Build b(mesh, DType::f32, 1, {.sequence = true});
    CHECK(says(error_of([&] { nn::Conv1d(b / "conv", 3, 4, 3); }, ExitCode::usage), "--sequence-parallel off"));
  });
  const nn::Build b(std::make_shared<const DeviceMesh>(self_group(), MeshShape{}), DType::f32, 1);
  CHECK(says(error_of(
                 [&] {
                   nn::Conv2d(b / "a", 3, 4, {3, 3}, {.groups = 2});
                 },
                 ExitCode::usage),
             "a: 2 groups of 3 input and 4 output channels"));
  CHECK(says(error_of([&] { nn::GroupNorm(b / "b", 3, 4); }, ExitCode::usage), "b: 3 groups of 4 channels"));
  CHECK(says(error_of([&] { nn::BatchNorm1d(b / "c", 3, {.momentum = 2}); }, ExitCode::usage), "a momentum of 2"));
  nn::BatchNorm2d norm(b / "d", 3);
  CHECK(says(error_of([&] { norm(Tensor::zeros({1, 3, 1, 1})); }, ExitCode::internal), "1 values per channel"));
  CHECK(says(error_of([&] { norm(Tensor::zeros({2, 3})); }, ExitCode::internal), "expected [N, C, H, W]"));
  CHECK(says(error_of([&] { norm(Tensor::zeros({2, 4, 1, 1})); }, ExitCode::internal), "for 3 channels"));
}

}  // namespace vision_layers_test
