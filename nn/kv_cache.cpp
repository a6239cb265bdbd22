#include "nn/kv_cache.h"

#include <algorithm>

#include "autograd/node.h"
#include "autograd/ops.h"

namespace trireme::nn {
namespace {

/// Slots from .. from + count of a buffer [B, room, ..].
Tensor slots(const Tensor& buffer, std::int64_t from, std::int64_t count) {
  return view::slice(buffer, 1, from, count);
}

void write(const Tensor& from, const Tensor& buffer, std::int64_t slot) {
  Tensor to = slots(buffer, slot, from.size(1));
  copy(from, to);
}

}  // namespace

bool KvCache::can_begin(std::int64_t first) const {
  return std::all_of(layers_.begin(), layers_.end(), [&](const auto& named) {
    const Layer& layer = named.second;
    const std::int64_t oldest = layer.window > 0 ? std::max<std::int64_t>(0, first - layer.window + 1) : 0;
    return first <= layer.filled && oldest >= layer.start;
  });
}

void KvCache::make_room(Layer& layer, const Tensor& k, const Tensor& v, std::int64_t window) const {
  if (window_ > 0 && (window == 0 || window > window_)) window = window_;
  layer.window = window;
  const std::int64_t room = window > 0 ? std::min(capacity_, window + std::max(window / 4, margin)) : capacity_;
  layer.keys = Tensor::empty(k.shape().with(1, room), k.dtype(), k.device());  // [B, room, Hkv/tp, Dh]
  layer.values = Tensor::empty(v.shape().with(1, room), v.dtype(), v.device());
}

/// Keeps positions from .. end only.
void KvCache::move_to_front(Layer& layer, std::int64_t from, std::int64_t end) {
  for (const Tensor* buffer : {&layer.keys, &layer.values})
    if (end > from) write(clone(slots(*buffer, from - layer.start, end - from)), *buffer, 0);
  layer.start = from;
}

/// The new tokens see more than there is room for, as those of a long prompt do: the result is made for them, and the
/// newest positions are kept.
KvCache::Held KvCache::with_all(Layer& layer, const Tensor& k, const Tensor& v, std::int64_t first,
                                std::int64_t needed) {
  const NoGrad guard;
  const std::int64_t end = first + k.size(1), from = std::min(needed, first);
  const auto joined = [&](const Tensor& buffer, const Tensor& added) {
    return first == from ? contiguous(added) : concat({slots(buffer, from - layer.start, first - from), added}, 1);
  };
  const Held all{joined(layer.keys, k), joined(layer.values, v), from};
  const std::int64_t kept = std::min(layer.room(), end - from);
  write(slots(all.keys, end - from - kept, kept), layer.keys, 0);
  write(slots(all.values, end - from - kept, kept), layer.values, 0);
  layer.start = end - kept;
  layer.filled = end;
  return all;
}

KvCache::Held KvCache::append(const std::string& layer_name, const Tensor& k, const Tensor& v, std::int64_t needed,
                              std::int64_t window) {
  const std::int64_t count = k.size(1), end = first_ + count;
  Layer& layer = layers_[layer_name];
  if (!layer.keys.defined()) make_room(layer, k, v, window);
  if (first_ == 0) layer.start = layer.filled = 0;
  const std::int64_t from = std::clamp<std::int64_t>(needed, 0, first_);
  require(layer.window > 0 || end <= layer.room(), "kv cache",
          "{}: tokens up to position {} do not fit a cache of {}; make a larger one", layer_name, end, capacity_);
  require(first_ <= layer.filled, "kv cache",
          "{}: tokens from position {} on would leave a gap behind the {} that are held; expected no gap", layer_name,
          first_, layer.filled);
  require(from >= layer.start, "kv cache",
          "{}: tokens from position {} on see position {}, but only those from {} on are held; expected fewer new "
          "tokens, or all from position 0 on",
          layer_name, first_, from, layer.start);
  require(layer.keys.shape() == k.shape().with(1, layer.room()), "kv cache",
          "{}: keys {} do not continue those held, {}; a cache is for one batch of one model", layer_name, k.shape(),
          layer.keys.shape());
  if (end - layer.start > layer.room()) {
    const std::int64_t oldest = std::max(layer.start, std::min(from, end - layer.window - margin / 2));
    if (end - oldest > layer.room()) return with_all(layer, k, v, first_, from);
    move_to_front(layer, oldest, first_);
  }
  write(k, layer.keys, first_ - layer.start);
  write(v, layer.values, first_ - layer.start);
  layer.filled = end;
  return {slots(layer.keys, 0, end - layer.start), slots(layer.values, 0, end - layer.start), layer.start};
}

void KvCache::select(std::span<const std::int64_t> rows) {
  const NoGrad guard;
  for (auto& [name, layer] : layers_) {
    for (Tensor* buffer : {&layer.keys, &layer.values}) {
      std::vector<Tensor> chosen;
      for (const std::int64_t row : rows) chosen.push_back(view::slice(*buffer, 0, row, 1));
      *buffer = concat(chosen, 0);  // [rows, room, Hkv/tp, Dh]
    }
  }
}

std::int64_t KvCache::bytes() const {
  std::int64_t sum = 0;
  for (const auto& [name, layer] : layers_)
    for (const Tensor& buffer : {layer.keys, layer.values})
      sum += buffer.count() * static_cast<std::int64_t>(size_of(buffer.dtype()));
  return sum;
}

}  // namespace trireme::nn
