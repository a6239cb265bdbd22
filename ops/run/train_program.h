// A training program for any task, from the command line to the last checkpoint: the main() of train_gpt and of train.
//
//   int main(int argc, char** argv) {
//     return run_program([&] {
//       MyTask task;
//       return train_program(argc, argv, "my_program", "Trains my model.", task);
//     });
//   }
//
// Read next: ops/run/train_program.cpp; train/loop/training.h (the run), train/loop/task.h.
#pragma once

#include <string>

#include "train/loop/task.h"

namespace trireme {

/// Trains `task` as the command line says. Shows the run on the terminal, and attaches what else the flags ask for:
/// trackers and injected faults. Returns the exit code.
int train_program(int argc, const char* const* argv, const std::string& program, const std::string& summary,
                  Task& task);

// The same in two parts, for a program with flags of its own.

/// Declares the flags of the task, and those of every training run.
void declare_task(Flags& flags, Task& task);
/// Declares the flags of trackers, parses all flags, and trains.
int train_program(int argc, const char* const* argv, Flags& flags, Task& task);

}  // namespace trireme
