// dq of attention's backward for Hopper, with TMA and wgmma; formulas: cuda/kernels/attention.h. Two consumers of 64
// queries each, or three at head dim 64; k and v are streamed. As in the kernel of keys, operands are read along rows
// and along columns, and ds goes from sums into A registers.
// Read next: cuda/kernels/attention_backward_hopper.h.
#include "cuda/kernels/attention_backward_hopper.h"

namespace trireme::cuda {

using namespace attention;
using namespace attention::backward;

namespace {

/// A thread's lse and delta of `row` and `row` + 8; of a query that does not exist: -infinity and 0.
struct RowValues {
  float lse[2] = {-INFINITY, -INFINITY}, delta[2] = {0, 0};

  template <class T>
  __device__ __forceinline__ RowValues(const AttentionBackward<T>& p, const Place& place, int row) {
    const auto& f = p.forward;
    TRIREME_UNROLL
    for (int half = 0; half < 2; ++half) {
      if (row + 8 * half >= f.queries) continue;
      const std::int64_t at = (std::int64_t{place.batch} * f.heads + place.head) * f.queries + row + 8 * half;
      lse[half] = f.lse[at];
      delta[half] = p.delta[at];
    }
  }
};

/// A thread's data on its rows, `row` and `row` + 8, in the kernel of queries.
template <class T>
struct Rows {
  KeyRange visible[2];
  int latest_begin = 0, earliest_end;  ///< all rows of the warp see the keys between
  float log2_sum[2] = {INFINITY, INFINITY}, delta[2] = {0, 0};

  __device__ __forceinline__ Rows(const AttentionBackward<T>& p, const Place& place, int row, const RowValues& values)
      : earliest_end(p.forward.keys) {
    TRIREME_UNROLL
    for (int half = 0; half < 2; ++half) {
      visible[half] = keys_of(p.forward, place.batch, row + 8 * half);
      if (values.lse[half] == -INFINITY) continue;
      log2_sum[half] = values.lse[half] * kLog2E;
      delta[half] = values.delta[half];
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

/// The tiles of keys that a tile of queries, `first` and on, sees: `count` from `begin` on. The same in all lanes.
struct KeyTiles {
  int begin, count;

  template <class S, class T>
  __device__ __forceinline__ static KeyTiles of(const AttentionForward<T>& f, int batch, int first) {
    const int begin = first_key_of_rows<S::kRows>(f, batch, first) / kStep;
    const int end = (keys_end<S::kRows>(f, first) + kStep - 1) / kStep;
    return {shuffle(begin, 0), shuffle(end > begin ? end - begin : 0, 0)};
  }
};

/// The producer's first warp, whose first lane copies. Copies the first keys of a tile while the one before is stored.
template <class S, class T>
__device__ __forceinline__ void copy_keys(const Parameters<T>& parameters, const Memory<S>& memory) {
  const auto& f = parameters.p.forward;
  const Order& order = parameters.order;
  int use = 0;
  for (int index = order.first(), turn = 0; index < order.count(); index = order.next(index), ++turn) {
    const Place place = order.at(index);
    const int first = place.tile * S::kRows, kv_head = place.head / parameters.group;
    const KeyTiles keys = KeyTiles::of<S>(f, place.batch, first);
    if (threadIdx.x == 0) {
      const auto load = [&](int i) {
        memory.load_pair(use + i, parameters.k, parameters.v, (keys.begin + i) * kStep, kv_head, place.batch);
      };
      if (keys.count > 0) load(0);
      memory.load_resident(turn, parameters.q, parameters.dout, first, place.head, place.batch);
      for (int i = 1; i < keys.count; ++i) load(i);
    }
    use += keys.count;
    sync_warp();
  }
}

/// A consumer: dq of 64 queries. `use`: of the ring, where this tile begins.
template <class S, class T>
__device__ __forceinline__ void sum_over_keys(const Parameters<T>& parameters, const Memory<S>& memory, int group,
                                              int turn, const Rows<T>& rows, const KeyTiles& keys, int use,
                                              float (&dq)[S::kD / 2]) {
  const float log2_scale = parameters.p.forward.scale * kLog2E;
  float scores[kStep / 2], gradients[kStep / 2];
  std::uint32_t ds[kStep / 4];
  memory.resident.wait_full(turn);
  for (int i = 0; i < keys.count; ++i) {
    memory.ring.wait_full(use + i);
    issue_rows_product<T>(memory.resident_tile(turn, 0), 64 * group, memory.tile(use + i, 0), scores);
    issue_rows_product<T>(memory.resident_tile(turn, 1), 64 * group, memory.tile(use + i, 1), gradients);
    wait_product<1>(scores);
    if (i > 0)
      memory.ring.release(use + i - 1);  // issued before the scores: dq's product with that pair has ended
    else
      memory.end_turn_before(turn);
    rows.probabilities((keys.begin + i) * kStep, log2_scale, scores);
    wait_product<0>(gradients);
    TRIREME_UNROLL
    for (int j = 0; j < kStep / 2; ++j) gradients[j] = scores[j] * (gradients[j] - rows.delta[j / 2 % 2]);
    pack_weights<T>(gradients, ds);
    issue_weighted_sum<T>(ds, memory.tile(use + i, 0), dq);
  }
  wait_product<0>(dq);
  if (keys.count > 0)
    memory.ring.release(use + keys.count - 1);
  else
    memory.end_turn_before(turn);
}

template <class S, class T>
__device__ __forceinline__ void consume_keys(const Parameters<T>& parameters, const Memory<S>& memory) {
  const auto& f = parameters.p.forward;
  const Order& order = parameters.order;
  const int group = consumer_group(), thread = static_cast<int>(threadIdx.x);
  const int warp_row = thread / 32 * 16 - 64, row = warp_row + thread % 32 / 4;
  const auto values_of = [&](int index) {
    const Place place = order.at(index);
    return RowValues(parameters.p, place, place.tile * S::kRows + row);
  };
  RowValues next = values_of(order.first());
  int use = 0;
  for (int index = order.first(), turn = 0; index < order.count(); index = order.next(index), ++turn) {
    const Place place = order.at(index);
    const int first = place.tile * S::kRows;
    const Rows<T> rows(parameters.p, place, first + row, next);
    if (order.next(index) < order.count()) next = values_of(order.next(index));
    const KeyTiles keys = KeyTiles::of<S>(f, place.batch, first);
    float dq[S::kD / 2];
    TRIREME_UNROLL
    for (int i = 0; i < S::kD / 2; ++i) dq[i] = 0.0F;
    sum_over_keys<S>(parameters, memory, group, turn, rows, keys, use, dq);
    use += keys.count;
    barrier_sync(1 + group, kGroup);  // the other warps' products have read the queries
    store_sums<T>(dq, {f.scale, f.scale}, memory.resident_tile(turn, 0), warp_row, parameters.dq, first + warp_row,
                  place.head, place.batch);
    memory.end_turn(turn);
  }
  if (thread % 32 == 0) tma_store_wait<0>();
}

template <class T, class S>
__global__ void __launch_bounds__(S::kThreads, 1) queries_kernel(const __grid_constant__ Parameters<T> parameters) {
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
  TRIREME_DYNAMIC_SHARED(bytes, 1024);
  const Memory<S> memory(bytes);
  if (threadIdx.x == 0) {
    for (const TensorMap* map : {&parameters.q, &parameters.dout, &parameters.k, &parameters.v}) tma_prefetch(*map);
    memory.init(1);
  }
  sync_threads();
  if (threadIdx.x < kGroup) {
    set_max_registers_down<S::kProducerRegisters>();
    if (threadIdx.x < 32) copy_keys<S>(parameters, memory);
  } else {
    set_max_registers_up<S::kConsumerRegisters>();
    consume_keys<S>(parameters, memory);
  }
#else
  __trap();  // compiled for another architecture, and started all the same
#endif
}

template <class S, class T>
void start_queries(const AttentionBackward<T>& p, Stream stream) {
  static_assert(S::kSharedBytes <= 227 * 1024, "more shared memory than a block of sm_90 can have");
  start<S, false>("attention_backward_sm90 queries", &queries_kernel<T, S>, p, 0, stream);
}

}  // namespace

template <class T>
void attention_backward_queries_sm90(const AttentionBackward<T>& p, Stream stream) {
  if (p.forward.head_dim <= 64)
    start_queries<Shape<64, 3>>(p, stream);
  else
    start_queries<Shape<128, 2>>(p, stream);
}

template void attention_backward_queries_sm90(const AttentionBackward<bf16>&, Stream);
template void attention_backward_queries_sm90(const AttentionBackward<f16>&, Stream);

}  // namespace trireme::cuda
