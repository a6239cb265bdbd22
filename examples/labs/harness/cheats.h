// Attempts to fool a grader that several labs try, with an all-reduce in the place of the learner's.
#pragma once

#include <barrier>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>

#include "examples/labs/harness/cluster.h"

namespace trireme::labs::cheats {

/// Sends nothing: the ranks are threads, so they could read each other's tensors.
inline void shared_memory(Rank& rank, Tensor x) {
  static std::mutex mutex;
  static std::map<int, std::unique_ptr<std::barrier<>>> barriers;  // by number of ranks
  static std::map<int, Tensor> all;                                // by rank
  std::barrier<>* barrier = nullptr;
  {
    const std::scoped_lock lock(mutex);
    auto& own = barriers[rank.size()];
    if (own == nullptr) own = std::make_unique<std::barrier<>>(rank.size());
    barrier = own.get();
    all[rank.rank()] = clone(x);
  }
  barrier->arrive_and_wait();
  copy(Tensor::zeros(x.shape()), x);
  for (int r = 0; r < rank.size(); ++r) add_into(x, all.at(r));
  barrier->arrive_and_wait();
}

/// The first result of `all_reduce`, again and again.
template <void (*all_reduce)(Rank&, Tensor)>
void remembers(Rank& rank, Tensor x) {
  static std::mutex mutex;
  static std::map<std::tuple<int, int, std::int64_t>, Tensor> results;
  const std::tuple key(rank.rank(), rank.size(), x.count());
  {
    const std::scoped_lock lock(mutex);
    if (const auto known = results.find(key); known != results.end()) return copy(known->second, x);
  }
  all_reduce(rank, x);
  const std::scoped_lock lock(mutex);
  results[key] = clone(x);
}

}  // namespace trireme::labs::cheats
