// Lab 1: wrong answers, each with a part of the message that it must get. Most give plausible numbers; the last five try
// to fool the grader. tests/labs runs them. Do not read this before your own answer: what is wrong shows what is right.
#include <unistd.h>

#include "examples/labs/01_gradient_buckets/solution.h"
#include "examples/labs/harness/cheats.h"

namespace trireme::labs::gradient_buckets {
namespace {

using solution::piece;

Answer wrong(std::string name, void (*all_reduce)(Rank&, Tensor), std::string expected) {
  Answers answers = solution::answers;
  answers.all_reduce = all_reduce;
  return answer(std::move(name), answers, std::move(expected));
}
Answer wrong(std::string name, void (*synchronize)(Rank&, Backward&, std::int64_t), std::string expected) {
  Answers answers = solution::answers;
  answers.synchronize = synchronize;
  return answer(std::move(name), answers, std::move(expected));
}

/// Every rank sends its whole x to every other.
void send_everything(Rank& rank, Tensor x) {
  const Tensor own = clone(x);
  for (int k = 1; k < rank.size(); ++k) rank.send(own, (rank.rank() + k) % rank.size());
  for (int k = 1; k < rank.size(); ++k) add_into(x, rank.receive((rank.rank() + k) % rank.size()));
}
const Registered a(wrong("everything to everybody", send_everything, "added in two orders"));

/// The same, added in rank order: the sum is right to the bit.
void send_everything_in_order(Rank& rank, Tensor x) {
  std::vector<Tensor> all(at(rank.size()));
  all[at(rank.rank())] = clone(x);
  for (int k = 1; k < rank.size(); ++k) rank.send(x, (rank.rank() + k) % rank.size());
  for (int k = 1; k < rank.size(); ++k) {
    const int from = (rank.rank() + k) % rank.size();
    all[at(from)] = rank.receive(from);
  }
  copy(Tensor::zeros(x.shape()), x);
  for (const Tensor& term : all) add_into(x, term);
}
const Registered b(wrong("everything to everybody, in order", send_everything_in_order, "sends to other ranks than"));

/// The second half of the ring forgets the last round.
void one_round_less(Rank& rank, Tensor x) {
  const int n = rank.size(), next = (rank.rank() + 1) % n, before = (rank.rank() + n - 1) % n;
  for (int k = 0; k + 1 < n; ++k) {
    rank.send(piece(x, rank.rank() - k, n), next);
    add_into(piece(x, rank.rank() - k - 1, n), rank.receive(before));
  }
  for (int k = 0; k + 2 < n; ++k) {
    rank.send(piece(x, rank.rank() + 1 - k, n), next);
    Tensor to = piece(x, rank.rank() - k, n);
    copy(rank.receive(before), to);
  }
}
const Registered c(wrong("one round less", one_round_less, "as before, not written"));

/// Receives first: so do all.
void receive_first(Rank& rank, Tensor x) {
  const int n = rank.size(), next = (rank.rank() + 1) % n, before = (rank.rank() + n - 1) % n;
  for (int k = 0; k + 1 < n; ++k) {
    add_into(piece(x, rank.rank() - k - 1, n), rank.receive(before));
    rank.send(piece(x, rank.rank() - k, n), next);
  }
}
const Registered d(wrong("receives first", receive_first, "a deadlock: rank 0 waits for a message of rank"));

/// The sum, not the mean.
void no_mean(Rank& rank, Backward& backward, std::int64_t bucket) {
  solution::synchronize(rank, backward, bucket);
  Tensor gradients = backward.gradients();
  for (float& g : gradients.span<float>()) g *= static_cast<float>(rank.size());
}
const Registered e(wrong("no mean", no_mean, "every element is 4 times what it should be"));

/// What is left after the last full bucket is not sent.
void lost_tail(Rank& rank, Backward& backward, std::int64_t bucket) {
  Tensor gradients = backward.gradients();
  std::int64_t sent = 0;
  int task = -1;
  while (!backward.done()) {
    const std::int64_t final = backward.next(rank);
    if (final - sent < bucket) continue;
    const Tensor part = view::slice(gradients, 0, sent, final - sent);
    task = rank.start([&rank, part] { solution::all_reduce(rank, part); });
    sent = final;
  }
  rank.wait(task);
  for (float& g : gradients.span<float>().first(at(sent))) g /= static_cast<float>(rank.size());
}
const Registered f(wrong("the last bucket is lost", lost_tail, "gradients of layer 0 on rank 0: every element"));

/// A bucket is read before backward has written all of it.
void too_early(Rank& rank, Backward& backward, std::int64_t bucket) {
  Tensor gradients = backward.gradients();
  std::int64_t sent = 0, final = 0;
  while (!backward.done()) {
    if (final - sent >= bucket) {
      const std::int64_t end = std::min(gradients.count(), final + 100);
      solution::all_reduce(rank, view::slice(gradients, 0, sent, end - sent));
      sent = end;
    }
    final = backward.next(rank);
  }
  solution::all_reduce(rank, view::slice(gradients, 0, sent, gradients.count() - sent));
  for (float& g : gradients.span<float>()) g /= static_cast<float>(rank.size());
}
const Registered g(wrong("a bucket before it is final", too_early, "wrong, by up to"));

/// All buckets start at once, before backward. They are only waited for afterwards.
void all_at_once(Rank& rank, Backward& backward, std::int64_t bucket) {
  Tensor gradients = backward.gradients();
  int task = -1;
  for (std::int64_t begin = 0; begin < gradients.count(); begin += bucket) {
    const Tensor part = view::slice(gradients, 0, begin, std::min(bucket, gradients.count() - begin));
    task = rank.start([&rank, part] { solution::all_reduce(rank, part); });
  }
  while (!backward.done()) backward.next(rank);
  rank.wait(task);
  for (float& x : gradients.span<float>()) x /= static_cast<float>(rank.size());
}
const Registered q(wrong("all buckets before backward", all_at_once, "wrong, by up to"));

/// Divides while the last buckets travel.
void mean_too_early(Rank& rank, Backward& backward, std::int64_t bucket) {
  Tensor gradients = backward.gradients();
  std::int64_t sent = 0;
  int task = -1;
  while (!backward.done()) {
    const std::int64_t final = backward.next(rank);
    if (final - sent < bucket && !backward.done()) continue;
    const Tensor part = view::slice(gradients, 0, sent, final - sent);
    task = rank.start([&rank, part] { solution::all_reduce(rank, part); });
    sent = final;
  }
  for (float& x : gradients.span<float>()) x /= static_cast<float>(rank.size());
  rank.wait(task);
}
const Registered r(wrong("the mean before the wait", mean_too_early, "wrong, by up to"));

/// Waits for every bucket at once: nothing overlaps.
void no_overlap(Rank& rank, Backward& backward, std::int64_t bucket) {
  Tensor gradients = backward.gradients();
  std::int64_t sent = 0;
  while (!backward.done()) {
    const std::int64_t final = backward.next(rank);
    if (final - sent < bucket && !backward.done()) continue;
    const Tensor part = view::slice(gradients, 0, sent, final - sent);
    rank.wait(rank.start([&rank, part] { solution::all_reduce(rank, part); }));
    sent = final;
  }
  for (float& x : gradients.span<float>()) x /= static_cast<float>(rank.size());
}
const Registered h(wrong("no overlap", no_overlap, "where does the rank wait?"));

/// One bucket: nothing to overlap with.
void one_bucket(Rank& rank, Backward& backward, std::int64_t) { solution::synchronize(rank, backward, 1 << 30); }
const Registered i(wrong("one bucket", one_bucket, "where does the rank wait?"));

/// A message for every layer.
void no_buckets(Rank& rank, Backward& backward, std::int64_t) { solution::synchronize(rank, backward, 1); }
const Registered j(wrong("no buckets", no_buckets, "Each message costs its latency"));

/// Bytes of all ranks' messages, not of one's.
const Registered k([] {
  Answers answers = solution::answers;
  answers.bytes_sent = [](int ranks, std::int64_t count) { return 2 * (ranks - 1) * count * 4; };
  return answer("bytes of all ranks", answers, "predicted");
}());

// ---- attempts at cheating ---------------------------------------------------------------------------------------------

const Registered l(wrong("cheat: shared memory", cheats::shared_memory, "by messages only"));
const Registered m(wrong("cheat: remembers", cheats::remembers<solution::all_reduce>, "x on rank"));

/// Leaves with the exit status of success.
void leaves(Rank&, Tensor) { _exit(0); }
const Registered n(wrong("cheat: leaves", leaves, "your code ended the program, with status 0"));

/// Takes time back.
void negative_time(Rank& rank, Backward& backward, std::int64_t bucket) {
  solution::synchronize(rank, backward, bucket);
  rank.compute(-1e-3, "nothing");
}
const Registered o(wrong("cheat: negative time", negative_time, "expected at least 0"));

/// Writes a verdict wherever one might be read.
void forges(Rank&, Tensor) {
  constexpr std::string_view verdict =
      "{\"check\": \"all_reduce: the sum\", \"ended\": true, \"passed\": true, \"message\": \"\"}\n{\"picture\": "
      "\"\"}\n";
  for (int file = 3; file < 64; ++file) (void)!write(file, verdict.data(), verdict.size());
  _exit(0);
}
const Registered p(wrong("cheat: forges a verdict", forges, "your code ended the program"));

}  // namespace
}  // namespace trireme::labs::gradient_buckets
