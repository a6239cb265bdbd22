// Lab 2: a solution. parallel/zero/ does the same with buckets of parameters, and while computation goes on.
#include "examples/labs/02_zero/solution.h"

namespace trireme::labs::zero::solution {

// What is sharded takes 1/n. A gradient or a weight that is sharded is still needed whole, for one layer at a time.
Bytes bytes_held(int stage, int ranks, std::int64_t weights, std::int64_t largest) {
  const std::int64_t whole = 4 * weights, shards = whole / ranks, layer = 4 * largest;
  return {.weights = stage < 3 ? whole : shards + layer,
          .gradients = stage < 2 ? whole : shards + layer,
          .moments = 2 * (stage < 1 ? whole : shards)};
}

// A reduce-scatter and an all-gather each send n - 1 shards, and an all-reduce is both. ZeRO 3 gathers twice.
std::int64_t bytes_sent(int stage, int ranks, std::int64_t weights) {
  return (stage < 3 ? 2 : 3) * (ranks - 1) * (4 * weights / ranks);
}

std::int64_t shard_length(std::int64_t count, int ranks) { return (count + ranks - 1) / ranks; }

Tensor mean_shard(Rank& rank, const Tensor& gradient) {
  Tensor mean = rank.reduce_scatter(gradient);  // [shard]
  for (float& g : mean.span<float>()) g /= static_cast<float>(rank.size());
  return mean;
}

Tensor own(const Rank& rank, const Tensor& whole) { return view::select(whole, 0, rank.rank()); }

std::vector<Layer> allocate(const Rank& rank, const Model& model, int stage) {
  std::vector<Layer> layers;
  for (int i = 0; i < model.layers(); ++i) {
    const std::int64_t shard = shard_length(model.count(i), rank.size());
    const Shape whole = {rank.size(), shard}, sharded = {shard};
    const Layer layer = {.weights = weight_memory(stage < 3 ? whole : sharded),
                         .gradients = gradient_memory(stage < 2 ? whole : sharded),
                         .first = moment_memory(sharded),
                         .second = moment_memory(sharded)};
    model.initial(i, stage < 3 ? 0 : rank.rank() * shard, layer.weights);
    layers.push_back(layer);
  }
  return layers;
}

void forward(Model& model, const std::vector<Layer>& layers) {
  for (int i = 0; i < model.layers(); ++i) model.forward(i, layers[at(i)].weights);
}

void zero_1(Rank& rank, Model& model, int steps) {
  std::vector<Layer> layers = allocate(rank, model, 1);
  for (int step = 1; step <= steps; ++step) {
    forward(model, layers);
    for (int i = model.layers() - 1; i >= 0; --i) {
      const Layer& layer = layers[at(i)];
      model.backward(i, layer.weights, layer.gradients);
    }
    for (Layer& layer : layers) {
      const Tensor weights = own(rank, layer.weights);  // a view: adam() writes into the whole weights
      adam(weights, mean_shard(rank, layer.gradients), layer.first, layer.second, step);
      copy(rank.all_gather(weights), layer.weights);
    }
  }
}

void zero_2(Rank& rank, Model& model, int steps) {
  std::vector<Layer> layers = allocate(rank, model, 2);
  for (int step = 1; step <= steps; ++step) {
    forward(model, layers);
    for (int i = model.layers() - 1; i >= 0; --i) {
      Layer& layer = layers[at(i)];
      const Tensor gradient = gradient_memory(layer.weights.shape());  // [n, shard], freed at the end of this block
      model.backward(i, layer.weights, gradient);
      copy(mean_shard(rank, gradient), layer.gradients);
    }
    for (Layer& layer : layers) {
      const Tensor weights = own(rank, layer.weights);
      adam(weights, layer.gradients, layer.first, layer.second, step);
      copy(rank.all_gather(weights), layer.weights);
    }
  }
}

Tensor gather(Rank& rank, const Tensor& shard) {
  Tensor whole = rank.all_gather(shard);
  whole.set_category(MemoryCategory::parameters);
  return whole;
}

void zero_3(Rank& rank, Model& model, int steps) {
  std::vector<Layer> layers = allocate(rank, model, 3);
  for (int step = 1; step <= steps; ++step) {
    for (int i = 0; i < model.layers(); ++i) model.forward(i, gather(rank, layers[at(i)].weights));
    for (int i = model.layers() - 1; i >= 0; --i) {
      Layer& layer = layers[at(i)];
      const Tensor weights = gather(rank, layer.weights);  // [n, shard]
      const Tensor gradient = gradient_memory(weights.shape());
      model.backward(i, weights, gradient);
      copy(mean_shard(rank, gradient), layer.gradients);
    }
    // Nothing to send: the next forward gathers what it needs.
    for (const Layer& layer : layers) adam(layer.weights, layer.gradients, layer.first, layer.second, step);
  }
}

namespace {
const Registered registered(answer("solution", answers));
}

}  // namespace trireme::labs::zero::solution
