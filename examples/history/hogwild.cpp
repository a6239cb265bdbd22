// Hogwild (Recht et al. 2011, "Hogwild!: A Lock-Free Approach to Parallelizing Stochastic Gradient Descent"): threads
// update one vector of weights in shared memory without locks. An update may be lost, or be computed from weights of
// which another thread has changed a part. Where a sample has few features, that is rare, and the method converges as
// if there were a lock.
//
// The model is logistic regression on sparse samples. Each element is an atomic that is read and written without order:
// an addition is a read and a write, so another thread's addition in between is lost.
// Read next: examples/history/local_sgd.cpp.
#include <fmt/format.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <mutex>
#include <vector>

#include "core/random.h"
#include "core/stopwatch.h"
#include "examples/history/history.h"

namespace trireme::history {
namespace {

constexpr int features = 20'000, per_sample = 30, samples = 400'000, test_samples = 4'000;
constexpr double rate = 0.2;
constexpr std::uint64_t seed = 31;

struct Sample {
  std::array<int, per_sample> index;
  double label;  // +1 or -1
};

double teacher(int feature) { return random_uniform(seed, 1, static_cast<std::uint64_t>(feature)) - 0.5; }

/// Few features of many, as words of a text; the teacher's sum decides the label.
Sample draw(std::uint64_t number) {
  Sample sample{};
  double sum = 0;
  for (std::size_t i = 0; i < per_sample; ++i) {
    const double u = random_uniform(seed, 2 + i, number);
    sample.index[i] = static_cast<int>(u * u * features);  // some are frequent
    sum += teacher(sample.index[i]);
  }
  sample.label = sum > 0 ? 1 : -1;
  return sample;
}

using Weights = std::vector<std::atomic<float>>;

double dot(const Weights& w, const Sample& sample) {
  double sum = 0;
  for (const int i : sample.index) sum += w[static_cast<std::size_t>(i)].load(std::memory_order_relaxed);
  return sum;
}

void update(Weights& w, const Sample& sample) {
  const double step = rate * sample.label / (1 + std::exp(sample.label * dot(w, sample)));
  for (const int i : sample.index) {
    std::atomic<float>& weight = w[static_cast<std::size_t>(i)];
    weight.store(weight.load(std::memory_order_relaxed) + static_cast<float>(step), std::memory_order_relaxed);
  }
}

double test_loss(const Weights& w, const std::vector<Sample>& test) {
  double sum = 0;
  for (const Sample& sample : test) sum += std::log1p(std::exp(-sample.label * dot(w, sample)));
  return sum / static_cast<double>(test.size());
}

/// One pass over the samples by `threads` threads, each with every threads-th. `lock`: of each update, or null.
Curve pass(const std::string& method, int threads, std::mutex* lock, const std::vector<Sample>& all,
           const std::vector<Sample>& test) {
  Weights w(features);
  Curve curve{.method = method, .points = {{0, 0, test_loss(w, test)}}};
  const Stopwatch stopwatch;
  run_thread_ranks(threads, 1, std::chrono::minutes(30), [&](const std::shared_ptr<ProcessGroup>& world) {
    const auto mine = static_cast<std::size_t>(world->rank()), n = static_cast<std::size_t>(threads);
    for (std::size_t i = mine; i < all.size(); i += n) {
      if (lock != nullptr) {
        const std::scoped_lock hold(*lock);
        update(w, all[i]);
      } else {
        update(w, all[i]);
      }
    }
  });
  curve.points.push_back({stopwatch.seconds(), 0, test_loss(w, test)});
  return curve;
}

}  // namespace

std::vector<Curve> hogwild(const Setting& setting) {
  std::vector<Sample> all, test;
  for (std::uint64_t i = 0; i < samples; ++i) all.push_back(draw(i));
  for (std::uint64_t i = 0; i < test_samples; ++i) test.push_back(draw(samples + i));
  std::mutex lock;
  return {pass("one thread", 1, nullptr, all, test),
          pass(fmt::format("{} threads with a lock", setting.workers), setting.workers, &lock, all, test),
          pass(fmt::format("{} threads without", setting.workers), setting.workers, nullptr, all, test)};
}

}  // namespace trireme::history
