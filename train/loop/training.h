// A training run of any task, from the command line to the last checkpoint: what main() of train_gpt and of train is.
//
//   int main(int argc, char** argv) {
//     return run_program([&] { GptTask task; return train_program(argc, argv, "train_gpt", "Trains a GPT.", task); });
//   }
//
// Read next: train/loop/training.cpp, from its end; train/loop/task.h, train/step/trainer.h.
#pragma once

#include <string>

#include "train/loop/task.h"

namespace trireme {

/// Declares the flags of a training program: those of the task, and of every training run.
void declare_task(Flags& flags, Task& task);

/// Reads the flags, settles and validates what they ask for. False when --help or --print-config was asked for: it is
/// printed (by the launcher's first rank), and nothing else is to be done.
bool read_task_flags(int argc, const char* const* argv, Flags& flags, Task& task);

/// Loads the data, starts the ranks, trains. Returns the exit code; the task's flags have been read.
int train(Task& task);

/// All of it.
int train_program(int argc, const char* const* argv, const std::string& program, const std::string& summary,
                  Task& task);

}  // namespace trireme
