// Pipeline schedules in the real Trainer. All of them equal one rank and give the bits of 1F1B. They keep as many
// activations alive as the checker says, and take each batch once, in order.
#include <cstring>
#include <map>

#include "check/parity/parity.h"
#include "parallel/pipeline/schedules.h"
#include "tests/parity/training.h"
#include "tests/support/largest.h"

using namespace trireme;
using namespace trireme::testing;

namespace schedule_test {
namespace {

constexpr double tolerance = 1e-5;  // as in parity_test.cpp

/// f32 gradients by "name@tp": both copies of a tied weight have one name, and must be equal.
using Gradients = std::map<std::string, std::vector<float>>;

struct Step {
  Gradients gradients;
  double loss = 0;
  int buckets_overlapped = 0;  ///< summed over all ranks
};

Step run(GptOptions o, const std::string& pipeline) {
  o.mesh.pipeline = pipeline;
  Step step;
  std::mutex mutex;
  on_ranks(o, [&](Trainer& trainer, const GptOptions& options, const DeviceMesh& mesh) {
    const Trainer::GradientReport report = gradients_of_step(trainer, options, mesh);
    const double loss = pipeline::global_loss(mesh, report.pipeline.loss);
    const pipeline::ScheduleCosts& figures = trainer.executor().costs();
    CHECK(report.pipeline.peak_live == figures.peak_live[static_cast<std::size_t>(mesh.coord(Axis::pp))]);
    const std::scoped_lock lock(mutex);
    step.loss = loss;
    step.buckets_overlapped += report.sums.buckets_overlapped;
    for (const ParameterPtr& p : trainer.model().parameters()) {
      std::vector<float>& gradient = step.gradients[fmt::format("{}@{}", p->name, mesh.coord(Axis::tp))];
      const std::vector<float> mine(p->grad().data<float>(), p->grad().data<float>() + p->grad().count());
      const bool first = gradient.empty();
      if (first) gradient = mine;
      CHECK_MESSAGE(std::memcmp(gradient.data(), mine.data(), mine.size() * sizeof(float)) == 0, p->name);
    }
  });
  return step;
}

double largest_difference(GptOptions o) {
  resolve(o, 0);
  validate(o);
  set_threads(1);
  const Parity parity(o, parity_reference(o, gpt_parity(o.model.config)));
  double largest = 0;
  std::mutex mutex;
  run_thread_ranks(o.mesh.shape.ranks(), 1, ProcessGroup::Deadline(1800),
                   [&](const std::shared_ptr<ProcessGroup>& world) {
                     const ParityReport report = parity.compare(world);
                     const std::scoped_lock lock(mutex);
                     keep_largest(largest, report.largest());
                   });
  return largest;
}

}  // namespace

TEST_CASE("interleaved and zero-bubble pipelines on meshes of up to 8 ranks equal one rank") {
  struct Case {
    const char *mesh, *pipeline;
    std::int64_t micro_batches;
  };
  for (const Case& c :
       {Case{"pp=2", "interleaved:2", 4}, Case{"pp=2", "interleaved:3", 1}, Case{"pp=4", "interleaved:2", 8},
        Case{"dp=2,pp=2", "interleaved:2", 4}, Case{"tp=2,pp=2", "interleaved:2", 2},
        Case{"dp=2,tp=2,pp=2", "interleaved:4", 4}, Case{"pp=1", "interleaved:4", 4}, Case{"dp=2", "interleaved:2", 2},
        Case{"pp=2", "zero-bubble", 4}, Case{"pp=4", "zero-bubble", 2}, Case{"pp=4", "zero-bubble", 8},
        Case{"dp=2,pp=2", "zero-bubble", 4}, Case{"tp=2,pp=2", "zero-bubble", 4},
        Case{"dp=2,tp=2,pp=2", "zero-bubble", 4}}) {
    GptOptions o = training_options(c.mesh, c.micro_batches);
    o.model.config.layers = 8;
    o.mesh.pipeline = c.pipeline;
    CHECK_MESSAGE(largest_difference(o) <= tolerance, c.mesh, " ", c.pipeline, " ", c.micro_batches);
  }
}

TEST_CASE("losses are scaled before backward, in every schedule: 1, 2 or 8 micro-batches are one batch") {
  for (const std::string& pipeline : pipeline::schedule_examples()) {
    for (const std::int64_t micro_batches : {1, 2, 8}) {
      GptOptions o = training_options("pp=2", micro_batches);
      o.mesh.pipeline = pipeline;
      CHECK_MESSAGE(largest_difference(o) <= tolerance, pipeline, " ", micro_batches);
    }
  }
}

TEST_CASE("every schedule has the bits of 1F1B: with tied embeddings, dropout, recomputation, in f32 and bf16") {
  for (const char* mesh : {"pp=2", "dp=2,pp=2", "tp=2,pp=2"}) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      GptOptions o = training_options(mesh, 4);
      o.model.config.dropout = 0.1;
      o.precision.dtype = dtype;
      const Step reference = run(o, "1f1b");
      for (const std::string& pipeline : pipeline::schedule_examples()) {
        if (pipeline == "1f1b") continue;
        for (const char* recompute : {"none", "selective", "full"}) {
          o.precision.recompute = recompute;
          const Step step = run(o, pipeline);
          CHECK_MESSAGE(step.loss == reference.loss, mesh, " ", pipeline);
          REQUIRE(step.gradients.size() == reference.gradients.size());
          for (const auto& [name, gradient] : reference.gradients) {
            const std::vector<float>& other = step.gradients.at(name);
            CHECK_MESSAGE(std::memcmp(gradient.data(), other.data(), gradient.size() * sizeof(float)) == 0, mesh, " ",
                          pipeline, " ", recompute, " ", name);
          }
        }
      }
    }
  }
}

TEST_CASE("uneven stages change no bit") {
  GptOptions o = training_options("pp=2", 4);
  o.model.config.layers = 6;
  const Step reference = run(o, "1f1b");
  o.mesh.stage_layers = "5,1";
  CHECK(run(o, "zero-bubble").gradients == reference.gradients);
  o.mesh.stage_layers = "1,2,1,2";
  CHECK(run(o, "interleaved:2").gradients == reference.gradients);
}

TEST_CASE("sums over dp start while a pipeline still runs backward, in every schedule") {
  for (const std::string& pipeline : pipeline::schedule_examples()) {
    GptOptions o = training_options("dp=2,pp=2", 4);
    CHECK_MESSAGE(run(o, pipeline).buckets_overlapped > 0, pipeline);
  }
}

TEST_CASE("stages of one rank share a batch: each is made once, in order") {
  for (const char* pipeline : {"1f1b", "interleaved:2", "zero-bubble"}) {
    GptOptions o = training_options("pp=2", 8);
    o.mesh.pipeline = pipeline;
    std::mutex mutex;
    on_ranks(o, [&](Trainer& trainer, const GptOptions& options, const DeviceMesh&) {
      const BatchSizes sizes = options.batch_sizes();
      std::vector<int> made;
      const auto next = [&](int i) {
        made.push_back(i);
        return made_up_batch(options, i * sizes.micro_batch, sizes.micro_batch);
      };
      for (int step = 0; step < 2; ++step) trainer.gradients(next, 1.0);
      const std::scoped_lock lock(mutex);
      CHECK(made == std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7});
    });
  }
}

}  // namespace schedule_test
