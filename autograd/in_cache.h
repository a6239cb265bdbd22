// Several kernels on the same elements, one range of rows after the other; not for models. On the CPU a range is so
// small that what one kernel writes is in the cache when the next one reads it. The bits are those of the kernels on
// all rows, if they treat rows one by one.
//
//   const InCache ranges(y.device(), rows, width);
//   Tensor scratch = ranges.scratch(DType::f32);
//   ranges.run([&](std::int64_t first, std::int64_t count, const Tensor& room) {
//     Tensor part = view::slice(y, 0, first, count);                       // [count, width]; room has the same shape
//     ...
//   }, scratch);
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/parallel_for.h"
#include "core/tensor.h"

namespace trireme {

/// Ranges of rows small enough that their tensors stay in a core's level-2 cache, and the loop over them.
class InCache {
 public:
  InCache(Device device, std::int64_t rows, std::int64_t width) : device_(device), rows_(rows), width_(width) {
    constexpr std::int64_t elements = 1 << 15;  // 128 KiB in f32: a few such tensors fit a core's level-2 cache
    if (device != Device::cpu) return;
    each_ = std::max<std::int64_t>(1, elements / std::max<std::int64_t>(width, 1));
    ranges_ = (rows + each_ - 1) / each_;
    parts_ = static_cast<int>(std::clamp<std::int64_t>(ranges_, 1, threads()));
  }
  /// Room that each range may use: one for each thread.
  Tensor scratch(DType dtype) const {
    const MemoryScope scope(MemoryCategory::workspace);
    return Tensor::empty({parts_, std::min(each_or_all(), rows_), width_}, dtype, device_);
  }
  /// Calls f(first, count, room) for ranges of rows that cover all of them; room [count, width] of `scratch`, undefined
  /// without it.
  template <class F>
  void run(F&& f, const Tensor& scratch = {}) const {
    if (rows_ == 0) return;
    const auto call = [&](std::int64_t first, std::int64_t count, int part) {
      f(first, count, scratch.defined() ? view::slice(view::select(scratch, 0, part), 0, 0, count) : Tensor());
    };
    if (each_ == 0) return call(0, rows_, 0);
    const auto work = [&](int part, int parts) {
      for (std::int64_t i = ranges_ * part / parts; i < ranges_ * (part + 1) / parts; ++i)
        call(i * each_, std::min(each_, rows_ - i * each_), part);
    };
    if (parts_ == 1) return work(0, 1);
    parallel_parts(parts_, work);
  }

 private:
  std::int64_t each_or_all() const { return each_ == 0 ? rows_ : each_; }

  Device device_;
  std::int64_t rows_, width_, each_ = 0, ranges_ = 1;  // each_: rows of a range; 0: all
  int parts_ = 1;
};

}  // namespace trireme
