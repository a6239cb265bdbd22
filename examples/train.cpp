// Trains any task of examples/tasks on any mesh:
//
//   build/bin/train --task vit --mesh dp=2,tp=2
//   build/bin/train --task sort --mesh pp=2 --zero 3 --out run-sort
//   build/bin/train --task vit --help            # the flags of that task
//
// Read next: examples/tasks/vit.cpp and examples/tasks/sort.cpp, each a model, its data and its flags in one file.
#include "examples/tasks/list.h"
#include "ops/run/train_program.h"
#include "train/program/program.h"
#include "train/program/signals.h"

using namespace trireme;

int main(int argc, char** argv) {
  return run_program([&] {
    catch_signals();
    std::string name = "gpt";
    const std::unique_ptr<Task> task = chosen_task(argc, argv);
    Flags flags("train", "Trains a task on any mesh.");
    flags.example("train --task vit --steps 200 --mesh dp=2 --out run1");
    declare_task_choice(flags, name);
    declare_task(flags, *task);
    return train_program(argc, argv, flags, *task);
  });
}
