// Attention in cuDNN's terms: the graph that the library gets is executed operation by operation in f64 and compared
// with plain loops over our own layout. Needs no toolkit. The accuracy of the types inside the graph is not tested.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "core/random.h"
#include "cuda/libraries/sdpa_graph.h"
#include "cuda/libraries/sdpa_translate.h"
#include "tests/support/largest.h"
#include "tests/support/text.h"

using namespace trireme;
using namespace trireme::cuda;
using testing::contains;
using testing::keep_largest;

namespace cudnn_problem_test {
namespace {

using Values = std::vector<double>;

std::size_t index_of(std::int64_t i) { return static_cast<std::size_t>(i); }

Values random_values(std::int64_t count, std::uint64_t seed) {
  Values values(index_of(count));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = 2 * random_uniform(seed, 1, i) - 1;
  return values;
}

/// Where the tensors of a call lie: in which array, from which element on.
struct Memory {
  struct Place {
    Values* values;
    std::int64_t offset = 0;
  };
  std::map<SdpaId, Place> places;
};

/// Executes a graph. The strides of a node place its elements: in `memory` if the node has a name, otherwise in
/// `arrays_`.
class Interpreter {
 public:
  Interpreter(const SdpaGraph& graph, Memory& memory) : graph_(graph), arrays_(graph.nodes.size()) {
    for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
      const SdpaNode& node = graph.nodes[n];
      if (node.id == SdpaId::none) {
        std::int64_t size = 1;
        for (std::size_t d = 0; d < 4; ++d) size += (node.at.dims[d] - 1) * node.at.strides[d];
        arrays_[n].assign(index_of(size), std::numeric_limits<double>::quiet_NaN());
        places_.push_back({&arrays_[n], 0});
      } else {
        REQUIRE(memory.places.contains(node.id));
        places_.push_back(memory.places.at(node.id));
      }
    }
    for (const SdpaOperation& operation : graph.operations) carry_out(operation);
  }

 private:
  using Index = std::array<std::int64_t, 4>;

  const SdpaTensor& at(std::size_t node) const { return graph_.nodes[node].at; }
  double& element(std::size_t node, const Index& index) {
    std::int64_t place = places_[node].offset;
    for (std::size_t d = 0; d < 4; ++d) {
      REQUIRE(index[d] < at(node).dims[d]);
      place += index[d] * at(node).strides[d];
    }
    return places_[node].values->at(index_of(place));
  }
  /// Dims of one element are broadcast.
  double broadcast(std::size_t node, Index index) {
    for (std::size_t d = 0; d < 4; ++d)
      if (at(node).dims[d] == 1) index[d] = 0;
    return element(node, index);
  }
  template <class Body>
  static void for_each(const Index& dims, Body&& body) {
    Index i{};
    for (i[0] = 0; i[0] < dims[0]; ++i[0])
      for (i[1] = 0; i[1] < dims[1]; ++i[1])
        for (i[2] = 0; i[2] < dims[2]; ++i[2])
          for (i[3] = 0; i[3] < dims[3]; ++i[3]) body(i);
  }

  void carry_out(const SdpaOperation& o) {
    switch (o.op) {
      case SdpaOp::matmul:
        return matmul(o);
      case SdpaOp::reduce_max:
      case SdpaOp::reduce_sum:
        return reduce(o);
      case SdpaOp::reshape:
        return reshape(o);
      default:
        for_each(at(o.result).dims, [&](const Index& i) { element(o.result, i) = pointwise(o, i); });
    }
  }

  void matmul(const SdpaOperation& o) {
    const std::size_t a = o.operands[0], b = o.operands[1];
    const std::int64_t inner = at(a).dims[3], heads = at(o.result).dims[1];
    REQUIRE(inner == at(b).dims[2]);
    for_each(at(o.result).dims, [&](const Index& i) {
      const auto head = [&](std::size_t node) { return i[1] / (heads / at(node).dims[1]); };
      double sum = 0;
      for (std::int64_t l = 0; l < inner; ++l)
        sum += element(a, {i[0], head(a), i[2], l}) * element(b, {i[0], head(b), l, i[3]});
      element(o.result, i) = sum;
    });
  }

  void reduce(const SdpaOperation& o) {
    const bool largest = o.op == SdpaOp::reduce_max;
    const std::size_t x = o.operands[0];
    for_each(at(o.result).dims,
             [&](const Index& i) { element(o.result, i) = largest ? -std::numeric_limits<double>::infinity() : 0; });
    for_each(at(x).dims, [&](const Index& i) {
      Index j = i;
      for (std::size_t d = 0; d < 4; ++d) j[d] /= at(x).dims[d] / at(o.result).dims[d];
      double& y = element(o.result, j);
      y = largest ? std::max(y, element(x, i)) : y + element(x, i);
    });
  }

  /// The same memory: the strides of both sides must reach the same elements.
  void reshape(const SdpaOperation& o) {
    const std::size_t x = o.operands[0];
    std::map<std::int64_t, double> by_offset;
    const auto offset = [&](std::size_t node, const Index& i) {
      std::int64_t place = 0;
      for (std::size_t d = 0; d < 4; ++d) place += i[d] * at(node).strides[d];
      return place;
    };
    for_each(at(x).dims, [&](const Index& i) { by_offset[offset(x, i)] = element(x, i); });
    for_each(at(o.result).dims, [&](const Index& i) { element(o.result, i) = by_offset.at(offset(o.result, i)); });
  }

  double pointwise(const SdpaOperation& o, const Index& i) {
    if (o.op == SdpaOp::index) return static_cast<double>(i[static_cast<std::size_t>(o.dim)]);
    const double x = broadcast(o.operands[0], i);
    const double y = o.operands.size() > 1 ? broadcast(o.operands[1], i) : 0;
    switch (o.op) {
      case SdpaOp::add:
        return x + y;
      case SdpaOp::subtract:
        return x - y;
      case SdpaOp::multiply:
        return x * y;
      case SdpaOp::divide:
        return x / y;
      case SdpaOp::exponential:
        return std::exp(x);
      case SdpaOp::logarithm:
        return std::log(x);
      case SdpaOp::greater_equal:
        return x >= y ? 1 : 0;
      case SdpaOp::select:
        return broadcast(o.operands[2], i) != 0 ? x : y;
      default:
        FAIL("not pointwise");
        return 0;
    }
  }

  const SdpaGraph& graph_;
  std::vector<Values> arrays_;
  std::vector<Memory::Place> places_;
};

struct Case {
  int batch, heads, kv_heads, head_dim, queries, keys;
  bool causal;
  int extra = 0;  ///< elements between the tokens of what is not packed
};

/// With as many queries as keys, q, k and v are packed in one tensor. Otherwise q is alone, and k and v are packed.
struct Attention {
  Case c;
  bool packed;
  std::int64_t q_pitch, kv_pitch, out_pitch, k_offset, v_offset, rows;
  Values tokens, key_tokens, out, lse, dout, dtokens, dkey_tokens, delta;
  double scale = 0.37;

  explicit Attention(const Case& c_)
      : c(c_),
        packed(c.queries == c.keys),
        q_pitch(packed ? std::int64_t{c.heads + 2 * c.kv_heads} * c.head_dim
                       : std::int64_t{c.heads} * c.head_dim + c.extra),
        kv_pitch(packed ? q_pitch : std::int64_t{2 * c.kv_heads} * c.head_dim + c.extra),
        out_pitch(std::int64_t{c.heads} * c.head_dim + c.extra),
        k_offset(packed ? std::int64_t{c.heads} * c.head_dim : 0),
        v_offset(k_offset + std::int64_t{c.kv_heads} * c.head_dim),
        rows(std::int64_t{c.batch} * c.heads * c.queries),
        tokens(random_values(c.batch * c.queries * q_pitch, 1)),
        key_tokens(random_values(c.batch * c.keys * kv_pitch, 2)),
        out(index_of(c.batch * c.queries * out_pitch)),
        lse(index_of(rows)),
        dout(random_values(c.batch * c.queries * out_pitch, 3)),
        dtokens(tokens.size(), 7),
        dkey_tokens(key_tokens.size(), 7),
        delta(index_of(rows)) {}

  /// With sizes and pitches but without pointers: the interpreter gets the places from run().
  AttentionForward<bf16> forward() const {
    AttentionForward<bf16> p{};
    p.batch = c.batch;
    p.heads = c.heads;
    p.kv_heads = c.kv_heads;
    p.head_dim = c.head_dim;
    p.queries = c.queries;
    p.keys = c.keys;
    p.causal = c.causal;
    p.scale = static_cast<float>(scale);
    p.q_pitch = q_pitch;
    p.kv_pitch = kv_pitch;
    p.out_pitch = out_pitch;
    return p;
  }
  AttentionBackward<bf16> backward() const {
    AttentionBackward<bf16> p{};
    p.forward = forward();
    p.dout_pitch = out_pitch;
    p.dq_pitch = q_pitch;
    p.dkv_pitch = kv_pitch;
    return p;
  }

  void run(const SdpaProblem& problem) {
    Values one{1}, scale_value{scale}, minus_infinity{-std::numeric_limits<double>::infinity()};
    Values queries{static_cast<double>(c.queries)}, keys{static_cast<double>(c.keys)};
    Values& kv = packed ? tokens : key_tokens;
    Values& dkv = packed ? dtokens : dkey_tokens;
    Memory memory{{{SdpaId::q, {&tokens}},
                   {SdpaId::k, {&kv, k_offset}},
                   {SdpaId::v, {&kv, v_offset}},
                   {SdpaId::out, {&out}},
                   {SdpaId::lse, {&lse}},
                   {SdpaId::dout, {&dout}},
                   {SdpaId::delta, {&delta}},
                   {SdpaId::dq, {&dtokens}},
                   {SdpaId::dk, {&dkv, k_offset}},
                   {SdpaId::dv, {&dkv, v_offset}},
                   {SdpaId::scale, {&scale_value}},
                   {SdpaId::minus_infinity, {&minus_infinity}},
                   {SdpaId::queries, {&queries}},
                   {SdpaId::keys, {&keys}},
                   {SdpaId::one, {&one}}}};
    const SdpaGraph graph = sdpa_graph(problem);
    const Interpreter interpreter(graph, memory);
  }

  // Our layout: token t of sequence b at (b T + t) pitch, its heads side by side.
  double q(int b, int t, int h, int d) const {
    return tokens[index_of((std::int64_t{b} * c.queries + t) * q_pitch + h * c.head_dim + d)];
  }
  double kv(std::int64_t offset, int b, int t, int h, int d) const {
    const Values& values = packed ? tokens : key_tokens;
    return values[index_of((std::int64_t{b} * c.keys + t) * kv_pitch + offset + h * c.head_dim + d)];
  }
  std::size_t out_at(int b, int t, int h, int d) const {
    return index_of((std::int64_t{b} * c.queries + t) * out_pitch + h * c.head_dim + d);
  }

  /// Compares out and lse, or dq, dk, dv and delta, with loops over one query at a time.
  void check(bool gradients) const {
    Values dq(tokens.size()), dk(key_tokens.size()), dv(key_tokens.size());
    double worst = 0;
    const auto differ = [&](double got, double expected) { keep_largest(worst, std::abs(got - expected)); };
    for (int b = 0; b < c.batch; ++b)
      for (int h = 0; h < c.heads; ++h)
        for (int i = 0; i < c.queries; ++i) query(b, h, i, gradients, dq, dk, dv, differ);
    if (gradients) {
      const Values& got = packed ? dtokens : dkey_tokens;
      for (int b = 0; b < c.batch; ++b) {
        for (int t = 0; t < c.queries; ++t)
          for (int e = 0; e < c.heads * c.head_dim; ++e) {
            const auto at = index_of((std::int64_t{b} * c.queries + t) * q_pitch + e);
            differ(dtokens[at], dq[at]);
          }
        for (int t = 0; t < c.keys; ++t)
          for (int e = 0; e < c.kv_heads * c.head_dim; ++e) {
            const std::int64_t at = (std::int64_t{b} * c.keys + t) * kv_pitch + e;
            differ(got[index_of(at + k_offset)], dk[index_of(at)]);
            differ(got[index_of(at + v_offset)], dv[index_of(at)]);
          }
      }
    }
    CHECK(worst < 1e-12);
  }

  template <class Differ>
  void query(int b, int h, int i, bool gradients, Values& dq, Values& dk, Values& dv, Differ&& differ) const {
    const int group = h / (c.heads / c.kv_heads), last = c.causal ? i + c.keys - c.queries : c.keys - 1;
    Values p(index_of(last + 1)), dp(p.size());
    double largest = -std::numeric_limits<double>::infinity(), sum = 0, centre = 0;
    for (int j = 0; j <= last; ++j) {
      double& s = p[index_of(j)];
      for (int d = 0; d < c.head_dim; ++d) s += scale * q(b, i, h, d) * kv(k_offset, b, j, group, d);
      largest = std::max(largest, s);
    }
    for (double& s : p) sum += s = std::exp(s - largest);
    for (double& s : p) s /= sum;
    const auto row = index_of((std::int64_t{b} * c.heads + h) * c.queries + i);
    if (!gradients) differ(lse[row], largest + std::log(sum));
    for (int d = 0; d < c.head_dim; ++d) {
      double expected = 0;
      for (int j = 0; j <= last; ++j) expected += p[index_of(j)] * kv(v_offset, b, j, group, d);
      if (!gradients) differ(out[out_at(b, i, h, d)], expected);
      centre += expected * dout[out_at(b, i, h, d)];
    }
    if (!gradients) return;
    differ(delta[row], centre);
    for (int j = 0; j <= last; ++j) {
      for (int d = 0; d < c.head_dim; ++d) dp[index_of(j)] += dout[out_at(b, i, h, d)] * kv(v_offset, b, j, group, d);
      const double ds = p[index_of(j)] * (dp[index_of(j)] - centre) * scale;
      for (int d = 0; d < c.head_dim; ++d) {
        const auto key = index_of((std::int64_t{b} * c.keys + j) * kv_pitch + group * c.head_dim + d);
        dq[index_of((std::int64_t{b} * c.queries + i) * q_pitch + h * c.head_dim + d)] +=
            ds * kv(k_offset, b, j, group, d);
        dk[key] += ds * q(b, i, h, d);
        dv[key] += p[index_of(j)] * dout[out_at(b, i, h, d)];
      }
    }
  }
};

const std::vector<Case> cases{
    {2, 3, 3, 8, 5, 5, false},      // several heads, packed
    {2, 4, 2, 8, 6, 6, true},       // groups of heads
    {1, 4, 1, 16, 3, 7, true, 8},   // more keys than queries: bottom right
    {2, 2, 2, 8, 4, 9, false, 16},  // full, pitches longer than a token
    {1, 2, 1, 8, 1, 5, true},       // one query sees all
    {1, 2, 2, 8, 7, 2, false, 8},   // fewer keys than queries
};

template <class Attention, class Change>
std::string refusal(const Attention& attention, Change&& change) {
  Attention changed = attention;
  change(changed);
  return cudnn_attention_cannot(changed);
}

/// A problem with a pointer for lse, which the interpreter does not need.
AttentionForward<bf16> whole(float* lse) {
  AttentionForward<bf16> p = Attention({1, 4, 2, 16, 8, 8, true}).forward();
  p.lse = lse;
  return p;
}

}  // namespace

TEST_CASE("cudnn translation: forward") {
  for (const Case& c : cases) {
    CAPTURE(c.queries);
    CAPTURE(c.keys);
    Attention attention(c);
    attention.run(translate(attention.forward()).problem);
    attention.check(false);
  }
}

TEST_CASE("cudnn translation: backward") {
  for (const Case& c : cases) {
    CAPTURE(c.queries);
    CAPTURE(c.keys);
    Attention attention(c);
    attention.run(translate(attention.forward()).problem);  // for out and lse
    attention.run(translate(attention.backward()).problem);
    attention.check(true);
  }
}

TEST_CASE("cudnn translation: a graph names each tensor once") {
  for (const Case& c : cases)
    for (const bool backward : {false, true}) {
      const Attention attention(c);
      const SdpaGraph graph =
          sdpa_graph(backward ? translate(attention.backward()).problem : translate(attention.forward()).problem);
      std::map<SdpaId, int> seen;
      for (const SdpaNode& node : graph.nodes)
        if (node.id != SdpaId::none) CHECK(++seen[node.id] == 1);
      CHECK(seen.contains(SdpaId::queries) == (c.causal && c.queries > 1 && c.queries != c.keys));
    }
}

TEST_CASE("cudnn translation: between the parts of packed gradients nothing is written") {
  Attention attention({1, 2, 1, 8, 3, 5, true, 8});
  attention.run(translate(attention.forward()).problem);
  attention.run(translate(attention.backward()).problem);
  for (int t = 0; t < 3; ++t)
    for (int e = 16; e < 24; ++e) CHECK(attention.dtokens[index_of(t * attention.q_pitch + e)] == 7);
}

TEST_CASE("cudnn translation: pointers, types, and one key for equal problems") {
  std::vector<std::uint64_t> memory(32);  // addresses only
  const auto address = [&](std::size_t i) { return reinterpret_cast<bf16*>(memory.data() + 2 * i); };
  float lse = 0, delta = 0;
  AttentionBackward<bf16> p{};
  p.forward = whole(&lse);
  p.forward.q = address(0);
  p.forward.k = address(1);
  p.forward.v = address(2);
  p.forward.out = address(3);
  p.dout = address(4);
  p.dq = address(5);
  p.dk = address(6);
  p.dv = address(7);
  p.delta = &delta;
  const SdpaCall call = translate(p);
  CHECK(call.q == address(0));
  CHECK(call.k == address(1));
  CHECK(call.v == address(2));
  CHECK(call.out == address(3));
  CHECK(call.dout == address(4));
  CHECK(call.dq == address(5));
  CHECK(call.dk == address(6));
  CHECK(call.dv == address(7));
  CHECK(call.lse == &lse);
  CHECK(call.delta == &delta);
  CHECK(call.problem == translate(p).problem);
  CHECK(call.problem != translate(p.forward).problem);
  CHECK(translate(AttentionForward<f16>{}).problem.type == SdpaType::f16);
  p.forward.kv_pitch += 8;
  CHECK(call.problem != translate(p).problem);
}

TEST_CASE("cudnn: what it cannot do is named") {
  alignas(16) float lse = 0;
  const std::int32_t first = 0;
  const AttentionForward<bf16> forward = whole(&lse);
  REQUIRE(cudnn_attention_cannot(forward) == "");
  CHECK(contains(cudnn_attention_cannot(AttentionForward<float>{}), "f32"));
  CHECK(contains(refusal(forward, [&](auto& p) { p.lse = &lse + 1; }), "16 bytes"));
  CHECK(contains(refusal(forward, [&](auto& p) { p.first_key = &first; }), "documents"));
  CHECK(contains(refusal(forward, [](auto& p) { p.queries = 9; }), "see none"));
  CHECK(contains(refusal(forward, [](auto& p) { p.head_dim = 136; }), "head dim of 136"));
  CHECK(contains(refusal(forward, [](auto& p) { p.head_dim = 12; }), "head dim of 12"));
  CHECK(contains(refusal(forward, [](auto& p) { p.kv_heads = 3; }), "not a multiple"));
  CHECK(contains(refusal(forward, [](auto& p) { p.lse = nullptr; }), "lse"));
  CHECK(contains(refusal(forward, [](auto& p) { p.keys = 0, p.causal = false; }), "no keys"));
  CHECK(contains(refusal(forward, [](auto& p) { p.out_pitch = 60; }), "multiples of 8"));
  CHECK(contains(refusal(forward, [](auto& p) { p.k = reinterpret_cast<bf16*>(std::uintptr_t{24}); }), "16 bytes"));

  AttentionBackward<bf16> backward{};
  backward.forward = forward;
  REQUIRE(cudnn_attention_cannot(backward) == "");
  CHECK(contains(refusal(backward, [&](auto& p) { p.dlse = &lse; }), "gradient of lse"));
  CHECK(contains(refusal(backward, [](auto& p) { p.forward.queries = p.forward.keys = 1; }), "one query"));
  CHECK(contains(refusal(backward, [](auto& p) { p.dkv_pitch = 4; }), "multiples of 8"));
  CHECK(contains(refusal(backward, [&](auto& p) { p.forward.first_key = &first; }), "documents"));
}

}  // namespace cudnn_problem_test
