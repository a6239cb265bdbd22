// Lab 1, gradient buckets and overlap: what learner.cpp is to contain, and what its functions are given.
// Read next: README.md beside this file, then learner.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "autograd/ops.h"
#include "examples/labs/harness/grading.h"

namespace trireme::labs::gradient_buckets {

/// The backward of a model on one rank. It makes the gradients of one layer at a time, the last layer first.
class Backward {
 public:
  /// `layers`: elements of each layer, in the order of backward. `values` [P]: what backward will find.
  Backward(std::vector<std::int64_t> layers, double seconds_per_layer, const Tensor& values);

  bool done() const { return next_ == layers_.size(); }
  /// Computes the gradients of the next layer. Returns n: the first n elements of gradients() are final.
  std::int64_t next(Rank& rank);
  /// [P], of all layers, in the order in which backward makes them. An element that is not yet final holds rubbish.
  Tensor gradients() const { return gradients_; }

 private:
  std::vector<std::int64_t> layers_;
  double seconds_per_layer_;
  Tensor values_, gradients_;
  std::size_t next_ = 0;
  std::int64_t final_ = 0;
};

/// The functions of learner.cpp.
struct Answers {
  void (*all_reduce)(Rank& rank, Tensor x);
  void (*synchronize)(Rank& rank, Backward& backward, std::int64_t bucket);
  std::int64_t (*bytes_sent)(int ranks, std::int64_t count);
  std::int64_t (*messages_sent)(int ranks);
  double (*all_reduce_seconds)(int ranks, std::int64_t count, double latency, double bytes_per_second);
  double (*step_seconds)(int buckets, double compute, double all_reduce);
};

void grade(const Answers& answers, Grading& grading);

inline Answer answer(std::string name, Answers answers, std::string expected = {}) {
  return {"01", std::move(name), [answers](Grading& grading) { grade(answers, grading); }, std::move(expected)};
}

}  // namespace trireme::labs::gradient_buckets
