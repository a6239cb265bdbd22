#include "parallel/zero/weights.h"

#include <algorithm>
#include <deque>

#include "parallel/comm/call_site.h"

namespace trireme {
namespace {

/// The weights of shard i to hash: f32 ones, and those gathered on use. Otherwise undefined, and the master is hashed.
Tensor hashed_weights(const ZeroBucket& bucket, std::size_t i) {
  const bool continued = bucket.dtype == DType::f32 || bucket.gathered_on_use || bucket.frozen;
  return continued ? bucket.shards[i]->weights : Tensor();
}

}  // namespace

ZeroWeights::ZeroWeights(const std::vector<ZeroBucket>& buckets, Units& units, const ZeroOptions& options)
    : buckets_(buckets), units_(units), options_(options), states_(buckets.size()) {
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    const ZeroBucket& bucket = buckets[b];
    of_unit_[bucket.unit].push_back(b);
    if (bucket.gathered_on_use) {
      const MemoryScope scope(MemoryCategory::parameters);
      states_[b].piece = Tensor::zeros({bucket.piece}, bucket.dtype, bucket.device());
    }
    for (std::size_t i = 0; i < bucket.shards.size(); ++i) {
      Shard& shard = *bucket.shards[i];
      shard.weights = shard.part(shard.parameter->local.detach());
      // Draws a parameter of nn::Build::drawn_on_use().
      static_cast<void>(shard.weights.device_address());
      if (!bucket.gathered_on_use) continue;
      Tensor own = bucket.in_piece(states_[b].piece, i);
      copy(shard.weights, own);
      shard.weights = own;
      shard.parameter->local.release_elements();
    }
  }
  units_.set_observer(this);
}

ZeroWeights::~ZeroWeights() {
  if (units_.observer() == this) units_.set_observer(nullptr);
}

void ZeroWeights::gather(std::size_t b) {
  const ZeroBucket& bucket = buckets_[b];
  const CallSite site("gathers of weights");
  const MemoryScope scope(MemoryCategory::communication);
  states_[b].pieces = Tensor::empty({bucket.ranks(), bucket.piece}, bucket.dtype, bucket.device());  // [n, piece]
  states_[b].arrival = bucket.group->all_gather(states_[b].piece, states_[b].pieces, Launch::background);
}

void ZeroWeights::complete(std::size_t b) {
  BucketWeights& state = states_[b];
  const ZeroBucket& bucket = buckets_[b];
  state.arrival.wait();
  if (bucket.gathered_on_use) {
    for (const ShardPtr& shard : bucket.shards) shard->parameter->local.allocate_elements();
    state.gathered = true;
  } else {
    state.piece = {};
  }
  std::vector<std::uint64_t> versions;
  for (const ShardPtr& shard : bucket.shards) versions.push_back(shard->parameter->local.version());
  bucket.unpack(state.pieces, bucket.values());
  // Backward may gather what forward saved: the values are those of the last update. It has counted the others' change.
  for (std::size_t i = 0; i < bucket.shards.size(); ++i)
    bucket.shards[i]->parameter->local.set_version(bucket.gathered_on_use ? updates_ : versions[i]);
  state.pieces = {};
  state.arrival = {};
}

void ZeroWeights::release(std::size_t b) {
  BucketWeights& state = states_[b];
  if (!buckets_[b].gathered_on_use) return;
  state.arrival = {};  // waits: its collective must run on every rank
  state.pieces = {};
  if (!state.gathered) return;
  for (const ShardPtr& shard : buckets_[b].shards) shard->parameter->local.release_elements();
  state.gathered = false;
}

void ZeroWeights::finish_gathers() {
  for (std::size_t b = buckets_.size(); b-- > 0;) {
    if (buckets_[b].gathered_on_use) {
      release(b);
    } else if (is_gathering(b)) {
      complete(b);
    }
  }
}

std::shared_ptr<const Shard> ZeroWeights::kept_piece(const Parameter& parameter) const {
  for (const ZeroBucket& bucket : buckets_)
    for (const ShardPtr& shard : bucket.shards)
      if (bucket.gathered_on_use && shard->parameter.get() == &parameter) return shard;
  return nullptr;
}

// The shards' tensors are dense here. Those gathered on use, and those of one rank, are updated in place; others in the
// piece that will be gathered. A 16-bit weight is only written, not read, as its f32 master is here.
void ZeroWeights::update_bucket(std::size_t b, const Tensor& gradients,
                                const DataParallel::UpdateShards& update_shards) {
  const ZeroBucket& bucket = buckets_[b];
  const bool in_transit = bucket.group != nullptr && !bucket.gathered_on_use;
  if (in_transit) {
    const MemoryScope scope(MemoryCategory::communication);
    states_[b].piece = Tensor::zeros({bucket.piece}, bucket.dtype, bucket.device());
  }
  std::vector<Tensor> stay;
  for (std::size_t i = 0; i < bucket.shards.size(); ++i) {
    Shard& shard = *bucket.shards[i];
    stay.push_back(shard.weights);
    if (in_transit) {
      shard.parameter->local.mark_written();  // complete() fills it, at a time that optimizers do not know
      shard.weights = bucket.in_piece(states_[b].piece, i);
      if (bucket.dtype == DType::f32) copy(stay[i], shard.weights);
    }
    if (gradients.defined()) shard.gradient = bucket.in_piece(gradients, i);
  }
  check_hashes_of(bucket);
  update_shards(bucket.places);
  for (std::size_t i = 0; i < bucket.shards.size(); ++i) {
    if (shard_hashes_.started()) shard_hashes_.record(bucket.places[i], hashed_weights(bucket, i));
    bucket.shards[i]->gradient = {};
    bucket.shards[i]->weights = stay[i];
  }
}

void ZeroWeights::update(const ZeroGradients& gradients, const DataParallel::UpdateShards& update_shards) {
  finish_gathers();
  ++updates_;
  std::deque<std::size_t> sent;
  std::int64_t bytes = 0;
  for (std::size_t b = buckets_.size(); b-- > 0;) {  // in forward order
    if (buckets_[b].frozen) {
      record_frozen(buckets_[b]);
      continue;
    }
    update_bucket(b, gradients.piece(b), update_shards);
    if (buckets_[b].group == nullptr || buckets_[b].gathered_on_use) continue;
    gather(b);
    sent.push_back(b);
    bytes += states_[b].pieces.bytes();
    for (; bytes > options_.gathering_bytes && sent.size() > 1; sent.pop_front()) {
      bytes -= states_[sent.front()].pieces.bytes();
      complete(sent.front());
    }
  }
  for (const std::size_t b : sent) {  // nothing announces the use of parameters without a unit
    if (buckets_[b].unit == nullptr) complete(b);
  }
}

// Nothing ever writes to frozen weights, so they are hashed once, and not again after every update.
void ZeroWeights::record_frozen(const ZeroBucket& bucket) {
  for (std::size_t i = 0; shard_hashes_.started() && i < bucket.shards.size(); ++i) {
    if (!shard_hashes_.recorded(bucket.places[i])) shard_hashes_.record(bucket.places[i], hashed_weights(bucket, i));
  }
}

void ZeroWeights::check_hashes() {
  finish_gathers();
  for (const ZeroBucket& bucket : buckets_) check_hashes_of(bucket);
}

void ZeroWeights::check_hashes_of(const ZeroBucket& bucket) const {
  for (std::size_t i = 0; shard_hashes_.started() && i < bucket.shards.size(); ++i)
    shard_hashes_.check(bucket.places[i], hashed_weights(bucket, i));
}

std::vector<const Unit*> ZeroWeights::wanted(std::size_t use, bool backward) const {
  std::vector<const Unit*> units = {units_.uses()[use]};
  for (int i = 0; i < options_.prefetch; ++i) {
    if (backward ? use == 0 : use + 1 == units_.uses().size()) break;
    use = backward ? use - 1 : use + 1;
    units.push_back(units_.uses()[use]);
  }
  return units;
}

void ZeroWeights::before_use(std::size_t use, bool backward) {
  const Unit* unit = units_.uses()[use];
  for (const std::size_t b : of_unit_[unit]) {
    if (!buckets_[b].gathered_on_use && is_gathering(b)) complete(b);
  }
  if (options_.stage < 3) return;
  const std::vector<const Unit*> now_or_soon = wanted(use, backward);
  for (std::size_t b = buckets_.size(); b-- > 0;) {
    const bool keep = std::find(now_or_soon.begin(), now_or_soon.end(), buckets_[b].unit) != now_or_soon.end();
    if (!keep) release(b);
  }
  for (const Unit* next : now_or_soon) {
    for (const std::size_t b : of_unit_[next]) {
      if (buckets_[b].gathered_on_use && !states_[b].gathered && !is_gathering(b)) gather(b);
    }
  }
  for (const std::size_t b : of_unit_[unit]) {
    if (buckets_[b].gathered_on_use && !states_[b].gathered) complete(b);
  }
}

}  // namespace trireme
