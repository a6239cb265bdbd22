// Scenarios of part 4: replicas that train one model in bf16, with f32 masters and momentum, on ranks of the harness;
// and the hashes of all copies after every step. One bit of one copy may flip.
// Read next: grader.cpp, which plants the faults.
#pragma once

#include <cstring>
#include <map>

#include "core/hash.h"
#include "examples/labs/09_diagnosis/lab.h"

namespace trireme::labs::diagnosis {

struct Replicas {
  enum class Copy : std::uint8_t { weight, momentum, master };

  std::vector<int> ranks{};  ///< of the world
  std::vector<std::string> names{};
  int steps = 8;
  std::vector<Tensor> data{};     ///< by replica: what its gradients come from
  std::vector<Tensor> initial{};  ///< by layer

  // The flip: after the update of `step`, in the copy of replica `replica`. step < 0: none.
  int step = -1, replica = 0, layer = 0, bit = 0;
  Copy which = Copy::weight;
  std::string flipped() const { return name_of(which, names[at(layer)]); }

  static std::string name_of(Copy which, const std::string& weight) {
    return (which == Copy::weight     ? ""
            : which == Copy::momentum ? "optimizer.momentum."
                                      : "optimizer.master.") +
           weight;
  }
};

namespace detail {

struct Layer {
  Tensor weight, momentum, master;  // bf16, f32, f32
  Tensor of(Replicas::Copy which) const {
    return which == Replicas::Copy::weight ? weight : which == Replicas::Copy::momentum ? momentum : master;
  }
};

/// Momentum SGD. The gradient of every weight depends on the rank's data, and is summed over ranks.
inline void update(Rank& rank, Layer& layer, const Tensor& data) {
  Tensor gradient = cast(layer.weight, DType::f32);
  for (std::size_t i = 0; i < gradient.span<float>().size(); ++i)
    gradient.span<float>()[i] -= data.span<const float>()[i];
  rank.all_reduce(gradient);
  const auto g = gradient.span<float>(), m = layer.momentum.span<float>(), w = layer.master.span<float>();
  for (std::size_t i = 0; i < g.size(); ++i) {
    m[i] = 0.9F * m[i] + g[i] / static_cast<float>(rank.size());
    w[i] -= 0.1F * m[i];
  }
  copy(layer.master, layer.weight);
}

inline void flip_bit(const Tensor& x, int bit) {
  auto* bytes = static_cast<unsigned char*>(x.raw());  // of the first element
  bytes[bit / 8] = static_cast<unsigned char>(bytes[bit / 8] ^ (1U << (bit % 8)));
}

inline std::uint64_t hash_of(const Tensor& x) {
  return hash_bytes({static_cast<const std::byte*>(x.raw()), at(x.bytes())});
}

}  // namespace detail

inline HashRecord hashes_of(const Replicas& replicas) {
  using Copy = Replicas::Copy;
  HashRecord record{.ranks = replicas.ranks, .checks = {}};
  for (int step = 0; step < replicas.steps; ++step) {
    std::map<std::string, std::vector<std::uint64_t>> tensors;
    for (const std::string& name : replicas.names)
      for (const Copy which : {Copy::weight, Copy::momentum, Copy::master})
        tensors[Replicas::name_of(which, name)].resize(replicas.ranks.size());
    record.checks.push_back({.step = step, .tensors = {}});
    for (auto& [name, hashes] : tensors) record.checks.back().tensors.push_back({name, hashes});
  }
  run_ranks({.ranks = static_cast<int>(replicas.ranks.size()), .collectives = true}, [&](Rank& rank) {
    const auto self = at(rank.rank());
    const Tensor& data = replicas.data[self];
    std::map<std::string, detail::Layer> layers;
    for (std::size_t i = 0; i < replicas.names.size(); ++i)
      layers[replicas.names[i]] = {cast(replicas.initial[i], DType::bf16), Tensor::zeros(data.shape()),
                                   clone(replicas.initial[i])};
    for (int step = 0; step < replicas.steps; ++step) {
      for (auto& [name, layer] : layers) detail::update(rank, layer, data);
      if (step == replicas.step && rank.rank() == replicas.replica)
        detail::flip_bit(layers[replicas.names[at(replicas.layer)]].of(replicas.which), replicas.bit);
      std::map<std::string, std::uint64_t> hashes;
      for (const auto& [name, layer] : layers)
        for (const Copy which : {Copy::weight, Copy::momentum, Copy::master})
          hashes[Replicas::name_of(which, name)] = detail::hash_of(layer.of(which));
      for (CopyHashes& copies : record.checks[at(step)].tensors) copies.hashes[self] = hashes.at(copies.tensor);
    }
  });
  return record;
}

inline Replicas replicas(Grading& grading, int copies) {
  Replicas replicas{.names = {"blocks.0.attn.qkv.weight", "blocks.0.mlp.up.weight", "blocks.1.mlp.down.weight"}};
  const int first = grading.pick(0, 3), stride = grading.pick(2, 4);
  for (int replica = 0; replica < copies; ++replica) {
    replicas.ranks.push_back(first + stride * replica);
    replicas.data.push_back(grading.random({32}));
  }
  for (std::size_t layer = 0; layer < replicas.names.size(); ++layer) replicas.initial.push_back(grading.random({32}));
  return replicas;
}

inline void plant(Replicas& replicas, Grading& grading, Replicas::Copy which, int replica) {
  replicas.step = grading.pick(1, replicas.steps - 3);
  replicas.replica = replica;
  replicas.layer = grading.pick(0, 2);
  replicas.which = which;
  replicas.bit = which == Replicas::Copy::weight ? grading.pick(0, 6) : grading.pick(16, 22);
}

}  // namespace trireme::labs::diagnosis
