// The grader of lab 1. Sums are compared with those of f64; times are counted by examples/labs/harness/clock.h.
#include <fmt/ranges.h>

#include <bit>
#include <cmath>
#include <numeric>

#include "examples/labs/01_gradient_buckets/lab.h"
#include "examples/labs/harness/difference.h"

namespace trireme::labs::gradient_buckets {

Backward::Backward(std::vector<std::int64_t> layers, double seconds_per_layer, const Tensor& values)
    : layers_(std::move(layers)),
      seconds_per_layer_(seconds_per_layer),
      values_(values),
      gradients_(Tensor::full(values.shape(), 1e3)) {}

std::int64_t Backward::next(Rank& rank) {
  require(!done(), "next", "backward has computed all of its {} layers; expected a look at done() first",
          layers_.size());
  const std::int64_t length = layers_[next_++];
  rank.compute(seconds_per_layer_, "a layer's gradients");
  Tensor part = view::slice(gradients_, 0, final_, length);
  copy(view::slice(values_, 0, final_, length), part);
  return final_ += length;
}

namespace {

/// The ranks' inputs [count], and their sum in f64, divided by `divisor`.
struct Inputs {
  std::vector<Tensor> x;
  Tensor sum;

  Inputs(Grading& grading, int ranks, std::int64_t count, double divisor = 1)
      : sum(Tensor::zeros({count}, DType::f64)) {
    for (int rank = 0; rank < ranks; ++rank) {
      x.push_back(grading.random({count}));
      for (std::int64_t i = 0; i < count; ++i)
        sum.span<double>()[at(i)] += double{x.back().span<float>()[at(i)]} / divisor;
    }
  }
  const Tensor& of(const Rank& rank) const { return x[at(rank.rank())]; }
};

/// x of every rank after all_reduce, and the run.
struct Reduced {
  std::vector<Tensor> x;
  Run run;
};

Reduced run_all_reduce(const Answers& answers, const Inputs& inputs, int ranks) {
  Reduced result;
  for (int rank = 0; rank < ranks; ++rank) result.x.push_back(clone(inputs.x[at(rank)]));
  result.run = run_ranks({.ranks = ranks}, [&](Rank& rank) { answers.all_reduce(rank, result.x[at(rank.rank())]); });
  return result;
}

void expect_nothing_left(Grading& grading, const Run& run) {
  for (const std::string& left : run.left) grading.expect(left);
}

/// Of which ranks' terms a wrong sum is made: rank r has 8^r in all elements, so the digits of a sum count the terms.
/// Empty: each is in it once, or the sum is none of the kind.
std::string terms_of(const Answers& answers, int ranks, std::int64_t count, int rank) {
  std::vector<Tensor> x;
  for (int r = 0; r < ranks; ++r) x.push_back(Tensor::full({count}, std::pow(8.0, r)));
  run_ranks({.ranks = ranks}, [&](Rank& self) { answers.all_reduce(self, x[at(self.rank())]); });
  for (std::int64_t i = 0; i < count; ++i) {
    const float sum = x[at(rank)].data<float>()[i];
    if (!(sum >= 0 && sum < std::pow(8.0, ranks)) || sum != std::floor(sum)) return {};
    std::vector<std::string> wrong;
    auto digits = static_cast<std::int64_t>(sum);
    for (int r = 0; r < ranks; ++r, digits /= 8)
      if (digits % 8 != 1) wrong.push_back(fmt::format("{} times rank {}'s", digits % 8, r));
    if (!wrong.empty())
      return fmt::format(
          ". Element {} has {}. A term is lost where a rank does not pass on, in the next round, the piece that it has "
          "just received",
          i, fmt::join(wrong, ", "));
  }
  return {};
}

void check_sums(const Answers& answers, Grading& grading) {
  for (const std::int64_t count : {grading.pick(100, 300), 7, 1}) {
    for (const int ranks : {2, 2, grading.pick(3, 7), 8}) {  // twice: with fresh inputs
      const Inputs inputs(grading, ranks, count);
      const Reduced result = run_all_reduce(answers, inputs, ranks);
      for (int rank = 0; rank < ranks; ++rank) {
        const std::string problem =
            difference(fmt::format("{} ranks, x on rank {}", ranks, rank), result.x[at(rank)], inputs.sum,
                       {.scale = 1, .before = inputs.x[at(rank)]});  // the scale of a term
        if (!problem.empty()) grading.expect(problem + terms_of(answers, ranks, count, rank));
      }
      expect_nothing_left(grading, result.run);
    }
  }
}

void check_bits(const Answers& answers, Grading& grading) {
  const int ranks = grading.pick(3, 8);
  const Reduced result = run_all_reduce(answers, Inputs(grading, ranks, 1000), ranks);
  for (const Tensor& x : result.x)
    for (std::size_t i = 0; i < 1000; ++i)
      grading.expect(std::bit_cast<std::uint32_t>(x.span<float>()[i]) ==
                         std::bit_cast<std::uint32_t>(result.x[0].span<float>()[i]),
                     "element {} is {:.9g} on one rank and {:.9g} on rank 0: the same terms, added in two orders. "
                     "Models whose gradients differ so drift apart",
                     i, x.span<float>()[i], result.x[0].span<float>()[i]);
}

void check_traffic(const Answers& answers, Grading& grading) {
  const int ranks = grading.pick(4, 8);
  const std::int64_t count = 120 * ranks;
  const Reduced result = run_all_reduce(answers, Inputs(grading, ranks, count), ranks);
  const std::int64_t least = 2 * (ranks - 1) * (count / ranks) * 4;
  for (int rank = 0; rank < ranks; ++rank) {
    const Record& record = result.run.ranks[at(rank)];
    const std::int64_t bytes = record.bytes_sent();
    grading.expect(bytes >= least,
                   "rank {} of {} sent {} bytes of a tensor of {}; no all-reduce does with so few. Ranks know of each "
                   "other by messages only",
                   rank, ranks, bytes, count * 4);
    grading.expect(bytes == record.bytes_sent_to((rank + 1) % ranks), "rank {} of {} sends to other ranks than {}",
                   rank, ranks, (rank + 1) % ranks);
    grading.expect(bytes <= least, "rank {} of {} sent {} bytes of a tensor of {}: more than a ring needs", rank, ranks,
                   bytes, count * 4);
  }
}

/// A model whose backward takes longer than its all-reduces, if these are neither too many nor too few.
struct Step {
  int ranks = 4;
  std::vector<std::int64_t> layers = {};
  std::int64_t bucket = 8000;  // three layers
  double seconds_per_layer = 1e-3;
  comm::Links links = equal_links(150e-6, 50e6);

  std::int64_t elements() const { return std::accumulate(layers.begin(), layers.end(), std::int64_t{0}); }
  double ring(std::int64_t count) const {
    const double bytes = static_cast<double>(count) / ranks * 4;
    return 2 * (ranks - 1) * (links.within.latency + bytes * links.within.seconds_per_byte);
  }
};

Step step_of(Grading& grading) {
  Step step;
  for (int layer = 0; layer < 12; ++layer) step.layers.push_back(grading.pick(2800, 3200));
  step.layers.push_back(grading.pick(10, 20));
  return step;
}

struct StepResult {
  std::vector<Tensor> gradients;  // by rank
  Run run;
};

StepResult run_step(const Answers& answers, const Step& step, const Inputs& inputs) {
  StepResult result;
  result.gradients.resize(at(step.ranks));
  result.run = run_ranks({.ranks = step.ranks}, [&](Rank& rank) {
    Backward backward(step.layers, step.seconds_per_layer, inputs.of(rank));
    answers.synchronize(rank, backward, step.bucket);
    require(backward.done(), "backward", "not all layers were computed; expected next() until done()");
    result.gradients[at(rank.rank())] = clone(backward.gradients());
  });
  return result;
}

void check_gradients(const Answers& answers, Grading& grading) {
  for (int repeat = 0; repeat < 2; ++repeat) {
    const Step step = step_of(grading);
    const Inputs inputs(grading, step.ranks, step.elements(), step.ranks);
    const StepResult result = run_step(answers, step, inputs);
    expect_nothing_left(grading, result.run);
    for (int rank = 0; rank < step.ranks; ++rank) {
      std::int64_t begin = 0;
      for (std::size_t layer = 0; layer < step.layers.size(); ++layer) {
        const auto part = [&](const Tensor& x) { return view::slice(x, 0, begin, step.layers[layer]); };
        const auto r = at(rank);
        grading.expect(difference(fmt::format("gradients of layer {} on rank {}", step.layers.size() - 1 - layer, rank),
                                  part(result.gradients[r]), part(inputs.sum), {.before = part(inputs.x[r])}));
        begin += step.layers[layer];
      }
    }
  }
}

void check_buckets(const Answers& answers, Grading& grading) {
  const Step step = step_of(grading);
  const StepResult result = run_step(answers, step, Inputs(grading, step.ranks, step.elements()));
  const std::int64_t most = (step.elements() + step.bucket - 1) / step.bucket * 2 * (step.ranks - 1);
  const std::int64_t messages = result.run.ranks[0].messages_sent(), bytes = result.run.ranks[0].bytes_sent();
  const std::int64_t buckets = messages / (2 * (step.ranks - 1));  // pieces of each may be an element shorter
  grading.expect(messages <= most,
                 "rank 0 sent {} messages; {} elements in buckets of at least {} need at most {}. Each message costs "
                 "its latency",
                 messages, step.elements(), step.bucket, most);
  grading.expect(bytes >= 2 * (step.ranks - 1) * (step.elements() / step.ranks - buckets) * 4,
                 "rank 0 sent {} bytes, too few for the sum of {} gradients. Ranks know of each other by messages only",
                 bytes, step.elements());
}

/// The same run is checked and timed.
void check_overlap(const Answers& answers, Grading& grading) {
  const Step step = step_of(grading);
  const Inputs inputs(grading, step.ranks, step.elements(), step.ranks);
  const StepResult result = run_step(answers, step, inputs);
  const Timeline timeline = timed(result.run, step.links);
  grading.show(timeline, "Lab 1: backward, and its buckets");
  for (const Tensor& gradients : result.gradients) grading.expect(difference("gradients", gradients, inputs.sum));
  const double backward = step.seconds_per_layer * static_cast<double>(step.layers.size());
  for (int rank = 0; rank < step.ranks; ++rank)
    grading.expect(timeline.computing(rank) >= 0.999 * backward,
                   "rank {} computed for {:.1f} ms; backward takes {:.1f}", rank, 1e3 * timeline.computing(rank),
                   1e3 * backward);
  const double limit = backward + step.ring(step.bucket + 3200);
  grading.expect(
      timeline.seconds <= limit,
      "the step takes {:.2f} ms, of which backward {:.2f}; with all buckets but the last hidden behind it, it "
      "takes at most {:.2f}. Look at the picture: where does the rank wait?",
      1e3 * timeline.seconds, 1e3 * backward, 1e3 * limit);
}

/// What is predicted is then measured: on a ring of the harness, so that a wrong all_reduce does not count twice.
void check_predictions(const Answers& answers, Grading& grading) {
  const int ranks = grading.pick(3, 8);
  const std::int64_t count = std::int64_t{100} * ranks * grading.pick(1, 9);
  const double latency = 1e-6 * grading.pick(5, 50), bandwidth = 1e9 * grading.pick(1, 50);
  const auto bytes = static_cast<double>(answers.bytes_sent(ranks, count));
  const auto messages = static_cast<double>(answers.messages_sent(ranks));
  const double seconds = answers.all_reduce_seconds(ranks, count, latency, bandwidth);
  const Run ring =
      run_ranks({.ranks = ranks, .collectives = true}, [&](Rank& rank) { rank.all_reduce(Tensor::zeros({count})); });
  const std::string given = fmt::format("{} ranks, {} elements", ranks, count);
  grading.predict("bytes that a rank sends", given, bytes, static_cast<double>(ring.ranks[0].bytes_sent()));
  grading.predict("messages that a rank sends", given, messages, static_cast<double>(ring.ranks[0].messages_sent()));
  grading.predict("seconds of an all-reduce",
                  fmt::format("{}, {:.0f} us, {:.0f} GB/s", given, 1e6 * latency, 1e-9 * bandwidth), seconds,
                  timed(ring, equal_links(latency, bandwidth)).seconds);

  const int buckets = grading.pick(3, 9);
  const auto measured = [&](double compute, double all_reduce) {
    const Run run = run_ranks({.ranks = 2, .collectives = true}, [&](Rank& rank) {
      for (int bucket = 0; bucket < buckets; ++bucket) {
        rank.compute(compute, "a bucket's gradients");
        rank.start([&rank] { rank.all_reduce(Tensor::zeros({2})); });
      }
    });
    return timed(run, equal_links(all_reduce / 2, 1e15)).seconds;
  };
  const double slow = 1e-3 * grading.pick(5, 9), fast = 1e-3 * grading.pick(1, 4);
  const auto predict = [&](const std::string& what, double compute, double all_reduce) {
    grading.predict(what,
                    fmt::format("{} buckets, each computed in {:.0f} ms and summed in {:.0f} ms", buckets,
                                1e3 * compute, 1e3 * all_reduce),
                    answers.step_seconds(buckets, compute, all_reduce), measured(compute, all_reduce));
  };
  predict("a step that computes longer", slow, fast);
  predict("a step that sends longer", fast, slow);
}

}  // namespace

void grade(const Answers& answers, Grading& grading) {
  check_predictions(answers, grading);
  grading.check("all_reduce: the sum", [&] { check_sums(answers, grading); });
  grading.check("all_reduce: the same bits on all ranks", [&] { check_bits(answers, grading); });
  grading.check("all_reduce: no more bytes than a ring", [&] { check_traffic(answers, grading); });
  grading.check("synchronize: the mean of the gradients", [&] { check_gradients(answers, grading); });
  grading.check("synchronize: in buckets", [&] { check_buckets(answers, grading); });
  grading.check("synchronize: while backward goes on", [&] { check_overlap(answers, grading); });
}

}  // namespace trireme::labs::gradient_buckets
