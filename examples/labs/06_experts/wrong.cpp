// Lab 6: wrong answers, each with a part of the message that it must get. Most give plausible numbers; the last three
// try to fool the grader. tests/labs runs them. Do not read this before your own answer: what is wrong shows what is
// right.
#include <algorithm>
#include <map>
#include <mutex>

#include "examples/labs/06_experts/solution.h"

namespace trireme::labs::experts {
namespace {

using solution::Arrived;

template <class Function>
Answer wrong(std::string name, Function Answers::*which, Function function, std::string expected) {
  Answers answers = solution::answers;
  answers.*which = function;
  return answer(std::move(name), answers, std::move(expected));
}

std::int32_t id(const Tensor& x, std::int64_t i) { return x.span<const std::int32_t>()[at(i)]; }

// ---- route ---------------------------------------------------------------------------------------------------------

/// Each rank gives out the places of its own tokens: each has 1/n of them.
Choices capacity_of_a_rank(Rank&, const Tensor& p, const Routing& routing) {
  const TopK top = topk(p, routing.k);
  Choices choices{clone(top.indices), routing.k == 1 ? top.values : top.values / sum(top.values, 1, true)};
  const std::int64_t limit = capacity(routing, p.size(0), p.size(1));
  std::vector<std::int64_t> taken(at(p.size(1)));
  for (std::int32_t& e : choices.expert.span<std::int32_t>())
    if (taken[at(e)]++ >= limit) e = -1;
  return choices;
}
const Registered a(wrong("capacity of each rank", &Answers::route, capacity_of_a_rank, "one rank that has all"));

/// The limit is right, but each rank counts from 0.
Choices counts_from_zero(Rank& rank, const Tensor& p, const Routing& routing) {
  Tensor tokens = Tensor::full({1}, static_cast<double>(p.size(0)));
  rank.all_reduce(tokens);
  const TopK top = topk(p, routing.k);
  Choices choices{clone(top.indices), solution::route(rank, p, routing).gate};
  const std::int64_t limit = capacity(routing, static_cast<std::int64_t>(tokens.item()), p.size(1));
  std::vector<std::int64_t> taken(at(p.size(1)));
  for (std::int32_t& e : choices.expert.span<std::int32_t>())
    if (taken[at(e)]++ >= limit) e = -1;
  return choices;
}
const Registered b(wrong("each rank counts from 0", &Answers::route, counts_from_zero, "one rank that has all"));

/// First choices get places before second ones. An earlier token then depends on later ones.
Choices first_choices_first(Rank& rank, const Tensor& p, const Routing& routing) {
  const std::int64_t experts = p.size(1), k = routing.k;
  const TopK top = topk(p, k);
  Tensor counts = Tensor::zeros({k, experts}, DType::i32);
  for (std::int64_t i = 0; i < top.indices.count(); ++i)
    ++counts.span<std::int32_t>()[at(i % k * experts + id(top.indices, i))];
  const Tensor all = rank.all_gather(counts);  // [n, K, E]
  std::vector<std::int64_t> taken(at(k * experts));
  std::int64_t choices_of_all = 0;
  for (std::int64_t i = 0; i < all.count(); ++i) {
    const std::int64_t from = i / (k * experts), j = i / experts % k, e = i % experts;
    choices_of_all += id(all, i);
    for (std::int64_t later = j; later < k; ++later)
      if (later > j || from < rank.rank()) taken[at(later * experts + e)] += id(all, i);
  }
  Choices choices{clone(top.indices), solution::route(rank, p, routing).gate};
  const std::int64_t limit = capacity(routing, choices_of_all / k, experts);
  for (std::int64_t i = 0; i < choices.expert.count(); ++i)
    if (std::int32_t& e = choices.expert.span<std::int32_t>()[at(i)]; taken[at(i % k * experts + e)]++ >= limit) e = -1;
  return choices;
}
const Registered c(wrong("first choices first", &Answers::route, first_choices_first, "one rank that has all"));

Choices not_renormalised(Rank& rank, const Tensor& p, const Routing& routing) {
  return {solution::route(rank, p, routing).expert, topk(p, routing.k).values};
}
const Registered d(wrong("gates that do not add up to 1", &Answers::route, not_renormalised,
                         "times what it should be"));

/// With one choice the gate is 1, whatever the router says.
Choices always_renormalised(Rank& rank, const Tensor& p, const Routing& routing) {
  const Tensor values = topk(p, routing.k).values;
  return {solution::route(rank, p, routing).expert, values / sum(values, 1, true)};
}
const Registered e(wrong("one choice, renormalised", &Answers::route, always_renormalised, "at [0]: 1, expected 0."));

/// The gates of what was kept add up to 1.
Choices renormalised_after(Rank& rank, const Tensor& p, const Routing& routing) {
  Choices choices = solution::route(rank, p, routing);
  if (routing.k == 1) return choices;
  const Tensor kept = where(choices.expert < 0.0, 0.0, choices.gate);
  return {choices.expert, kept / (sum(kept, 1, true) + 1e-20)};
}
const Registered f(wrong("renormalised after the drop", &Answers::route, renormalised_after, "gates of token"));

/// Every rank is told all probabilities.
Choices everything_to_everybody(Rank& rank, const Tensor& p, const Routing& routing) {
  for (int k = 1; k < rank.size(); ++k) rank.send(p, (rank.rank() + k) % rank.size());
  for (int k = 1; k < rank.size(); ++k) rank.receive((rank.rank() + k) % rank.size());
  return solution::route(rank, p, routing);
}
const Registered g(wrong("all probabilities to everybody", &Answers::route, everything_to_everybody,
                         "however many tokens it has"));

// ---- balance_loss --------------------------------------------------------------------------------------------------

/// [2, E]: this rank's own f and P.
Tensor own_means(const Tensor& p, const Routing& routing) {
  const Tensor chosen = one_hot(reshape(topk(p, routing.k).indices, {p.size(0) * routing.k}), p.size(1));
  const double tokens = std::max(1.0, static_cast<double>(p.size(0)));
  return stack({sum(chosen, 0) / (tokens * routing.k), sum(p, 0) / tokens});
}
double loss_of(const Tensor& means) {
  return static_cast<double>(means.size(1)) * sum(select(means, 0, 0) * select(means, 0, 1)).item();
}

double mean_of_losses(Rank& rank, const Tensor& p, const Routing& routing) {
  const Tensor loss = Tensor::full({1}, loss_of(own_means(p, routing)));
  rank.all_reduce(loss);
  return loss.item() / rank.size();
}
const Registered h(wrong("the mean of the losses", &Answers::balance_loss, mean_of_losses,
                         "Each alone, the ranks find"));

/// Right if all ranks have equally many tokens.
double mean_of_means(Rank& rank, const Tensor& p, const Routing& routing) {
  const Tensor means = own_means(p, routing);
  rank.all_reduce(means);
  return loss_of(means / static_cast<double>(rank.size()));
}
const Registered i(wrong("the mean of the means", &Answers::balance_loss, mean_of_means, "Each alone, the ranks find"));

// ---- forward -------------------------------------------------------------------------------------------------------

/// solution::forward, with another way to bring rows to experts, or back.
template <auto dispatch, auto give_back>
Output forward_by(Rank& rank, Experts& experts, const Choices& choices, const Tensor& x) {
  Arrived arrived = dispatch(rank, experts, choices, solution::repeated(x, choices.expert.size(1)));
  for (std::int64_t e = 0; e < experts.here(); ++e)
    arrived.rows[at(e)] = experts.forward(rank, experts.first() + e, arrived.rows[at(e)]);
  return solution::weighted(choices, x, give_back(rank, experts, choices, arrived));
}

Output dropped_to_zero(Rank& rank, Experts& experts, const Choices& choices, const Tensor& x) {
  const Output right = solution::forward(rank, experts, choices, x);
  const Tensor kept = max(cast_to(choices.expert >= 0.0, DType::f32), 1, true);  // [N, 1]
  return {right.y * kept, right.results};
}
const Registered j(wrong("dropped tokens become 0", &Answers::forward, dropped_to_zero, "zero, and should not be"));

/// The last choice's result overwrites the others.
Output last_choice_only(Rank& rank, Experts& experts, const Choices& choices, const Tensor& x) {
  const Output right = solution::forward(rank, experts, choices, x);
  const std::int64_t k = choices.expert.size(1);
  const Tensor results = reshape(right.results, {x.size(0), k, x.size(1)});
  return {x + slice(choices.gate, 1, k - 1, 1) * select(results, 1, k - 1), right.results};
}
const Registered l(wrong("one choice is lost", &Answers::forward, last_choice_only, "y of token"));

/// Results stand as they arrive: those of rank 0 first.
Tensor in_order_of_arrival(Rank& rank, const Experts& experts, const Choices& choices, const Arrived& arrived) {
  const Tensor right = solution::give_back(rank, experts, choices, arrived);
  std::vector<Tensor> parts;
  for (int r = 0; r < rank.size(); ++r) parts.push_back(gather_rows(right, choices_for(choices.expert, experts, r)));
  const Tensor all = concat(parts, 0);
  return pad(all, 0, 0, right.size(0) - all.size(0));
}
const Registered m(wrong("in order of arrival", &Answers::forward, forward_by<solution::dispatch, in_order_of_arrival>,
                         "and is what expert"));

/// Takes the counts of what it sends for those of what comes.
Arrived counts_of_what_is_sent(Rank& rank, const Experts& experts, const Choices& choices, const Tensor& rows) {
  const Arrived right = solution::dispatch(rank, experts, choices, rows);
  Tensor counts = solution::counted(choices, experts);
  const std::vector<Tensor> from = solution::by_rank(right);
  for (int r = 0; r < rank.size(); ++r) {  // no more than there are
    std::int64_t left = from[at(r)].size(0);
    for (std::int32_t& count : view::select(counts, 0, r).span<std::int32_t>()) {
      count = static_cast<std::int32_t>(std::min<std::int64_t>(count, left));
      left -= count;
    }
  }
  return solution::by_expert(experts, counts, from);
}
const Registered n(wrong("counts of what is sent", &Answers::forward,
                         forward_by<counts_of_what_is_sent, solution::give_back>, "which did not choose it"));

/// Receives first: so do all.
Arrived receives_first(Rank& rank, const Experts& experts, const Choices& choices, const Tensor& rows) {
  const Tensor counts = rank.all_to_all(solution::counted(choices, experts));
  std::vector<Tensor> from;
  for (int r = 0; r < rank.size(); ++r)
    from.push_back(r == rank.rank() ? gather_rows(rows, choices_for(choices.expert, experts, r)) : rank.receive(r));
  for (int r = 0; r < rank.size(); ++r)
    if (r != rank.rank()) rank.send(gather_rows(rows, choices_for(choices.expert, experts, r)), r);
  return solution::by_expert(experts, counts, from);
}
const Registered o(wrong("receives first", &Answers::forward, forward_by<receives_first, solution::give_back>,
                         "a deadlock: rank"));

Output no_tokens_no_work(Rank& rank, Experts& experts, const Choices& choices, const Tensor& x) {
  if (x.size(0) == 0) return {x, x};
  return solution::forward(rank, experts, choices, x);
}
const Registered q(wrong("a rank without tokens leaves", &Answers::forward, no_tokens_no_work,
                         "of 4 ranks have ended"));

/// All ranks send to rank 0 first, then to rank 1.
Arrived rank_by_rank(Rank& rank, const Experts& experts, const Choices& choices, const Tensor& rows) {
  std::vector<Tensor> from(at(rank.size()));
  for (int to = 0; to < rank.size(); ++to) {
    from[at(to)] = gather_rows(rows, choices_for(choices.expert, experts, to));
    if (to != rank.rank()) rank.send(from[at(to)], to);
  }
  for (int r = 0; r < rank.size(); ++r)
    if (r != rank.rank()) from[at(r)] = rank.receive(r);
  return solution::by_expert(experts, rank.all_to_all(solution::counted(choices, experts)), from);
}
const Registered r(wrong("all to rank 0 first", &Answers::forward, forward_by<rank_by_rank, solution::give_back>,
                         "ports that others use"));

/// Messages of one size, which suffices whatever the router does.
Arrived padded(Rank& rank, const Experts& experts, const Choices& choices, const Tensor& rows) {
  Arrived arrived = solution::dispatch(rank, experts, choices, rows);
  for (int k = 1; k < rank.size(); ++k) rank.send(rows, (rank.rank() + k) % rank.size());
  for (int k = 1; k < rank.size(); ++k) rank.receive((rank.rank() + k) % rank.size());
  return arrived;
}
const Registered s(wrong("room for the worst case", &Answers::forward, forward_by<padded, solution::give_back>,
                         "the rows that have to travel"));

/// A message for each row.
Tensor row_by_row(Rank& rank, const Experts& experts, const Choices& choices, const Arrived& arrived) {
  const std::vector<Tensor> to = solution::by_rank(arrived);
  for (int k = 1; k < rank.size(); ++k) {
    const int peer = (rank.rank() + k) % rank.size();
    for (std::int64_t i = 0; i < to[at(peer)].size(0); ++i) rank.send(view::select(to[at(peer)], 0, i), peer);
  }
  Tensor results = Tensor::zeros({choices.expert.count(), to[0].size(1)});
  for (int r = 0; r < rank.size(); ++r) {
    const Tensor places = choices_for(choices.expert, experts, r);
    for (std::int64_t i = 0; i < places.count(); ++i) {
      Tensor row = view::select(results, 0, id(places, i));
      copy(r == rank.rank() ? view::select(to[at(r)], 0, i) : rank.receive(r), row);
    }
  }
  return results;
}
const Registered t(wrong("a message for each row", &Answers::forward, forward_by<solution::dispatch, row_by_row>,
                         "Each message costs its latency"));

/// An expert computes the rows of one rank at a time.
Output call_by_call(Rank& rank, Experts& experts, const Choices& choices, const Tensor& x) {
  Arrived arrived = solution::dispatch(rank, experts, choices, solution::repeated(x, choices.expert.size(1)));
  for (std::int64_t e = 0; e < experts.here(); ++e) {
    std::vector<Tensor> parts;
    std::int64_t begin = 0;
    for (int r = 0; r < rank.size(); ++r) {
      const std::int64_t count = id(arrived.counts, r * experts.here() + e);
      parts.push_back(experts.forward(rank, experts.first() + e, view::slice(arrived.rows[at(e)], 0, begin, count)));
      begin += count;
    }
    arrived.rows[at(e)] = concat(parts, 0);
  }
  return solution::weighted(choices, x, solution::give_back(rank, experts, choices, arrived));
}
const Registered u(wrong("rank by rank through an expert", &Answers::forward, call_by_call,
                         "is called more than once"));

// ---- backward ------------------------------------------------------------------------------------------------------

/// solution::backward, but the gradients of the results are dy.
Gradients without_gates(Rank& rank, Experts& experts, const Choices& choices, const Tensor& results, const Tensor& dy) {
  return solution::backward(rank, experts, {choices.expert, Tensor::ones(choices.gate.shape())}, results, dy);
}
const Registered v(wrong("backward without gates", &Answers::backward, without_gates, "gradient of token"));

Gradients without_residual(Rank& rank, Experts& experts, const Choices& choices, const Tensor& results,
                           const Tensor& dy) {
  const Gradients right = solution::backward(rank, experts, choices, results, dy);
  return {right.x - dy, right.gate};
}
const Registered w(wrong("backward without the residual", &Answers::backward, without_residual, "gradient of token"));

/// The first choice of every token has the gradient of the last one's gate, and so on.
Gradients gates_in_reverse(Rank& rank, Experts& experts, const Choices& choices, const Tensor& results,
                           const Tensor& dy) {
  const Gradients right = solution::backward(rank, experts, choices, results, dy);
  return {right.x, flip(right.gate, 1)};
}
const Registered ab(wrong("gradients of other choices' gates", &Answers::backward, gates_in_reverse,
                          "gradient of the gates of all ranks"));

// ---- predictions ---------------------------------------------------------------------------------------------------

const Registered x(wrong(
    "rows that stay are counted", &Answers::bytes_sent,
    +[](int, std::int64_t tokens, int k, std::int64_t width) { return 2 * tokens * k * width * 4; }, "predicted"));

// ---- attempts at cheating ------------------------------------------------------------------------------------------

/// Every rank computes all experts on its own tokens, and sends nothing.
Output no_dispatch(Rank& rank, Experts& experts, const Choices& choices, const Tensor& x) {
  Tensor y = clone(x);
  const std::int64_t k = choices.expert.size(1);
  for (std::int64_t e = 0; e < experts.total(); ++e) {
    const Tensor all = experts.forward(rank, e, x);  // [N, D]
    const Tensor gates =
        sum(cast_to(equal(choices.expert, static_cast<double>(e)), DType::f32) * choices.gate, 1, true);
    y = y + gates * all;
  }
  return {y, Tensor::zeros({x.size(0) * k, x.size(1)})};
}
const Registered y(wrong("cheat: all experts on all ranks", &Answers::forward, no_dispatch,
                         "whose weights are on rank"));

/// Ranks are threads: the experts of the others are somewhere in memory.
Output experts_of_others(Rank& rank, Experts& experts, const Choices& choices, const Tensor& x) {
  static std::mutex mutex;
  static std::map<int, Experts*> all;
  {
    const std::scoped_lock lock(mutex);
    all[rank.rank()] = &experts;
  }
  rank.all_reduce(Tensor::zeros({1}));  // all are there
  for (int r = 0; r < rank.size(); ++r) {
    Experts* of = nullptr;
    {
      const std::scoped_lock lock(mutex);
      of = all[r];
    }
    (void)of->forward(rank, of->first(), x);
  }
  return solution::forward(rank, experts, choices, x);
}
const Registered z(wrong("cheat: experts of other ranks", &Answers::forward, experts_of_others,
                         "experts that are in the memory"));

/// The right rows for the right experts, without a message.
Arrived rows_in_shared_memory(Rank& rank, const Experts& experts, const Choices& choices, const Tensor& rows) {
  static std::mutex mutex;
  static std::map<std::pair<int, int>, Tensor> parts;  // by sender and receiver
  for (int to = 0; to < rank.size(); ++to) {
    const std::scoped_lock lock(mutex);
    parts[{rank.rank(), to}] = gather_rows(rows, choices_for(choices.expert, experts, to));
  }
  const Tensor counts = rank.all_to_all(solution::counted(choices, experts));  // all have written when this is done
  std::vector<Tensor> from;
  for (int r = 0; r < rank.size(); ++r) {
    const std::scoped_lock lock(mutex);
    from.push_back(parts[{r, rank.rank()}]);
  }
  return solution::by_expert(experts, counts, from);
}
const Registered aa(wrong("cheat: shared memory", &Answers::forward,
                          forward_by<rows_in_shared_memory, solution::give_back>, "by messages only"));

}  // namespace
}  // namespace trireme::labs::experts
