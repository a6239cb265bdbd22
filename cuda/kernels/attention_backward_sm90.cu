// Attention backward for Hopper with TMA and wgmma; formulas: cuda/kernels/attention.h. As described there, one kernel
// makes dk and dv and another dq, and both compute the probabilities. That costs 14 Tq Tk D FLOPs a head instead of the
// 10 of a single kernel that adds dq by atomics, at most 1.4 times the time, but gives the same bits on every run.
// Blocks that wait for one another to add in order would save the FLOPs; here blocks never wait, so that they can run
// in any order.
//
// A block has a producer warp group and two consumers (three for dq at head dim 64) of 64 rows each. The tiles
// of these rows stay in shared memory; the other tiles stream through a ring, 64 rows at a time. All operands
// are read as TMA wrote them, once along rows and once along columns. p and ds go from the sums of one product
// into the A registers of the next. For dk and dv this requires computing the scores transposed, [keys,
// queries].
//
// In the kernel of keys a consumer has dk and dv [64, D], scores and their gradients [64, 64] in registers: 192 of its
// 240 at head dim 128. The exponentials of one consumer run under the products of the other.
// Read next: cuda/kernels/attention_hopper.h.
#include "cuda/kernels/attention_delta.h"
#include "cuda/kernels/attention_hopper.h"

namespace trireme::cuda {

using namespace attention;

namespace {

constexpr const char* kName = "attention_backward_sm90";
constexpr int kStep = 64;  // rows of a streamed tile

/// Two resident tiles, and a ring of streamed pairs.
template <int D_, int Consumers>
struct Shape {
  static constexpr int kD = D_, kConsumers = Consumers, kRows = 64 * Consumers, kSlots = 4;
  static constexpr int kThreads = kGroup * (Consumers + 1);
  static constexpr int kProducerRegisters = Consumers == 2 ? 24 : 32, kConsumerRegisters = Consumers == 2 ? 240 : 160;
  using Resident = SwizzledTile<kRows, kD>;
  using Streamed = SwizzledTile<kStep, kD>;
  static constexpr int kRing = 2 * Resident::kBytes, kPairBytes = 2 * Streamed::kBytes;
  static constexpr int kBarriers = kRing + kSlots * kPairBytes;
  static constexpr int kRowValues = kBarriers + Ring<kSlots>::kBytes + Ring<1>::kBytes;
};

template <class T>
struct Parameters {
  AttentionBackward<T> p;
  Order order;
  TensorMap q, k, v, dout, dq, dk, dv;
};

/// What the kernel of keys needs of each query of a streamed tile. A query that does not exist or sees no key has an
/// infinite log2_sum, which makes its probabilities 0.
struct alignas(16) QueryValues {
  float log2_sum[kStep], delta[kStep];  ///< lse in powers of two
  KeyRange visible[kStep];
  int latest_begin[2], earliest_end[2];  ///< per half: all its 32 queries see the keys between
  int exists;                            ///< 0: there are no more tiles
};

/// A block's shared memory.
template <class S>
struct Memory {
  typename S::Resident first, second;  ///< k and v, or q and dout
  std::byte* pairs;
  Ring<S::kSlots> ring;
  Ring<1> resident;
  QueryValues* values;  ///< [kSlots], in the kernel of keys
  __device__ __forceinline__ explicit Memory(std::byte* memory)
      : first{memory},
        second{memory + S::Resident::kBytes},
        pairs(memory + S::kRing),
        ring{reinterpret_cast<std::uint64_t*>(memory + S::kBarriers)},
        resident{reinterpret_cast<std::uint64_t*>(memory + S::kBarriers + Ring<S::kSlots>::kBytes)},
        values(reinterpret_cast<QueryValues*>(memory + S::kRowValues)) {}
  __device__ __forceinline__ typename S::Streamed tile(int use, int which) const {
    return {pairs + use % S::kSlots * S::kPairBytes + which * S::Streamed::kBytes};
  }
  /// Call in one thread. `fillers`: of a slot of the ring.
  __device__ __forceinline__ void init(int fillers) const {
    ring.init(fillers, 4 * S::kConsumers);
    resident.init(1, 1);
    fence_mbarrier_init();
  }
  /// Call in the copying thread: loads the resident tiles, from row `row` on.
  __device__ __forceinline__ void load_resident(const TensorMap& a, const TensorMap& b, int row, int head,
                                                int batch) const {
    mbarrier_arrive_expect(resident.full(0), 2 * S::Resident::kBytes);
    first.load(a, row, head, batch, resident.full(0));
    second.load(b, row, head, batch, resident.full(0));
  }
  /// Call in the copying thread: loads the `use`-th pair of the ring.
  __device__ __forceinline__ void load_pair(int use, const TensorMap& a, const TensorMap& b, int row, int head,
                                            int batch) const {
    ring.begin_fill(use, S::kPairBytes);
    tile(use, 0).load(a, row, head, batch, ring.full(use));
    tile(use, 1).load(b, row, head, batch, ring.full(use));
  }
};

// ---- dk and dv -------------------------------------------------------------------------------------------------------

template <class T, class S>
using Visited = QueryTiles<T, kStep, S::kRows>;

/// The producer's first warp, one lane: tiles.
template <class S, class T>
__device__ __forceinline__ void copy_queries(const Parameters<T>& parameters, const Memory<S>& memory,
                                             const Visited<T, S>& tiles, const Place& place) {
  const int group = parameters.p.forward.heads / parameters.p.forward.kv_heads;
  memory.load_resident(parameters.k, parameters.v, tiles.key, place.head, place.batch);
  int use = 0;
  for (int step = tiles.visible(0); step < tiles.steps; step = tiles.visible(step + 1), ++use)
    memory.load_pair(use, parameters.q, parameters.dout, tiles.row(step), place.head * group + tiles.member(step),
                     place.batch);
  memory.ring.begin_fill(use, 0);
}

/// The producer's second and third warp (`half` 0 and 1): a query each lane. Read from global memory while the slot is
/// not yet free.
template <class S, class T>
__device__ __forceinline__ void write_query_values(const Parameters<T>& parameters, const Memory<S>& memory,
                                                   const Visited<T, S>& tiles, const Place& place, int half) {
  const auto& p = parameters.p;
  const auto& f = p.forward;
  const int lane = static_cast<int>(threadIdx.x % 32), column = 32 * half + lane;
  int use = 0;
  for (int step = tiles.visible(0);; step = tiles.visible(step + 1), ++use) {
    const bool exists = step < tiles.steps;
    const int row = exists ? tiles.row(step) + column : f.queries;
    float log2_sum = INFINITY, delta = 0;
    KeyRange visible = {0, 0};
    int latest_begin = 0, earliest_end = f.keys;
    if (row < f.queries) {
      const int head = place.head * (f.heads / f.kv_heads) + tiles.member(step);
      const std::int64_t at = (std::int64_t{place.batch} * f.heads + head) * f.queries + row;
      const float lse = f.lse[at];
      delta = p.delta[at];
      if (lse != -INFINITY) {
        log2_sum = lse * kLog2E;
        visible = keys_of(f, place.batch, row);
        latest_begin = visible.begin;
        earliest_end = visible.begin + static_cast<int>(visible.count);
      }
    }
    latest_begin = -least_of_warp(-latest_begin);
    earliest_end = least_of_warp(earliest_end);
    memory.ring.wait_empty(use);
    QueryValues& values = memory.values[use % S::kSlots];
    values.log2_sum[column] = log2_sum;
    values.delta[column] = delta;
    values.visible[column] = visible;
    if (lane == 0) {
      values.latest_begin[half] = latest_begin;
      values.earliest_end[half] = earliest_end;
      if (half == 0) values.exists = exists ? 1 : 0;
    }
    sync_warp();
    if (lane == 0) mbarrier_arrive(memory.ring.full(use));
    if (!exists) return;
  }
}

/// Scores [64 keys, 64 queries] become probabilities. `key`: of the consumer's first row.
__device__ __forceinline__ void probabilities_of_keys(const QueryValues& values, int key, float log2_scale,
                                                      float (&scores)[kStep / 2]) {
  const int thread = static_cast<int>(threadIdx.x) % kGroup, column = thread % 4 * 2;
  TRIREME_UNROLL
  for (int i = 0; i < kStep / 2; i += 4) {
    const auto log2_sum = load_vector<Pack<float, 2>>(values.log2_sum + 2 * i + column);
    TRIREME_UNROLL
    for (int j = 0; j < 4; ++j) scores[i + j] = exp2_fast(scores[i + j] * log2_scale - log2_sum.values[j % 2]);
  }
  if (key >= values.latest_begin[0] && key >= values.latest_begin[1] && key + 64 <= values.earliest_end[0] &&
      key + 64 <= values.earliest_end[1])
    return;
  const int row = key + thread / 32 * 16 + thread % 32 / 4;
  TRIREME_UNROLL
  for (int i = 0; i < kStep / 2; ++i)
    if (!values.visible[i / 4 * 8 + column + i % 2].has(row + 8 * (i / 2 % 2))) scores[i] = 0.0F;
}

/// A consumer: dk and dv of 64 keys.
template <class S, class T>
__device__ __forceinline__ void sum_over_queries(const Parameters<T>& parameters, const Memory<S>& memory, int group,
                                                 int key, float (&dk)[S::kD / 2], float (&dv)[S::kD / 2]) {
  const float log2_scale = parameters.p.forward.scale * kLog2E;
  const int column = static_cast<int>(threadIdx.x % 4) * 2;
  float scores[kStep / 2], gradients[kStep / 2];
  std::uint32_t weights[kStep / 4], ds[kStep / 4];
  memory.resident.wait_full(0);
  for (int use = 0;; ++use) {
    memory.ring.wait_full(use);
    const QueryValues& values = memory.values[use % S::kSlots];
    if (values.exists == 0) break;
    issue_rows_product<T>(memory.first, 64 * group, memory.tile(use, 0), scores);  // [64 keys, 64 queries]
    issue_rows_product<T>(memory.second, 64 * group, memory.tile(use, 1), gradients);
    wait_product<1>(scores);
    sync_warp();                                // all lanes have read the values of the queries before
    if (use > 0) memory.ring.release(use - 1);  // issued before the scores: dk's product with that pair has ended
    probabilities_of_keys(values, key + 64 * group, log2_scale, scores);
    pack_weights<T>(scores, weights);
    issue_weighted_sum<T>(weights, memory.tile(use, 1), dv);
    wait_product<1>(gradients);
    TRIREME_UNROLL
    for (int i = 0; i < kStep / 2; i += 4) {
      const auto delta = load_vector<Pack<float, 2>>(values.delta + 2 * i + column);
      TRIREME_UNROLL
      for (int j = 0; j < 4; ++j) gradients[i + j] = scores[i + j] * (gradients[i + j] - delta.values[j % 2]);
    }
    pack_weights<T>(gradients, ds);
    issue_weighted_sum<T>(ds, memory.tile(use, 0), dk);
    // The product of dk may overlap with the next scores, unless its operand's registers are needed. ptxas, short of
    // registers, would then move sums and serialise every product.
    wait_product<S::kD <= 64 ? 1 : 0>(dv);
  }
  wait_product<0>(dk);
}

template <class T, class S>
__global__ void __launch_bounds__(S::kThreads, 1) keys_kernel(const __grid_constant__ Parameters<T> parameters) {
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
  TRIREME_DYNAMIC_SHARED(bytes, 1024);
  const Memory<S> memory(bytes);
  const int thread = static_cast<int>(threadIdx.x);
  const Place place = parameters.order.at(static_cast<int>(blockIdx.x));
  const int key = place.tile * S::kRows;
  if (thread == 0) memory.init(3);
  sync_threads();
  if (thread < kGroup) {
    set_max_registers_down<S::kProducerRegisters>();
    const Visited<T, S> tiles(parameters.p, place.batch, key);
    if (thread == 0) copy_queries<S>(parameters, memory, tiles, place);
    if (thread / 32 == 1 || thread / 32 == 2) write_query_values<S>(parameters, memory, tiles, place, thread / 32 - 1);
  } else {
    set_max_registers_up<S::kConsumerRegisters>();
    const int group = consumer_group(), lane = thread % 32, row = thread / 32 * 16 - 64;
    float dk[S::kD / 2], dv[S::kD / 2];
    TRIREME_UNROLL
    for (int i = 0; i < S::kD / 2; ++i) dk[i] = dv[i] = 0.0F;
    sum_over_queries<S>(parameters, memory, group, key, dk, dv);
    barrier_sync(1 + group, kGroup);  // the other warps' products have read the keys and values
    const float scale = parameters.p.forward.scale;
    store_sums<T>(dk, {scale, scale}, memory.first, row, parameters.dk, key + row, place.head, place.batch);
    store_sums<T>(dv, {1, 1}, memory.second, row, parameters.dv, key + row, place.head, place.batch);
    if (lane == 0) tma_store_wait<0>();
  }
#else
  __trap();  // compiled for another architecture, and started all the same
#endif
}

// ---- dq --------------------------------------------------------------------------------------------------------------

/// A thread's data on its rows, `row` and `row` + 8, in the kernel of queries.
template <class T>
struct Rows {
  KeyRange visible[2];
  int latest_begin = 0, earliest_end;  ///< all rows of the warp see the keys between
  float log2_sum[2] = {INFINITY, INFINITY}, delta[2] = {0, 0};

  __device__ __forceinline__ Rows(const AttentionBackward<T>& p, const Place& place, int row)
      : earliest_end(p.forward.keys) {
    const auto& f = p.forward;
    TRIREME_UNROLL
    for (int half = 0; half < 2; ++half) {
      visible[half] = keys_of(f, place.batch, row + 8 * half);
      if (row + 8 * half >= f.queries) continue;
      const std::int64_t at = (std::int64_t{place.batch} * f.heads + place.head) * f.queries + row + 8 * half;
      const float lse = f.lse[at];
      if (lse == -INFINITY) continue;
      log2_sum[half] = lse * kLog2E;
      delta[half] = p.delta[at];
      const int begin = visible[half].begin, end = begin + static_cast<int>(visible[half].count);
      latest_begin = begin > latest_begin ? begin : latest_begin;
      earliest_end = end < earliest_end ? end : earliest_end;
    }
    latest_begin = -least_of_warp(-latest_begin);
    earliest_end = least_of_warp(earliest_end);
  }
  /// Scores [64 queries, 64 keys from `key` on] become probabilities.
  __device__ __forceinline__ void probabilities(int key, float log2_scale, float (&scores)[kStep / 2]) const {
    TRIREME_UNROLL
    for (int i = 0; i < kStep / 2; ++i) scores[i] = exp2_fast(scores[i] * log2_scale - log2_sum[i / 2 % 2]);
    if (key >= latest_begin && key + kStep <= earliest_end) return;
    const int first = key + static_cast<int>(threadIdx.x % 4) * 2;
    TRIREME_UNROLL
    for (int i = 0; i < kStep / 2; ++i)
      if (!visible[i / 2 % 2].has(first + 8 * (i / 4) + i % 2)) scores[i] = 0.0F;
  }
};

/// A consumer: dq of 64 queries, over `count` tiles of keys from `begin` on.
template <class S, class T>
__device__ __forceinline__ void sum_over_keys(const Parameters<T>& parameters, const Memory<S>& memory, int group,
                                              const Rows<T>& rows, int begin, int count, float (&dq)[S::kD / 2]) {
  const float log2_scale = parameters.p.forward.scale * kLog2E;
  float scores[kStep / 2], gradients[kStep / 2];
  std::uint32_t ds[kStep / 4];
  memory.resident.wait_full(0);
  for (int step = 0; step < count; ++step) {
    memory.ring.wait_full(step);
    issue_rows_product<T>(memory.first, 64 * group, memory.tile(step, 0), scores);
    issue_rows_product<T>(memory.second, 64 * group, memory.tile(step, 1), gradients);
    wait_product<1>(scores);
    if (step > 0) memory.ring.release(step - 1);  // issued before the scores: dq's product with that pair has ended
    rows.probabilities((begin + step) * kStep, log2_scale, scores);
    wait_product<0>(gradients);
    TRIREME_UNROLL
    for (int i = 0; i < kStep / 2; ++i) gradients[i] = scores[i] * (gradients[i] - rows.delta[i / 2 % 2]);
    pack_weights<T>(gradients, ds);
    issue_weighted_sum<T>(ds, memory.tile(step, 0), dq);
  }
  wait_product<0>(dq);
}

template <class T, class S>
__global__ void __launch_bounds__(S::kThreads, 1) queries_kernel(const __grid_constant__ Parameters<T> parameters) {
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
  TRIREME_DYNAMIC_SHARED(bytes, 1024);
  const Memory<S> memory(bytes);
  const auto& f = parameters.p.forward;
  const int thread = static_cast<int>(threadIdx.x);
  const Place place = parameters.order.at(static_cast<int>(blockIdx.x));
  const int first = place.tile * S::kRows;
  if (thread == 0) memory.init(1);
  sync_threads();
  const int begin = first_key_of_rows<S::kRows>(f, place.batch, first) / kStep;
  const int end = (keys_end<S::kRows>(f, first) + kStep - 1) / kStep;
  if (thread < kGroup) {
    set_max_registers_down<S::kProducerRegisters>();
    if (thread != 0) return;
    memory.load_resident(parameters.q, parameters.dout, first, place.head, place.batch);
    for (int tile = begin; tile < end; ++tile)
      memory.load_pair(tile - begin, parameters.k, parameters.v, tile * kStep, place.head / (f.heads / f.kv_heads),
                       place.batch);
  } else {
    set_max_registers_up<S::kConsumerRegisters>();
    const int group = consumer_group(), lane = thread % 32, row = thread / 32 * 16 - 64;
    const Rows<T> rows(parameters.p, place, first + row + lane / 4);
    float dq[S::kD / 2];
    TRIREME_UNROLL
    for (int i = 0; i < S::kD / 2; ++i) dq[i] = 0.0F;
    sum_over_keys<S>(parameters, memory, group, rows, begin, end - begin, dq);
    barrier_sync(1 + group, kGroup);  // the other warps' products have read the queries
    store_sums<T>(dq, {f.scale, f.scale}, memory.first, row, parameters.dq, first + row, place.head, place.batch);
    if (lane == 0) tma_store_wait<0>();
  }
#else
  __trap();  // compiled for another architecture, and started all the same
#endif
}

// ---- starting --------------------------------------------------------------------------------------------------------

template <class KeysShape, class QueriesShape, class T>
void start(const AttentionBackward<T>& p, Stream stream) {
  const auto& f = p.forward;
  const int group = f.heads / f.kv_heads;
  const auto map = [&](const char* name, const T* base, bool of_keys, std::int64_t pitch, int box) {
    return tensor_map(kName, TiledHeads{name, base, f.head_dim, of_keys ? f.kv_heads : f.heads,
                                        of_keys ? f.keys : f.queries, f.batch, pitch, box});
  };
  const auto start_kernel = [&]<class S>(const char* name, auto* kernel, bool of_keys, std::size_t more_bytes, S) {
    static_assert(S::kRowValues + S::kSlots * sizeof(QueryValues) <= 227 * 1024);
    const int rows = of_keys ? f.keys : f.queries, heads = of_keys ? f.kv_heads : f.heads, units = heads * f.batch;
    if (rows == 0) return;
    // For a head of keys, the queries of its group are streamed; for a group's heads of queries, keys and values.
    const std::int64_t streamed = std::int64_t{4} * f.head_dim * (of_keys ? f.queries * group : f.keys);
    const Order order{(rows + S::kRows - 1) / S::kRows, heads, units,
                      heads_of_section(streamed, of_keys ? 1 : group, units), f.causal && !of_keys};
    Parameters<T> parameters{p, order, {}, {}, {}, {}, {}, {}, {}};
    const int key_box = of_keys ? S::kRows : kStep, query_box = of_keys ? kStep : S::kRows;
    if (f.keys > 0) {  // TMA has no empty tensors, and empty ones are never read
      parameters.k = map("k", f.k, true, f.kv_pitch, key_box);
      parameters.v = map("v", f.v, true, f.kv_pitch, key_box);
    }
    if (f.queries > 0) {
      parameters.q = map("q", f.q, false, f.q_pitch, query_box);
      parameters.dout = map("dout", p.dout, false, p.dout_pitch, query_box);
    }
    // Only what this kernel stores: the host's time for each map adds to that of a launch.
    if (of_keys) {
      parameters.dk = map("dk", p.dk, true, p.dkv_pitch, 16);
      parameters.dv = map("dv", p.dv, true, p.dkv_pitch, 16);
    } else {
      parameters.dq = map("dq", p.dq, false, p.dq_pitch, 16);
    }
    launch({name,
            {static_cast<unsigned>(order.count()), 1, 1},
            {S::kThreads, 1, 1},
            static_cast<std::size_t>(S::kRowValues) + more_bytes,
            stream},
           kernel, parameters);
  };
  start_kernel("attention_backward_sm90 keys", &keys_kernel<T, KeysShape>, true,
               KeysShape::kSlots * sizeof(QueryValues), KeysShape{});
  start_kernel("attention_backward_sm90 queries", &queries_kernel<T, QueriesShape>, false, 0, QueriesShape{});
}

}  // namespace

template <class T>
void attention_backward_sm90(const AttentionBackward<T>& p, Stream stream) {
  require_backward(p, kName);
  if (p.forward.batch == 0) return;
  attention_delta(p, stream);
  if (p.forward.head_dim <= 64)
    start<Shape<64, 2>, Shape<64, 3>>(p, stream);
  else
    start<Shape<128, 2>, Shape<128, 2>>(p, stream);
}

template void attention_backward_sm90(const AttentionBackward<bf16>&, Stream);
template void attention_backward_sm90(const AttentionBackward<f16>&, Stream);

}  // namespace trireme::cuda
