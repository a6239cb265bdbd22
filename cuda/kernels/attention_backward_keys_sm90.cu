// dk and dv of attention's backward for Hopper, with TMA and wgmma; formulas: cuda/kernels/attention.h. Two consumers
// of 64 keys each; q and dout are streamed. All operands are read as TMA wrote them, once along rows and once along
// columns. p and ds go from the sums of one product into the A registers of the next. This requires computing the
// scores transposed, [keys, queries].
//
// A consumer has dk and dv [64, D], scores and their gradients [64, 64] in registers: 192 of its 240 at head dim 128.
// The exponentials of one consumer run under the products of the other.
// Read next: cuda/kernels/attention_backward_hopper.h.
#include "cuda/kernels/attention_backward_hopper.h"

namespace trireme::cuda {

using namespace attention;
using namespace attention::backward;

namespace {

/// What the kernel of keys needs of each query of a streamed tile. A query that does not exist or sees no key has an
/// infinite log2_sum, which makes its probabilities 0.
struct alignas(16) QueryValues {
  float log2_sum[kStep], delta[kStep];  ///< lse in powers of two
  KeyRange visible[kStep];
  int latest_begin[2], earliest_end[2];  ///< per half: all its 32 queries see the keys between
  int exists;                            ///< 0: the block's tile has no more queries
};

template <class S>
struct KeysMemory : Memory<S> {
  QueryValues* values;  ///< [kSlots]
  __device__ __forceinline__ explicit KeysMemory(std::byte* memory)
      : Memory<S>(memory), values(reinterpret_cast<QueryValues*>(memory + S::kSharedBytes)) {}
};

/// The tiles of queries that see a key of a tile of keys, in order: for each head of the group, its tiles. This needs
/// no division for each tile, and few registers, of which a producer has 24.
template <class S, class T>
struct Visit {
  const Parameters<T>& parameters;
  const Place place;
  int member = 0, tile;  ///< now: of the group's heads, and of its tiles
  static_assert(kStep == kRows, "first_tile is of 64 queries");

  __device__ __forceinline__ Visit(const Parameters<T>& all, const Place& of_keys)
      : parameters(all), place(of_keys), tile(begin()) {
    find();
  }
  __device__ __forceinline__ bool exists() const { return member < parameters.group; }
  __device__ __forceinline__ void next() {
    ++tile;
    find();
  }
  __device__ __forceinline__ int head() const { return place.head * parameters.group + member; }

 private:
  /// The first tile of every head.
  __device__ __forceinline__ int begin() const {
    const auto& f = parameters.p.forward;
    const int sees_key = place.tile * S::kRows - (f.keys - f.queries);  // the first query that does, when causal
    return f.causal && sees_key > 0 ? sees_key / kStep : 0;
  }
  __device__ __forceinline__ void find() {
    for (; member < parameters.group; ++member, tile = begin())
      for (; tile < parameters.query_tiles; ++tile)
        if (parameters.p.forward.first_key == nullptr ||
            parameters.p.first_tile[place.batch * parameters.query_tiles + tile] < (place.tile + 1) * S::kRows)
          return;
  }
};

/// The producer's first warp, one lane: tiles. Copies the first queries of a tile while the one before is stored.
template <class S, class T>
__device__ __forceinline__ void copy_queries(const Parameters<T>& parameters, const KeysMemory<S>& memory) {
  const Order& order = parameters.order;
  int use = 0;
  for (int index = order.first(), turn = 0; index < order.count(); index = order.next(index), ++turn) {
    const Place place = order.at(index);
    Visit<S, T> visit(parameters, place);
    for (bool resident = false;; resident = true) {
      const bool exists = visit.exists();
      if (exists) memory.load_pair(use++, parameters.q, parameters.dout, visit.tile * kStep, visit.head(), place.batch);
      if (!resident)
        memory.load_resident(turn, parameters.k, parameters.v, place.tile * S::kRows, place.head, place.batch);
      if (!exists) break;
      visit.next();
    }
    memory.ring.begin_fill(use++, 0);
  }
}

/// The producer's second and third warp, for one tile: a query each lane. Read from global memory while
/// the slot is not yet free.
template <class S, class T>
__device__ __forceinline__ void write_query_values(const Parameters<T>& parameters, const KeysMemory<S>& memory,
                                                   const Place& place, int& use) {
  const auto& p = parameters.p;
  const auto& f = p.forward;
  const unsigned lane = threadIdx.x % 32, half = threadIdx.x / 32 - 1, column = threadIdx.x - 32;
  for (Visit<S, T> visit(parameters, place);; visit.next()) {
    const bool exists = visit.exists();
    const int row = exists ? visit.tile * kStep + static_cast<int>(column) : f.queries;
    float log2_sum = INFINITY, delta = 0;
    KeyRange visible = {0, 0};
    int latest_begin = 0, earliest_end = f.keys;
    if (row < f.queries) {
      const std::int64_t at = (std::int64_t{place.batch} * f.heads + visit.head()) * f.queries + row;
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
    ++use;
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

/// A consumer: dk and dv of 64 keys, `key` and on. `use`: of the ring, where this tile begins.
template <class S, class T>
__device__ __forceinline__ void sum_over_queries(const Parameters<T>& parameters, const KeysMemory<S>& memory,
                                                 int group, int turn, int key, int& use, float (&dk)[S::kD / 2],
                                                 float (&dv)[S::kD / 2]) {
  const float log2_scale = parameters.p.forward.scale * kLog2E;
  const int column = static_cast<int>(threadIdx.x % 4) * 2;
  float scores[kStep / 2], gradients[kStep / 2];
  std::uint32_t weights[kStep / 4], ds[kStep / 4];
  const int begin = use;
  // Of the pair before this one: its last product was issued before the newest scores, and has ended.
  const auto release = [&] {
    sync_warp();  // all lanes have read the values of its queries
    if (use > begin)
      memory.ring.release(use - 1);
    else
      memory.end_turn_before(turn);
  };
  memory.resident.wait_full(turn);
  for (;; ++use) {
    memory.ring.wait_full(use);
    const QueryValues& values = memory.values[use % S::kSlots];
    if (values.exists == 0) break;
    issue_rows_product<T>(memory.resident_tile(turn, 0), 64 * group, memory.tile(use, 0), scores);  // [64 keys, 64]
    issue_rows_product<T>(memory.resident_tile(turn, 1), 64 * group, memory.tile(use, 1), gradients);
    wait_product<1>(scores);
    release();
    probabilities_of_keys(values, key, log2_scale, scores);
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
  release();
  memory.ring.release(use++);
}

template <class S, class T>
__device__ __forceinline__ void consume_queries(const Parameters<T>& parameters, const KeysMemory<S>& memory) {
  const Order& order = parameters.order;
  const int group = consumer_group(), row = static_cast<int>(threadIdx.x) / 32 * 16 - 64;
  const float scale = parameters.p.forward.scale;
  int use = 0;
  for (int index = order.first(), turn = 0; index < order.count(); index = order.next(index), ++turn) {
    const Place place = order.at(index);
    const int key = place.tile * S::kRows;
    float dk[S::kD / 2], dv[S::kD / 2];
    TRIREME_UNROLL
    for (int i = 0; i < S::kD / 2; ++i) dk[i] = dv[i] = 0.0F;
    use = shuffle(use, 0);  // tells the compiler that all lanes have the same
    sum_over_queries<S>(parameters, memory, group, turn, key + 64 * group, use, dk, dv);
    barrier_sync(1 + group, kGroup);  // the other warps' products have read the keys and values
    store_sums<T>(dk, {scale, scale}, memory.resident_tile(turn, 0), row, parameters.dk, key + row, place.head,
                  place.batch);
    store_sums<T>(dv, {1, 1}, memory.resident_tile(turn, 1), row, parameters.dv, key + row, place.head, place.batch);
    memory.end_turn(turn);
  }
  if (threadIdx.x % 32 == 0) tma_store_wait<0>();
}

template <class T, class S>
__global__ void __launch_bounds__(S::kThreads, 1) keys_kernel(const __grid_constant__ Parameters<T> parameters) {
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
  TRIREME_DYNAMIC_SHARED(bytes, 1024);
  const KeysMemory<S> memory(bytes);
  const int thread = static_cast<int>(threadIdx.x);
  if (thread == 0) {
    for (const TensorMap* map : {&parameters.q, &parameters.dout, &parameters.k, &parameters.v}) tma_prefetch(*map);
    memory.init(3);
  }
  sync_threads();
  if (thread < kGroup) {
    set_max_registers_down<S::kProducerRegisters>();
    if (thread == 0) copy_queries<S>(parameters, memory);
    if (thread / 32 == 1 || thread / 32 == 2) {
      const Order& order = parameters.order;
      int use = 0;
      for (int index = order.first(); index < order.count(); index = order.next(index))
        write_query_values<S>(parameters, memory, order.at(index), use);
    }
  } else {
    set_max_registers_up<S::kConsumerRegisters>();
    consume_queries<S>(parameters, memory);
  }
#else
  __trap();  // compiled for another architecture, and started all the same
#endif
}

template <class S, class T>
void start_keys(const AttentionBackward<T>& p, Stream stream) {
  constexpr std::size_t kValueBytes = S::kSlots * sizeof(QueryValues);
  static_assert(S::kSharedBytes + kValueBytes <= 227 * 1024, "more shared memory than a block of sm_90 can have");
  start<S, true>("attention_backward_sm90 keys", &keys_kernel<T, S>, p, kValueBytes, stream);
}

}  // namespace

template <class T>
void attention_backward_keys_sm90(const AttentionBackward<T>& p, Stream stream) {
  if (p.forward.head_dim <= 64)
    start_keys<Shape<64, 2>>(p, stream);
  else
    start_keys<Shape<128, 2>>(p, stream);
}

template void attention_backward_keys_sm90(const AttentionBackward<bf16>&, Stream);
template void attention_backward_keys_sm90(const AttentionBackward<f16>&, Stream);

}  // namespace trireme::cuda
