// A training run of any task whose flags have been read. Programs call train_program() (ops/run/train_program.h).
// Read next: train/loop/training.cpp, train/loop/rank_run.cpp; train/loop/task.h, train/step/trainer.h.
#pragma once

#include "train/loop/attachments.h"
#include "train/loop/task.h"

namespace trireme {

/// Loads the data, starts the ranks and trains. Returns the exit code. The options of the task: resolved and valid.
int train(Task& task, RunAttachments& attachments);

}  // namespace trireme
