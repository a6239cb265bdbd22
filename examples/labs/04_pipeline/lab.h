// Lab 4, pipeline parallelism: what learner.cpp is to contain. stage.h has what its functions are given.
// Read next: README.md beside this file, then learner.cpp.
#pragma once

#include <string>

#include "examples/labs/04_pipeline/stage.h"
#include "examples/labs/harness/grading.h"

namespace trireme::labs::pipeline {

/// What the rank of this number does in a step.
using List = Actions (*)(int ranks, int rank, int micro_batches);

struct Answers {
  double (*run)(Rank& rank, Stage& stage, const Actions& actions);
  List gpipe, one_f_one_b, split_backward;
  double (*gpipe_bubble)(int ranks, int micro_batches);
  double (*one_f_one_b_bubble)(int ranks, int micro_batches);
  int (*gpipe_alive)(int ranks, int rank, int micro_batches);
  int (*one_f_one_b_alive)(int ranks, int rank, int micro_batches);
  int (*messages_sent)(int ranks, int rank, int micro_batches);
};

void grade(const Answers& answers, Grading& grading);

inline Answer answer(std::string name, Answers answers, std::string expected = {}) {
  return {"04", std::move(name), [answers](Grading& grading) { grade(answers, grading); }, std::move(expected)};
}

}  // namespace trireme::labs::pipeline
