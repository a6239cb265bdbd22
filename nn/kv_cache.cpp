#include "nn/kv_cache.h"

namespace trireme::nn {

KvCache::Held KvCache::append(const std::string& layer, const Tensor& k, const Tensor& v) {
  const std::int64_t count = k.size(1), end = first_ + count;
  require(end <= capacity_, "kv cache", "{}: tokens up to position {} do not fit a cache of {}; make a larger one",
          layer, end, capacity_);
  Layer& held = layers_[layer];
  if (!held.keys.defined()) {
    const Shape room = k.shape().with(1, capacity_);  // [B, capacity, Hkv/tp, Dh]
    held.keys = Tensor::empty(room, k.dtype(), k.device());
    held.values = Tensor::empty(room, v.dtype(), v.device());
  }
  require(first_ <= held.filled, "kv cache",
          "{}: tokens from position {} on would leave a gap behind the {} that are held; expected no gap", layer,
          first_, held.filled);
  require(held.keys.shape() == k.shape().with(1, capacity_), "kv cache",
          "{}: keys {} do not continue those held, {}; a cache is for one batch of one model", layer, k.shape(),
          held.keys.shape());
  Tensor new_keys = view::slice(held.keys, 1, first_, count), new_values = view::slice(held.values, 1, first_, count);
  copy(k, new_keys);
  copy(v, new_values);
  held.filled = end;
  return {view::slice(held.keys, 1, 0, end), view::slice(held.values, 1, 0, end)};
}

}  // namespace trireme::nn
