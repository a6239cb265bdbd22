// Lab 2: wrong answers, each with a part of the message that it must get. Most train well; the last four try to fool
// the grader. tests/labs runs them. Do not read this before your own answer: what is wrong shows what is right.
#include <functional>
#include <map>
#include <mutex>
#include <utility>

#include "examples/labs/02_zero/solution.h"

namespace trireme::labs::zero {
namespace {

using solution::allocate;
using solution::gather;
using solution::Layer;
using solution::mean_shard;
using solution::own;

template <class Member, class Function>
Answer wrong(std::string name, Member member, Function function, std::string expected) {
  Answers answers = solution::answers;
  answers.*member = function;
  return answer(std::move(name), answers, std::move(expected));
}

/// The parts of a right answer, of which each wrong one replaces some.
struct Parts {
  Rank& rank;
  Model& model;
  int stage;
  std::vector<Layer> layers = allocate(rank, model, stage);
  /// What becomes of a layer's whole gradient [n, shard] in backward.
  std::function<void(Layer&, const Tensor& gradient)> collect = [this](Layer& layer, const Tensor& gradient) {
    copy(stage == 1 ? gradient : mean_shard(rank, gradient), layer.gradients);
  };
  std::function<void(Layer&, int step)> update = [this](Layer& layer, int step) {
    const Tensor weights = stage < 3 ? own(rank, layer.weights) : layer.weights;  // [shard]
    adam(weights, stage == 1 ? mean_shard(rank, layer.gradients) : layer.gradients, layer.first, layer.second, step);
    if (stage < 3) copy(rank.all_gather(weights), layer.weights);
  };
  /// The weights [n, shard] of a layer, for its forward or its backward.
  std::function<Tensor(Layer&, bool backward)> whole = [this](Layer& layer, bool) {
    return stage < 3 ? layer.weights : gather(rank, layer.weights);
  };

  Parts(Rank& of, Model& its, int with) : rank(of), model(its), stage(with) {}
  Parts(const Parts&) = delete;
  Parts& operator=(const Parts&) = delete;

  void train(int steps) {
    for (int step = 1; step <= steps; ++step) {
      for (int i = 0; i < model.layers(); ++i) model.forward(i, whole(layers[at(i)], false));
      for (int i = model.layers() - 1; i >= 0; --i) {
        Layer& layer = layers[at(i)];
        const Tensor weights = whole(layer, true), gradient = gradient_memory(weights.shape());
        model.backward(i, weights, gradient);
        collect(layer, gradient);
      }
      for (Layer& layer : layers) update(layer, step);
    }
  }
};

void all_reduce_mean(Rank& rank, Tensor x) {
  rank.all_reduce(x);
  for (float& value : x.span<float>()) value /= static_cast<float>(rank.size());
}

// ---- predictions ---------------------------------------------------------------------------------------------------

/// Forgets the layer that is whole.
const Registered a(wrong(
    "only shards", &Answers::bytes_held,
    [](int stage, int ranks, std::int64_t weights, std::int64_t) {
      return solution::bytes_held(stage, ranks, weights, 0);
    },
    "prediction: bytes of weights: stage 3 on"));

/// ZeRO 3 sends as much as ZeRO 2.
const Registered b(wrong(
    "weights are gathered once", &Answers::bytes_sent,
    [](int, int ranks, std::int64_t weights) { return solution::bytes_sent(2, ranks, weights); },
    "prediction: bytes that a rank sends in a step: stage 3 on"));

// ---- shards --------------------------------------------------------------------------------------------------------

/// Loses what is over.
const Registered c(wrong(
    "shards of count / n", &Answers::shard_length, [](std::int64_t count, int ranks) { return count / ranks; },
    "some belong to nobody"));

/// The sum over ranks.
const Registered d(wrong(
    "no mean", &Answers::mean_shard, [](Rank& rank, const Tensor& gradient) { return rank.reduce_scatter(gradient); },
    "every element is 2 times what it should be"));

/// The same in training only. Adam divides by the size of gradients, so its steps are nearly the same.
void sum_in_training(Rank& rank, Model& model, int steps) {
  Parts parts(rank, model, 2);
  parts.collect = [&](Layer& layer, const Tensor& gradient) { copy(rank.reduce_scatter(gradient), layer.gradients); };
  parts.train(steps);
}
const Registered e(wrong("no mean in training", &Answers::zero_2, sum_in_training, "forward of step 2, weights of"));

/// A shard begins where it would if all were equally long without padding.
void shifted_shards(Rank& rank, Model& model, int steps) {
  Parts parts(rank, model, 3);
  for (int i = 0; i < model.layers(); ++i)
    model.initial(i, model.count(i) * rank.rank() / rank.size(), parts.layers[at(i)].weights);
  parts.train(steps);
}
const Registered f(wrong("shards begin elsewhere", &Answers::zero_3, shifted_shards, "forward of step 1, weights of"));

// ---- ZeRO 1 --------------------------------------------------------------------------------------------------------

/// Plain data parallelism: every rank updates everything, so it has all moments.
void whole_moments(Rank& rank, Model& model, int steps) {
  Parts parts(rank, model, 1);
  for (Layer& layer : parts.layers)
    for (Tensor* moment : {&layer.first, &layer.second}) *moment = moment_memory(layer.weights.shape());
  parts.update = [&](Layer& layer, int step) {
    all_reduce_mean(rank, layer.gradients);
    adam(layer.weights, layer.gradients, layer.first, layer.second, step);
  };
  parts.train(steps);
}
const Registered g(wrong("all moments on every rank", &Answers::zero_1, whole_moments, "bytes of moments at once"));

/// Gradients are summed for all ranks, though each rank needs a shard.
void all_reduced(Rank& rank, Model& model, int steps) {
  Parts parts(rank, model, 1);
  parts.update = [&](Layer& layer, int step) {
    all_reduce_mean(rank, layer.gradients);
    const Tensor weights = own(rank, layer.weights);
    adam(weights, own(rank, layer.gradients), layer.first, layer.second, step);
    copy(rank.all_gather(weights), layer.weights);
  };
  parts.train(steps);
}
const Registered h(wrong("all-reduce of gradients", &Answers::zero_1, all_reduced, "if each sum arrives at one rank"));

/// Weights travel before they are new.
void gathered_too_early(Rank& rank, Model& model, int steps) {
  Parts parts(rank, model, 1);
  parts.update = [&](Layer& layer, int step) {
    copy(rank.all_gather(own(rank, layer.weights)), layer.weights);
    adam(own(rank, layer.weights), mean_shard(rank, layer.gradients), layer.first, layer.second, step);
  };
  parts.train(steps);
}
const Registered i(wrong("gathered before the update", &Answers::zero_1, gathered_too_early, "as before, not written"));

/// Adam's step number grows with every layer.
void step_per_layer(Rank& rank, Model& model, int steps) {
  Parts parts(rank, model, 1);
  parts.update = [&, right = parts.update, updates = 0](Layer& layer, int) mutable { right(layer, ++updates); };
  parts.train(steps);
}
const Registered j(wrong("a step for each layer", &Answers::zero_1, step_per_layer,
                         "forward of step 2, weights of layer 1 on rank 0"));

// ---- ZeRO 2 --------------------------------------------------------------------------------------------------------

/// Sums when backward is done: until then, all gradients are whole. `plain`: in tensors that count as something else.
template <bool plain>
void summed_at_the_end(Rank& rank, Model& model, int steps) {
  Parts parts(rank, model, 2);
  std::map<const Layer*, Tensor> gradients;
  parts.collect = [&](Layer& layer, const Tensor& gradient) { gradients[&layer] = plain ? clone(gradient) : gradient; };
  parts.update = [&, right = parts.update](Layer& layer, int step) {
    copy(mean_shard(rank, std::exchange(gradients[&layer], {})), layer.gradients);
    right(layer, step);
  };
  parts.train(steps);
}
const Registered k(wrong("summed after backward", &Answers::zero_2, summed_at_the_end<false>,
                         "bytes of gradients at once"));
const Registered l(wrong("gradients in other tensors", &Answers::zero_2, summed_at_the_end<true>,
                         "bytes of other tensors at once"));

// ---- ZeRO 3 --------------------------------------------------------------------------------------------------------

/// Keeps what forward has gathered until backward has used it.
void kept_weights(Rank& rank, Model& model, int steps) {
  Parts parts(rank, model, 3);
  std::map<const Layer*, Tensor> gathered;
  parts.whole = [&](Layer& layer, bool backward) {
    if (backward) return std::exchange(gathered[&layer], {});
    return gathered[&layer] = gather(rank, layer.weights);
  };
  parts.train(steps);
}
const Registered m(wrong("keeps gathered weights", &Answers::zero_3, kept_weights, "bytes of weights at once"));

/// One piece of memory for the whole weights of every layer: backward finds those of another.
void one_buffer(Rank& rank, Model& model, int steps) {
  Parts parts(rank, model, 3);
  std::int64_t longest = 0;
  for (const Layer& layer : parts.layers) longest = std::max(longest, rank.size() * layer.weights.count());
  const Tensor buffer = weight_memory({longest});
  parts.whole = [&](Layer& layer, bool backward) {
    Tensor weights = view::reshape(view::slice(buffer, 0, 0, rank.size() * layer.weights.count()), {rank.size(), -1});
    if (!backward) copy(rank.all_gather(layer.weights), weights);
    return weights;
  };
  parts.train(steps);
}
const Registered n(wrong("not gathered for backward", &Answers::zero_3, one_buffer, "are not those of its forward"));

// ---- attempts at cheating ------------------------------------------------------------------------------------------

/// Moments count as something else.
void disguised_moments(Rank& rank, Model& model, int steps) {
  Parts parts(rank, model, 2);
  for (const Layer& layer : parts.layers)
    for (const Tensor* moment : {&layer.first, &layer.second}) moment->set_category(MemoryCategory::workspace);
  parts.train(steps);
  MemoryPool::current()->reset_peaks();
}
const Registered o(wrong("cheat: moments in disguise", &Answers::zero_2, disguised_moments, "where are the others"));

/// Lets the pool forget how much was in use.
void forgotten_peaks(Rank& rank, Model& model, int steps) {
  summed_at_the_end<false>(rank, model, steps);
  MemoryPool::current()->reset_peaks();
}
const Registered p(wrong("cheat: forgotten peaks", &Answers::zero_2, forgotten_peaks, "bytes of gradients at once"));

/// Takes memory from a pool that nobody looks at.
void another_pool(Rank& rank, Model& model, int steps) {
  MemoryPool::set_current(std::make_shared<MemoryPool>());
  summed_at_the_end<false>(rank, model, steps);
}
const Registered q(wrong("cheat: another pool", &Answers::zero_2, another_pool, "where are the others"));

/// Ranks are threads: they could take new weights from each other's memory.
void shared_memory(Rank& rank, Model& model, int steps) {
  static std::mutex mutex;
  static std::map<int, Tensor> shards;  // by rank
  Parts parts(rank, model, 1);
  const auto meet = [&] { rank.all_reduce(Tensor::zeros({rank.size()})); };
  parts.update = [&](Layer& layer, int step) {
    adam(own(rank, layer.weights), mean_shard(rank, layer.gradients), layer.first, layer.second, step);
    {
      const std::scoped_lock lock(mutex);
      shards[rank.rank()] = own(rank, layer.weights);
    }
    meet();
    for (int other = 0; other < rank.size(); ++other) {
      Tensor to = view::select(layer.weights, 0, other);
      if (other != rank.rank()) copy(shards.at(other), to);
    }
    meet();
  };
  parts.train(steps);
}
const Registered r(wrong("cheat: shared memory", &Answers::zero_1, shared_memory, "by messages only"));

}  // namespace
}  // namespace trireme::labs::zero
