// WholeMatrices: computes a function of whole matrices whose parts lie on several ranks.
//
// A rank holds a piece of each tensor: tp splits the tensor, and ZeRO splits each tp part. Without tp and ZeRO, all
// ranks hold copies. The ranks that hold a tensor (all of its pipeline stage; of an expert, those with the same
// experts) share the work: each matrix is computed once, by its owner. Owners are chosen so that all ranks have about
// the same FLOPs.
//
//   1. Each rank sends its parts to the owners. A part that several ranks hold is sent by one of them, or by none if
//      the owner has it.
//   2. An owner puts a matrix together, and computes the function.
//   3. It sends every rank its part of the result.
//
// So all ranks get parts of the same bits. Both moves are an all-to-all of packed parts. Matrices go in batches, which
// limits the memory.
//
//   WholeMatrices whole(shards, mesh);
//   whole.apply(pieces, [](const auto&, const Tensor& x) { return optim::orthogonalised(x); });
//
// The last two dims of a tensor are a matrix; the dims before them number matrices, such as q, k and v in [3, D, D]. A
// vector [N] is a matrix [1, N].
// Read next: optim/muon.cpp and optim/adafactor.cpp (the callers), parallel/parameters/shard.h.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "parallel/mesh/mesh.h"
#include "parallel/parameters/shard.h"

namespace trireme::optim {

class WholeMatrices {
 public:
  /// `shards`: this rank's pieces of tensors of at least one dim, the same tensors in the same order on all ranks of a
  /// stage. Collective over the mesh. `mesh` and the shards must outlive this object. `batch_elements`: the most
  /// elements of whole matrices that a rank computes in one batch; a larger matrix has a batch of its own.
  WholeMatrices(ShardList shards, const DeviceMesh& mesh, std::int64_t batch_elements = 4LL << 20);

  /// Which matrix: the index of its tensor in the list, and its number in this rank's part of the dims before the last
  /// two. All ranks that hold the matrix have the same.
  struct MatrixId {
    std::size_t shard = 0;
    std::int64_t index = 0;
  };
  /// A matrix [R, C], dense f32 -> another.
  using Function = std::function<Tensor(const MatrixId& id, const Tensor& matrix)>;
  /// Replaces pieces[i], of shape shards[i]->shape(), dense f32, by the same piece of f of its matrices. Collective
  /// over each stage; f is called for the matrices that this rank owns.
  void apply(const std::vector<Tensor>& pieces, const Function& f) const;

  /// Gives the matrices to `f`, and changes none. Collective as apply().
  using Reader = std::function<void(const MatrixId& id, const Tensor& matrix)>;
  void read(const std::vector<Tensor>& pieces, const Reader& f) const;
  /// `values[i]`: dense f32 tensors that belong to tensor i, with numbers for the matrices that this rank owns, and 0
  /// for the others. Afterwards all ranks that hold the tensor have the numbers of all its matrices. Collective as
  /// apply().
  void share(const std::vector<std::vector<Tensor>>& values) const;

  std::int64_t owned() const;  ///< matrices that this rank computes

 private:
  /// The ranks that hold a tensor, as places in `group`.
  struct Holders {
    std::vector<int> data, tp;            // the coordinates of each
    int rank = 0;                         // this rank's place
    std::shared_ptr<ProcessGroup> group;  // null: one rank
    int size() const { return static_cast<int>(data.size()); }
  };
  struct Matrix {
    std::size_t shard;
    std::int64_t index;               // MatrixId::index
    std::vector<std::int64_t> place;  // in the dims before the last two, of the whole tensor
    int owner = 0;
  };
  /// A part of a matrix: what one rank holds.
  struct Block {
    std::int64_t row = 0, rows = 0, column = 0, columns = 0;
    std::int64_t count() const { return rows * columns; }
    auto operator<=>(const Block&) const = default;
  };
  /// A block on its way to or from the owner of its matrix.
  struct Move {
    std::size_t matrix;  // in the batch
    int from, to;
    Block block;
  };
  struct Batch {
    std::vector<Matrix> matrices;
    std::vector<Move> gathers, returns;
  };
  /// Tensors with the same holders.
  struct Plan {
    Holders holders;
    std::vector<Batch> batches;
  };
  using BlockOf = std::function<Tensor(const Move&)>;  // where a block is, or goes

  Holders holders(bool experts) const;
  Plan plan(bool experts, std::int64_t batch_elements) const;
  std::vector<Matrix> matrices_of(std::size_t shard) const;
  void choose_owners(Batch& batch, int ranks) const;
  void plan_moves(Batch& batch, const Holders& holders) const;
  Block block_of(const Matrix& matrix, const Holders& holders, int rank) const;
  Tensor part_of(const Matrix& matrix, const Tensor& piece) const;
  void check_pieces(const std::vector<Tensor>& pieces) const;
  std::vector<Tensor> gather(const Batch& batch, const Holders& holders, const std::vector<Tensor>& pieces) const;
  void run(const Batch& batch, const Holders& holders, const std::vector<Tensor>& pieces, const Function& f) const;
  static void exchange(const std::vector<Move>& moves, const Holders& holders, Device device, const BlockOf& from,
                       const BlockOf& to);

  ShardList shards_;
  const DeviceMesh& mesh_;
  std::vector<Plan> plans_;
};

}  // namespace trireme::optim
