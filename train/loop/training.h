// A training run of any task, from the command line to the last checkpoint: the main() of train_gpt and of train.
//
//   int main(int argc, char** argv) {
//     return run_program([&] {
//       MyTask task;
//       return train_program(argc, argv, "my_program", "Trains my model.", task);
//     });
//   }
//
// Read next: train/loop/training.cpp, train/loop/rank_run.cpp; train/loop/task.h, train/step/trainer.h.
#pragma once

#include <string>

#include "train/loop/task.h"

namespace trireme {

/// Declares the flags of a training program: those of the task, and those of every training run.
void declare_task(Flags& flags, Task& task);

/// Parses the flags, resolves and validates the options. Returns false if --help or --print-config was given: it has
/// been printed (by the launcher's first rank), and the program should exit.
bool read_task_flags(int argc, const char* const* argv, Flags& flags, Task& task);

/// Loads the data, starts the ranks and trains. Returns the exit code. The task's flags must have been read.
int train(Task& task);

/// declare_task(), read_task_flags() and train() together.
int train_program(int argc, const char* const* argv, const std::string& program, const std::string& summary,
                  Task& task);

}  // namespace trireme
