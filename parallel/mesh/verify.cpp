#include "parallel/mesh/verify.h"

#include <algorithm>

#include "core/error.h"
#include "core/hash.h"
#include "core/kernels.h"
#include "core/parallel_for.h"
#include "parallel/comm/call_site.h"
#include "parallel/comm/values.h"

namespace trireme {
namespace {

/// The first element in which x of group rank `other` differs from that of rank 0, on every rank. Collective.
std::string first_difference(const Tensor& x, ProcessGroup& group, int other) {
  const Tensor mine = contiguous(cast(x.to(Device::cpu), DType::f64));
  Tensor all = Tensor::empty({group.size(), x.count()}, DType::f64);  // [n, count]
  group.all_gather(view::reshape(mine, {x.count()}), all).wait();
  const double *a = all.data<double>(), *b = a + other * x.count();
  const std::int64_t at = std::mismatch(a, a + x.count(), b).first - a;
  if (at == x.count()) return "bits that compare equal";  // 0 and -0
  return fmt::format("element {} is {} and {}", at, a[at], b[at]);
}

}  // namespace

// Hashes each block, then the blocks' hashes: the result does not depend on the number of threads.
std::uint64_t hash_of(const Tensor& x) {
  constexpr std::int64_t block = 1 << 20;  // bytes
  const Tensor dense = contiguous(x.to(Device::cpu));
  const std::span bytes(static_cast<const std::byte*>(dense.raw()), static_cast<std::size_t>(dense.bytes()));
  std::vector<std::uint64_t> hashes(static_cast<std::size_t>((dense.bytes() + block - 1) / block));
  parallel_for(static_cast<std::int64_t>(hashes.size()), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const auto start = static_cast<std::size_t>(i * block);
      hashes[static_cast<std::size_t>(i)] =
          hash_bytes(bytes.subspan(start, std::min<std::size_t>(block, bytes.size() - start)));
    }
  });
  Hasher hasher;
  hasher.add(std::as_bytes(std::span(dense.shape().begin(), dense.shape().end())));
  hasher.add(std::as_bytes(std::span(hashes)));
  return hasher.value() ^ static_cast<std::uint64_t>(x.dtype());
}

void require_same(const Tensor& x, ProcessGroup& group, std::string_view what) {
  if (group.size() == 1) return;
  const Tensor dense = contiguous(x.to(Device::cpu));
  const std::vector<std::uint64_t> hashes = all_gather_values(group, hash_of(dense));
  const auto odd = std::find_if(hashes.begin(), hashes.end(), [&](std::uint64_t h) { return h != hashes[0]; });
  if (odd == hashes.end()) return;
  const int rank = static_cast<int>(odd - hashes.begin());
  fail(
      ExitCode::desync, "verify",
      "{} in {} should be the same on all ranks of '{}', but differs between rank 0 (world rank {}) and rank {} (world "
      "rank {}): {}; of {} {}",
      what, CallSite::current(), group.name(), group.world_rank(0), rank, group.world_rank(rank),
      first_difference(dense, group, rank), name(x.dtype()), to_string(x.shape()));
}

}  // namespace trireme
