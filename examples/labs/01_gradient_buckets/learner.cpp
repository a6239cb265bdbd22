// Lab 1: your answer. Fill in the seven gaps, marked GAP, and run
//
//   ./trireme lab 1
//
// README.md beside this file says what is asked for; lab.h and examples/labs/harness/cluster.h have what you may use.
#include "examples/labs/01_gradient_buckets/lab.h"

namespace trireme::labs::gradient_buckets {
namespace {

// ---- predictions: first, with pencil and paper ----------------------------------------------------------------------

/// Bytes that one rank sends in a ring all-reduce of `count` f32 elements. `ranks` divides `count`.
std::int64_t bytes_sent(int ranks, std::int64_t count) {
  return 0;  // GAP 1
}

/// Messages that one rank sends in it.
std::int64_t messages_sent(int ranks) {
  return 0;  // GAP 2
}

/// Seconds it takes, if a message of b bytes takes latency + b / bytes_per_second. All ranks send at the same time, and
/// nobody begins a round before the message of the last one is there.
double all_reduce_seconds(int ranks, std::int64_t count, double latency, double bytes_per_second) {
  return 0;  // GAP 3
}

/// Seconds of a backward with equal buckets. The gradients of a bucket take `compute` seconds, its all-reduce `all_reduce`
/// seconds. All-reduces run one after another, while later buckets are computed. Either may take longer.
double step_seconds(int buckets, double compute, double all_reduce) {
  return 0;  // GAP 4
}

// ---- part 1: a ring ---------------------------------------------------------------------------------------------------

/// Piece i of x, of n pieces of nearly equal length; any i counts round the ring.
Tensor piece(const Tensor& x, int i, int n) {
  i = (i % n + n) % n;
  const std::int64_t begin = x.count() * i / n, end = x.count() * (i + 1) / n;
  return view::slice(x, 0, begin, end - begin);
}

/// x [count] becomes the sum of all ranks' x. Each rank sends to the next one only.
void all_reduce(Rank& rank, Tensor x) {
  const int n = rank.size(), next = (rank.rank() + 1) % n, before = (rank.rank() + n - 1) % n;

  // First n - 1 rounds: sums travel round the ring and grow. Afterwards this rank has one piece of the whole sum.
  //   rank.send(piece(x, ..., n), next);
  //   add_into(piece(x, ..., n), rank.receive(before));
  // GAP 5

  // Then n - 1 rounds more: finished pieces travel round the ring and replace what is there.
  //   Tensor to = piece(x, ..., n);
  //   copy(rank.receive(before), to);
  // GAP 6
}

// ---- part 2: buckets, while backward goes on ----------------------------------------------------------------------------

/// Runs the whole backward. Afterwards backward.gradients() is the mean over the ranks. Gradients are sent in buckets of
/// at least `bucket` elements, only the last may be smaller; and while backward computes the next ones.
void synchronize(Rank& rank, Backward& backward, std::int64_t bucket) {
  Tensor gradients = backward.gradients();  // [P]
  while (!backward.done()) {
    const std::int64_t final = backward.next(rank);  // gradients [0, final) are this rank's from now on
    // GAP 7: when a bucket is full, rank.start([=, &rank] { all_reduce(rank, <its part of gradients>); })
    (void) final;
  }
  // ... and here what is left: the last bucket, rank.wait(), and the mean (x *= 0.5 halves a tensor).
}

const Registered registered(answer("learner", {all_reduce, synchronize, bytes_sent, messages_sent, all_reduce_seconds,
                                               step_seconds}));

}  // namespace
}  // namespace trireme::labs::gradient_buckets
