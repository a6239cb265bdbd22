// The collectives that later labs may use: rings of messages. Lab 1 writes them; parallel/comm/algorithms/ has the ones
// that training uses.
#include <algorithm>

#include "core/error.h"
#include "examples/labs/harness/cluster.h"

namespace trireme::labs {
namespace {

using Combine = void (*)(Tensor into, const Tensor& from);

void larger(Tensor into, const Tensor& from) {
  const auto source = from.span<const float>();
  const auto target = into.span<float>();
  for (std::size_t i = 0; i < target.size(); ++i) target[i] = std::max(target[i], source[i]);
}

/// A view of piece i, of n of nearly equal length.
Tensor piece(const Tensor& flat, int i, int n) {
  i = (i % n + n) % n;
  const std::int64_t begin = flat.count() * i / n, end = flat.count() * (i + 1) / n;
  return view::slice(flat, 0, begin, end - begin);
}

/// Piece rank() becomes that of all ranks, combined. x: dense, [count].
void ring_reduce(Rank& rank, const Tensor& x, Combine combine) {
  const int n = rank.size(), next = (rank.rank() + 1) % n, before = (rank.rank() + n - 1) % n;
  for (int k = 0; k + 1 < n; ++k) {
    rank.send(piece(x, rank.rank() - 1 - k, n), next);
    combine(piece(x, rank.rank() - 2 - k, n), rank.receive(before));
  }
}

/// Every rank gets piece i of rank i.
void ring_gather(Rank& rank, const Tensor& x) {
  const int n = rank.size(), next = (rank.rank() + 1) % n, before = (rank.rank() + n - 1) % n;
  for (int k = 0; k + 1 < n; ++k) {
    rank.send(piece(x, rank.rank() - k, n), next);
    Tensor to = piece(x, rank.rank() - k - 1, n);
    copy(rank.receive(before), to);
  }
}

Tensor flat(const Tensor& x) { return view::reshape(x.detach(), {x.count()}); }

Shape with_ranks(int n, const Tensor& x) {
  std::vector<std::int64_t> extents = {n};
  for (int dim = 0; dim < x.dims(); ++dim) extents.push_back(x.size(dim));
  return Shape(extents);
}

}  // namespace

void Rank::all_reduce(Tensor x) {
  check_collective("all_reduce", x);
  ring_reduce(*this, flat(x), add_into);
  ring_gather(*this, flat(x));
}

void Rank::all_reduce_max(Tensor x) {
  check_collective("all_reduce_max", x);
  ring_reduce(*this, flat(x), larger);
  ring_gather(*this, flat(x));
}

Tensor Rank::all_gather(const Tensor& x) {
  check_collective("all_gather", x);
  const Tensor y = Tensor::empty(with_ranks(size_, x), x.dtype());
  Tensor own = view::select(y, 0, rank_);
  copy(x.detach(), own);
  ring_gather(*this, flat(y));
  return y;
}

Tensor Rank::reduce_scatter(const Tensor& x) {
  check_collective("reduce_scatter", x);
  require(x.dims() > 0 && x.size(0) == size_, "reduce_scatter",
          "x is {}; expected its first dim to be the number of "
          "ranks, {}",
          x.shape(), size_);
  const Tensor sums = clone(x.detach());
  ring_reduce(*this, flat(sums), add_into);
  return clone(view::select(sums, 0, rank_));
}

Tensor Rank::all_to_all(const Tensor& x) {
  check_collective("all_to_all", x);
  require(x.dims() > 0 && x.size(0) == size_, "all_to_all",
          "x is {}; expected its first dim to be the number of ranks, "
          "{}",
          x.shape(), size_);
  Tensor y = clone(x.detach());  // y[rank()] is x[rank()]
  for (int k = 1; k < size_; ++k) send(view::select(x, 0, (rank_ + k) % size_), (rank_ + k) % size_);
  for (int k = 1; k < size_; ++k) {
    const int from = (rank_ + size_ - k) % size_;
    Tensor to = view::select(y, 0, from);
    copy(receive(from), to);
  }
  return y;
}

void Rank::broadcast(Tensor x, int root) {
  check_collective("broadcast", x);
  const int place = (rank_ - root + size_) % size_;  // in the chain from root
  if (place > 0) copy(receive((rank_ + size_ - 1) % size_), x);
  if (place + 1 < size_) send(x, (rank_ + 1) % size_);
}

}  // namespace trireme::labs
