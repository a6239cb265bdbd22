#include "autograd/masked_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "autograd/autocast.h"
#include "autograd/ops.h"
#include "autograd/support.h"

namespace trireme {
namespace {

constexpr const char* masked_name = "masked_attention";

void check_masked(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionMask& o) {
  for (const Tensor* x : {&q, &k, &v}) require_floating(masked_name, *x);
  require(q.dims() == 4 && k.dims() == 4 && v.shape() == k.shape() && q.size(0) == k.size(0) &&
              q.size(3) == k.size(3) && k.size(2) > 0 && q.size(2) % k.size(2) == 0,
          masked_name, "expected q [B, Tq, H, Dh] and k, v [B, Tk, Hkv, Dh] with H a multiple of Hkv, got {}, {}, {}",
          q.shape(), k.shape(), v.shape());
  require(k.dtype() == q.dtype() && v.dtype() == q.dtype(), masked_name,
          "dtypes differ: q {}, k {}, v {}; expected one dtype; cast_to it", name(q.dtype()), name(k.dtype()),
          name(v.dtype()));
  require(!o.causal || k.size(1) >= q.size(1), masked_name,
          "causal attention needs at least as many keys as queries, got {} and {}", k.size(1), q.size(1));
  require(o.window >= 0 && (o.window == 0 || o.causal), masked_name,
          "a window of {} keys{}; expected a number above 0 with causal = true, or 0 for none", o.window,
          o.causal ? "" : " without causal = true");
  require(o.softcap >= 0, masked_name, "a softcap of {}; expected a number above 0, or 0 for none", o.softcap);
  require(!o.first_key.defined() || (o.first_key.shape() == Shape{q.size(0), q.size(1)} &&
                                     o.first_key.dtype() == DType::i32 && o.first_key.device() == Device::cpu),
          masked_name, "expected a first_key [B, Tq] = [{}, {}] in i32 on the host, got {} {}", q.size(0), q.size(1),
          name(o.first_key.dtype()), o.first_key.shape());
  if (!o.mask.defined()) return;
  const Shape& m = o.mask.shape();
  const Shape full = {q.size(0), q.size(2), q.size(1), k.size(1)};
  bool fits = m.dims() == 4 && m[3] == full[3];
  for (int dim = 0; fits && dim < 3; ++dim) fits = m[dim] == full[dim] || m[dim] == 1;
  require(fits, masked_name, "a mask {}; expected [B or 1, H or 1, Tq or 1, Tk] of {}", m, full);
  require(o.mask.dtype() == DType::u8 ? o.mask.device() == Device::cpu : o.mask.dtype() == q.dtype(), masked_name,
          "a mask in {}; expected {} as q, or u8 on the host", name(o.mask.dtype()), name(q.dtype()));
}

/// Which keys are seen, by the boolean mask and by position.
struct Visibility {
  Tensor bias;  ///< [B or 1, H or 1, Tq, Tk]: 0, or -infinity for a key that is not seen
  Tensor seen;  ///< [B or 1, H or 1, Tq, 1]: 1, or 0 for a query that sees no key: its bias is 0 throughout
};

/// The first key that query i of sequence b sees, and the end of those that it sees, by position.
struct KeyRange {
  std::int64_t first, end;
};
KeyRange keys_of(const AttentionMask& o, std::int64_t b, std::int64_t i, std::int64_t queries, std::int64_t keys) {
  KeyRange range = {0, o.causal ? i + keys - queries + 1 : keys};
  if (o.window > 0) range.first = std::max<std::int64_t>(range.first, range.end - o.window);
  if (o.first_key.defined())
    range.first = std::max<std::int64_t>(
        range.first, o.first_key.data<std::int32_t>()[o.first_key.strides()[0] * b + o.first_key.strides()[1] * i]);
  return range;
}

Visibility visibility(const Tensor& q, std::int64_t keys, const AttentionMask& o) {
  const bool by_mask = o.mask.defined() && o.mask.dtype() == DType::u8;
  const std::int64_t queries = q.size(1), batch = o.first_key.defined() ? q.size(0) : by_mask ? o.mask.size(0) : 1;
  const std::int64_t heads = by_mask ? o.mask.size(1) : 1;
  const Tensor mask = by_mask ? view::expand(o.mask, {batch, heads, queries, keys}) : Tensor();
  Tensor bias = Tensor::zeros({batch, heads, queries, keys}, DType::f32);
  Tensor seen = Tensor::full({batch, heads, queries, 1}, 1, DType::f32);
  float *row = bias.data<float>(), *flag = seen.data<float>();
  for (std::int64_t b = 0; b < batch; ++b) {
    for (std::int64_t h = 0; h < heads; ++h) {
      for (std::int64_t i = 0; i < queries; ++i, row += keys, ++flag) {
        const KeyRange range = keys_of(o, b, i, queries, keys);
        bool any = false;
        for (std::int64_t j = 0; j < keys; ++j) {
          const bool sees = j >= range.first && j < range.end &&
                            (!by_mask || mask.data<std::uint8_t>()[mask.strides()[0] * b + mask.strides()[1] * h +
                                                                   mask.strides()[2] * i + mask.strides()[3] * j] != 0);
          if (!sees) row[j] = -std::numeric_limits<float>::infinity();
          any |= sees;
        }
        if (any) continue;
        std::fill(row, row + keys, 0.0F);
        *flag = 0;
      }
    }
  }
  const DType dtype = accumulate_dtype(q);
  return {cast(bias, dtype).to(q.device()), cast(seen, dtype).to(q.device())};
}

/// x [B or 1, H or 1, ..] as [B or 1, Hkv or 1, G or 1, ..], for the G heads of each key-value head.
Tensor by_group(const Tensor& x, std::int64_t kv_heads) {
  const bool split = x.size(1) != 1;
  return reshape(x, {x.size(0), split ? kv_heads : 1, split ? x.size(1) / kv_heads : 1, x.size(2), x.size(3)});
}

/// The same by operations, with all scores in memory.
Tensor composed(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionMask& o) {
  const std::int64_t batch = q.size(0), queries = q.size(1), heads = q.size(2), width = q.size(3), kv = k.size(2);
  const DType wide = accumulate_dtype(q);
  const auto keys_by_head = [&](const Tensor& x) {  // [B, Tk, Hkv, Dh] -> [B, Hkv, 1, Tk, Dh]
    return reshape(transpose(cast_to(x, wide), 1, 2), {batch, kv, 1, x.size(1), width});
  };
  const double scale = o.scale != 0 ? o.scale : 1 / std::sqrt(static_cast<double>(width));
  const Tensor heads_of_q = by_group(transpose(cast_to(q, wide) * scale, 1, 2), kv);  // [B, Hkv, G, Tq, Dh]
  Tensor scores = matmul(heads_of_q, transpose(keys_by_head(k), 3, 4));               // [B, Hkv, G, Tq, Tk]
  if (o.softcap > 0) scores = tanh(scores * (1 / o.softcap)) * o.softcap;
  if (o.mask.defined() && o.mask.dtype() != DType::u8) scores = scores + by_group(cast_to(o.mask, wide), kv);
  const bool hidden_keys = o.causal || o.first_key.defined() || (o.mask.defined() && o.mask.dtype() == DType::u8);
  const Visibility visible = hidden_keys ? visibility(q, k.size(1), o) : Visibility();
  if (hidden_keys) scores = scores + by_group(visible.bias, kv);
  Tensor out = matmul(softmax(scores), keys_by_head(v));  // [B, Hkv, G, Tq, Dh]
  if (hidden_keys) out = out * by_group(visible.seen, kv);
  return transpose(reshape(cast_to(out, q.dtype()), {batch, heads, queries, width}), 1, 2);
}

/// first_key [B, Tq] of a window, and of the documents.
Tensor first_keys(const AttentionMask& o, std::int64_t batch, std::int64_t queries, std::int64_t keys) {
  if (o.window == 0) return o.first_key.defined() ? contiguous(o.first_key) : Tensor();
  Tensor first = Tensor::empty({batch, queries}, DType::i32);
  std::int32_t* const each = first.data<std::int32_t>();
  for (std::int64_t b = 0; b < batch; ++b)
    for (std::int64_t i = 0; i < queries; ++i)
      each[b * queries + i] = static_cast<std::int32_t>(keys_of(o, b, i, queries, keys).first);
  return first;
}

}  // namespace

Tensor masked_attention(const Tensor& queries, const Tensor& keys, const Tensor& values, const AttentionMask& given) {
  const Tensor q = for_product(queries), k = for_product(keys), v = for_product(values);
  AttentionMask options = given;
  options.mask = for_product(given.mask);
  const Autocast as_given(std::nullopt);
  check_masked(q, k, v, options);
  if (options.mask.defined() || (options.softcap > 0 && q.device() != Device::cpu)) return composed(q, k, v, options);
  return attention(q, k, v, options.causal, options.scale, first_keys(options, q.size(0), q.size(1), k.size(1)),
                   options.softcap);
}

}  // namespace trireme
