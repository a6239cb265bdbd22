// The tasks of examples/tasks compute on every mesh what one rank computes.
#include <doctest/doctest.h>

#include "examples/tasks/list.h"
#include "parallel/comm/process_group.h"
#include "tests/support/sanitized.h"
#include "train/loop/task.h"

using namespace trireme;

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

}  // namespace

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
      run_thread_ranks(task->options().mesh.shape.ranks(), 1, ProcessGroup::Deadline(60),
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
