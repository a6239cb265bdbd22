#include "parallel/zero/bucket.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>

#include "core/kernels.h"

namespace trireme {
namespace {

constexpr std::int64_t piece_alignment = 16;  // elements: a piece is a whole number of 64-byte lines of f32

/// The properties that all parameters of a bucket share.
struct BucketKey {
  const Unit* unit = nullptr;
  std::vector<Axis> axes;
  SumOrder order = SumOrder::ranks;
  bool gathered_on_use = false;
  bool frozen = false;
  DType dtype = DType::f32;
  bool operator==(const BucketKey&) const = default;
};

void choose_groups(ZeroBucket& bucket, const std::vector<Axis>& axes, const DeviceMesh& mesh,
                   const ZeroGroups& groups) {
  for (const Axis axis : axes) {
    if (axis == Axis::tp) {
      bucket.sum_over_tp = true;
    } else if (axis == Axis::data && groups.within != nullptr) {
      bucket.group = groups.within->size() > 1 ? groups.within.get() : nullptr;
      bucket.replicas = groups.across.get();
    } else {
      bucket.group = &mesh.group(axis);
    }
  }
}

void lay_out(ZeroBucket& bucket) {
  std::set<int> firsts = {0};
  for (const ShardPtr& shard : bucket.shards)
    firsts.insert(static_cast<int>(shard->parameter->local.size(shard->dim) % bucket.ranks()));
  for (auto first = firsts.begin(); first != firsts.end(); ++first) {
    const int next = std::next(first) == firsts.end() ? bucket.ranks() : *std::next(first);
    ZeroBucket::Layout layout{.first = *first, .ranks = next - *first, .starts = {}};
    for (const ShardPtr& shard : bucket.shards) {
      layout.starts.push_back(layout.end);
      layout.end += shard->shape(*first).count();
    }
    bucket.piece = std::max(bucket.piece, (layout.end + piece_alignment - 1) / piece_alignment * piece_alignment);
    bucket.layouts.push_back(std::move(layout));
  }
}

/// `n` tensors like `first`, each `stride` elements behind the one before: [n, ..]; or `first`, if n is 1.
Tensor stacked(const Tensor& first, int n, std::int64_t stride) {
  if (n == 1) return first;
  std::vector<std::int64_t> shape = {n}, strides = {stride};
  shape.insert(shape.end(), first.shape().begin(), first.shape().end());
  strides.insert(strides.end(), first.strides().begin(), first.strides().end());
  return first.as_strided(Shape(shape), Shape(strides), 0);
}

/// Calls f(in the pieces, in the local tensor) with views of all shards of all ranks, of several at once if possible.
template <class F>
void for_each_place(const ZeroBucket& bucket, const Tensor& pieces, const std::vector<Tensor>& locals, const F& f) {
  for (std::size_t i = 0; i < bucket.shards.size(); ++i) {
    const Shard& shard = *bucket.shards[i];
    const Tensor& local = locals[i];
    for (const ZeroBucket::Layout& layout : bucket.layouts) {
      if (shard.range(layout.first).length == 0) continue;
      const int n = local.dims() < Shape::max_dims ? layout.ranks : 1;
      for (int rank = layout.first; rank < layout.first + layout.ranks; rank += n) {
        const Tensor own = shard.part(local, rank);
        f(stacked(bucket.in_piece(view::select(pieces, 0, rank), i, rank), n, bucket.piece),
          stacked(own, n, own.size(shard.dim) * own.strides()[shard.dim]));
      }
    }
  }
}

std::map<const Parameter*, const Unit*> units_by_parameter(const Units& units) {
  std::map<const Parameter*, const Unit*> found;
  for (const auto& unit : units.all()) {
    for (const ParameterPtr& parameter : unit->parameters) found[parameter.get()] = unit.get();
  }
  return found;
}

}  // namespace

ZeroGroups make_zero_groups(const DeviceMesh& mesh, int shard_ranks) {
  ProcessGroup& data = mesh.group(Axis::data);
  const int all = data.size();
  if (shard_ranks == 0 || shard_ranks == all) return {};
  if (shard_ranks < 1 || all % shard_ranks != 0) {
    fail(ExitCode::usage, "zero",
         "--dp-shard {} does not divide dp x cp = {}; expected a divisor of {}; change ZeroOptions::shard_ranks "
         "(--dp-shard) or the mesh (--mesh)",
         shard_ranks, all, all);
  }
  const int run = data.rank() / shard_ranks, place = data.rank() % shard_ranks;
  std::vector<int> within, across;
  for (int i = 0; i < shard_ranks; ++i) within.push_back(data.world_rank(run * shard_ranks + i));
  for (int i = place; i < all; i += shard_ranks) across.push_back(data.world_rank(i));
  return {data.subgroup(within, fmt::format("shards {} of {}", run, data.name())),
          data.subgroup(across, fmt::format("copies {} of {}", place, data.name()))};
}

Tensor ZeroBucket::in_piece(const Tensor& piece_of_rank, std::size_t i, int rank) const {
  const Shape shape = shards[i]->shape(rank);
  const auto next = std::ranges::upper_bound(layouts, rank, {}, &Layout::first);
  return view::reshape(view::slice(piece_of_rank, 0, std::prev(next)->starts[i], shape.count()), shape);
}

void ZeroBucket::pack(const std::vector<Tensor>& locals, const Tensor& pieces) const {
  for_each_place(*this, pieces, locals, [](Tensor in_pieces, const Tensor& local) { copy(local, in_pieces); });
  for (const Layout& layout : layouts) {
    const Tensor theirs = view::slice(pieces, 0, layout.first, layout.ranks);
    Tensor padding = view::slice(theirs, 1, layout.end, piece - layout.end);  // [ranks of the layout, padding]
    kernels(padding.device()).fill(padding, 0);
  }
}

void ZeroBucket::unpack(const Tensor& pieces, const std::vector<Tensor>& locals) const {
  for_each_place(*this, pieces, locals, [](const Tensor& in_pieces, Tensor local) { copy(in_pieces, local); });
}

std::vector<Tensor> ZeroBucket::values() const {
  std::vector<Tensor> tensors;
  for (const ShardPtr& shard : shards) tensors.push_back(shard->parameter->local.detach());
  return tensors;
}

std::vector<ZeroBucket> make_zero_buckets(const ParameterList& parameters, const Units& units, const DeviceMesh& mesh,
                                          const ZeroGroups& groups, const ZeroOptions& options, ShardList& shards) {
  const auto unit_of = units_by_parameter(units);
  std::vector<ZeroBucket> buckets;
  std::vector<std::pair<BucketKey, std::size_t>> open;  // of the current unit: the bucket that takes more, by key
  std::vector<std::int64_t> bytes;                      // by bucket
  shards.assign(parameters.size(), nullptr);
  for (std::size_t place = parameters.size(); place-- > 0;) {
    const ParameterPtr& parameter = parameters[place];
    const auto found = unit_of.find(parameter.get());
    if (parameter->unit != nullptr && found == unit_of.end())
      fail(
          ExitCode::usage, "zero",
          "{} is in the unit '{}', which is not among the units given; expected those of the model; give build.units() "
          "of the Build that made it",
          parameter->name, parameter->unit->name);
    BucketKey key{.unit = found == unit_of.end() ? nullptr : found->second,
                  .axes = gradient_axes(parameter->placements, mesh),
                  .order = SumOrder::ranks,
                  .gathered_on_use = false,
                  .frozen = !parameter->requires_grad(),
                  .dtype = parameter->local.dtype()};
    if (!key.axes.empty() && mesh.world().fastest_order() == SumOrder::any)
      key.order = order_of_gradients(parameter->placements, key.axes.front(), mesh);
    ZeroBucket bucket;
    bucket.unit = key.unit;
    bucket.order = key.order;
    bucket.chunk = key.unit == nullptr ? 0 : key.unit->chunk;
    bucket.dtype = key.dtype;
    bucket.frozen = key.frozen;
    choose_groups(bucket, key.axes, mesh, groups);
    key.gathered_on_use = options.stage == 3 && bucket.group != nullptr && key.unit != nullptr &&
                          parameter->local.bytes() >= options.resident_bytes;
    bucket.gathered_on_use = key.gathered_on_use;

    if (!open.empty() && open.front().first.unit != key.unit) open.clear();
    const std::int64_t more = parameter->local.count() * static_cast<std::int64_t>(sizeof(float));
    auto target = std::find_if(open.begin(), open.end(), [&](const auto& o) { return o.first == key; });
    if (target == open.end() || bytes[target->second] + more > options.bucket_bytes) {
      if (target != open.end()) open.erase(target);
      open.emplace_back(key, buckets.size());
      target = std::prev(open.end());
      buckets.push_back(std::move(bucket));
      bytes.push_back(0);
    }
    ZeroBucket& chosen = buckets[target->second];
    bytes[target->second] += more;
    auto shard = std::make_shared<Shard>();
    shard->parameter = parameter;
    shard->group = chosen.group;
    shard->dim = dim_to_cut(parameter->local.shape(), chosen.ranks());
    chosen.places.push_back(place);
    chosen.shards.push_back(shard);
    shards[place] = std::move(shard);
  }
  for (ZeroBucket& bucket : buckets) lay_out(bucket);
  return buckets;
}

}  // namespace trireme
