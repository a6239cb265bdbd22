#include "parallel/zero/shard_hashes.h"

#include "core/error.h"
#include "parallel/mesh/verify.h"

namespace trireme {
namespace {

bool is_here(const Tensor& x) { return x.defined() && x.device() == Device::cpu && x.count() > 0; }

void require_unchanged(const std::string& name, const Tensor& x, std::uint64_t expected) {
  const std::uint64_t now = hash_of(x);
  if (now == expected) return;
  fail(ExitCode::retryable, "shard-hash",
       "{} changed in memory since its last update: its hash is {:016x}; expected "
       "{:016x}; nothing was saved; memory or processor of this rank is suspect: start again from a checkpoint "
       "(--resume auto), on another machine if it happens again",
       name, now, expected);
}

}  // namespace

void ShardHashes::start(const ShardList& shards, const std::vector<StateTensor>& state) {
  for (const ShardPtr& shard : shards) {
    Hashed hashed{.name = shard->parameter->name, .state = {}, .state_hashes = {}};
    for (const StateTensor& s : state) {
      if (s.parameter == shard->parameter.get() && is_here(s.value)) hashed.state.emplace_back(s.name, s.value);
    }
    shards_.push_back(std::move(hashed));
  }
}

void ShardHashes::record(std::size_t place, const Tensor& weights) {
  Hashed& hashed = shards_[place];
  if (is_here(weights)) hashed.weights_hash = hash_of(weights);
  hashed.state_hashes.clear();
  for (const auto& [name, value] : hashed.state) hashed.state_hashes.push_back(hash_of(value));
  hashed.valid = true;
}

void ShardHashes::check(std::size_t place, const Tensor& weights) const {
  const Hashed& hashed = shards_[place];
  if (!hashed.valid) return;
  if (is_here(weights)) require_unchanged("the shard of " + hashed.name, weights, hashed.weights_hash);
  for (std::size_t i = 0; i < hashed.state.size(); ++i) {
    const auto& [kind, value] = hashed.state[i];
    require_unchanged(fmt::format("the shard of optimizer.{}.{}", kind, hashed.name), value, hashed.state_hashes[i]);
  }
}

void ShardHashes::forget() {
  for (Hashed& hashed : shards_) hashed.valid = false;
}

}  // namespace trireme
