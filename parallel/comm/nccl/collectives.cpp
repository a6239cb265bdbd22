// The collectives of nccl/collectives.h, the public ones first. All that they use of NCCL is in exchange(),
// gather_all() and sum_by_nccl(), besides a broadcast.
#include "parallel/comm/nccl/collectives.h"

#include <algorithm>

#include "parallel/comm/nccl/operation.h"

namespace trireme::comm {
namespace {

// Up to here one all-gather and the whole sum everywhere are faster.
constexpr std::size_t small_message_bytes = 64 * 1024;

/// Rank r's chunk of a tensor of s.count elements, which the ranks share out.
struct Chunk {
  std::int64_t first, count;
  Chunk(const Signature& s, int ranks, int r) {
    const std::int64_t longest = (s.count + ranks - 1) / ranks;
    first = std::min(s.count, r * longest);
    count = std::min(longest, s.count - first);
  }
  std::size_t offset(const Signature& s) const { return static_cast<std::size_t>(first) * size_of(s.dtype); }
  std::size_t bytes(const Signature& s) const { return static_cast<std::size_t>(count) * size_of(s.dtype); }
};

}  // namespace

Tensor NcclCollectives::sum_buffer(const Signature& s) const {
  if (s.order == SumOrder::any) return {};
  const MemoryScope scope(MemoryCategory::communication);
  const bool small = s.kind == CollectiveKind::all_reduce && contribution_bytes(s, size_) <= small_message_bytes;
  const bool whole = small || s.kind == CollectiveKind::reduce_scatter,
             sums = whole || s.kind == CollectiveKind::all_reduce || s.kind == CollectiveKind::reduce;
  const std::int64_t row = whole ? s.count : (s.count + size_ - 1) / size_;
  return sums ? Tensor::empty({size_, row}, s.dtype, Device::cuda) : Tensor();  // [ranks, row]
}

void NcclCollectives::run(const Collective& c, const Signature& s, const Tensor& buffer) {
  if (s.order == SumOrder::any) return sum_by_nccl(c, s);
  if (c.kind == CollectiveKind::all_reduce) return all_reduce(c, s, buffer);
  if (c.kind == CollectiveKind::reduce || c.kind == CollectiveKind::reduce_scatter) return reduce(c, s, buffer);
  move_parts(c, s);
}

void NcclCollectives::run_each_kind(const Tensor& bytes, SumOrder order) {
  const auto ranks = static_cast<std::size_t>(size_);
  std::byte *const sent = device_bytes(bytes), *const received = sent + ranks, *const gathered = received + ranks;
  std::vector<PeerBuffers> peers;
  for (std::size_t r = 0; r < ranks; ++r) peers.push_back({sent + r, 1, received + r, 1});
  exchange(peers);
  gather_all(sent, gathered, 1);
  api_.broadcast(sent, 1, 0, comm_, stream_);
  wait_until_ready_("broadcast");
  if (order == SumOrder::ranks) return;
  api_.all_reduce(sent, size_, DType::u8, comm_, stream_);
  wait_until_ready_("all_reduce");
  api_.reduce_scatter(sent, received, 1, DType::u8, comm_, stream_);
  wait_until_ready_("reduce_scatter");
}

void NcclCollectives::sum_by_nccl(const Collective& c, const Signature& s) {
  if (c.kind == CollectiveKind::all_reduce) {
    api_.all_reduce(device_bytes(c.x), s.count, s.dtype, comm_, stream_);
  } else {
    api_.reduce_scatter(device_bytes(c.x), device_bytes(c.y), s.count, s.dtype, comm_, stream_);
  }
  wait_until_ready_(comm::name(c.kind));
}

void NcclCollectives::all_reduce(const Collective& c, const Signature& s, const Tensor& rows) {
  std::byte* const x = device_bytes(c.x);
  if (rows.count() == s.count * size_) {
    gather_all(x, device_bytes(rows), static_cast<std::size_t>(c.x.bytes()));
    return combine(s, rows, s.count, x);
  }
  const Chunk mine(s, size_, rank_);
  combine(s, rows, gather_chunks(x, s, device_bytes(rows)), x + mine.offset(s));
  if (s.count % size_ == 0) return gather_all(x + mine.offset(s), x, mine.bytes(s));
  std::vector<PeerBuffers> peers;
  for (int r = 0; r < size_; ++r) {
    const Chunk theirs(s, size_, r);
    peers.push_back({x + mine.offset(s), mine.bytes(s), x + theirs.offset(s), theirs.bytes(s)});
  }
  exchange(peers);
}

// reduce_scatter: chunk r of x is row r. reduce: the chunks' sums then go to the root; other ranks' x stays as it is.
void NcclCollectives::reduce(const Collective& c, const Signature& s, const Tensor& rows) {
  std::byte *const x = device_bytes(c.x), *const gathered = device_bytes(rows);
  if (c.kind == CollectiveKind::reduce_scatter) {
    Signature whole = s;
    whole.count = s.count * size_;
    return combine(s, rows, gather_chunks(x, whole, gathered), device_bytes(c.y));
  }
  const Chunk mine(s, size_, rank_);
  std::byte* const sum = rank_ == c.root ? x + mine.offset(s) : gathered;
  combine(s, rows, gather_chunks(x, s, gathered), sum);
  std::vector<PeerBuffers> peers(static_cast<std::size_t>(size_));
  for (int r = 0; r < size_; ++r) {
    PeerBuffers& peer = peers[static_cast<std::size_t>(r)];
    const Chunk theirs(s, size_, r);
    if (r == c.root && r != rank_) peer = {sum, mine.bytes(s), nullptr, 0};
    if (rank_ == c.root && r != rank_) peer = {nullptr, 0, x + theirs.offset(s), theirs.bytes(s)};
  }
  exchange(peers);
}

void NcclCollectives::move_parts(const Collective& c, const Signature& s) {
  std::byte *const x = device_bytes(c.x), *const y = device_bytes(c.y);
  const std::size_t share = static_cast<std::size_t>(s.count) * size_of(s.dtype);
  const auto part = [&](int r) { return static_cast<std::size_t>(r) * share; };
  if (c.kind == CollectiveKind::all_gather) return gather_all(x, y, share);
  if (c.kind == CollectiveKind::broadcast) {
    api_.broadcast(x, share, c.root, comm_, stream_);
    return wait_until_ready_("broadcast");
  }
  const bool is_root = rank_ == c.root;
  std::vector<PeerBuffers> peers(static_cast<std::size_t>(size_));
  for (int r = 0; r < size_; ++r) {
    PeerBuffers& peer = peers[static_cast<std::size_t>(r)];
    if (c.kind == CollectiveKind::all_to_all) peer = {x + part(r), share, y + part(r), share};
    if (c.kind == CollectiveKind::gather) {
      if (r == c.root) peer = {x, share, nullptr, 0};
      if (is_root) peer = {peer.out, peer.out_bytes, y + part(r), share};
    }
    if (c.kind == CollectiveKind::scatter) {
      if (is_root) peer = {x + part(r), share, nullptr, 0};
      if (r == c.root) peer = {peer.out, peer.out_bytes, y, share};
    }
  }
  exchange(peers);
}

// Brings this rank's chunk of everyone's x [s.count] here: rows [ranks, chunk]. Returns the chunk's length.
std::int64_t NcclCollectives::gather_chunks(const std::byte* x, const Signature& s, std::byte* rows) {
  const Chunk mine(s, size_, rank_);
  std::vector<PeerBuffers> peers;
  for (int r = 0; r < size_; ++r) {
    const Chunk theirs(s, size_, r);
    peers.push_back(
        {x + theirs.offset(s), theirs.bytes(s), rows + static_cast<std::size_t>(r) * mine.bytes(s), mine.bytes(s)});
  }
  exchange(peers);
  return mine.count;
}

void NcclCollectives::combine(const Signature& s, const Tensor& rows, std::int64_t count, std::byte* to) {
  if (count == 0) return;
  const Reduction op = s.op == ReduceOp::sum ? Reduction::sum : Reduction::max;
  api_.combine(s.dtype, op, device_bytes(rows), size_, count, to, stream_);
}

void NcclCollectives::exchange(const std::vector<PeerBuffers>& by_rank) {
  const PeerBuffers& own = by_rank[static_cast<std::size_t>(rank_)];
  if (own.out_bytes > 0 && own.in != nullptr && own.in != own.out) api_.copy(own.in, own.out, own.out_bytes, stream_);
  api_.begin_together();
  for (int r = 0; r < size_; ++r) {
    const PeerBuffers& peer = by_rank[static_cast<std::size_t>(r)];
    if (r != rank_ && peer.out_bytes > 0) api_.send(peer.out, peer.out_bytes, r, comm_, stream_);
    if (r != rank_ && peer.in_bytes > 0) api_.receive(peer.in, peer.in_bytes, r, comm_, stream_);
  }
  api_.end_together();
  wait_until_ready_("exchange");
}

void NcclCollectives::gather_all(const std::byte* x, std::byte* y, std::size_t bytes) {
  api_.all_gather(x, y, bytes, comm_, stream_);
  wait_until_ready_("all_gather");
}

}  // namespace trireme::comm
