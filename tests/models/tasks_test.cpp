// The tasks of examples/tasks compute on every mesh what one rank computes, and learn their data.
#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <vector>

#include "check/parity/parity.h"
#include "examples/tasks/list.h"
#include "parallel/comm/process_group.h"
#include "tests/support/largest.h"
#include "tests/support/sanitized.h"
#include "train/loop/task.h"
#include "train/step/evaluate.h"
#include "train/step/setup.h"
#include "train/step/trainer.h"

using namespace trireme;

namespace tasks_test {
namespace {

struct Choice {
  const char* mesh;
  const char *zero = "0", *pipeline = "1f1b", *recompute = "none";
};

const Choice choices[] = {{"dp=2"},
                          {"dp=3", "1"},
                          {"tp=2", "2"},
                          {"pp=2"},
                          {"pp=2", "3", "interleaved:2"},
                          {"dp=2", "3", "1f1b", "full"},
                          {"pp=4", "1", "gpipe"},
                          {"dp=2,pp=2", "2", "zero-bubble"},
                          {"dp=2,tp=2", "3", "1f1b", "selective"},
                          {"dp=2,tp=2,pp=2", "3", "interleaved:2", "every:2"}};

/// The task with these flags, ready for the parity comparison.
std::unique_ptr<Task> task_on(const char* name, const Choice& choice) {
  const char* const words[] = {"", "--task", name};
  std::unique_ptr<Task> task = chosen_task(3, words);
  Flags flags("", "");
  task->declare_model(flags);
  declare_training(flags, task->options());
  flags.parse({"--width", "24", "--heads", "2", "--micro-batch", "2", "--global-batch", "12", "--mesh", choice.mesh,
               "--zero", choice.zero, "--pipeline", choice.pipeline, "--recompute", choice.recompute});
  resolve(task->options(), 0);
  task->prepare_parity();
  task->validate();
  return task;
}

/// What a run of a task has reached.
struct Learned {
  std::vector<double> losses;  // of each step
  double validation = 0;       // the loss after the last one
};

Learned train_task(const char* name, const std::vector<std::string>& model, std::int64_t steps, const char* mesh) {
  const char* const words[] = {"", "--task", name};
  std::unique_ptr<Task> task = chosen_task(3, words);
  Flags flags("", "");
  task->declare_model(flags);
  declare_training(flags, task->options());
  std::vector<std::string> given = {"--mesh", mesh, "--steps", std::to_string(steps)};
  given.insert(given.end(), model.begin(), model.end());
  flags.parse(given);
  resolve(task->options(), 0);
  task->load();
  const TrainOptions& o = task->options();
  const optim::LrSchedule schedule = make_lr_schedule(o.schedule);
  const double scale = 1.0 / static_cast<double>(o.batch_sizes().global_batch * task->targets());
  Learned learned;
  run_thread_ranks(
      o.mesh.shape.ranks(), 1, ProcessGroup::Deadline(1800), [&](const std::shared_ptr<ProcessGroup>& world) {
        const auto ranks = std::make_shared<const DeviceMesh>(world, o.mesh.shape);
        Trainer trainer(task->make(o, ranks), o);
        const BatchPlan plan = o.batch_sizes().on_rank(ranks->coord(Axis::dp));
        const auto source = task->training();
        std::vector<double> losses;
        for (std::int64_t step = 0; step < steps; ++step) {
          const auto next = [&](int index) {
            return source->make_batch(plan.first_sample(step * plan.global_batch, index), plan.micro_batch);
          };
          losses.push_back(pipeline::global_loss(*ranks, trainer.gradients(next, scale).pipeline.loss));
          trainer.update(schedule.at(step), trainer.gradient_norm());
        }
        const double validation = validation_loss(trainer.model(), *task->validation(), plan.micro_batch);
        if (world->rank() == 0) learned = {losses, validation};
      });
  return learned;
}

}  // namespace

TEST_CASE("the tasks learn their data, on one rank and on two") {
  struct Case {
    const char* name;
    std::vector<std::string> model;
    std::int64_t steps;
    double validation;  // the loss to reach
  };
  // Guessing costs ln 4 = 1.39 and ln 10 = 2.30.
  const Case cases[] = {
      {"vit", {"--layers", "2", "--width", "64", "--heads", "4"}, 200, 0.75},
      {"sort", {"--layers", "1", "--width", "32", "--heads", "4", "--length", "6", "--lr", "1e-2"}, 200, 0.3}};
  for (const Case& c : cases) {
    CAPTURE(c.name);
    const std::int64_t steps = testing::sanitized ? 10 : c.steps;
    const Learned one = train_task(c.name, c.model, steps, "dp=1"), two = train_task(c.name, c.model, steps, "dp=2");
    REQUIRE(one.losses.size() == two.losses.size());
    double difference = 0;  // later, rounding has grown: examples/models/example.h
    for (std::size_t i = 0; i < 10; ++i)
      testing::keep_largest(difference, std::abs(one.losses[i] - two.losses[i]) / one.losses[i]);
    CHECK(difference < 1e-5);
    if (testing::sanitized) continue;
    CHECK(one.validation < c.validation);
    CHECK(two.validation < c.validation);
  }
}

TEST_CASE("the tasks of the examples have one rank's losses, gradients and weights on every mesh") {
  for (const char* name : {"vit", "sort"}) {
    const std::unique_ptr<Task> one = task_on(name, {"dp=1"});
    const auto reference = parity_reference(one->options(), parity_model(*one));
    for (std::size_t i = 0; i < std::size(choices); i += testing::sanitized ? 3 : 1) {
      const Choice& choice = choices[i];
      CAPTURE(name);
      CAPTURE(choice.mesh);
      CAPTURE(choice.pipeline);
      const std::unique_ptr<Task> task = task_on(name, choice);
      const Parity parity(task->options(), reference);
      run_thread_ranks(task->options().mesh.shape.ranks(), 1, ProcessGroup::Deadline(1800),
                       [&](const std::shared_ptr<ProcessGroup>& world) {
                         const ParityReport report = parity.compare(world);
                         if (world->rank() == 0) CHECK_MESSAGE(report.largest() < 1e-5, parity_table(report, 3));
                       });
    }
  }
}

TEST_CASE("tasks that need whole sequences refuse to have them cut") {
  for (const char* name : {"vit", "sort"})
    CHECK_THROWS_WITH_AS(task_on(name, {"cp=2"}), doctest::Contains("expected cp=1"), Error);
}

TEST_CASE("--freeze: patterns choose what is not trained; one without a match, or all, is refused") {
  const auto frozen = [](const std::string& patterns, const char* mesh) {
    const std::unique_ptr<Task> task = task_on("vit", {mesh});
    TrainOptions& o = task->options();
    o.optimizer.freeze = patterns;
    std::int64_t count = 0;
    run_thread_ranks(o.mesh.shape.ranks(), 1, ProcessGroup::Deadline(1800),
                     [&](const std::shared_ptr<ProcessGroup>& world) {
                       const auto ranks = std::make_shared<const DeviceMesh>(world, o.mesh.shape);
                       Trainer trainer(task->make(o, ranks), o);
                       const ParameterList& all = trainer.model().parameters();
                       if (world->rank() == 0) count = static_cast<std::int64_t>(all.size() - trained(all).size());
                       for (const ParameterPtr& p : all)
                         if (p->name.ends_with("norm1.weight")) CHECK_FALSE(p->requires_grad());
                     });
    return count;
  };
  CHECK(frozen("*norm1*", "dp=1") > 0);
  CHECK(frozen("*norm1*,*norm2.weight", "pp=2") > 0);
  for (const char* mesh : {"dp=1", "pp=2"}) {
    CHECK_THROWS_WITH_AS(frozen("*", mesh), doctest::Contains("[--freeze] '*' matches all parameters"), Error);
    CHECK_THROWS_WITH_AS(frozen("*norm1*,blok.*", mesh), doctest::Contains("no parameter has a name like 'blok.*'"),
                         Error);
  }
}

}  // namespace tasks_test
