// What the two kernels of attention's backward for Hopper share. A block takes tiles of 64 rows for each consumer: of
// keys (for dk and dv) or of queries (for dq). The two inputs of these rows stay in shared memory, *resident*; the two
// of the other side are *streamed* through a ring, 64 rows at a time. Blocks are persistent: the producer copies the
// first tiles of the next turn while consumers store the results of this one.
// Read next: cuda/kernels/attention_backward_keys_sm90.cu.
#pragma once

#include "cuda/device/persistent.h"
#include "cuda/kernels/attention_hopper.h"

namespace trireme::cuda {

/// dk and dv, and dq. delta must be there; see attention_backward_sm90.
template <class T>
void attention_backward_keys_sm90(const AttentionBackward<T>& attention, Stream stream);
template <class T>
void attention_backward_queries_sm90(const AttentionBackward<T>& attention, Stream stream);

namespace attention::backward {

constexpr int kStep = 64;  // rows of a streamed tile

/// Two resident tiles, twice if they fit, and a ring of streamed pairs.
template <int D_, int Consumers>
struct Shape {
  static constexpr int kD = D_, kConsumers = Consumers, kRows = 64 * Consumers, kSlots = 4;
  static constexpr int kResidents = D_ <= 64 ? 2 : 1;
  static constexpr int kThreads = kGroup * (Consumers + 1);
  // Together at most what the block starts with. At head dim 128, consumers need all that there are.
  static constexpr int kProducerRegisters = Consumers == 3 ? 32 : kD == 64 ? 40 : 24;
  static constexpr int kConsumerRegisters = Consumers == 3 ? 160 : kD == 64 ? 232 : 240;
  using Resident = SwizzledTile<kRows, kD>;
  using Streamed = SwizzledTile<kStep, kD>;
  static constexpr int kRing = kResidents * 2 * Resident::kBytes, kPairBytes = 2 * Streamed::kBytes;
  static constexpr int kBarriers = kRing + kSlots * kPairBytes;
  static constexpr int kSharedBytes = kBarriers + Ring<kSlots>::kBytes + Ring<kResidents>::kBytes;
};

template <class T>
struct Parameters {
  AttentionBackward<T> p;
  Order order;
  int group, query_tiles;  ///< heads of queries for each head of keys; tiles of kStep queries of a head
  TensorMap q, k, v, dout, dq, dk, dv;
};

/// A block's shared memory. Turn n: the n-th tile of the block.
template <class S>
struct Memory {
  std::byte *residents, *pairs;
  Ring<S::kSlots> ring;  ///< uses count the pairs over all tiles of the block
  Ring<S::kResidents> resident;
  __device__ __forceinline__ explicit Memory(std::byte* memory)
      : residents(memory),
        pairs(memory + S::kRing),
        ring{reinterpret_cast<std::uint64_t*>(memory + S::kBarriers)},
        resident{reinterpret_cast<std::uint64_t*>(memory + S::kBarriers + Ring<S::kSlots>::kBytes)} {}
  /// `which`: 0 for k or q, 1 for v or dout.
  __device__ __forceinline__ typename S::Resident resident_tile(int turn, int which) const {
    return {residents + (turn % S::kResidents * 2 + which) * S::Resident::kBytes};
  }
  __device__ __forceinline__ typename S::Streamed tile(int use, int which) const {
    return {pairs + use % S::kSlots * S::kPairBytes + which * S::Streamed::kBytes};
  }
  /// Call in one thread. `fillers`: of a slot of the ring.
  __device__ __forceinline__ void init(int fillers) const {
    ring.init(fillers, 4 * S::kConsumers);
    resident.init(1, 4 * S::kConsumers);
    fence_mbarrier_init();
  }
  /// Call in the copying thread: loads the resident tiles, from row `row` on.
  __device__ __forceinline__ void load_resident(int turn, const TensorMap& a, const TensorMap& b, int row, int head,
                                                int batch) const {
    resident.begin_fill(turn, 2 * S::Resident::kBytes);
    resident_tile(turn, 0).load(a, row, head, batch, resident.full(turn));
    resident_tile(turn, 1).load(b, row, head, batch, resident.full(turn));
  }
  /// Call in the copying thread: loads the `use`-th pair of the ring.
  __device__ __forceinline__ void load_pair(int use, const TensorMap& a, const TensorMap& b, int row, int head,
                                            int batch) const {
    ring.begin_fill(use, S::kPairBytes);
    tile(use, 0).load(a, row, head, batch, ring.full(use));
    tile(use, 1).load(b, row, head, batch, ring.full(use));
  }

  // Consumers store their results through the resident tiles, which are free when the stores have read them. With two
  // places, nobody needs to wait for that: the next tile is in the other place.
  /// Call in a whole warp, after its stores of this turn.
  __device__ __forceinline__ void end_turn(int turn) const {
    if constexpr (S::kResidents == 1) release_stored(turn);
  }
  /// Call in a whole warp, when its first products of this turn have been issued.
  __device__ __forceinline__ void end_turn_before(int turn) const {
    if constexpr (S::kResidents > 1)
      if (turn > 0) release_stored(turn - 1);
  }

 private:
  __device__ __forceinline__ void release_stored(int turn) const {
    if (threadIdx.x % 32 == 0) tma_store_wait<0>();
    resident.release(turn);
  }
};

/// Starts a kernel for tiles of keys, or of queries. `more_bytes` of shared memory are added to the shape's.
template <class S, bool OfKeys, class T>
void start(const char* name, void (*kernel)(Parameters<T>), const AttentionBackward<T>& p, std::size_t more_bytes,
           Stream stream) {
  const auto& f = p.forward;
  const int rows = OfKeys ? f.keys : f.queries, heads = OfKeys ? f.kv_heads : f.heads, units = heads * f.batch;
  if (rows == 0) return;
  const int group = f.heads / f.kv_heads;
  // For a head of keys, the queries of its group are streamed; for a group's heads of queries, keys and values.
  const std::int64_t streamed = std::int64_t{4} * f.head_dim * (OfKeys ? f.queries * group : f.keys);
  const int tiles = (rows + S::kRows - 1) / S::kRows;
  const unsigned blocks = persistent_blocks(std::int64_t{tiles} * units);
  const Order order{tiles,
                    heads,
                    units,
                    heads_of_section(streamed, OfKeys ? 1 : group, units),
                    f.causal && !OfKeys,
                    static_cast<int>(blocks)};
  Parameters<T> parameters{p, order, group, (f.queries + kStep - 1) / kStep, {}, {}, {}, {}, {}, {}, {}};
  const auto map = [&](const char* what, const T* base, bool of_keys, std::int64_t pitch, int box) {
    return tensor_map(name, TiledHeads{what, base, f.head_dim, of_keys ? f.kv_heads : f.heads,
                                       of_keys ? f.keys : f.queries, f.batch, pitch, box});
  };
  constexpr int kKeyBox = OfKeys ? S::kRows : kStep, kQueryBox = OfKeys ? kStep : S::kRows;
  if (f.keys > 0) {
    parameters.k = map("k", f.k, true, f.kv_pitch, kKeyBox);
    parameters.v = map("v", f.v, true, f.kv_pitch, kKeyBox);
  }
  if (f.queries > 0) {
    parameters.q = map("q", f.q, false, f.q_pitch, kQueryBox);
    parameters.dout = map("dout", p.dout, false, p.dout_pitch, kQueryBox);
  }
  // TMA has no empty tensors, and empty ones are never read.
  if (f.keys == 0) parameters.k = parameters.v = parameters.q;
  if (f.queries == 0) parameters.q = parameters.dout = parameters.k;
  // Only what this kernel stores: the host's time for each map adds to that of a launch.
  if constexpr (OfKeys) {
    parameters.dk = map("dk", p.dk, true, p.dkv_pitch, 16);
    parameters.dv = map("dv", p.dv, true, p.dkv_pitch, 16);
  } else {
    parameters.dq = map("dq", p.dq, false, p.dq_pitch, 16);
  }
  launch({name, {blocks, 1, 1}, {S::kThreads, 1, 1}, S::kSharedBytes + more_bytes, stream}, kernel, parameters);
}

}  // namespace attention::backward

}  // namespace trireme::cuda
