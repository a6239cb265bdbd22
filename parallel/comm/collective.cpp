#include "parallel/comm/collective.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace trireme::comm {
namespace {

bool has_root(CollectiveKind kind) {
  return kind == CollectiveKind::broadcast || kind == CollectiveKind::reduce || kind == CollectiveKind::gather ||
         kind == CollectiveKind::scatter;
}

void check_dense(const Tensor& tensor, const char* which, const Collective& collective) {
  require(tensor.defined(), name(collective.kind), "{} is undefined; every tensor of this call must hold elements",
          which);
  require(tensor.contiguous(), name(collective.kind), "{} {} is not dense; call contiguous() first", which,
          to_string(tensor.shape()));
}

// Counts are compared, not shapes: [n, a, b] and its reshape [n * a, b] are the same elements in the same order.
void check_counts(const Collective& c, const Tensor& whole, const Tensor& share, int ranks) {
  const bool x_is_whole = &whole == &c.x;
  require(whole.count() == share.count() * ranks, name(c.kind),
          "x {} and y {} do not fit a group of {} ranks; expected {} to have {} times the elements of {}",
          to_string(c.x.shape()), to_string(c.y.shape()), ranks, x_is_whole ? "x" : "y", ranks, x_is_whole ? "y" : "x");
  require(whole.dtype() == share.dtype(), name(c.kind), "x is {} but y is {}; expected one dtype", name(c.x.dtype()),
          name(c.y.dtype()));
}

}  // namespace

const char* name(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::all_reduce:
      return "all_reduce";
    case CollectiveKind::all_gather:
      return "all_gather";
    case CollectiveKind::reduce_scatter:
      return "reduce_scatter";
    case CollectiveKind::all_to_all:
      return "all_to_all";
    case CollectiveKind::broadcast:
      return "broadcast";
    case CollectiveKind::reduce:
      return "reduce";
    case CollectiveKind::gather:
      return "gather";
    case CollectiveKind::scatter:
      return "scatter";
    case CollectiveKind::barrier:
      return "barrier";
  }
  return "?";
}

std::string to_string(const Signature& s) {
  if (s.kind == CollectiveKind::barrier) return "barrier()";
  const bool reduces = s.kind == CollectiveKind::all_reduce || s.kind == CollectiveKind::reduce_scatter ||
                       s.kind == CollectiveKind::reduce;
  std::string text = fmt::format("{}(", name(s.kind));
  if (reduces) text += s.op == ReduceOp::sum ? "sum of " : "max of ";
  text += fmt::format("{} {}", s.count, name(s.dtype));
  if (has_root(s.kind)) text += fmt::format(", root {}", s.root);
  if (s.order == SumOrder::any) text += " in any order";
  return text + ")";
}

bool is_split(CollectiveKind kind) {
  return kind == CollectiveKind::reduce_scatter || kind == CollectiveKind::all_to_all ||
         kind == CollectiveKind::scatter;
}

std::size_t contribution_bytes(const Signature& s, int ranks) {
  const auto shares = static_cast<std::size_t>(is_split(s.kind) ? ranks : 1);
  return static_cast<std::size_t>(s.count) * size_of(s.dtype) * shares;
}

Signature Collective::signature(int ranks) const {
  if (kind == CollectiveKind::barrier) return {};
  const bool by_y = kind == CollectiveKind::reduce_scatter || kind == CollectiveKind::scatter;
  const std::int64_t count = by_y ? y.count() : kind == CollectiveKind::all_to_all ? x.count() / ranks : x.count();
  return {kind, op, by_y ? y.dtype() : x.dtype(), root, count, order};
}

void check(const Collective& c, const ProcessGroup& group) {
  if (c.kind == CollectiveKind::barrier) return;
  require(c.root >= 0 && c.root < group.size(), name(c.kind), "root {} is not a rank of group '{}' of size {}", c.root,
          group.name(), group.size());
  // A broadcast is how ranks get equal weights, which require a gradient.
  require(c.kind == CollectiveKind::broadcast || !(c.x.requires_grad() || c.y.requires_grad()), name(c.kind),
          "{} requires a gradient, and collectives are not recorded: backward would not see this one; expected tensors "
          "without; give it x.detach(), or move a tensor of a forward with redistribute(), which is recorded",
          c.x.requires_grad() ? "x" : "y");
  const bool is_root = group.rank() == c.root;
  if (c.kind != CollectiveKind::scatter || is_root) check_dense(c.x, "x", c);
  switch (c.kind) {
    case CollectiveKind::all_gather:
      check_dense(c.y, "y", c);
      check_counts(c, c.y, c.x, group.size());
      break;
    case CollectiveKind::gather:
      if (!is_root) break;
      check_dense(c.y, "y", c);
      check_counts(c, c.y, c.x, group.size());
      break;
    case CollectiveKind::reduce_scatter:
      check_dense(c.y, "y", c);
      check_counts(c, c.x, c.y, group.size());
      break;
    case CollectiveKind::scatter:
      check_dense(c.y, "y", c);
      if (is_root) check_counts(c, c.x, c.y, group.size());
      break;
    case CollectiveKind::all_to_all:
      check_dense(c.y, "y", c);
      require(c.x.count() == c.y.count() && c.x.dtype() == c.y.dtype() && c.x.count() % group.size() == 0, name(c.kind),
              "x {} {} and y {} {}; expected equal counts, divisible by the {} ranks", to_string(c.x.shape()),
              name(c.x.dtype()), to_string(c.y.shape()), name(c.y.dtype()), group.size());
      require(c.x.count() == 0 || c.x.device_address() != c.y.device_address(), name(c.kind),
              "x and y are the same memory; expected two tensors");
      break;
    default:
      break;
  }
}

std::string list_ranks(const ProcessGroup& group, const std::vector<int>& group_ranks) {
  std::string text;
  for (const int rank : group_ranks) {
    text += fmt::format("{}rank {} (world rank {})", text.empty() ? "" : ", ", rank, group.world_rank(rank));
  }
  return text;
}

Work dispatch(ProcessGroup& group, const Collective& c, Launch launch) {
  switch (c.kind) {
    case CollectiveKind::all_reduce:
      return group.all_reduce(c.x, c.op, launch, c.order);
    case CollectiveKind::all_gather:
      return group.all_gather(c.x, c.y, launch);
    case CollectiveKind::reduce_scatter:
      return group.reduce_scatter(c.x, c.y, launch, c.order);
    case CollectiveKind::all_to_all:
      return group.all_to_all(c.x, c.y, launch);
    case CollectiveKind::broadcast:
      return group.broadcast(c.x, c.root, launch);
    case CollectiveKind::reduce:
      return group.reduce(c.x, c.root, launch);
    case CollectiveKind::gather:
      return group.gather(c.x, c.y, c.root, launch);
    case CollectiveKind::scatter:
      return group.scatter(c.x, c.y, c.root, launch);
    case CollectiveKind::barrier:
      break;
  }
  group.barrier();
  return {};
}

// A result counts as written when the operation is launched: Tensor::version().
//
// Where all sums are in rank order, the caller's permission is dropped here. A maximum is the same in any order.
Work CollectiveGroup::all_reduce(Tensor x, ReduceOp op, Launch launch, SumOrder order) {
  x.mark_written();
  const bool fast = op == ReduceOp::sum && order == SumOrder::any;
  return submit({CollectiveKind::all_reduce, op, 0, std::move(x), {}, {}, fast ? fastest_order() : SumOrder::ranks},
                launch);
}
Work CollectiveGroup::all_gather(Tensor x, Tensor y, Launch launch) {
  y.mark_written();
  return submit({CollectiveKind::all_gather, ReduceOp::sum, 0, std::move(x), std::move(y)}, launch);
}
Work CollectiveGroup::reduce_scatter(Tensor x, Tensor y, Launch launch, SumOrder order) {
  y.mark_written();
  const SumOrder made = order == SumOrder::any ? fastest_order() : SumOrder::ranks;
  return submit({CollectiveKind::reduce_scatter, ReduceOp::sum, 0, std::move(x), std::move(y), {}, made}, launch);
}
Work CollectiveGroup::all_to_all(Tensor x, Tensor y, Launch launch) {
  y.mark_written();
  return submit({CollectiveKind::all_to_all, ReduceOp::sum, 0, std::move(x), std::move(y)}, launch);
}
Work CollectiveGroup::broadcast(Tensor x, int root, Launch launch) {
  if (rank() != root) x.mark_written();
  return submit({CollectiveKind::broadcast, ReduceOp::sum, root, std::move(x), {}}, launch);
}
Work CollectiveGroup::reduce(Tensor x, int root, Launch launch) {
  if (rank() == root) x.mark_written();
  return submit({CollectiveKind::reduce, ReduceOp::sum, root, std::move(x), {}}, launch);
}
Work CollectiveGroup::gather(Tensor x, Tensor y, int root, Launch launch) {
  y.mark_written();
  return submit({CollectiveKind::gather, ReduceOp::sum, root, std::move(x), std::move(y)}, launch);
}
Work CollectiveGroup::scatter(Tensor x, Tensor y, int root, Launch launch) {
  y.mark_written();
  return submit({CollectiveKind::scatter, ReduceOp::sum, root, std::move(x), std::move(y)}, launch);
}
void CollectiveGroup::barrier() { submit({}, Launch::lazy).wait(); }

void check_message(const char* where, const Tensor& x, int peer, int tag, const ProcessGroup& group) {
  require(x.defined() && x.contiguous(), where, "the tensor is undefined or not dense; call contiguous() first");
  require(peer >= 0 && peer < group.size(), where, "{} is not a rank of group '{}' of size {}", peer, group.name(),
          group.size());
  require(tag >= 0, where, "tag {} is negative", tag);
}

int place_in_subgroup(const std::vector<int>& world_ranks, const std::string& name, const ProcessGroup& parent) {
  const std::vector<int>& members = parent.members();
  enum State : char { elsewhere, in_parent, listed };
  std::vector<State> states(static_cast<std::size_t>(*std::max_element(members.begin(), members.end()) + 1));
  for (const int rank : members) states[static_cast<std::size_t>(rank)] = in_parent;
  for (const int rank : world_ranks) {
    const bool known = rank >= 0 && static_cast<std::size_t>(rank) < states.size();
    const State state = known ? std::exchange(states[static_cast<std::size_t>(rank)], listed) : elsewhere;
    require(state != listed, "subgroup", "'{}' lists rank {} twice", name, rank);
    require(state == in_parent, "subgroup", "'{}' lists world rank {}, which is not in its parent '{}'", name, rank,
            parent.name());
  }
  const int me = parent.world_rank(parent.rank());
  const auto place = std::find(world_ranks.begin(), world_ranks.end(), me);
  require(place != world_ranks.end(), "subgroup", "'{}' does not list the calling rank {}", name, me);
  return static_cast<int>(place - world_ranks.begin());
}

}  // namespace trireme::comm
