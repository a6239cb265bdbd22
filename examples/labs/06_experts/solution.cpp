// Lab 6: a solution. The exchange is that of nn/expert_dispatch.cpp, which pads its messages to one size; the capacity
// that of nn/expert_capacity.cpp, for one sequence spread over all ranks.
#include "examples/labs/06_experts/solution.h"

#include <algorithm>
#include <numeric>

namespace trireme::labs::experts::solution {
namespace {

/// [E] i32: how often each expert is chosen. A dropped choice does not count.
Tensor counts_of(const Tensor& expert, std::int64_t experts) {
  Tensor counts = Tensor::zeros({experts}, DType::i32);
  for (const std::int32_t e : expert.span<const std::int32_t>())
    if (e >= 0) ++counts.span<std::int32_t>()[at(e)];
  return counts;
}

}  // namespace

// 1/n of the choices fall on the rank's own experts. The others travel twice: to the expert, and as much comes from
// other ranks and goes back to them.
std::int64_t bytes_sent(int ranks, std::int64_t tokens, int k, std::int64_t width) {
  return 2 * tokens * k * (ranks - 1) / ranks * width * 4;
}

std::int64_t dropped(const std::vector<std::int64_t>& chosen, double capacity_factor) {
  const std::int64_t tokens = std::accumulate(chosen.begin(), chosen.end(), std::int64_t{0});
  const std::int64_t limit = capacity({1, capacity_factor}, tokens, static_cast<std::int64_t>(chosen.size()));
  std::int64_t sum = 0;
  for (const std::int64_t count : chosen) sum += std::max(std::int64_t{0}, count - limit);
  return sum;
}

// All ranks send at once, a message after the other; the latency of all but the last passes beside the next message.
double balanced_seconds(const Cost& cost) {
  const double message = 4.0 * cost.width * cost.tokens / cost.ranks;  // bytes
  const double exchange = cost.latency + (cost.ranks - 1) * message / cost.bytes_per_second;
  return cost.tokens * cost.seconds_per_row + 2 * exchange;
}

// One port takes in everything and sends it back. Apart from the latency, all is n times as long.
double hot_seconds(const Cost& cost) {
  const double message = 4.0 * cost.width * cost.tokens;  // bytes
  const double exchange = cost.latency + (cost.ranks - 1) * message / cost.bytes_per_second;
  return cost.ranks * cost.tokens * cost.seconds_per_row + 2 * exchange;
}

Choices route(Rank& rank, const Tensor& p, const Routing& routing) {
  const TopK top = topk(p, routing.k);  // [N, K]
  Choices choices{clone(top.indices), routing.k == 1 ? top.values : top.values / sum(top.values, 1, true)};
  // Tokens of the ranks before this one come first. Whether they were dropped does not matter: a choice is kept if
  // fewer than `limit` came before it.
  const std::int64_t experts = p.size(1);
  const Tensor all = rank.all_gather(counts_of(choices.expert, experts));  // [n, E]
  const auto counts = all.span<const std::int32_t>();
  std::vector<std::int32_t> before(at(experts));
  for (std::int64_t i = 0; i < rank.rank() * experts; ++i) before[at(i % experts)] += counts[at(i)];
  const std::int64_t tokens = std::accumulate(counts.begin(), counts.end(), std::int64_t{0}) / routing.k;
  const std::int64_t limit = capacity(routing, tokens, experts);
  for (std::int32_t& e : choices.expert.span<std::int32_t>())
    if (before[at(e)]++ >= limit) e = -1;
  return choices;
}

// Sums are added, and divided when they are complete. The product comes last, since it is no mean of anything.
double balance_loss(Rank& rank, const Tensor& p, const Routing& routing) {
  const std::int64_t experts = p.size(1);
  const Tensor chosen = cast(counts_of(topk(p, routing.k).indices, experts), DType::f32);
  const Tensor sums = stack({chosen, sum(p, 0)});  // [2, E]
  rank.all_reduce(sums);
  const double choices = sum(view::select(sums, 0, 0)).item(), tokens = choices / routing.k;
  const Tensor products = view::select(sums, 0, 0) * view::select(sums, 0, 1);  // [E]
  return static_cast<double>(experts) * sum(products).item() / choices / tokens;
}

Tensor repeated(const Tensor& x, std::int64_t k) {
  const std::int64_t tokens = x.size(0), width = x.size(1);
  return reshape(expand(unsqueeze(x, 1), {tokens, k, width}), {tokens * k, width});
}

Tensor counted(const Choices& choices, const Experts& experts) {
  return reshape(counts_of(choices.expert, experts.total()), {experts.total() / experts.here(), experts.here()});
}

Arrived by_expert(const Experts& experts, const Tensor& counts, const std::vector<Tensor>& from) {
  Arrived arrived{counts, {}};
  std::vector<std::int64_t> read(from.size());  // rows of each part
  for (std::int64_t e = 0; e < experts.here(); ++e) {
    std::vector<Tensor> parts;
    for (std::size_t r = 0; r < from.size(); ++r) {
      const std::int64_t count = select(counts, 0, static_cast<int>(r)).span<const std::int32_t>()[at(e)];
      parts.push_back(slice(from[r], 0, read[r], count));
      read[r] += count;
    }
    arrived.rows.push_back(concat(parts, 0));
  }
  return arrived;
}

std::vector<Tensor> by_rank(const Arrived& arrived) {
  std::vector<std::vector<Tensor>> parts(at(arrived.counts.size(0)));
  for (std::size_t e = 0; e < arrived.rows.size(); ++e) {
    std::int64_t begin = 0;
    for (std::size_t r = 0; r < parts.size(); ++r) {
      const std::int64_t count = select(arrived.counts, 0, static_cast<int>(r)).span<const std::int32_t>()[e];
      parts[r].push_back(slice(arrived.rows[e], 0, begin, count));
      begin += count;
    }
  }
  std::vector<Tensor> whole;
  for (const std::vector<Tensor>& of_rank : parts) whole.push_back(concat(of_rank, 0));
  return whole;
}

Arrived dispatch(Rank& rank, const Experts& experts, const Choices& choices, const Tensor& rows) {
  const int n = rank.size(), me = rank.rank();
  const Tensor counts = rank.all_to_all(counted(choices, experts));
  std::vector<Tensor> from(at(n));
  from[at(me)] = gather_rows(rows, choices_for(choices.expert, experts, me));
  // Each rank begins with another receiver, so that no port is crowded.
  for (int k = 1; k < n; ++k) {
    const int to = (me + k) % n;
    rank.send(gather_rows(rows, choices_for(choices.expert, experts, to)), to);
  }
  for (int r = 0; r < n; ++r)
    if (r != me) from[at(r)] = rank.receive(r);
  return by_expert(experts, counts, from);
}

Tensor give_back(Rank& rank, const Experts& experts, const Choices& choices, const Arrived& arrived) {
  const int n = rank.size(), me = rank.rank();
  const std::vector<Tensor> to = by_rank(arrived);
  for (int k = 1; k < n; ++k) rank.send(to[at((me + k) % n)], (me + k) % n);
  // Rows come back in the order in which they were sent, so the sender knows whose they are.
  Tensor results = Tensor::zeros({choices.expert.count(), to[0].size(1)});  // [N K, D]
  for (int r = 0; r < n; ++r) {
    const Tensor part = r == me ? to[at(me)] : rank.receive(r);
    const Tensor places = choices_for(choices.expert, experts, r);
    for (std::int64_t i = 0; i < places.count(); ++i) {
      Tensor row = view::select(results, 0, places.span<const std::int32_t>()[at(i)]);
      copy(view::select(part, 0, i), row);
    }
  }
  return results;
}

Output weighted(const Choices& choices, const Tensor& x, const Tensor& results) {
  const Tensor by_choice = reshape(results, {x.size(0), choices.expert.size(1), x.size(1)});  // [N, K, D]
  return {x + sum(unsqueeze(choices.gate, 2) * by_choice, 1), results};
}

Output forward(Rank& rank, Experts& experts, const Choices& choices, const Tensor& x) {
  Arrived arrived = dispatch(rank, experts, choices, repeated(x, choices.expert.size(1)));
  for (std::int64_t e = 0; e < experts.here(); ++e)
    arrived.rows[at(e)] = experts.forward(rank, experts.first() + e, arrived.rows[at(e)]);
  return weighted(choices, x, give_back(rank, experts, choices, arrived));
}

// Bringing rows somewhere is linear, and its backward brings gradients the other way: that of give_back is dispatch,
// and that of dispatch is give_back.
Gradients backward(Rank& rank, Experts& experts, const Choices& choices, const Tensor& results, const Tensor& dy) {
  const std::int64_t tokens = dy.size(0), k = choices.expert.size(1), width = dy.size(1);
  const Tensor d_results = unsqueeze(choices.gate, 2) * unsqueeze(dy, 1);  // [N, K, D]
  Arrived arrived = dispatch(rank, experts, choices, reshape(d_results, {tokens * k, width}));
  for (std::int64_t e = 0; e < experts.here(); ++e)
    arrived.rows[at(e)] = experts.backward(rank, experts.first() + e, arrived.rows[at(e)]);
  const Tensor d_rows = give_back(rank, experts, choices, arrived);  // [N K, D]
  return {dy + sum(reshape(d_rows, {tokens, k, width}), 1),
          sum(reshape(results, {tokens, k, width}) * unsqueeze(dy, 1), 2)};
}

namespace {
const Registered registered(answer("solution", answers));
}

}  // namespace trireme::labs::experts::solution
