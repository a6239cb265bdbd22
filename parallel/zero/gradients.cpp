#include "parallel/zero/gradients.h"

#include <algorithm>
#include <utility>

#include "core/kernels.h"
#include "core/stopwatch.h"
#include "parallel/comm/call_site.h"

namespace trireme {
namespace {

constexpr std::int64_t gradient_alignment = 16;  // elements: each gradient starts on a 64-byte line

std::int64_t padded(std::int64_t count) {
  return (count + gradient_alignment - 1) / gradient_alignment * gradient_alignment;
}

/// Elements of a bucket's full-size gradient. The piece must fit into it: stage 1 stores it there.
std::int64_t full_count(const ZeroBucket& bucket) {
  std::int64_t count = 0;
  for (const ShardPtr& shard : bucket.shards) count += padded(shard->parameter->local.count());
  return std::max(count, bucket.piece);
}

void fill(const Tensor& x, double value) {
  Tensor y = x;
  kernels(y.device()).fill(y, value);
}

/// How many buckets may be on the way at a time; each is a packed copy of its gradients. As many as a block has: then a
/// bucket has the time of a block's backward to arrive. With fewer, backward would wait for it, and after it all earlier
/// stages of a pipeline.
std::size_t buckets_of_largest_unit(const std::vector<ZeroBucket>& buckets) {
  std::map<const Unit*, std::size_t> counts;
  std::size_t most = 2;
  for (const ZeroBucket& bucket : buckets)
    if (!bucket.frozen && bucket.unit != nullptr) most = std::max(most, ++counts[bucket.unit]);
  return most;
}

}  // namespace

ZeroGradients::ZeroGradients(const std::vector<ZeroBucket>& buckets, const ParameterList& tied, const DeviceMesh& mesh,
                             bool each_microbatch)
    : buckets_(buckets),
      tied_(tied),
      mesh_(mesh),
      each_microbatch_(each_microbatch),
      most_on_the_way_(buckets_of_largest_unit(buckets)),
      states_(buckets.size()) {
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    if (buckets[b].frozen) {
      place_in_round_.push_back(0);
      continue;
    }
    Round& round = rounds_[buckets[b].chunk];
    place_in_round_.push_back(round.buckets.size());
    round.buckets.push_back(b);
    for (std::size_t i = 0; i < buckets[b].shards.size(); ++i) {
      Leaf& leaf = buckets[b].shards[i]->parameter->leaf();
      leaf.set_grad_source([this, b] { start_filling(b); });
      leaf.on_grad_ready([this, b, i] { gradient_ready(b, i); });
      buckets[b].shards[i]->parameter->summed_by = GradientSum::zero;
    }
    states_[b].ready.assign(buckets[b].shards.size(), false);
    states_[b].missing = buckets[b].shards.size();
    if (!each_microbatch) start_filling(b);
  }
}

ZeroGradients::~ZeroGradients() {
  for (const ZeroBucket& bucket : buckets_) {
    for (const ShardPtr& shard : bucket.shards) {
      Leaf* const leaf = leaf_of(shard->parameter->local);
      if (bucket.frozen || leaf == nullptr) continue;
      leaf->set_grad_source({});
      leaf->clear_hooks();
      shard->parameter->summed_by = GradientSum::nobody;
    }
  }
}

void ZeroGradients::require_summed(std::string_view where) const {
  if (!summed_)
    fail(ExitCode::usage, where,
         "the gradients are those of this rank's samples: Zero::finish() was not called after the last backward; "
         "expected the sums over all ranks; call finish() first");
}

std::vector<Tensor> ZeroGradients::views(std::size_t b, const Tensor& full) const {
  std::vector<Tensor> gradients;
  std::int64_t start = 0;
  for (const ShardPtr& shard : buckets_[b].shards) {
    const Shape& shape = shard->parameter->local.shape();
    gradients.push_back(view::reshape(view::slice(full, 0, start, shape.count()), shape));
    start += padded(shape.count());
  }
  return gradients;
}

bool ZeroGradients::sent_this_round(std::size_t b) { return place_in_round_[b] < rounds_[buckets_[b].chunk].sent; }

// Gives the bucket's parameters zero gradients to add to. Must not send: the calling operation may still have to add to
// other buckets' gradients.
void ZeroGradients::start_filling(std::size_t b) {
  require(sending_ || !each_microbatch_, "zero",
          "{}: the gradient of {} is sharded; there is no whole one between steps, and a step begins with zero_grad()",
          mesh_.where(), buckets_[b].shards.front()->parameter->name);
  if (sent_this_round(b)) rounds_[buckets_[b].chunk].over = true;
  const MemoryScope scope(MemoryCategory::gradients);
  states_[b].full = Tensor::zeros({full_count(buckets_[b])}, DType::f32, buckets_[b].device());  // [n]
  const std::vector<Tensor> gradients = views(b, states_[b].full);
  for (std::size_t i = 0; i < gradients.size(); ++i) buckets_[b].shards[i]->parameter->leaf().set_grad(gradients[i]);
}

void ZeroGradients::zero_grad(int microbatches) {
  summed_ = false;
  sending_ = each_microbatch_;
  expected_pieces_ = each_microbatch_ ? microbatches : 1;
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    if (buckets_[b].frozen) continue;
    BucketGradients& state = states_[b];
    state.sum = state.after_replica_sum = {};
    state.pieces = 0;
    state.summed = false;
    if (!each_microbatch_) fill(state.full, 0);
  }
}

void ZeroGradients::gradient_ready(std::size_t b, std::size_t i) {
  require(!summed_, "zero",
          "{}: {} gets a gradient after finish(), which would be added to the sum over ranks; expected zero_grad() "
          "before the first backward of a step",
          mesh_.where(), buckets_[b].shards[i]->parameter->name);
  if (!sending_) return;
  BucketGradients& state = states_[b];
  require(each_microbatch_ || !sent_this_round(b), "zero",
          "{}: {} was completed again in the last backward, after its gradient was sent", mesh_.where(),
          buckets_[b].shards[i]->parameter->name);
  Round& round = rounds_[buckets_[b].chunk];
  if (round.over || sent_this_round(b)) end_round(round);
  if (state.ready[i]) return;
  state.ready[i] = true;
  --state.missing;
  send_full(round);
}

void ZeroGradients::send_full(Round& round) {
  while (round.sent < round.buckets.size() && states_[round.buckets[round.sent]].missing == 0) {
    send(round.buckets[round.sent++]);
    ++report_.buckets_overlapped;
  }
  if (each_microbatch_ && round.sent == round.buckets.size()) end_round(round);
}

void ZeroGradients::end_round(Round& round) {
  while (round.sent < round.buckets.size()) send(round.buckets[round.sent++]);
  round.sent = 0;
  round.over = false;
  ++round.ended;
}

void ZeroGradients::send(std::size_t b) {
  const CallSite site("sums of gradients");
  const ZeroBucket& bucket = buckets_[b];
  BucketGradients& state = states_[b];
  Tensor packed;  // [n, piece]
  {
    const MemoryScope scope(MemoryCategory::communication);
    packed = Tensor::empty({bucket.ranks(), bucket.piece}, DType::f32, bucket.device());
  }
  if (state.full.defined()) {
    bucket.pack(views(b, state.full), packed);
  } else {
    fill(packed, 0);  // no operation of this rank took part
  }
  if (each_microbatch_) {
    state.full = {};
    for (const ShardPtr& shard : bucket.shards) shard->parameter->leaf().set_grad({});
  }
  std::fill(state.ready.begin(), state.ready.end(), false);
  state.missing = state.ready.size();

  Sent sent{b, {}, {}};
  if (bucket.group == nullptr) {
    sent.piece = view::reshape(packed, {bucket.piece});
  } else {
    const MemoryScope scope(MemoryCategory::gradients);
    sent.piece = Tensor::empty({bucket.piece}, DType::f32, bucket.device());
    sent.work = bucket.group->reduce_scatter(packed, sent.piece, Launch::background, bucket.order);
    report_.bytes += packed.bytes();
  }
  sent_.push_back(std::move(sent));
  packed = {};
  // A bucket without a group (the same on all ranks) has nothing to wait for.
  while (!sent_.empty() && (sent_.size() > most_on_the_way_ || buckets_[sent_.front().bucket].group == nullptr))
    receive_first();
}

void ZeroGradients::receive_first() {
  Sent sent = std::move(sent_.front());
  sent_.pop_front();
  sent.work.wait();
  BucketGradients& state = states_[sent.bucket];
  Tensor& sum = state.summed ? state.after_replica_sum : state.sum;
  if (!each_microbatch_) {
    sum = view::slice(state.full, 0, 0, buckets_[sent.bucket].piece);
    copy(sent.piece, sum);
  } else if (!sum.defined()) {
    sum = sent.piece;
  } else {
    kernels(sum.device()).axpby(1.0, sent.piece, 1.0, sum);
  }
  if (++state.pieces == expected_pieces_ && buckets_[sent.bucket].replicas != nullptr) sum_over_copies(sent.bucket);
}

void ZeroGradients::sum_over_copies(std::size_t b) {
  BucketGradients& state = states_[b];
  state.summed = true;
  if (state.sum.count() == 0) return;  // the same on every rank of the group
  const CallSite site("sums of gradients over copies");
  over_copies_.push_back(
      buckets_[b].replicas->all_reduce(state.sum, ReduceOp::sum, Launch::background, buckets_[b].order));
  report_.bytes += state.sum.bytes();
  if (sending_) ++report_.copies_overlapped;
}

void ZeroGradients::sum_over(const Tensor& x, ProcessGroup& group, SumOrder order) {
  if (x.count() == 0) return;  // the same on every rank of the group
  group.all_reduce(x, ReduceOp::sum, Launch::lazy, order).wait();
  report_.bytes += x.bytes();
}

GradSyncReport ZeroGradients::finish() {
  require(!summed_, "zero",
          "{}: finish() was called twice, which would add up sums over ranks once more; expected zero_grad() and a "
          "backward in between",
          mesh_.where());
  const CallSite site("sums of gradients");
  const Stopwatch stopwatch;
  sending_ = false;
  for (auto& [chunk, round] : rounds_) {
    if (round.over) end_round(round);
    const bool filling =
        std::any_of(round.buckets.begin(), round.buckets.end(), [&](auto b) { return states_[b].full.defined(); });
    if (!each_microbatch_ || round.sent > 0 || filling || round.ended == 0) end_round(round);
    round.ended = 0;
  }
  while (!sent_.empty()) receive_first();
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    if (!buckets_[b].frozen && buckets_[b].replicas != nullptr && !states_[b].summed) sum_over_copies(b);
  }
  for (Work& work : over_copies_) work.wait();
  over_copies_.clear();
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    if (buckets_[b].frozen) continue;
    BucketGradients& state = states_[b];
    if (state.after_replica_sum.defined()) {
      sum_over(state.after_replica_sum, *buckets_[b].replicas, buckets_[b].order);
      kernels(state.sum.device()).axpby(1.0, state.after_replica_sum, 1.0, state.sum);
      state.after_replica_sum = {};
    }
    if (buckets_[b].sum_over_tp) sum_over(state.sum, mesh_.group(Axis::tp), SumOrder::ranks);
  }
  for (const ParameterPtr& parameter : tied_) {
    for (std::size_t b = 0; b < buckets_.size(); ++b) {
      for (std::size_t i = 0; i < buckets_[b].shards.size(); ++i) {
        if (buckets_[b].shards[i]->parameter == parameter)
          sum_over(buckets_[b].in_piece(states_[b].sum, i), *mesh_.pipeline_ends(), SumOrder::ranks);
      }
    }
  }
  summed_ = true;
  report_.exposed_seconds = stopwatch.seconds();
  return std::exchange(report_, {});
}

}  // namespace trireme
