// Attempts to fool a grader that several labs try, with an all-reduce in the place of the learner's.
#pragma once

#include <barrier>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>

#include "examples/labs/harness/cluster.h"

namespace trireme::labs::cheats {

/// Waits for all ranks, without a message.
inline void meet(const Rank& rank) {
  static std::mutex mutex;
  static std::map<int, std::unique_ptr<std::barrier<>>> barriers;  // by number of ranks
  std::barrier<>* barrier = nullptr;
  {
    const std::scoped_lock lock(mutex);
    auto& own = barriers[rank.size()];
    if (own == nullptr) own = std::make_unique<std::barrier<>>(rank.size());
    barrier = own.get();
  }
  barrier->arrive_and_wait();
}

/// What every rank has put in: the ranks are threads, so they could read each other's values.
template <class T>
class Shared {
 public:
  /// Waits until all ranks have put in theirs.
  const std::map<int, T>& with(const Rank& rank, T own) {
    {
      const std::scoped_lock lock(mutex_);
      by_rank_[rank.rank()] = std::move(own);
    }
    meet(rank);
    return by_rank_;
  }

 private:
  std::mutex mutex_;
  std::map<int, T> by_rank_;
};

/// Sends nothing.
inline void shared_memory(Rank& rank, Tensor x) {
  static Shared<Tensor> shared;
  const std::map<int, Tensor>& all = shared.with(rank, clone(x));
  copy(Tensor::zeros(x.shape()), x);
  for (int r = 0; r < rank.size(); ++r) add_into(x, all.at(r));
  meet(rank);
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
