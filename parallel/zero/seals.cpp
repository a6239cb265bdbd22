#include "parallel/zero/seals.h"

#include "core/error.h"
#include "parallel/mesh/verify.h"

namespace trireme {
namespace {

bool is_here(const Tensor& x) { return x.defined() && x.device() == Device::cpu && x.count() > 0; }

void require_unchanged(const std::string& name, const Tensor& x, std::uint64_t expected) {
  const std::uint64_t now = hash_of(x);
  if (now == expected) return;
  fail(ExitCode::retryable, "seal",
       "{} changed in memory since its last update: its hash is {:016x}; expected "
       "{:016x}; nothing was saved; memory or processor of this rank is suspect: start again with --resume auto, on "
       "another machine if it happens again",
       name, now, expected);
}

}  // namespace

void ZeroSeals::start(const ShardList& shards, const std::vector<StateTensor>& state) {
  for (const ShardPtr& shard : shards) {
    Sealed sealed{.name = shard->parameter->name, .state = {}, .state_hashes = {}};
    for (const StateTensor& s : state) {
      if (s.parameter == shard->parameter.get() && is_here(s.value)) sealed.state.emplace_back(s.name, s.value);
    }
    sealed_.push_back(std::move(sealed));
  }
}

void ZeroSeals::seal(std::size_t place, const Tensor& weights) {
  Sealed& sealed = sealed_[place];
  if (is_here(weights)) sealed.weights_hash = hash_of(weights);
  sealed.state_hashes.clear();
  for (const auto& [name, value] : sealed.state) sealed.state_hashes.push_back(hash_of(value));
  sealed.valid = true;
}

void ZeroSeals::check(std::size_t place, const Tensor& weights) const {
  const Sealed& sealed = sealed_[place];
  if (!sealed.valid) return;
  if (is_here(weights)) require_unchanged("the shard of " + sealed.name, weights, sealed.weights_hash);
  for (std::size_t i = 0; i < sealed.state.size(); ++i) {
    const auto& [kind, value] = sealed.state[i];
    require_unchanged(fmt::format("the shard of optimizer.{}.{}", kind, sealed.name), value, sealed.state_hashes[i]);
  }
}

void ZeroSeals::unseal_all() {
  for (Sealed& sealed : sealed_) sealed.valid = false;
}

}  // namespace trireme
