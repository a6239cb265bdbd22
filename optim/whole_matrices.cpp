#include "optim/whole_matrices.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "core/kernels.h"
#include "parallel/comm/call_site.h"

namespace trireme::optim {
namespace {

bool is_expert(const Shard& shard, const DeviceMesh& mesh) {
  return mesh.size(Axis::ep) > 1 && shard.parameter->placements.ep.sharded();
}

std::int64_t rows_of(const Shard& shard) {
  const Shape& shape = shard.parameter->global_shape;
  return shape.dims() == 1 ? 1 : shape[-2];
}
std::int64_t columns_of(const Shard& shard) { return shard.parameter->global_shape[-1]; }

/// FLOPs of orthogonalised(), up to a factor.
double cost_of(const Shard& shard) {
  const auto rows = static_cast<double>(rows_of(shard)), columns = static_cast<double>(columns_of(shard));
  const double small = std::min(rows, columns), large = std::max(rows, columns);
  return small * small * (2 * large + small);
}

/// Where, in the whole tensor, lies the piece of the rank with these coordinates? Returns start and extent by dim. A
/// vector has one row.
std::vector<DimRange> piece_of(const Shard& shard, const DeviceMesh& mesh, int data, int tp) {
  const Parameter& p = *shard.parameter;
  std::vector<DimRange> piece;
  for (int dim = 0; dim < p.local.dims(); ++dim) piece.push_back({p.rectangle.start[dim], p.local.size(dim)});
  if (const Placement& on_tp = p.placements.tp; on_tp.sharded()) {
    DimRange& range = piece[static_cast<std::size_t>(on_tp.dim)];
    range.start = tp * range.length;
  }
  const auto of_matrix = [&] {
    if (piece.size() == 1) piece.insert(piece.begin(), DimRange{0, 1});
    return piece;
  };
  if (shard.group == nullptr) return of_matrix();
  // The group is a run of neighbours within data; of an expert, the ranks of data with the same coordinate on ep.
  const int index = is_expert(shard, mesh) ? data / mesh.size(Axis::ep) : data % shard.ranks();
  DimRange& cut = piece[static_cast<std::size_t>(shard.dim)];
  const DimRange mine = shard.range(index);
  cut = {cut.start + mine.start, mine.length};
  return of_matrix();
}

}  // namespace

WholeMatrices::WholeMatrices(ShardList shards, const DeviceMesh& mesh, std::int64_t batch_elements)
    : shards_(std::move(shards)), mesh_(mesh) {
  for (const ShardPtr& shard : shards_)
    require(shard->parameter->local.dims() >= 1, "whole_matrices", "{} has the shape {}; expected at least one dim",
            shard->parameter->name, shard->parameter->global_shape);
  for (const bool experts : {false, true}) plans_.push_back(plan(experts, batch_elements));
}

WholeMatrices::Holders WholeMatrices::holders(bool experts) const {
  Holders found;
  std::vector<int> members;
  for (int data = 0; data < mesh_.size(Axis::data); ++data) {
    if (experts && data % mesh_.size(Axis::ep) != mesh_.coord(Axis::ep)) continue;
    for (int tp = 0; tp < mesh_.size(Axis::tp); ++tp) {
      found.data.push_back(data);
      found.tp.push_back(tp);
      members.push_back(mesh_.world_rank(mesh_.coord(Axis::pp), data, tp));
      if (members.back() == mesh_.rank()) found.rank = found.size() - 1;
    }
  }
  if (members.size() > 1) {
    const std::string same = experts ? fmt::format("pp={},ep={}", mesh_.coord(Axis::pp), mesh_.coord(Axis::ep))
                                     : fmt::format("pp={}", mesh_.coord(Axis::pp));
    found.group = mesh_.world().subgroup(members, fmt::format("matrices[{}]", same));
  }
  return found;
}

WholeMatrices::Plan WholeMatrices::plan(bool experts, std::int64_t batch_elements) const {
  Plan plan;
  const auto belongs = [&](const ShardPtr& shard) { return is_expert(*shard, mesh_) == experts; };
  if (std::none_of(shards_.begin(), shards_.end(), belongs)) return plan;
  plan.holders = holders(experts);
  std::int64_t elements = 0;
  const std::int64_t most = batch_elements * plan.holders.size();
  for (std::size_t i = 0; i < shards_.size(); ++i) {
    if (!belongs(shards_[i])) continue;
    for (Matrix& matrix : matrices_of(i)) {
      const std::int64_t more = rows_of(*shards_[i]) * columns_of(*shards_[i]);
      if (plan.batches.empty() || elements + more > most) {
        plan.batches.emplace_back();
        elements = 0;
      }
      elements += more;
      plan.batches.back().matrices.push_back(std::move(matrix));
    }
  }
  for (Batch& batch : plan.batches) {
    choose_owners(batch, plan.holders.size());
    plan_moves(batch, plan.holders);
  }
  return plan;
}

/// The matrices of a tensor, at every place in the dims before its last two. Of these dims, only that of experts is
/// split over ranks (ep), and then other ranks have the other matrices.
std::vector<WholeMatrices::Matrix> WholeMatrices::matrices_of(std::size_t shard) const {
  const Parameter& p = *shards_[shard]->parameter;
  const int dims = std::max(p.local.dims() - 2, 0);
  std::int64_t count = 1;
  for (int dim = 0; dim < dims; ++dim) count *= p.local.size(dim);
  std::vector<Matrix> matrices;
  for (std::int64_t i = 0; i < count; ++i) {
    std::vector<std::int64_t> place(static_cast<std::size_t>(dims));
    std::int64_t rest = i;
    for (int dim = dims; dim-- > 0; rest /= p.local.size(dim))
      place[static_cast<std::size_t>(dim)] = p.rectangle.start[dim] + rest % p.local.size(dim);
    matrices.push_back({shard, i, std::move(place)});
  }
  return matrices;
}

/// The most expensive first, each to the rank with the least to do.
void WholeMatrices::choose_owners(Batch& batch, int ranks) const {
  const auto cost = [&](std::size_t i) { return cost_of(*shards_[batch.matrices[i].shard]); };
  std::vector<std::size_t> order(batch.matrices.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t i, std::size_t j) { return cost(i) > cost(j); });
  std::vector<double> load(static_cast<std::size_t>(ranks), 0);
  for (const std::size_t i : order) {
    const auto least = std::min_element(load.begin(), load.end());
    *least += cost(i);
    batch.matrices[i].owner = static_cast<int>(least - load.begin());
  }
}

void WholeMatrices::plan_moves(Batch& batch, const Holders& holders) const {
  for (std::size_t m = 0; m < batch.matrices.size(); ++m) {
    const Matrix& matrix = batch.matrices[m];
    const auto owner = static_cast<std::size_t>(matrix.owner);
    std::map<Block, std::vector<int>> holders_of;  // by block
    for (int rank = 0; rank < holders.size(); ++rank) {
      const Block block = block_of(matrix, holders, rank);
      if (block.count() == 0) continue;
      holders_of[block].push_back(rank);
      if (rank != matrix.owner) batch.returns.push_back({m, matrix.owner, rank, block});
    }
    for (const auto& [block, ranks] : holders_of) {
      if (std::find(ranks.begin(), ranks.end(), matrix.owner) != ranks.end()) continue;
      int sender = ranks[m % ranks.size()];
      for (const int rank : ranks)  // a neighbour on tp, where there is one
        if (holders.data[static_cast<std::size_t>(rank)] == holders.data[owner]) sender = rank;
      batch.gathers.push_back({m, sender, matrix.owner, block});
    }
  }
}

WholeMatrices::Block WholeMatrices::block_of(const Matrix& matrix, const Holders& holders, int rank) const {
  const auto at = static_cast<std::size_t>(rank);
  const std::vector<DimRange> piece = piece_of(*shards_[matrix.shard], mesh_, holders.data[at], holders.tp[at]);
  for (std::size_t dim = 0; dim < matrix.place.size(); ++dim) {
    const std::int64_t inside = matrix.place[dim] - piece[dim].start;
    if (inside < 0 || inside >= piece[dim].length) return {};
  }
  const DimRange &rows = piece[piece.size() - 2], &columns = piece.back();
  return {rows.start, rows.length, columns.start, columns.length};
}

/// This rank's block of a matrix, as a view of its piece of the tensor.
Tensor WholeMatrices::part_of(const Matrix& matrix, const Tensor& piece) const {
  const Rectangle where = shards_[matrix.shard]->rectangle();
  Tensor part = piece;
  for (std::size_t dim = 0; dim < matrix.place.size(); ++dim)
    part = view::select(part, 0, matrix.place[dim] - where.start[static_cast<int>(dim)]);
  return part.dims() == 1 ? view::reshape(part, {1, part.size(0)}) : part;
}

/// One all-to-all, in which each rank has a row of equal length for every other rank.
void WholeMatrices::exchange(const std::vector<Move>& moves, const Holders& holders, Device device, const BlockOf& from,
                             const BlockOf& to) {
  const int ranks = holders.size();
  std::vector<std::int64_t> ends(static_cast<std::size_t>(ranks * ranks), 0);  // by sender and receiver
  std::vector<std::int64_t> starts;                                            // by move
  for (const Move& move : moves) {
    std::int64_t& end =
        ends[static_cast<std::size_t>(move.from) * static_cast<std::size_t>(ranks) + static_cast<std::size_t>(move.to)];
    starts.push_back(end);
    end += move.block.count();
  }
  const std::int64_t length = *std::max_element(ends.begin(), ends.end());
  if (length == 0) return;  // the same on every rank
  const CallSite site("matrices of the optimizer");
  Tensor sent, received;  // [n, length]
  {
    const MemoryScope scope(MemoryCategory::communication);
    sent = Tensor::zeros({ranks, length}, DType::f32, device);
    received = Tensor::empty({ranks, length}, DType::f32, device);
  }
  const auto place = [&](const Tensor& rows, int row, std::size_t m) {
    const Block& block = moves[m].block;
    const Tensor flat = view::slice(view::select(rows, 0, row), 0, starts[m], block.count());
    return view::reshape(flat, {block.rows, block.columns});
  };
  for (std::size_t m = 0; m < moves.size(); ++m) {
    if (moves[m].from != holders.rank) continue;
    Tensor packed = place(sent, moves[m].to, m);
    copy(from(moves[m]), packed);
  }
  holders.group->all_to_all(sent, received).wait();
  for (std::size_t m = 0; m < moves.size(); ++m) {
    if (moves[m].to != holders.rank) continue;
    Tensor target = to(moves[m]);
    copy(place(received, moves[m].from, m), target);
  }
}

namespace {

template <class Block>
Tensor block_in(const Tensor& whole, const Block& b) {
  return view::slice(view::slice(whole, 0, b.row, b.rows), 1, b.column, b.columns);
}

}  // namespace

/// The matrices of a batch that this rank owns; the others are undefined.
std::vector<Tensor> WholeMatrices::gather(const Batch& batch, const Holders& holders,
                                          const std::vector<Tensor>& pieces) const {
  const auto mine = [&](std::size_t m) {
    const Matrix& matrix = batch.matrices[m];
    return part_of(matrix, pieces[matrix.shard]);
  };
  const Device device = pieces[batch.matrices.front().shard].device();
  std::vector<Tensor> wholes(batch.matrices.size());
  for (std::size_t m = 0; m < wholes.size(); ++m) {
    const Matrix& matrix = batch.matrices[m];
    if (matrix.owner != holders.rank) continue;
    const MemoryScope scope(MemoryCategory::workspace);
    const Shard& shard = *shards_[matrix.shard];
    wholes[m] = Tensor::zeros({rows_of(shard), columns_of(shard)}, DType::f32, device);  // [R, C]
    const Block own = block_of(matrix, holders, holders.rank);
    Tensor target = block_in(wholes[m], own);
    if (own.count() > 0) copy(mine(m), target);
  }
  exchange(
      batch.gathers, holders, device, [&](const Move& move) { return mine(move.matrix); },
      [&](const Move& move) { return block_in(wholes[move.matrix], move.block); });
  return wholes;
}

void WholeMatrices::run(const Batch& batch, const Holders& holders, const std::vector<Tensor>& pieces,
                        const Function& f) const {
  std::vector<Tensor> wholes = gather(batch, holders, pieces);
  const auto mine = [&](std::size_t m) {
    const Matrix& matrix = batch.matrices[m];
    return part_of(matrix, pieces[matrix.shard]);
  };
  const Device device = pieces[batch.matrices.front().shard].device();
  for (std::size_t m = 0; m < wholes.size(); ++m) {
    if (!wholes[m].defined()) continue;
    const MemoryScope scope(MemoryCategory::workspace);
    const Matrix& matrix = batch.matrices[m];
    wholes[m] = f({matrix.shard, matrix.index}, wholes[m]);
    const Block own = block_of(matrix, holders, holders.rank);
    if (own.count() == 0) continue;
    Tensor target = mine(m);
    copy(block_in(wholes[m], own), target);
  }
  exchange(
      batch.returns, holders, device, [&](const Move& move) { return block_in(wholes[move.matrix], move.block); },
      [&](const Move& move) { return mine(move.matrix); });
}

void WholeMatrices::check_pieces(const std::vector<Tensor>& pieces) const {
  require(pieces.size() == shards_.size(), "whole_matrices", "{} pieces of {} tensors", pieces.size(), shards_.size());
  for (std::size_t i = 0; i < pieces.size(); ++i)
    require(pieces[i].shape() == shards_[i]->shape() && pieces[i].dtype() == DType::f32 && pieces[i].contiguous(),
            "whole_matrices", "the piece of {} is {} {}; expected a dense f32 {}", shards_[i]->parameter->name,
            name(pieces[i].dtype()), pieces[i].shape(), shards_[i]->shape());
}

void WholeMatrices::apply(const std::vector<Tensor>& pieces, const Function& f) const {
  check_pieces(pieces);
  for (const Plan& plan : plans_) {
    for (const Batch& batch : plan.batches) run(batch, plan.holders, pieces, f);
  }
}

void WholeMatrices::read(const std::vector<Tensor>& pieces, const Reader& f) const {
  check_pieces(pieces);
  for (const Plan& plan : plans_) {
    for (const Batch& batch : plan.batches) {
      const std::vector<Tensor> wholes = gather(batch, plan.holders, pieces);
      for (std::size_t m = 0; m < wholes.size(); ++m)
        if (wholes[m].defined()) f({batch.matrices[m].shard, batch.matrices[m].index}, wholes[m]);
    }
  }
}

void WholeMatrices::share(const std::vector<std::vector<Tensor>>& values) const {
  require(values.size() == shards_.size(), "whole_matrices", "values of {} of {} tensors", values.size(),
          shards_.size());
  for (const bool experts : {false, true}) {
    const Plan& plan = plans_[experts ? 1 : 0];
    if (plan.holders.group == nullptr) continue;
    std::vector<Tensor> mine;
    std::int64_t length = 0;
    for (std::size_t i = 0; i < shards_.size(); ++i) {
      if (is_expert(*shards_[i], mesh_) != experts) continue;
      for (const Tensor& value : values[i]) {
        mine.push_back(view::reshape(value, {value.count()}));
        length += value.count();
      }
    }
    if (length == 0) continue;
    const CallSite site("statistics of the optimizer");
    const MemoryScope scope(MemoryCategory::communication);
    const Tensor packed = Tensor::empty({length}, DType::f32, mine.front().device());
    const auto each = [&](const auto& work) {
      std::int64_t start = 0;
      for (Tensor& value : mine) {
        Tensor place = view::slice(packed, 0, start, value.count());
        work(value, place);
        start += value.count();
      }
    };
    each([](const Tensor& value, Tensor& place) { copy(value, place); });
    plan.holders.group->all_reduce(packed).wait();  // x + 0 is x
    each([](Tensor& value, const Tensor& place) { copy(place, value); });
  }
}

std::int64_t WholeMatrices::owned() const {
  std::int64_t count = 0;
  for (const Plan& plan : plans_) {
    for (const Batch& batch : plan.batches)
      count += std::count_if(batch.matrices.begin(), batch.matrices.end(),
                             [&](const Matrix& matrix) { return matrix.owner == plan.holders.rank; });
  }
  return count;
}

}  // namespace trireme::optim
