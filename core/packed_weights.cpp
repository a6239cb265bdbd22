#include "core/packed_weights.h"

#include <algorithm>

namespace trireme {
namespace {

thread_local PackedWeights* of_this_thread = nullptr;

bool same_view(const Tensor& x, const Tensor& y) {
  return x.raw() == y.raw() && x.shape() == y.shape() && x.strides() == y.strides() && x.dtype() == y.dtype();
}

}  // namespace

PackedWeights::PackedWeights(bool on) : outer_(of_this_thread) {
  if (on) of_this_thread = this;
}

PackedWeights::~PackedWeights() { of_this_thread = outer_; }

PackedWeights* PackedWeights::current() { return of_this_thread; }

PackedWeights::Copy& PackedWeights::of(const Tensor& weight, std::int64_t bytes) {
  const auto found = std::find_if(copies_.begin(), copies_.end(), [&](const Copy& copy) {
    return same_view(copy.weight, weight) && copy.panels.bytes() == bytes;
  });
  if (found != copies_.end()) return *found;
  const MemoryScope scope(MemoryCategory::workspace);
  return copies_.emplace_back(Copy{weight.detach(), Tensor::empty({bytes}, DType::u8)});
}

std::int64_t PackedWeights::bytes() const {
  std::int64_t all = 0;
  for (const Copy& copy : copies_) all += copy.panels.bytes();
  return all;
}

}  // namespace trireme
