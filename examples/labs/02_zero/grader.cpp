// The grader of lab 2. Weights are compared with those of one rank that sees the whole batch, before every step; memory
// is what the ranks' pools have counted (core/memory.h).
#include <functional>
#include <numeric>

#include "examples/labs/02_zero/training.h"
#include "examples/labs/harness/picture.h"

namespace trireme::labs::zero {
namespace {

constexpr std::int64_t f32_bytes = 4;

std::int64_t padded(std::int64_t count, int ranks) { return (count + ranks - 1) / ranks * ranks; }

/// Elements of all layers.
struct Sizes {
  std::int64_t weights = 0;
  std::int64_t whole = 0, largest = 0;  // with each layer padded, so that n divides it

  Sizes(const Task& task, int ranks) {
    for (const Tensor& initial : task.initial) {
      weights += initial.count();
      whole += padded(initial.count(), ranks);
      largest = std::max(largest, padded(initial.count(), ranks));
    }
  }
};

// ---- checks --------------------------------------------------------------------------------------------------------

void check_shards(const Answers& answers, Grading& grading) {
  for (const int ranks : {2, 4, grading.pick(3, 7)}) {
    for (const std::int64_t count : {grading.pick(50, 99), ranks * 20, 1}) {
      const std::int64_t shard = answers.shard_length(count, ranks);
      grading.expect(shard * ranks >= count, "{} shards of {} elements, for a layer of {}: some belong to nobody",
                     ranks, shard, count);
      grading.expect(shard * ranks == padded(count, ranks), "{} shards of {} elements, for a layer of {}: too long",
                     ranks, shard, count);
      std::vector<Tensor> x;
      Tensor mean = Tensor::zeros({ranks, shard}, DType::f64), got = Tensor::zeros({ranks, shard});
      for (int rank = 0; rank < ranks; ++rank) {
        x.push_back(grading.random({ranks, shard}));
        for (std::size_t i = 0; i < at(ranks * shard); ++i)
          mean.span<double>()[i] += double{x.back().span<const float>()[i]} / ranks;
      }
      run_ranks({.ranks = ranks, .collectives = true}, [&](Rank& rank) {
        const Tensor own = answers.mean_shard(rank, clone(x[at(rank.rank())]));
        require(own.defined() && own.shape() == Shape{shard}, "mean_shard", "a tensor {}; expected [{}]", own.shape(),
                shard);
        Tensor place = view::select(std::as_const(got), 0, rank.rank());
        copy(own, place);
      });
      grading.expect(difference(fmt::format("{} ranks, mean_shard() of each, one after the other", ranks), got, mean));
    }
  }
}

/// What the ranks may hold. Each has its limit. And what must be somewhere, but was not counted on any rank, was kept
/// in another way.
struct Holding {
  std::string_view what;
  std::int64_t MemorySeen::*seen;
  std::string_view limit;
  std::int64_t most;   // elements on a rank
  std::int64_t least;  // elements on all ranks together
};

std::vector<Holding> holdings(const Sizes& sizes, int ranks, int stage) {
  const std::int64_t shards = sizes.whole / ranks, layer = sizes.largest;
  constexpr std::string_view all = "all layers and one more take", sharded = "the shards and one whole layer take";
  return {
      {"weights", &MemorySeen::weights, stage < 3 ? all : sharded, (stage < 3 ? sizes.whole : shards) + layer,
       sizes.weights},
      {"gradients", &MemorySeen::gradients, stage < 2 ? all : sharded, (stage < 2 ? sizes.whole : shards) + layer,
       sizes.weights},
      {"moments", &MemorySeen::moments, "two moments for the shards take", 2 * shards, 2 * sizes.weights},
      // A collective has a copy of what it sends, and messages that its neighbour has not received yet: two layers' at
      // most, as a rank that ends a collective knows that all others have begun it.
      {"other tensors", &MemorySeen::others, "buffers for five layers would take", 5 * layer, 0}};
}

void check_memory(const Trained& trained, const Task& task, int stage, Grading& grading) {
  const int ranks = static_cast<int>(trained.memory.size());
  for (const Holding& holding : holdings(Sizes(task, ranks), ranks, stage)) {
    std::int64_t together = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      const std::int64_t bytes = trained.memory[at(rank)].*holding.seen;
      grading.expect(bytes <= holding.most * f32_bytes, "rank {} of {} held {} bytes of {} at once; {} {}", rank, ranks,
                     bytes, holding.what, holding.limit, holding.most * f32_bytes);
      together += bytes;
    }
    grading.expect(together >= holding.least * f32_bytes,
                   "all {} ranks together held {} bytes of {}, and {} must be somewhere; where are the others, and are "
                   "they counted?",
                   ranks, together, holding.what, holding.least * f32_bytes);
  }
}

/// A reduced or gathered element leaves n - 1 ranks. The last update need not be gathered, nor the last layer twice.
void check_bytes(const Trained& trained, const Task& task, int stage, Grading& grading) {
  const int ranks = static_cast<int>(trained.memory.size()), steps = task.steps();
  const Sizes sizes(task, ranks);
  std::int64_t together = 0;
  const std::int64_t most = (stage < 3 ? 2 : 3) * (ranks - 1) * (sizes.whole / ranks) * f32_bytes;
  for (int rank = 0; rank < ranks; ++rank) {
    const std::int64_t bytes = trained.run.ranks[at(rank)].bytes_sent();
    grading.expect(bytes <= most * steps,
                   "rank {} of {} sent {} bytes a step; {} are enough, if each sum arrives at one rank only, and all "
                   "weights are gathered {}",
                   rank, ranks, bytes / steps, most, stage < 3 ? "once" : "twice");
    together += bytes;
  }
  const std::int64_t least =
      (ranks - 1) * f32_bytes *
      (stage < 3 ? (2 * steps - 1) * sizes.weights : steps * (3 * sizes.weights - sizes.largest));
  grading.expect(together >= least,
                 "{} ranks sent {} bytes in {} steps, too few to sum all gradients and to gather all weights{}; Ranks "
                 "know of each other by messages only",
                 ranks, together, steps, stage < 3 ? "" : " twice");
}

void check_stage(int stage, Train train, int ranks, const std::function<void(const MemorySeen&, std::int64_t)>& show,
                 Grading& grading) {
  const auto name = [&](std::string_view what) { return fmt::format("ZeRO {}: {}", stage, what); };
  grading.check(name("the weights of one rank"), [&] {
    for (const int n : {2, grading.pick(3, 7)}) {
      const Task task = task_of(grading, n, grading.pick(5, 7), 4);
      const Trained trained(train, task, n);
      grading.expect(wrong_weights(trained, task));
      for (const std::string& left : trained.run.left) grading.expect(left);
    }
  });
  // Runs that are measured are compared, too.
  const auto measured = [&](const auto& check) {
    const Task task = task_of(grading, ranks, 14, 2);
    const Trained trained(train, task, ranks);
    show(trained.memory[0], Sizes(task, ranks).weights);
    check(trained, task, stage, grading);
    grading.expect(wrong_weights(trained, task));
  };
  grading.check(name("memory"), [&] { measured(check_memory); });
  grading.check(name("bytes sent"), [&] { measured(check_bytes); });
}

// ---- predictions ---------------------------------------------------------------------------------------------------

/// A step without arithmetic: takes and frees the memory of a stage, and sends what it sends.
void rehearse(Rank& rank, int stage, const std::vector<std::int64_t>& counts) {
  const int n = rank.size();
  std::vector<Tensor> kept;
  for (const std::int64_t count : counts) {
    const auto held = [&](int first_sharded) { return Shape{stage < first_sharded ? count : count / n}; };
    kept.insert(kept.end(),
                {weight_memory(held(3)), gradient_memory(held(2)), moment_memory(held(1)), moment_memory(held(1))});
  }
  const auto gather = [&](std::int64_t count) {
    Tensor whole = rank.all_gather(Tensor::zeros({count / n}));
    whole.set_category(MemoryCategory::parameters);
    return whole;
  };
  for (const std::int64_t count : counts)
    if (stage == 3) gather(count);
  for (const std::int64_t count : counts) {
    const Tensor weights = stage == 3 ? gather(count) : Tensor();
    const Tensor gradient = stage < 2 ? Tensor() : gradient_memory({count});
    if (stage == 0)
      rank.all_reduce(Tensor::zeros({count}));
    else
      rank.reduce_scatter(Tensor::zeros({n, count / n}));
  }
  for (const std::int64_t count : counts)
    if (stage == 1 || stage == 2) rank.all_gather(Tensor::zeros({count / n}));
}

void check_predictions(const Answers& answers, Grading& grading) {
  const int ranks = grading.pick(3, 7);
  std::vector<std::int64_t> counts;
  for (int layer = 0; layer < 5; ++layer) counts.push_back(std::int64_t{ranks} * grading.pick(10, 99));
  const std::int64_t weights = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  const std::int64_t largest = *std::ranges::max_element(counts);
  std::vector<std::string> problems(4);
  for (int stage = 0; stage <= 3; ++stage) {
    const Bytes predicted = answers.bytes_held(stage, ranks, weights, largest);
    const std::int64_t predicted_sent = answers.bytes_sent(stage, ranks, weights);
    MemorySeen seen;
    const Run run = run_ranks({.ranks = ranks, .collectives = true}, [&](Rank& rank) {
      rehearse(rank, stage, counts);
      if (rank.rank() == 0) seen.look(*MemoryPool::current(), &MemoryUse::peak);
    });
    const auto compare = [&](std::string& problem, std::int64_t have, std::int64_t measured) {
      if (have != measured && problem.empty())
        problem = fmt::format("stage {} on {} ranks, {} weights, the largest layer {}: predicted {}, measured {}",
                              stage, ranks, weights, largest, have, measured);
    };
    compare(problems[0], predicted.weights, seen.weights);
    compare(problems[1], predicted.gradients, seen.gradients);
    compare(problems[2], predicted.moments, seen.moments);
    compare(problems[3], predicted_sent, run.ranks[0].bytes_sent());
  }
  grading.check("prediction: bytes of weights", [&] { grading.expect(problems[0]); });
  grading.check("prediction: bytes of gradients", [&] { grading.expect(problems[1]); });
  grading.check("prediction: bytes of moments", [&] { grading.expect(problems[2]); });
  grading.check("prediction: bytes that a rank sends in a step", [&] { grading.expect(problems[3]); });
}

// ---- the picture ---------------------------------------------------------------------------------------------------

/// Memory of rank 0, a line for each stage: four signs for a byte per weight.
std::string bar(int stage, const MemorySeen& memory, std::int64_t weights) {
  const auto part = [&](char sign, std::int64_t bytes) {
    return std::string(at((4 * bytes + weights / 2) / weights), sign);
  };
  return fmt::format(
      "ZeRO {}  |{}{}{}| {:.1f}\n", stage, part('w', memory.weights), part('g', memory.gradients),
      part('m', memory.moments),
      static_cast<double>(memory.weights + memory.gradients + memory.moments) / static_cast<double>(weights));
}

/// Two steps of ZeRO 3, on links that take about as long for a layer as its forward.
Timeline timeline_of(const Answers& answers, Grading& grading) {
  constexpr int ranks = 4;
  const Task task = task_of(grading, ranks, 4, 2);
  const Trained trained(answers.zero_3, task, ranks);
  grading.expect(wrong_weights(trained, task));
  return timed(trained.run, equal_links(100e-6, 2e6));
}

}  // namespace

void grade(const Answers& answers, Grading& grading) {
  check_predictions(answers, grading);
  grading.check("mean_shard: shards of the mean", [&] { check_shards(answers, grading); });
  const int ranks = grading.pick(4, 6);
  std::vector<std::string> bars = {bar(0, {.weights = 4, .gradients = 4, .moments = 8}, 1), "", "", ""};
  const auto text = [&] {
    return fmt::format("Bytes per weight on rank 0 of {}: w weights, g gradients, m moments\n{}", ranks,
                       std::accumulate(bars.begin(), bars.end(), std::string()));
  };
  int stage = 0;
  for (const Train train : {answers.zero_1, answers.zero_2, answers.zero_3}) {
    ++stage;
    const auto show = [&](const MemorySeen& memory, std::int64_t weights) {
      bars[at(stage)] = bar(stage, memory, weights);
      grading.show(text());
    };
    check_stage(stage, train, ranks, show, grading);
  }
  grading.check("ZeRO 3: two steps for the picture", [&] {
    const Timeline timeline = timeline_of(answers, grading);
    grading.show(timeline, "Lab 2: two steps of ZeRO 3, and its gathers");
    grading.show(fmt::format("{}\nTwo steps of ZeRO 3\n{}", text(), draw_text(timeline)));
  });
}

}  // namespace trireme::labs::zero
