// Trains a GPT on text, on any mesh:
//
//   build/bin/train_gpt --data README.md --layers 2 --heads 2 --width 64 --steps 100 --mesh dp=2 --out run1
//
// Read next: train/loop/rank_run.cpp (the run, with the loop), train/gpt/gpt_task.h (the model and its text),
// train/step/trainer.h.
#include "ops/run/train_program.h"
#include "train/gpt/gpt_task.h"
#include "train/program/program.h"

using namespace trireme;

int main(int argc, char** argv) {
  return run_program([&] {
    GptTask task;
    return train_program(
        argc, argv, "train_gpt",
        "Trains a GPT on text, on any mesh of data, tensor, pipeline, context and expert parallel ranks.", task);
  });
}
