// The gradient norm is a function of the gradients' bits: ZeRO's shards and pipeline stages do not change it.
#include "parallel/data_parallel/gradient_norm.h"
#include "tests/parity/training.h"
#include "tests/support/sanitized.h"
#include "tests/zero/support.h"

using namespace trireme;
using namespace trireme::testing;

namespace norm_bits_test {
namespace {

constexpr int steps = 3;

/// How a run is split over ranks.
struct Cut {
  std::string mesh;
  std::int64_t zero = 0, dp_shard = 0;
  std::string pipeline = "1f1b", stage_layers = {};
};

/// The norms of a few steps, each the same on every rank, and the last loss.
std::vector<double> norms_of(GptOptions o, const Cut& cut) {
  o.mesh.axes = cut.mesh;
  o.mesh.zero = cut.zero;
  o.mesh.pipeline = cut.pipeline;
  if (!cut.stage_layers.empty()) o.mesh.stage_layers = cut.stage_layers;
  if (cut.dp_shard > 0) o.mesh.dp_shard = cut.dp_shard;
  if (cut.zero == 3) o.mesh.zero_resident = 100;
  std::vector<std::vector<double>> norms;
  std::mutex mutex;
  on_ranks(o, [&](Trainer& trainer, const GptOptions& options, const DeviceMesh& mesh) {
    std::vector<double> mine;
    double loss = 0;
    for (int step = 0; step < steps; ++step) {
      const Trainer::GradientReport report =
          gradients_of_step(trainer, options, mesh, options.batch_sizes().global_batch * step);
      loss = pipeline::global_loss(mesh, report.pipeline.loss);
      mine.push_back(trainer.gradient_norm());
      trainer.update(1e-2, mine.back());
    }
    mine.push_back(loss);
    const std::scoped_lock lock(mutex);
    norms.push_back(std::move(mine));
  });
  for (const std::vector<double>& other : norms) CHECK(other == norms.front());
  return norms.front();
}

void check_cuts(const GptOptions& o, const std::vector<Cut>& cuts) {
  const std::vector<double> expected = norms_of(o, cuts.front());
  CHECK(expected.front() > 0);
  for (const Cut& cut : cuts) {
    const bool same = norms_of(o, cut) == expected;
    CHECK_MESSAGE(same, fmt::format("{} {} zero {} shards over {} {} stages of {}", name(o.precision.dtype), cut.mesh,
                                    cut.zero, cut.dp_shard, cut.pipeline, cut.stage_layers));
  }
}

GptOptions options_of(std::int64_t micro_batches, DType dtype = DType::f32) {
  GptOptions o = training_options("dp=2", micro_batches);
  o.model.config = {.layers = 4, .heads = 2, .width = 22, .context = 8, .vocab = 65};  // 22: uneven shards
  o.precision.dtype = dtype;
  o.batch.global_batch = 2 * micro_batches;
  o.optimizer.clip = 0.01;  // clips in every step, so that weights depend on the norm
  return o;
}

}  // namespace

TEST_CASE("norms have the same bits under ZeRO 0 and 1, any --dp-shard and any split into pipeline stages") {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    if (sanitized && dtype != DType::bf16) continue;
    GptOptions o = options_of(3, dtype);
    o.model.config.tied = false;  // tied gradients are summed in another order if one rank has both ends
    check_cuts(o, {{"dp=2"},
                   {"dp=2", 1},
                   {"dp=2", 1, 1},
                   {"dp=2,pp=2"},
                   {"dp=2,pp=2", 1},
                   {"dp=2,pp=2", 1, 1},
                   {"dp=2,pp=2", 0, 0, "gpipe", "3,1"},
                   {"dp=2,pp=2", 1, 0, "zero-bubble", "1,3"},
                   {"dp=2,pp=2", 0, 0, "interleaved:2"},
                   {"dp=2,pp=2", 1, 1, "interleaved:2"},
                   {"dp=2,pp=4", 0},
                   {"dp=2,pp=4", 1, 1, "zero-bubble"}});
  }
}

TEST_CASE("norms have the same bits with tied embeddings on two ranks, and with experts") {
  const GptOptions tied = options_of(3);
  check_cuts(tied, {{"dp=2,pp=2"},
                    {"dp=2,pp=2", 1, 0, "gpipe", "1,3"},
                    {"dp=2,pp=2", 1, 1, "interleaved:2"},
                    {"dp=2,pp=4", 1, 0, "zero-bubble"}});
  GptOptions experts = options_of(3);
  experts.batch.global_batch = 12;
  experts.model.config.tied = false;
  experts.model.config.experts.count = 4;
  experts.model.config.moe_every = 2;
  check_cuts(experts, {{"dp=4,ep=2"}, {"dp=4,ep=2", 1}, {"dp=4,ep=2", 1, 1}, {"dp=4,ep=2,pp=2", 1, 0, "zero-bubble"}});
}

TEST_CASE("norms have the same bits under ZeRO 0 to 3 with one micro-batch, and under 2 and 3 with several") {
  GptOptions one = options_of(1);
  one.batch.global_batch = 8;
  check_cuts(one, {{"dp=4"}, {"dp=4", 1}, {"dp=4", 2}, {"dp=4", 3}, {"dp=4", 1, 1}, {"dp=4", 2, 1}, {"dp=4", 3, 1}});
  GptOptions several = options_of(3);
  several.model.config.tied = false;
  check_cuts(several, {{"dp=2", 2}, {"dp=2", 3}, {"dp=2,pp=2", 2}, {"dp=2,pp=2", 3, 0, "interleaved:2"}});
}

TEST_CASE("the norm of given gradients has the same bits whole and in shards over any number of ranks") {
  const std::vector<Shape> shapes = {{7}, {64, 33}, {3, 50, 22}, {3, 22}, {8, 100}, {1}, {2, 3, 5}, {301}};
  for (const char* text : {"dp=1", "dp=2", "dp=3", "dp=4", "dp=6"}) {
    run_mesh(text, [&](const MeshPtr& mesh) {
      const int ranks = mesh->size(Axis::data);
      for (int shard_ranks = 1; shard_ranks <= ranks; ++shard_ranks) {
        if (ranks % shard_ranks != 0) continue;
        for (const int stage : {1, 2, 3}) {
          HandMade model;
          for (const Shape& shape : shapes) model.add(fmt::format("p{}", model.parameters.size()), shape);
          Zero zero(model.parameters, *model.units, *mesh, {.stage = stage, .shard_ranks = shard_ranks});
          zero.zero_grad();
          zero.last_microbatch();
          // All other ranks add zeros, so the bits of the sums are known, whatever their order.
          Tensor loss = Tensor::zeros({});
          std::vector<Tensor> gradients;
          for (const ParameterPtr& p : model.parameters) {
            Tensor gradient = Tensor::empty(p->local.shape());
            for (std::int64_t i = 0; i < gradient.count(); ++i)
              gradient.data<float>()[i] =
                  static_cast<float>(random_normal(5, 6 + gradients.size(), static_cast<std::uint64_t>(i)) *
                                     std::ldexp(1.0, static_cast<int>(i % 40) - 20));
            loss = loss + weighted_sum(*p, mesh->rank() == 0 ? gradient : Tensor::zeros(gradient.shape()));
            gradients.push_back(gradient);
          }
          backward(loss);
          zero.finish();
          const double expected = std::sqrt(kernels(Device::cpu).sum_squares(gradients).value());
          CHECK_MESSAGE(zero.gradient_norm() == expected, std::string(text), " stage ", stage, " shards over ",
                        shard_ranks);
        }
      }
    });
  }
}

TEST_CASE("a shard holds whole rows, so a parameter's sum of squares has the bits of the whole parameter") {
  // Two rows of values of one size: the rounding of a row's sum then often reaches the last bit of the norm.
  const Shape shape{2, 101};  // by length alone, dim 1 would be cut
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    run_mesh("dp=2", [&](const MeshPtr& mesh) {
      HandMade model;
      model.add("p", shape);
      Zero zero(model.parameters, *model.units, *mesh, {.stage = 1, .shard_ranks = 2});
      zero.zero_grad();
      zero.last_microbatch();
      const Tensor gradient = Tensor::empty(shape, DType::f32);
      for (std::int64_t i = 0; i < gradient.count(); ++i)
        gradient.data<float>()[i] = static_cast<float>(random_normal(7, seed, static_cast<std::uint64_t>(i)));
      const Tensor zeros = Tensor::zeros(gradient.shape());
      backward(weighted_sum(*model.parameters.front(), mesh->rank() == 0 ? gradient : zeros));
      zero.finish();
      CHECK(zero.gradient_norm() == std::sqrt(kernels(Device::cpu).sum_squares(std::vector{gradient}).value()));
    });
  }
}

}  // namespace norm_bits_test
