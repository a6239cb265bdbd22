// Lab 1: a solution. Part 1 is the ring of parallel/comm/algorithms/ring.cpp, part 2 what
// parallel/data_parallel/grad_sync.cpp does with hooks of the tape.
#include <algorithm>

#include "examples/labs/01_gradient_buckets/solution.h"

namespace trireme::labs::gradient_buckets::solution {

// A piece is sent n - 1 times to be summed, and n - 1 times to be copied.
std::int64_t bytes_sent(int ranks, std::int64_t count) { return 2 * (ranks - 1) * (count / ranks) * 4; }

std::int64_t messages_sent(int ranks) { return 2 * (ranks - 1); }

// All ranks send at once, and each round waits for the one before.
double all_reduce_seconds(int ranks, std::int64_t count, double latency, double bytes_per_second) {
  const double bytes = static_cast<double>(count) / ranks * 4;
  return 2 * (ranks - 1) * (latency + bytes / bytes_per_second);
}

// Computing and communicating are two lines of work. The second begins when the first bucket is full, and the last
// bucket is sent when all is computed: whichever line is longer decides.
double step_seconds(int buckets, double compute, double all_reduce) {
  return std::max(buckets * compute + all_reduce, compute + buckets * all_reduce);
}

Tensor piece(const Tensor& x, int i, int n) {
  i = (i % n + n) % n;
  const std::int64_t begin = x.count() * i / n, end = x.count() * (i + 1) / n;
  return view::slice(x, 0, begin, end - begin);
}

void all_reduce(Rank& rank, Tensor x) {
  const int n = rank.size(), next = (rank.rank() + 1) % n, before = (rank.rank() + n - 1) % n;
  // In round k a rank passes on piece rank - k, which has the terms of k + 1 ranks.
  for (int k = 0; k + 1 < n; ++k) {
    rank.send(piece(x, rank.rank() - k, n), next);
    add_into(piece(x, rank.rank() - k - 1, n), rank.receive(before));
  }
  // Piece rank + 1 is complete here, and goes round first.
  for (int k = 0; k + 1 < n; ++k) {
    rank.send(piece(x, rank.rank() + 1 - k, n), next);
    Tensor to = piece(x, rank.rank() - k, n);
    copy(rank.receive(before), to);
  }
}

void synchronize(Rank& rank, Backward& backward, std::int64_t bucket) {
  Tensor gradients = backward.gradients();  // [P]
  std::int64_t sent = 0;
  int task = -1;
  while (!backward.done()) {
    const std::int64_t final = backward.next(rank);
    if (final - sent < bucket && !backward.done()) continue;
    const Tensor part = view::slice(gradients, 0, sent, final - sent);
    task = rank.start([&rank, part] { all_reduce(rank, part); });
    sent = final;
  }
  if (task >= 0) rank.wait(task);  // tasks run in order: the last one is done when all are
  gradients *= 1.0 / rank.size();
}

namespace {
const Registered registered(answer("solution", answers));
}

}  // namespace trireme::labs::gradient_buckets::solution
