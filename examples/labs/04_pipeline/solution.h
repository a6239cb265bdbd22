// What the wrong answers of lab 4 take from its solution: all but the function in which they are wrong.
#pragma once

#include "examples/labs/04_pipeline/lab.h"

namespace trireme::labs::pipeline::solution {

double gpipe_bubble(int ranks, int micro_batches);
double one_f_one_b_bubble(int ranks, int micro_batches);
int gpipe_alive(int ranks, int rank, int micro_batches);
int one_f_one_b_alive(int ranks, int rank, int micro_batches);
int messages_sent(int ranks, int rank, int micro_batches);
double run(Rank& rank, Stage& stage, const Actions& actions);
Actions gpipe(int ranks, int rank, int micro_batches);
Actions one_f_one_b(int ranks, int rank, int micro_batches);
Actions split_backward(int ranks, int rank, int micro_batches);

inline constexpr Answers answers = {
    run,          gpipe, one_f_one_b, split_backward, gpipe_bubble, one_f_one_b_bubble, gpipe_alive, one_f_one_b_alive,
    messages_sent};

}  // namespace trireme::labs::pipeline::solution
