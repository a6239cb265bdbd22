// attention and its gradient against the plain definition in f64: every dtype, every way of multiplying bf16, grouped
// heads, ragged tiles, strides.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <map>

#include "core/cpu/attention_few.h"
#include "core/kernels.h"
#include "tests/products/reference.h"
#include "tests/products/units.h"
#include "tests/support/sanitized.h"

namespace trireme {
namespace attention_test {
namespace {

using testing::for_each_way;
using testing::random;
using testing::values;
using Numbers = std::vector<double>;
using Sizes = std::vector<std::int64_t>;

struct Case {
  std::int64_t batch, queries, keys, heads, kv_heads, width;
  bool causal = false;
  DType dtype = DType::f64;
  double size = 1;         // the scale of q: large values make the softmax nearly one-hot
  bool documents = false;  // with first_key
  double softcap = 0;
  ScoreRule rule() const { return {scale(), softcap}; }
  double scale() const { return 1 / std::sqrt(static_cast<double>(width)); }
};

std::string describe(const Case& x) {
  return fmt::format("B={} Tq={} Tk={} H={} Hkv={} Dh={} causal={} {} size={} documents={} cap={}", x.batch, x.queries,
                     x.keys, x.heads, x.kv_heads, x.width, x.causal, name(x.dtype), x.size, x.documents, x.softcap);
}

/// First keys anywhere, also before all keys and after them, in no order: everything that the contract allows.
Tensor first_keys_of(const Case& x) {
  if (!x.documents) return {};
  Tensor first = Tensor::empty({x.batch, x.queries}, DType::i32);
  for (std::int64_t i = 0; i < first.count(); ++i) {
    const auto word = static_cast<std::int64_t>(random_word(9, 1, static_cast<std::uint64_t>(i)));
    first.data<std::int32_t>()[i] = static_cast<std::int32_t>(word % (x.keys + 8) - 4);
  }
  return first;
}

/// The first `count` numbers of a stream: [count], f64. They are kept for the next case, because making normal numbers
/// takes longer than all checks.
Tensor normals(std::int64_t count, std::uint64_t stream) {
  static std::map<std::uint64_t, Tensor> kept;
  Tensor& numbers = kept[stream];
  if (!numbers.defined() || numbers.count() < count) numbers = random({count}, stream);
  return view::slice(numbers, 0, 0, count);
}

/// [B, T, H, Dh] with rows that are not contiguous: a slice of wider rows, like the output of a fused projection.
Tensor heads_of(std::int64_t batch, std::int64_t length, std::int64_t heads, std::int64_t width, DType dtype,
                std::uint64_t stream, double size = 1) {
  Tensor wide = clone(normals(batch * length * (heads + 2) * width, stream));
  for (double& number : wide.span<double>()) number *= size;
  return view::slice(cast(view::reshape(wide, {batch, length, heads + 2, width}), dtype), 2, 1, heads);
}

struct Tensors {
  Tensor q, k, v, dout, out, lse, dq, dk, dv, first_key;
  explicit Tensors(const Case& x)
      : q(heads_of(x.batch, x.queries, x.heads, x.width, x.dtype, 1, x.size)),
        k(heads_of(x.batch, x.keys, x.kv_heads, x.width, x.dtype, 2)),
        v(heads_of(x.batch, x.keys, x.kv_heads, x.width, x.dtype, 3)),
        dout(heads_of(x.batch, x.queries, x.heads, x.width, x.dtype, 4)),
        out(heads_of(x.batch, x.queries, x.heads, x.width, x.dtype, 5)),
        lse(Tensor::full({x.batch, x.heads, x.queries}, std::nan(""), testing::accumulator(x.dtype))),
        dq(heads_of(x.batch, x.queries, x.heads, x.width, x.dtype, 6)),
        dk(heads_of(x.batch, x.keys, x.kv_heads, x.width, x.dtype, 7)),
        dv(heads_of(x.batch, x.keys, x.kv_heads, x.width, x.dtype, 8)),
        first_key(first_keys_of(x)) {}
  void run(const Case& x) {
    kernels(Device::cpu).attention(q, k, v, x.rule(), x.causal, first_key, out, lse);
    kernels(Device::cpu).attention_backward(q, k, v, out, lse, dout, x.rule(), x.causal, first_key, dq, dk, dv);
  }
};

/// The relative rounding error of p and ds as operands. bf16 instructions need them in bf16; otherwise it is 0.
double rounding_of_operands(DType dtype) {
  return dtype == DType::bf16 && cpu::bf16_unit() != cpu::Bf16Unit::vectors ? testing::rounding(dtype) : 0;
}

/// The definition, one query at a time, all in f64. The gradients are computed from the stored `out`, which is also the
/// input of the backward kernel. `accepted` is the error that rounded operands may cause: one rounding of each term of
/// a sum over p or ds (|p v|, |p dout|, |ds k| or |ds q|). In this case dout v and delta are f32 sums of Dh terms in
/// two different orders; where they cancel, ds is off by the roundings of both.
struct Reference {
  Numbers out, lse, dq, dk, dv;
  struct {
    Numbers out, dq, dk, dv;
  } accepted;

  Reference(const Case& x, const Tensors& t, bool with_gradients = true)
      : x_(x),
        with_gradients_(with_gradients),
        q_(values(t.q)),
        k_(values(t.k)),
        v_(values(t.v)),
        dout_(values(t.dout)),
        stored_(values(t.out)),
        few_(cpu::suits_few_queries(t.q)) {
    out.resize(q_.size());
    dq.resize(q_.size());
    dk.resize(k_.size());
    dv.resize(v_.size());
    lse.resize(static_cast<std::size_t>(x.batch * x.heads * x.queries));
    accepted = {out, dq, dk, dv};
    for (std::int64_t b = 0; b < x.batch; ++b) {
      for (std::int64_t h = 0; h < x.heads; ++h) {
        for (std::int64_t i = 0; i < x.queries; ++i) query(b, h, i);
      }
    }
  }

 private:
  std::size_t at_query(std::int64_t b, std::int64_t i, std::int64_t h) const {
    return static_cast<std::size_t>(((b * x_.queries + i) * x_.heads + h) * x_.width);
  }
  std::size_t at_key(std::int64_t b, std::int64_t j, std::int64_t h) const {
    return static_cast<std::size_t>(((b * x_.keys + j) * x_.kv_heads + h * x_.kv_heads / x_.heads) * x_.width);
  }
  double dot(const Numbers& a, std::size_t i, const Numbers& b, std::size_t j) const {
    double sum = 0;
    for (std::size_t d = 0; d < static_cast<std::size_t>(x_.width); ++d) sum += a[i + d] * b[j + d];
    return sum;
  }
  /// The largest possible rounding error of a dot product in f32.
  double rounding_of_dot(const Numbers& a, std::size_t i, const Numbers& b, std::size_t j) const {
    double size = 0;
    for (std::size_t d = 0; d < static_cast<std::size_t>(x_.width); ++d) size += std::fabs(a[i + d] * b[j + d]);
    return static_cast<double>(x_.width) * testing::rounding(DType::f32) * size;
  }
  /// Adds factor * row i of `from` to row j of `to`, and to `accepted` the effect of an error in the factor.
  void add(double factor, double error, const Numbers& from, std::size_t i, Numbers& to, Numbers& accepted,
           std::size_t j) const {
    for (std::size_t d = 0; d < static_cast<std::size_t>(x_.width); ++d) {
      to[j + d] += factor * from[i + d];
      accepted[j + d] += error * std::fabs(from[i + d]);
    }
  }

  std::int64_t first_key(std::int64_t b, std::int64_t i) const {
    return x_.documents ? first_.data<std::int32_t>()[b * x_.queries + i] : 0;
  }

  void query(std::int64_t b, std::int64_t h, std::int64_t i) {
    const std::size_t row = at_query(b, i, h);
    Numbers p(static_cast<std::size_t>(x_.keys), -std::numeric_limits<double>::infinity()), slopes(p.size(), 1);
    double top = -std::numeric_limits<double>::infinity(), total = 0;
    for (std::int64_t j = 0; j < x_.keys; ++j) {
      if (x_.causal && j > i + x_.keys - x_.queries) break;
      if (j < first_key(b, i)) continue;
      double& score = p[static_cast<std::size_t>(j)];
      score = x_.scale() * dot(q_, row, k_, at_key(b, j, h));
      if (x_.softcap > 0) {
        const double t = std::tanh(score / x_.softcap);
        score = x_.softcap * t;
        slopes[static_cast<std::size_t>(j)] = 1 - t * t;
      }
      top = std::max(top, p[static_cast<std::size_t>(j)]);
    }
    lse[static_cast<std::size_t>((b * x_.heads + h) * x_.queries + i)] = top;
    if (std::isinf(top)) return;  // no visible key: zero output and gradients
    for (double& each : p) total += each = std::exp(each - top);
    lse[static_cast<std::size_t>((b * x_.heads + h) * x_.queries + i)] += std::log(total);
    for (double& each : p) each /= total;
    for (std::int64_t j = 0; j < x_.keys; ++j) {
      const double weight = p[static_cast<std::size_t>(j)];
      add(weight, few_ ? 0 : operands_ * weight, v_, at_key(b, j, h), out, accepted.out, row);
    }
    if (with_gradients_) query_gradients(row, p, slopes, b, h);
  }

  void query_gradients(std::size_t row, const Numbers& p, const Numbers& slopes, std::int64_t b, std::int64_t h) {
    const double delta = dot(dout_, row, stored_, row);
    for (std::int64_t j = 0; j < x_.keys; ++j) {
      const std::size_t key = at_key(b, j, h);
      const double weight = p[static_cast<std::size_t>(j)];
      const double scale = x_.scale() * slopes[static_cast<std::size_t>(j)];
      const double ds = scale * weight * (dot(dout_, row, v_, key) - delta);
      const double off =
          operands_ == 0
              ? 0
              : operands_ * std::fabs(ds) +
                    scale * weight * (rounding_of_dot(dout_, row, v_, key) + rounding_of_dot(dout_, row, stored_, row));
      add(weight, operands_ * weight, dout_, row, dv, accepted.dv, key);
      add(ds, off, k_, key, dq, accepted.dq, row);
      add(ds, off, q_, row, dk, accepted.dk, key);
    }
  }

  Case x_;
  bool with_gradients_;
  Numbers q_, k_, v_, dout_, stored_;
  Tensor first_ = first_keys_of(x_);
  double operands_ = rounding_of_operands(x_.dtype);
  bool few_;  // few queries: p stays f32
};

/// The largest |got - expected| beyond what is accepted of each, divided by the largest |expected|.
double error(const Tensor& got, const Numbers& expected, const Numbers& accepted = {}) {
  const Numbers numbers = values(got);
  REQUIRE(numbers.size() == expected.size());
  double worst = 0, size = 1e-300;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (std::isinf(expected[i])) {
      REQUIRE(numbers[i] == expected[i]);
      continue;
    }
    if (!std::isfinite(numbers[i])) return std::numeric_limits<double>::infinity();
    worst = std::max(worst, std::fabs(numbers[i] - expected[i]) - (accepted.empty() ? 0 : accepted[i]));
    size = std::max(size, std::fabs(expected[i]));
  }
  return worst / size;
}

/// The error of sums over keys, queries or features in the accumulator's dtype.
double rounding_of_sums(const Case& x) {
  return static_cast<double>(x.keys + x.queries + x.width) * testing::rounding(testing::accumulator(x.dtype));
}
/// The same, and one rounding to the tensors' dtype.
double rounding_of(const Case& x) { return 2 * testing::rounding(x.dtype) + rounding_of_sums(x); }

void check_forward(const Case& x, const Tensors& t, const Reference& expected) {
  CHECK(error(t.out, expected.out, expected.accepted.out) <= rounding_of(x));
  CHECK(error(t.lse, expected.lse) <= rounding_of_sums(x));
}

/// Forward alone: with one or two visible keys gradients nearly cancel, and their relative error means nothing.
void check_forward(const Case& x) {
  CAPTURE(describe(x));
  Tensors t(x);
  kernels(Device::cpu).attention(t.q, t.k, t.v, x.rule(), x.causal, t.first_key, t.out, t.lse);
  check_forward(x, t, Reference(x, t, false));
}

void check(const Case& x) {
  CAPTURE(describe(x));
  Tensors t(x);
  t.run(x);
  const Reference expected(x, t);
  const double tolerance = rounding_of(x);
  check_forward(x, t, expected);
  CHECK(error(t.dv, expected.dv, expected.accepted.dv) <= tolerance);
  CHECK(error(t.dq, expected.dq, expected.accepted.dq) <= 4 * tolerance);
  CHECK(error(t.dk, expected.dk, expected.accepted.dk) <= 4 * tolerance);
}

}  // namespace

TEST_CASE("attention agrees with its definition: ragged lengths and widths, causal or not") {
  for_each_way({DType::f64, DType::f32, DType::bf16, DType::f16}, [](DType dtype) {
    for (const bool causal : {false, true}) {
      for (const auto& [queries, keys] :
           {std::pair{1, 1}, {7, 7}, {33, 33}, {64, 64}, {65, 65}, {130, 130}, {1, 70}, {20, 90}, {90, 20}}) {
        for (const std::int64_t width : testing::sanitized ? Sizes{13} : Sizes{1, 13, 32})
          check({1, queries, keys, 2, 2, width, causal, dtype});
      }
    }
  });
}

TEST_CASE("attention of few queries, with many keys or none to see, by documents or not") {
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16}) {
    if (testing::sanitized && (dtype == DType::f64 || dtype == DType::f16)) continue;
    for (const std::int64_t queries : testing::sanitized ? Sizes{1, 5, 9} : Sizes{1, 2, 5, 8, 9}) {
      for (const std::int64_t keys : testing::sanitized ? Sizes{1, 9, 65} : Sizes{1, 3, 9, 63, 64, 65, 131, 300}) {
        for (const auto& [heads, kv_heads, width] :
             {std::tuple{3, 3, 64}, {4, 2, 16}, {5, 1, 13}, {2, 2, 80}, {1, 1, 129}}) {
          for (const bool documents : {false, true})
            check_forward({2, queries, keys, heads, kv_heads, width, true, dtype, 1, documents});
        }
        check_forward({1, queries, keys, 2, 1, 24, false, dtype});
      }
    }
  }
}

TEST_CASE("attention with grouped heads, several sequences and wide heads") {
  for_each_way({DType::f64, DType::f32, DType::bf16}, [](DType dtype) {
    check({2, 50, 50, 6, 2, 20, true, dtype});
    check({3, 70, 40, 4, 1, 64, false, dtype});
    check({1, 40, 70, 3, 3, 80, true, dtype});
    check({1, 200, 200, 1, 1, 129, true, dtype});
  });
}

TEST_CASE("attention sees no key before a query's first, wherever that is") {
  for_each_way({DType::f64, DType::f32, DType::bf16}, [](DType dtype) {
    for (const bool causal : {false, true}) {
      for (const auto& [queries, keys] :
           {std::pair{1, 1}, {7, 7}, {65, 65}, {130, 130}, {300, 300}, {20, 90}, {90, 20}}) {
        if (testing::sanitized && keys > 100) continue;
        check({2, queries, keys, 4, 2, 13, causal, dtype, 1, true});
      }
    }
  });
}

TEST_CASE("attention caps scores, forward and backward, also of few queries and of documents") {
  for_each_way({DType::f64, DType::f32, DType::bf16, DType::f16}, [](DType dtype) {
    for (const bool causal : {false, true}) {
      for (const double cap : {0.5, 4.0}) {
        check({2, 65, 65, 4, 2, 13, causal, dtype, 3, false, cap});
        check({1, 130, 130, 2, 1, 20, causal, dtype, 3, true, cap});
        check_forward({2, 3, 70, 4, 2, 64, causal, dtype, 3, false, cap});
      }
    }
  });
}

TEST_CASE("attention over two sets of keys, merged, is attention over both; so is the sum of their gradients") {
  for_each_way({DType::f64, DType::f32, DType::bf16}, [](DType dtype) {
    for (const bool documents : {false, true}) {
      const Case x{2, 37, 70, 4, 2, 13, false, dtype, 1, documents};
      CAPTURE(describe(x));
      const KernelTable& table = kernels(Device::cpu);
      const DType acc = testing::accumulator(dtype);
      Tensors t(x);
      const std::int64_t cut = 23;
      Tensor out, lse;
      for (const auto& [begin, length] : {std::pair<std::int64_t, std::int64_t>{0, cut}, {cut, x.keys - cut}}) {
        Tensor first;
        if (documents) {
          first = clone(t.first_key);
          for (std::int32_t& key : first.span<std::int32_t>()) key -= static_cast<std::int32_t>(begin);
        }
        Tensor part = clone(t.q), part_lse = Tensor::empty({x.batch, x.heads, x.queries}, acc);
        table.attention(t.q, view::slice(t.k, 1, begin, length), view::slice(t.v, 1, begin, length), x.scale(), false,
                        first, part, part_lse);
        if (begin == 0) {
          out = cast(part, acc);
          lse = part_lse;
        } else {
          table.attention_merge(part, part_lse, out, lse);
        }
      }
      copy(out, t.out);
      const Reference expected(x, t);
      CHECK(error(t.out, expected.out, expected.accepted.out) <=
            4 * testing::rounding(dtype) + 150 * testing::rounding(acc));
      CHECK(error(lse, expected.lse) <= 150 * testing::rounding(acc));
      Tensor dq = Tensor::zeros(t.q.shape(), DType::f64);
      for (const auto& [begin, length] : {std::pair<std::int64_t, std::int64_t>{0, cut}, {cut, x.keys - cut}}) {
        Tensor first;
        if (documents) {
          first = clone(t.first_key);
          for (std::int32_t& key : first.span<std::int32_t>()) key -= static_cast<std::int32_t>(begin);
        }
        Tensor dk = view::slice(t.dk, 1, begin, length), dv = view::slice(t.dv, 1, begin, length);
        Tensor term = Tensor::empty(t.q.shape(), dtype);
        table.attention_backward(t.q, view::slice(t.k, 1, begin, length), view::slice(t.v, 1, begin, length), t.out,
                                 lse, t.dout, x.scale(), false, first, term, dk, dv);
        table.axpby(1, term, 1, dq);
      }
      CHECK(error(dq, expected.dq, expected.accepted.dq) <=
            16 * testing::rounding(dtype) + 600 * testing::rounding(acc));
      CHECK(error(t.dk, expected.dk, expected.accepted.dk) <=
            16 * testing::rounding(dtype) + 600 * testing::rounding(acc));
      CHECK(error(t.dv, expected.dv, expected.accepted.dv) <=
            4 * testing::rounding(dtype) + 150 * testing::rounding(acc));
    }
  });
}

TEST_CASE("attention stays finite and right when scores are a thousand times larger") {
  for (const auto& [dtype, queries] :
       {std::pair<DType, std::int64_t>{DType::f64, 70}, {DType::f32, 70}, {DType::f64, 3}, {DType::f32, 3}}) {
    const Case x{1, queries, 70, 2, 1, 32, true, dtype, 1000};
    CAPTURE(describe(x));
    Tensors t(x);
    t.run(x);
    for (const Tensor* each : {&t.out, &t.lse, &t.dq, &t.dk, &t.dv}) {
      for (const double number : values(*each)) REQUIRE(std::isfinite(number));
    }
    // A score near 6000 is off by about 6000 * 32 roundings, and so is the logarithm of a probability.
    const double slack = 6000 * 64 * testing::rounding(dtype);
    const Reference expected(x, t);
    CHECK(error(t.out, expected.out) <= slack);
    CHECK(error(t.dv, expected.dv) <= slack);
    CHECK(error(t.lse, expected.lse) <= 64 * testing::rounding(dtype));
  }
}

TEST_CASE("attention weighs to the nearest: over ones it gives one, and dv of ones adds up to the queries") {
  // If p were not rounded to nearest, it would be biased by a third of a percent on average. Rounded to nearest, the
  // errors of many p cancel, and less than a step of bf16 near 1 remains.
  for_each_way({DType::f64, DType::f32, DType::bf16}, [](DType dtype) {
    const Case x{1, 200, 130, 2, 2, 24, false, dtype};
    Tensors t(x);
    t.v = Tensor::full(t.v.shape(), 1, dtype);
    t.dout = Tensor::full(t.dout.shape(), 1, dtype);
    t.run(x);
    const double far = dtype == DType::bf16 ? 0 : static_cast<double>(x.keys) * testing::rounding(dtype);
    for (const double number : values(t.out)) REQUIRE(std::fabs(number - 1) <= far);
    double sum = 0;
    for (const double number : values(t.dv)) sum += number;
    CHECK(std::fabs(sum / static_cast<double>(x.queries * x.heads * x.width) - 1) <= 0x1p-11);
  });
}

TEST_CASE("attention and its gradient give the same bits for 1, 2 and 3 threads") {
  for (const Case& x :
       {Case{2, 70, 70, 6, 3, 20, true, DType::f32}, Case{1, 200, 130, 1, 1, 40, true, DType::bf16},
        Case{2, 70, 75, 6, 3, 21, true, DType::bf16, 1, true}, Case{5, 64, 64, 4, 4, 32, true, DType::f32},
        Case{1, 2, 900, 6, 3, 40, true, DType::f32}, Case{2, 1, 2000, 5, 5, 64, true, DType::bf16}}) {
    for_each_way({x.dtype}, [&x](DType) {
      CAPTURE(describe(x));
      std::vector<Numbers> first;
      for (const std::int64_t team : testing::sanitized ? Sizes{1, 3} : Sizes{1, 2, 3}) {
        const testing::TeamOf scope(static_cast<int>(team));
        Tensors t(x);
        t.run(x);
        const std::vector<Numbers> all{values(t.out), values(t.lse), values(t.dq), values(t.dk), values(t.dv)};
        if (first.empty()) first = all;
        CHECK(all == first);
      }
    });
  }
}

/// The same numbers inside a larger tensor of NaN, with more rows and more heads.
Tensor in_nans(const Tensor& x) {
  const Tensor wide = Tensor::full({x.size(0), x.size(1) + 2, x.size(2) + 2, x.size(3)}, std::nan(""), x.dtype());
  Tensor inside = view::slice(view::slice(wide, 1, 1, x.size(1)), 2, 1, x.size(2));
  copy(x, inside);
  return inside;
}

TEST_CASE("attention reads nothing but its tensors: NaN beside them and in memory used before change no bit") {
  for_each_way({DType::f64, DType::f32, DType::bf16, DType::f16}, [](DType dtype) {
    for (const Case& x : {Case{2, 33, 33, 2, 1, 13, true, dtype}, Case{1, 71, 45, 2, 2, 7, false, dtype},
                          Case{1, 45, 99, 1, 1, 33, true, dtype, 1, true}, Case{2, 9, 1, 2, 2, 1, false, dtype}}) {
      CAPTURE(describe(x));
      const testing::TeamOf scope(1);
      MemoryPool& pool = *MemoryPool::current();
      const auto run = [&x, &pool](Tensors& t, double before) {
        pool.reset_peaks();
        t.run(x);  // once, to measure the workspace
        const std::int64_t workspace = pool.use(MemoryCategory::workspace).peak / 8;
        { const Tensor used = Tensor::full({workspace}, before, DType::f64); }
        t.run(x);
        return std::vector<Numbers>{values(t.out), values(t.lse), values(t.dq), values(t.dk), values(t.dv)};
      };
      Tensors clean(x), poisoned(x);
      for (Tensor* each : {&poisoned.q, &poisoned.k, &poisoned.v, &poisoned.dout}) *each = in_nans(*each);
      const std::vector<Numbers> expected = run(clean, 0), got = run(poisoned, std::nan(""));
      CHECK(got == expected);
      for (const double number : got[2]) REQUIRE(std::isfinite(number));
    }
  });
}

TEST_CASE("attention asks the system for no memory once it is warm, and never holds a score for every pair") {
  const Case x{1, 1024, 1024, 1, 1, 16, true, DType::f32};
  Tensors t(x);
  t.run(x);
  MemoryPool& pool = *MemoryPool::current();
  pool.reset_peaks();
  const std::int64_t before = pool.system_allocations();
  t.run(x);
  CHECK(pool.system_allocations() == before);
  CHECK(pool.use(MemoryCategory::workspace).peak < 1024 * 1024 * 4 / 2);
}

}  // namespace attention_test
}  // namespace trireme
