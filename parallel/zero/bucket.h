// ZeroBucket: parameters whose shards are communicated together, and the layout of the communicated buffers.
//
// Shards stay rectangles of their parameters. They are packed only for a collective: a *piece* is a flat tensor with
// one rank's shards one after the other. `pieces` [n, piece] holds the pieces of all ranks: the input of
// reduce-scatter, the output of all-gather. Both need pieces of equal length, so shorter pieces are padded; the padding
// is never unpacked.
//
//   parameter a [5, 2], b [3] on 2 ranks:   rank 0: a[0:3] b[0:2]   6 + 2 elements
//                                           rank 1: a[3:5] b[2:3]   4 + 1, and 3 of padding
// Read next: parallel/zero/gradients.h, parallel/zero/weights.h.
#pragma once

#include <memory>
#include <vector>

#include "parallel/mesh/mesh.h"
#include "parallel/parameters/shard.h"
#include "parallel/parameters/unit.h"

namespace trireme {

/// Which data that no other rank holds is hashed between updates: nothing; weights, or the masters they are made from;
/// or moments too (parallel/zero/shard_hashes.h).
enum class HashedData : std::uint8_t { none, weights, all };

struct ZeroOptions {
  /// 1: optimizer state is sharded; 2: gradients too; 3: parameters too. 0: nothing (make_data_parallel() only)
  int stage = 1;
  int prefetch = 1;                           ///< stage 3: units gathered ahead of the one in use
  std::int64_t resident_bytes = 100'000;      ///< stage 3: smaller parameters stay whole
  HashedData hashed_data = HashedData::none;  ///< stage 1 on
  int shard_ranks = 0;                        ///< shard over groups of this many neighbours of data; 0: over all
  std::int64_t bucket_bytes = 25LL << 20;     ///< of f32 gradients in a bucket
  std::int64_t gathering_bytes = 32LL << 20;  ///< stages 1 and 2: most bytes of weights being gathered at once
};

/// The groups of hybrid sharding: runs of neighbours within data, and the ranks at the same place of each run.
struct ZeroGroups {
  std::shared_ptr<ProcessGroup> within, across;  // null: shard over all of data
};
/// Collective over data. Throws ExitCode::usage when shard_ranks does not divide data.
ZeroGroups make_zero_groups(const DeviceMesh& mesh, int shard_ranks);

struct ZeroBucket {
  const Unit* unit = nullptr;  ///< null: of no unit
  int chunk = 0;               ///< the part of the model that one backward runs through: Unit::chunk
  /// Stage 3: only shards are kept; parameters are whole only while the unit is used.
  bool gathered_on_use = false;
  bool frozen = false;               ///< there are no gradients, and no updates
  bool sum_over_tp = false;          ///< gradients are summed over tp as well
  SumOrder order = SumOrder::ranks;  ///< of the sums of gradients over `group` and `replicas`
  ProcessGroup* group = nullptr;     ///< the ranks with the shards; null: this rank has all
  ProcessGroup* replicas = nullptr;  ///< the ranks with copies of this rank's shards; null: none
  DType dtype = DType::f32;          ///< of the parameters
  ShardList shards;
  std::vector<std::size_t> places;  ///< of the shards in the list of all shards
  std::int64_t piece = 0;           ///< elements

  Device device() const { return shards.front()->parameter->local.device(); }
  int ranks() const { return group == nullptr ? 1 : group->size(); }
  int rank() const { return group == nullptr ? 0 : group->rank(); }
  /// Shard i of a rank in that rank's piece: a dense view of the shard's shape.
  Tensor in_piece(const Tensor& piece, std::size_t i, int rank) const;
  Tensor in_piece(const Tensor& own, std::size_t i) const { return in_piece(own, i, rank()); }

  /// Between whole local tensors, one per shard, and `pieces` [n, piece].
  void pack(const std::vector<Tensor>& locals, const Tensor& pieces) const;
  void unpack(const Tensor& pieces, const std::vector<Tensor>& locals) const;
  std::vector<Tensor> values() const;  ///< the parameters' local tensors

  /// Neighbouring ranks whose pieces have one layout; their shards are copied at once. A bucket has few layouts: ranks
  /// differ only in whether they have one row more of a parameter.
  struct Layout {
    int first = 0, ranks = 0;
    std::vector<std::int64_t> starts;  ///< by shard, in a piece
    std::int64_t end = 0;              ///< of the shards in a piece; zeros follow
  };
  std::vector<Layout> layouts;  // in the order of the ranks
};

/// The buckets of a model in the order in which backward completes their gradients: the reverse of creation. Fills
/// `shards` with every parameter's shard, in the order of `parameters`. A bucket has one unit, one set of axes and one
/// order.
std::vector<ZeroBucket> make_zero_buckets(const ParameterList& parameters, const Units& units, const DeviceMesh& mesh,
                                          const ZeroGroups& groups, const ZeroOptions& options, ShardList& shards);

}  // namespace trireme
