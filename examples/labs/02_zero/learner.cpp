// Lab 2: your answer. Fill in the eight gaps, marked GAP, and run
//
//   ./trireme lab 2
//
// README.md beside this file says what is asked for; lab.h, model.h and examples/labs/harness/cluster.h have what you
// may use. All tensors are f32.
#include "examples/labs/02_zero/lab.h"

namespace trireme::labs::zero {
namespace {

// ---- predictions: first, with pencil and paper ---------------------------------------------------------------------

/// The most bytes of weights, of gradients and of Adam's moments that one rank holds at once. `stage` 0 to 3 (0:
/// nothing is sharded); `weights` of all layers together; `largest`: of the largest layer. `ranks` divides every layer.
Bytes bytes_held(int stage, int ranks, std::int64_t weights, std::int64_t largest) {
  return {};  // GAP 1: {.weights = ..., .gradients = ..., .moments = ...}
}

/// Bytes that one rank sends in a step.
std::int64_t bytes_sent(int stage, int ranks, std::int64_t weights) {
  return 0;  // GAP 2
}

// ---- part 1: shards ------------------------------------------------------------------------------------------------

/// Elements of a shard of a layer with `count` weights. All ranks' shards are equally long, as collectives want it:
/// together as long as the layer, or a little longer if `ranks` does not divide it. The rest at the end stays zero.
std::int64_t shard_length(std::int64_t count, int ranks) {
  return 0;  // GAP 3
}

/// gradient [n, shard]: of this rank's rows, for all shards. Returns [shard]: this rank's shard of the gradient of the
/// whole batch. The loss is a mean over rows, and all ranks have the same number of rows.
Tensor mean_shard(Rank& rank, const Tensor& gradient) {
  return {};  // GAP 4
}

/// This rank's shard of `whole` [n, shard]: a view [shard].
Tensor own(const Rank& rank, const Tensor& whole) { return view::select(whole, 0, rank.rank()); }

/// What a rank keeps of a layer from step to step: each tensor is [n, shard], or this rank's [shard].
struct Layer {
  Tensor weights, gradients, first, second;
};

std::vector<Layer> allocate(const Rank& rank, const Model& model, int stage) {
  std::vector<Layer> layers;
  for (int i = 0; i < model.layers(); ++i) {
    const std::int64_t shard = shard_length(model.count(i), rank.size());
    Layer layer;
    // GAP 5: weight_memory({rank.size(), shard}) or weight_memory({shard}); so too gradient_memory(), and
    // moment_memory() twice; then model.initial(i, ..., layer.weights)
    layers.push_back(layer);
  }
  return layers;
}

// ---- part 2: three stages ------------------------------------------------------------------------------------------
// The update waits until backward is done: real training first needs the norm of all gradients.

void zero_1(Rank& rank, Model& model, int steps) {
  std::vector<Layer> layers = allocate(rank, model, 1);
  for (int step = 1; step <= steps; ++step) {
    for (int i = 0; i < model.layers(); ++i) model.forward(i, layers[at(i)].weights);
    for (int i = model.layers() - 1; i >= 0; --i) {
      const Layer& layer = layers[at(i)];
      model.backward(i, layer.weights, layer.gradients);
    }
    for (Layer& layer : layers) {
      // GAP 6: adam() on this rank's shards; then layer.weights, whole. Rank::all_gather() turns [shard] to [n, shard]
    }
  }
}

void zero_2(Rank& rank, Model& model, int steps) {
  std::vector<Layer> layers = allocate(rank, model, 2);
  for (int step = 1; step <= steps; ++step) {
    for (int i = 0; i < model.layers(); ++i) model.forward(i, layers[at(i)].weights);
    // GAP 7: backward, with the whole gradient of one layer at a time; then the update
  }
}

/// All ranks' shards, as weights [n, shard]. They are freed with the last tensor that refers to them.
Tensor gather(Rank& rank, const Tensor& shard) {
  Tensor whole = rank.all_gather(shard);
  whole.set_category(MemoryCategory::parameters);
  return whole;
}

void zero_3(Rank& rank, Model& model, int steps) {
  std::vector<Layer> layers = allocate(rank, model, 3);
  for (int step = 1; step <= steps; ++step) {
    // GAP 8: forward and backward, each with the whole weights of one layer at a time; then the update
  }
}

const Registered registered(answer("learner",
                                   {bytes_held, bytes_sent, shard_length, mean_shard, zero_1, zero_2, zero_3}));

}  // namespace
}  // namespace trireme::labs::zero
