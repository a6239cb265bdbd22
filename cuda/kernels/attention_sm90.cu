// Attention forward for Hopper: TMA fills a ring with keys and values, wgmma multiplies from it; formulas and bytes:
// cuda/kernels/attention.h.
//
// A block is a producer warp group, which copies, and consumers of 64 queries each: two at head dim 128; at 64 three,
// or two if a causal mask hides many of the keys that three would read. A consumer has scores [64, 128] and output
// [64, D] in registers. Three things keep the tensor cores busy:
//   - the scores of the next keys are issued before the products with the values of these, so that the softmax of the
//     next runs under them;
//   - consumers take turns to issue (named barriers), so that they do not all come to their softmax at once
//     (Shah et al., FlashAttention-3, 2024, section 3);
//   - blocks are persistent, and the producer copies the next tile's queries and first keys while the consumers finish
//     this one. Queries have two places in shared memory for that.
//
// Keys are visited from the last to the first, so that when causal the tiles that need a mask come first. Tiles of
// queries with the most keys come first, and blocks take them in alternating order, so that all blocks end at about the
// same time. The heads processed at the same time are those whose keys and values fit into L2 together.
// Read next: cuda/kernels/attention_hopper.h; docs/cuda.md, "Attention on Hopper".
#include "cuda/device/persistent.h"
#include "cuda/kernels/attention_hopper.h"

namespace trireme::cuda {

using namespace attention;

namespace {

constexpr const char* kName = "attention_sm90";

template <int D_, int Consumers, int Keys>
struct Shape {
  static constexpr int kD = D_, kConsumers = Consumers, kQueries = 64 * Consumers, kKeys = Keys, kSlots = 4, kTiles = 2;
  static constexpr int kThreads = kGroup * (Consumers + 1);
  // 65536 of a multiprocessor: 128 (24 + 2 240) or 128 (32 + 3 160).
  static constexpr int kProducerRegisters = Consumers == 2 ? 24 : 32, kConsumerRegisters = Consumers == 2 ? 240 : 160;
  using Queries = SwizzledTile<kQueries, kD>;
  using KeyTile = SwizzledTile<kKeys, kD>;  // of keys, and of values
  static constexpr int kBarriers = kTiles * Queries::kBytes + kSlots * KeyTile::kBytes;
  static constexpr int kWork = kBarriers + Ring<kSlots>::kBytes + Ring<kTiles>::kBytes;
  static constexpr int kSharedBytes = kWork + kTiles * 32;
  static_assert(kSharedBytes <= 227 * 1024, "more shared memory than a block of sm_90 can have");
};

/// A tile of queries, as the producer passes it to the consumers.
struct Work {
  int first, head, batch;  ///< the first query; below 0: there is no more work
  int begin, end;          ///< the key tiles to visit, from the last to the first; none if begin >= end
};

template <class T>
struct Parameters {
  AttentionForward<T> p;
  Order order;
  TensorMap q, k, v, out;
};

/// The place in shared memory of a tile: its queries, which its output replaces, and its description.
template <class S>
struct QueryTile {
  typename S::Queries q;
  Work* work;
};

/// A block's shared memory.
template <class S>
struct Memory {
  std::byte* memory;
  Ring<S::kSlots> ring;  ///< uses 2 n and 2 n + 1: the keys and values of step n, counted over all tiles of the block
  Ring<S::kTiles> queries;  ///< use n: the n-th tile of the block
  __device__ __forceinline__ explicit Memory(std::byte* bytes)
      : memory(bytes),
        ring{reinterpret_cast<std::uint64_t*>(bytes + S::kBarriers)},
        queries{reinterpret_cast<std::uint64_t*>(bytes + S::kBarriers + Ring<S::kSlots>::kBytes)} {}
  /// The keys or values of a use of `ring`.
  __device__ __forceinline__ typename S::KeyTile keys(int use) const {
    return {memory + S::kTiles * S::Queries::kBytes + use % S::kSlots * S::KeyTile::kBytes};
  }
  /// Call in a whole warp, when it has issued its first products of a turn, or has none: so it does not wait for its
  /// output of the turn before, which TMA reads from that tile's place.
  __device__ __forceinline__ void end_turn_before(int turn) const {
    static_assert(S::kTiles == 2, "the tile of the turn before has a place of its own");
    if (turn == 0) return;
    if (threadIdx.x % 32 == 0) tma_store_wait<0>();
    queries.release(turn - 1);
  }
  __device__ __forceinline__ QueryTile<S> tile(int turn) const {
    const int place = turn % S::kTiles;
    return {{memory + place * S::Queries::kBytes}, reinterpret_cast<Work*>(memory + S::kWork + place * 32)};
  }
};

/// Runs in one warp, whose first lane copies. It writes each tile's description beside its queries for the consumers.
template <class S, class T>
__device__ __forceinline__ void produce(const Parameters<T>& parameters, const Memory<S>& memory) {
  const auto& p = parameters.p;
  const bool copies = threadIdx.x % 32 == 0;
  const Order& order = parameters.order;
  int use = 0, turn = 0;
  for (int index = order.first(); index < order.count(); index = order.next(index), ++turn) {
    const Place place = order.at(index);
    const int first = place.tile * S::kQueries, kv_head = place.head / (p.heads / p.kv_heads);
    const int begin = first_key_of_rows<S::kQueries>(p, place.batch, first) / S::kKeys;  // by all lanes
    const int end = (keys_end<S::kQueries>(p, first) + S::kKeys - 1) / S::kKeys;
    if (copies) {
      const auto copy = [&](const TensorMap& map, int key_tile) {
        memory.ring.begin_fill(use, S::KeyTile::kBytes);
        memory.keys(use).load(map, key_tile * S::kKeys, kv_head, place.batch, memory.ring.full(use));
        ++use;
      };
      const QueryTile<S> tile = memory.tile(turn);
      memory.queries.wait_empty(turn);
      *tile.work = {first, place.head, place.batch, begin * S::kKeys, end * S::kKeys};
      mbarrier_arrive_expect(memory.queries.full(turn), S::Queries::kBytes);
      tile.q.load(parameters.q, first, place.head, place.batch, memory.queries.full(turn));
      for (int key_tile = end - 1; key_tile >= begin; --key_tile) {
        copy(parameters.k, key_tile);
        copy(parameters.v, key_tile);
      }
    }
    sync_warp();
  }
  if (!copies) return;
  memory.queries.wait_empty(turn);
  memory.tile(turn).work->first = -1;
  mbarrier_arrive(memory.queries.full(turn));
}

/// This thread's first row in the block's tile; the second is eight further down.
__device__ __forceinline__ int row_of_thread() {
  const int thread = static_cast<int>(threadIdx.x);
  return thread / 32 * 16 - 64 + thread % 32 / 4;  // warps 0 to 3 are the producer's
}

/// The softmax of this thread's two rows so far: the maximum of the scores, and the sum of the exponentials over its
/// own columns. Other data on the rows is looked up again when needed: registers are scarce in the
/// products.
template <class T, int N>
struct Rows {
  const AttentionForward<T>& p;
  const Work* work;
  int latest_begin = 0;  ///< the largest first key of the warp's rows
  float maximum[2] = {-INFINITY, -INFINITY};
  float sum[2] = {0, 0};

  __device__ __forceinline__ Rows(const AttentionForward<T>& attention, const Work* of_tile)
      : p(attention), work(of_tile) {
    if (p.first_key == nullptr) return;
    const int row = work->first + row_of_thread();
    const int begin = visible(row).begin, next = visible(row + 8).begin;
    latest_begin = -least_of_warp(begin > next ? -begin : -next);
  }
  __device__ __forceinline__ KeyRange visible(int row) const { return keys_of(p, work->batch, row); }
  /// True if all rows of the warp see the N keys from `key` on. Rows past the end do not matter: they are not stored.
  __device__ __forceinline__ bool all_see(int key) const {
    const int causal_end = work->first + row_of_thread() / 16 * 16 + p.keys - p.queries + 1;
    return key >= latest_begin && key + N <= (p.causal && causal_end < p.keys ? causal_end : p.keys);
  }

  /// Masks the columns, which are the keys from `key` on.
  __device__ __forceinline__ void mask(int key, float (&scores)[N / 2]) const {
    if (all_see(key)) return;
    const int row = work->first + row_of_thread();
    const KeyRange range[2] = {visible(row), visible(row + 8)};
    const int first = key + static_cast<int>(threadIdx.x % 4) * 2;
    TRIREME_UNROLL
    for (int i = 0; i < N / 2; ++i)
      if (!range[i / 2 % 2].has(first + 8 * (i / 4) + i % 2)) scores[i] = -INFINITY;
  }

  /// Turns scores into exponentials; `rescale`: the factor from sums under the old maximum to the new one.
  __device__ __forceinline__ void softmax(float (&scores)[N / 2], float (&rescale)[2]) {
    const float log2_scale = p.scale * kLog2E;
    TRIREME_UNROLL
    for (int half = 0; half < 2; ++half) {
      float largest = maximum[half];
      TRIREME_UNROLL
      for (int i = 2 * half; i < N / 2; i += 4) largest = fmaxf(largest, fmaxf(scores[i], scores[i + 1]));
      largest = fmaxf(largest, shuffle_xor(largest, 1));
      largest = fmaxf(largest, shuffle_xor(largest, 2));
      const float base = largest == -INFINITY ? 0.0F : largest * log2_scale;  // no key seen yet: exponentials are 0
      rescale[half] = exp2_fast(maximum[half] * log2_scale - base);
      maximum[half] = largest;
      sum[half] *= rescale[half];
      TRIREME_UNROLL
      for (int i = 2 * half; i < N / 2; i += 4) {
        scores[i] = exp2_fast(scores[i] * log2_scale - base);
        scores[i + 1] = exp2_fast(scores[i + 1] * log2_scale - base);
        sum[half] += scores[i] + scores[i + 1];
      }
    }
  }

  /// One over the whole row's sum, 0 if the row sees no key; and the row's log-sum-exp.
  __device__ __forceinline__ float finish(int half, float& lse) const {
    float total = sum[half] + shuffle_xor(sum[half], 1);
    total += shuffle_xor(total, 2);
    lse = total > 0 ? maximum[half] * p.scale + logf(total) : -INFINITY;
    return total > 0 ? 1.0F / total : 0.0F;
  }
};

/// Makes the consumers issue their products one after another. Each has a barrier at which it waits and the previous
/// one arrives.
template <int Consumers>
struct OrderedBarrier {
  int group;
  /// The last consumer lets the first begin.
  __device__ __forceinline__ void begin() const {
    if (group == Consumers - 1) arrive_at_next();
  }
  __device__ __forceinline__ void wait() const { barrier_sync(1 + group, 2 * kGroup); }
  __device__ __forceinline__ void arrive_at_next() const { barrier_arrive(1 + (group + 1) % Consumers, 2 * kGroup); }
  /// The first consumer waits for the last consumer's final arrival.
  __device__ __forceinline__ void end() const {
    if (group == 0) wait();
  }
};

/// out [64, D] and the softmax of a consumer's queries. `use`: of the ring, where this tile begins. Each iteration
/// begins by waiting for the weighted sum of the previous one. Without the loop edge between them, ptxas moves the wait
/// before the exponentials, which should overlap with that sum.
template <class S, class T>
__device__ __forceinline__ void attend(const Memory<S>& memory, int turn, int group, int& use, Rows<T, S::kKeys>& rows,
                                       float (&out)[S::kD / 2]) {
  const OrderedBarrier<S::kConsumers> order{group};
  const QueryTile<S> tile = memory.tile(turn);
  const int begin = tile.work->begin;
  int key = tile.work->end - S::kKeys;
  float scores[S::kKeys / 2], rescale[2];
  std::uint32_t weights[S::kKeys / 4];
  order.wait();
  memory.ring.wait_full(use);
  issue_rows_product<T>(tile.q, 64 * group, memory.keys(use), scores);
  order.arrive_at_next();
  memory.end_turn_before(turn);
  wait_product<0>(scores);
  memory.ring.release(use);
  rows.mask(key, scores);
  rows.softmax(scores, rescale);
  bool summed = false;
  const auto take_weights = [&] {
    wait_product<0>(out);
    if (summed) memory.ring.release(use - 1);
    TRIREME_UNROLL
    for (int i = 0; i < S::kD / 2; ++i) out[i] *= rescale[i / 2 % 2];
    pack_weights<T>(scores, weights);
  };
  for (key -= S::kKeys; key >= begin; key -= S::kKeys) {
    take_weights();
    order.wait();
    memory.ring.wait_full(use + 2);
    issue_rows_product<T>(tile.q, 64 * group, memory.keys(use + 2), scores);
    memory.ring.wait_full(use + 1);
    issue_weighted_sum<T>(weights, memory.keys(use + 1), out);
    order.arrive_at_next();
    wait_product<1>(scores);
    memory.ring.release(use + 2);
    rows.mask(key, scores);
    rows.softmax(scores, rescale);
    summed = true;
    use += 2;
  }
  take_weights();
  memory.ring.wait_full(use + 1);
  issue_weighted_sum<T>(weights, memory.keys(use + 1), out);
  wait_product<0>(out);
  memory.ring.release(use + 1);
  use += 2;
}

/// Writes a consumer's results, through the place of its queries.
template <class S, class T>
__device__ __forceinline__ void finish(const Parameters<T>& parameters, const QueryTile<S>& tile, int group,
                                       const Rows<T, S::kKeys>& rows, const float (&out)[S::kD / 2]) {
  const auto& p = parameters.p;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32;
  const int warp_row = thread / 32 * 16 - 64;
  // Read again: keeping it in registers since the tile began would have cost the products registers.
  const Work work = *tile.work;
  float inverse[2];
  TRIREME_UNROLL
  for (int half = 0; half < 2; ++half) {
    const int row = work.first + row_of_thread() + 8 * half;
    float lse;
    inverse[half] = rows.finish(half, lse);
    if (lane % 4 == 0 && row < p.queries)
      p.lse[(std::int64_t{work.batch} * p.heads + work.head) * p.queries + row] = lse;
  }
  barrier_sync(1 + S::kConsumers + group, kGroup);  // the other warps' products have read the queries
  store_sums<T>(out, inverse, tile.q, warp_row, parameters.out, work.first + warp_row, work.head, work.batch);
}

template <class S, class T>
__device__ __forceinline__ void consume(const Parameters<T>& parameters, const Memory<S>& memory) {
  const int group = consumer_group();
  const OrderedBarrier<S::kConsumers> order{group};
  order.begin();
  int use = 0;
  for (int turn = 0;; ++turn) {
    const QueryTile<S> tile = memory.tile(turn);
    memory.queries.wait_full(turn);
    if (tile.work->first < 0) break;
    Rows<T, S::kKeys> rows(parameters.p, tile.work);
    float out[S::kD / 2];
    TRIREME_UNROLL
    for (int i = 0; i < S::kD / 2; ++i) out[i] = 0.0F;
    if (tile.work->begin < tile.work->end)
      attend<S>(memory, turn, group, use, rows, out);
    else
      memory.end_turn_before(turn);
    finish<S>(parameters, tile, group, rows, out);
  }
  if (threadIdx.x % 32 == 0) tma_store_wait<0>();
  order.end();
}

template <class T, class S>
__global__ void __launch_bounds__(S::kThreads, 1) forward_kernel(const __grid_constant__ Parameters<T> parameters) {
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
  TRIREME_DYNAMIC_SHARED(bytes, 1024);
  const Memory<S> memory(bytes);
  const int thread = static_cast<int>(threadIdx.x);
  if (thread == 0) {
    for (const TensorMap* map : {&parameters.q, &parameters.k, &parameters.v, &parameters.out}) tma_prefetch(*map);
    memory.ring.init(1, 4 * S::kConsumers);
    memory.queries.init(1, 4 * S::kConsumers);
    fence_mbarrier_init();
  }
  sync_threads();
  if (thread < kGroup) {
    set_max_registers_down<S::kProducerRegisters>();
    if (thread < 32) produce<S>(parameters, memory);
  } else {
    set_max_registers_up<S::kConsumerRegisters>();
    consume<S>(parameters, memory);
  }
#else
  __trap();  // compiled for another architecture, and started all the same
#endif
}

template <class S, class T>
void start(const AttentionForward<T>& p, Stream stream) {
  const auto map = [&](const char* name, const T* base, int heads, int tokens, std::int64_t pitch, int box) {
    return tensor_map(kName, TiledHeads{name, base, p.head_dim, heads, tokens, p.batch, pitch, box});
  };
  const int group = p.heads / p.kv_heads, heads = p.batch * p.heads;
  const int tiles = (p.queries + S::kQueries - 1) / S::kQueries;
  const unsigned blocks = persistent_blocks(std::int64_t{tiles} * heads);
  const Order order{tiles,    p.heads,
                    heads,    heads_of_section(std::int64_t{4} * p.keys * p.head_dim, group, heads),
                    p.causal, static_cast<int>(blocks)};
  Parameters<T> parameters{p, order, {}, {}, {}, {}};
  parameters.q = map("q", p.q, p.heads, p.queries, p.q_pitch, S::kQueries);
  parameters.k = parameters.v = parameters.q;  // without keys nothing is read; TMA has no empty tensors
  parameters.out = map("out", p.out, p.heads, p.queries, p.out_pitch, 16);
  if (p.keys > 0) {
    parameters.k = map("k", p.k, p.kv_heads, p.keys, p.kv_pitch, S::kKeys);
    parameters.v = map("v", p.v, p.kv_heads, p.keys, p.kv_pitch, S::kKeys);
  }
  launch({kName, {blocks, 1, 1}, {S::kThreads, 1, 1}, S::kSharedBytes, stream}, &forward_kernel<T, S>, parameters);
}

/// Scores that a head computes with tiles of `tile` queries and 128 keys, among them those that are masked.
template <class T>
double scores_with(int tile, const AttentionForward<T>& p) {
  double scores = 0;
  for (int first = 0; first < p.queries; first += tile) {
    const int seen = first + tile + p.keys - p.queries, end = p.causal && seen < p.keys ? seen : p.keys;
    const int keys = end > 0 ? (end + 127) / 128 * 128 : 0;
    scores += static_cast<double>(keys) * tile;
  }
  return scores;
}

}  // namespace

template <class T>
void attention_forward_sm90_by(int tile_queries, const AttentionForward<T>& p, Stream stream) {
  require_shape(p, kName);
  require(p.scale > 0, kName, "scale is {}; expected above 0, because the largest score is sought before scaling",
          p.scale);
  require(tile_queries == 128 || (tile_queries == 192 && p.head_dim <= 64), kName,
          "tiles of {} queries at a head dim of {}; expected 128 or, up to 64, 192", tile_queries, p.head_dim);
  if (p.queries == 0 || p.batch == 0) return;
  if (p.head_dim > 64) return start<Shape<128, 2, 128>>(p, stream);
  if (tile_queries == 128) return start<Shape<64, 2, 128>>(p, stream);
  start<Shape<64, 3, 128>>(p, stream);
}

template <class T>
void attention_forward_sm90(const AttentionForward<T>& p, Stream stream) {
  constexpr double kThreeConsumers = 1.25;  // the rate of scores with three consumers over that with two: 1.19 to 1.27
  const bool two = p.head_dim > 64 || kThreeConsumers * scores_with(128, p) < scores_with(192, p);
  attention_forward_sm90_by(two ? 128 : 192, p, stream);
}

#define INSTANTIATE(T)                                                      \
  template void attention_forward_sm90(const AttentionForward<T>&, Stream); \
  template void attention_forward_sm90_by(int, const AttentionForward<T>&, Stream);
INSTANTIATE(bf16)
INSTANTIATE(f16)
#undef INSTANTIATE

}  // namespace trireme::cuda
