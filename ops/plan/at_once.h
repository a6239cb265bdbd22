// Runs independent pieces of work, such as dry runs, on several threads.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace trireme::plan {

/// Calls f(0) to f(count - 1), begun in this order, `threads` of them at a time. Throws what the first to fail threw.
template <class F>
void for_each_at_once(std::size_t count, int threads, const F& f) {
  std::atomic<std::size_t> next = 0;
  std::exception_ptr error;
  std::mutex mutex;
  const auto work = [&] {
    for (std::size_t i = next++; i < count; i = next++) {
      try {
        f(i);
      } catch (...) {
        const std::scoped_lock lock(mutex);
        if (!error) error = std::current_exception();
        next = count;
      }
    }
  };
  std::vector<std::jthread> others;
  for (std::size_t i = 1; i < std::min<std::size_t>(count, static_cast<std::size_t>(std::max(threads, 1))); ++i)
    others.emplace_back(work);
  work();
  others.clear();  // joins
  if (error) std::rethrow_exception(error);
}

}  // namespace trireme::plan
