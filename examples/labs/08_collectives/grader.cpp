// The grader of lab 8. Sums are compared with those of f64, and bytes, messages and times with those of the framework's
// own algorithms: comm::simulate() runs their steps on the same links.
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <numeric>
#include <optional>

#include "examples/labs/08_collectives/lab.h"
#include "examples/labs/harness/difference.h"
#include "parallel/comm/algorithms/algorithm.h"

namespace trireme::labs::collectives {
namespace {

bool is_power_of_two(int n) { return std::has_single_bit(static_cast<unsigned>(n)); }

/// Ranks, and how many of them are on a node.
struct Nodes {
  int ranks, per_node;
  int count() const { return ranks / per_node; }
  std::string name() const {
    return per_node == ranks ? fmt::format("{} ranks", ranks) : fmt::format("{} nodes of {}", count(), per_node);
  }
};

/// An algorithm of the learner, the framework's own of that name, and the ranks with which it is tried.
struct AllReduce {
  std::string name;
  std::function<void(Rank&, const Tensor&, int per_node)> sum;
  comm::Algorithm model;
  std::vector<Nodes> nodes = {};
};

/// By Method.
std::array<AllReduce, 4> all_of(const Answers& answers) {
  return {AllReduce{"ring", [](Rank& rank, const Tensor& x, int) { ring(rank, x); }, comm::Algorithm::ring},
          AllReduce{"tree", [=](Rank& rank, const Tensor& x, int) { answers.tree(rank, x); }, comm::Algorithm::tree},
          AllReduce{"halving", [=](Rank& rank, const Tensor& x, int) { answers.halving(rank, x); },
                    comm::Algorithm::halving},
          AllReduce{"hierarchical", [=](Rank& rank, const Tensor& x, int g) { answers.hierarchical(rank, x, g); },
                    comm::Algorithm::hierarchical}};
}

/// What the framework's algorithm sends, and how long it takes. The ranks divide `bytes`.
comm::Simulated simulated(comm::Algorithm algorithm, Nodes nodes, std::int64_t bytes, const comm::Links& links) {
  comm::CollectiveSpec spec{.ranks = nodes.ranks};
  std::vector<int> members(at(nodes.ranks));
  std::iota(members.begin(), members.end(), 0);
  for (const int rank : members) spec.nodes.push_back(rank / nodes.per_node);
  return comm::simulate(comm::all_steps(algorithm, spec), members, links,
                        [&](int, int) { return bytes / nodes.ranks; });
}

/// The ranks' inputs [count], and their sum in f64. All are positive: a sum in which terms cancel has large rounding errors
/// beside its own size, in any order.
struct Inputs {
  std::vector<Tensor> x;
  Tensor sum;

  Inputs(Grading& grading, int ranks, std::int64_t count) : sum(Tensor::zeros({count}, DType::f64)) {
    for (int rank = 0; rank < ranks; ++rank) {
      x.push_back(grading.random({count}));
      for (std::int64_t i = 0; i < count; ++i) {
        float& value = x.back().span<float>()[at(i)];
        value = std::abs(value);
        sum.span<double>()[at(i)] += double{value};
      }
    }
  }
};

/// x of every rank afterwards, and the run.
struct Reduced {
  std::vector<Tensor> x;
  Run run;
};

Reduced reduced(const AllReduce& method, Nodes nodes, const std::vector<Tensor>& inputs) {
  Reduced result;
  for (const Tensor& x : inputs) result.x.push_back(clone(x));
  result.run = run_ranks({.ranks = nodes.ranks},
                         [&](Rank& rank) { method.sum(rank, result.x[at(rank.rank())], nodes.per_node); });
  return result;
}

/// Of a wrong sum on `rank`: whose term is not what it should be. One rank at a time has numbers, and all others zeros.
/// Its element i is 1 + i / 4096, so that the result says which elements were added, and how often.
std::string wrong_term(const AllReduce& method, Nodes nodes, std::int64_t count, int rank) {
  for (int source = 0; source < nodes.ranks; ++source) {
    std::vector<Tensor> inputs;
    for (int r = 0; r < nodes.ranks; ++r) inputs.push_back(Tensor::zeros({count}));
    for (std::int64_t i = 0; i < count; ++i) inputs[at(source)].span<float>()[at(i)] = 1 + static_cast<float>(i) / 4096;
    const Tensor x = reduced(method, nodes, inputs).x[at(rank)];
    for (std::int64_t i = 0; i < count; ++i) {
      const float got = x.span<const float>()[at(i)], times = std::floor(got), element = 4096 * (got - times);
      if (times != 1) return fmt::format(". At [{}], the term of rank {} was added {:g} times", i, source, times);
      if (element != static_cast<float>(i))
        return fmt::format(". At [{}], what rank {} has at [{:g}] was added", i, source, element);
    }
  }
  return {};
}

/// Runs it with fresh inputs. All that is measured is of runs whose sums are right.
Reduced checked(Grading& grading, const AllReduce& method, Nodes nodes, std::int64_t count, bool explain = false) {
  const Inputs inputs(grading, nodes.ranks, count);
  Reduced result = reduced(method, nodes, inputs.x);
  for (int rank = 0; rank < nodes.ranks; ++rank) {
    const std::string problem = difference(fmt::format("{}, x on rank {}", nodes.name(), rank), result.x[at(rank)],
                                           inputs.sum, {.before = inputs.x[at(rank)]});
    if (!problem.empty() && explain) grading.expect(problem + wrong_term(method, nodes, count, rank));
    grading.expect(problem.empty(), "{} of {}: the sum is wrong", method.name, nodes.name());
  }
  for (const std::string& left : result.run.left) grading.expect(nodes.name() + ": " + left);
  return result;
}

void check_sums(Grading& grading, const AllReduce& method) {
  for (const std::int64_t count : {grading.pick(100, 300), 5, 1})
    for (const Nodes nodes : method.nodes) checked(grading, method, nodes, count, true);
}

void check_bits(Grading& grading, const AllReduce& method) {
  constexpr std::int64_t count = 200;
  for (const Nodes nodes : method.nodes) {
    const std::vector<Tensor> x = checked(grading, method, nodes, count).x;
    for (int rank = 0; rank < nodes.ranks; ++rank)
      for (std::size_t i = 0; i < count; ++i) {
        const float here = x[at(rank)].span<const float>()[i], first = x[0].span<const float>()[i];
        grading.expect(std::bit_cast<std::uint32_t>(here) == std::bit_cast<std::uint32_t>(first),
                       "{}: element {} is {:.9g} on rank {} and {:.9g} on rank 0: the same terms, added in two orders. "
                       "Models whose gradients differ so drift apart",
                       nodes.name(), i, here, rank, first);
      }
  }
}

// A sum needs n - 1 times the tensor to meet, and n - 1 times to be known everywhere: all four send just that.
void check_traffic(Grading& grading, const AllReduce& method) {
  for (const Nodes nodes : method.nodes) {
    const std::int64_t count = nodes.ranks * grading.pick(10, 50);
    const Run run = checked(grading, method, nodes, count).run;
    std::int64_t bytes = 0, messages = 0;
    for (const Record& record : run.ranks) {
      bytes += record.bytes_sent();
      messages += record.messages_sent();
    }
    const std::int64_t least = 2 * (nodes.ranks - 1) * count * 4;
    const auto most = std::ssize(simulated(method.model, nodes, count * 4, equal_links(0, 1)).messages);
    grading.expect(bytes >= least,
                   "{}: all ranks together sent {} bytes of a tensor of {}; no all-reduce does with so few. Ranks know "
                   "of each other by messages only",
                   nodes.name(), bytes, count * 4);
    grading.expect(bytes <= least, "{}: all ranks together sent {} bytes of a tensor of {}; a ring sends {}",
                   nodes.name(), bytes, count * 4, least);
    grading.expect(messages <= most,
                   "{}: all ranks together sent {} messages; {} would do. Each message costs a latency", nodes.name(),
                   messages, most);
  }
}

void check_slow_links(Grading& grading, const AllReduce& method) {
  for (const Nodes nodes : method.nodes) {
    const std::int64_t count = nodes.ranks * grading.pick(10, 50);
    const Run run = checked(grading, method, nodes, count).run;
    const std::int64_t most = 2 * (nodes.count() - 1) * (count / nodes.ranks) * 4;
    std::vector<std::int64_t> bytes(at(nodes.ranks));  // to other nodes
    for (int rank = 0; rank < nodes.ranks; ++rank)
      for (int peer = 0; peer < nodes.ranks; ++peer)
        if (peer / nodes.per_node != rank / nodes.per_node) bytes[at(rank)] += run.ranks[at(rank)].bytes_sent_to(peer);
    for (int rank = 0; rank < nodes.ranks; ++rank)
      grading.expect(bytes[at(rank)] <= most,
                     "{}, a tensor of {} bytes: ranks 0 to {} send {} bytes to other nodes. Each has a port of its own "
                     "to the slow links, which need not carry more than {}",
                     nodes.name(), count * 4, nodes.ranks - 1, fmt::join(bytes, ", "), most);
  }
}

/// It takes as long as the framework's own algorithm on these links.
void check_time(Grading& grading, const AllReduce& method, Nodes nodes) {
  const std::int64_t count = nodes.ranks * grading.pick(20, 40);
  // Between nodes, latency and bandwidth weigh alike. Within, all is faster.
  const double latency = 1e-6 * grading.pick(5, 20), slowness = latency / (static_cast<double>(count) * 4);
  comm::Links links;
  links.ranks_per_node = nodes.per_node;
  links.between = {.latency = latency, .seconds_per_byte = 6 * slowness};
  links.within = {.latency = latency / 3, .seconds_per_byte = slowness};
  const Timeline timeline = timed(checked(grading, method, nodes, count).run, links);
  if (nodes.count() > 1) grading.show(timeline, fmt::format("Lab 8: hierarchical all-reduce, {}", nodes.name()));
  const double enough = simulated(method.model, nodes, count * 4, links).seconds;
  grading.expect(timeline.seconds <= 1.02 * enough,
                 "{}: {:.1f} us, where {:.1f} would do. Which messages wait for others, and where?", nodes.name(),
                 1e6 * timeline.seconds, 1e6 * enough);
}

/// The time of a run depends on the product of bytes and seconds per byte: so a run with few elements, on links so much
/// slower, takes as long as one with `bytes`.
double seconds_for(const Run& run, comm::Links links, double bytes_of_run, double bytes) {
  links.within.seconds_per_byte *= bytes / bytes_of_run;
  links.between.seconds_per_byte *= bytes / bytes_of_run;
  return timed(run, links).seconds;
}

comm::Links random_links(Grading& grading, Nodes nodes) {
  comm::Links links;
  links.ranks_per_node = nodes.per_node;
  links.within = {.latency = 1e-6 * grading.pick(2, 5), .seconds_per_byte = 1e-9 / grading.pick(100, 300)};
  links.between = {.latency = 1e-6 * grading.pick(8, 20), .seconds_per_byte = 1e-9 / grading.pick(10, 25)};
  return links;
}

void check_best(const Answers& answers, Grading& grading, Nodes nodes) {
  constexpr std::int64_t count = 192;  // all ranks below divide it
  const std::array<AllReduce, 4> methods = all_of(answers);
  const comm::Links links = random_links(grading, nodes);
  std::array<std::optional<Run>, 4> runs;
  for (std::size_t m = 0; m < methods.size(); ++m)
    if (methods[m].model != comm::Algorithm::halving || is_power_of_two(nodes.ranks))
      runs[m] = checked(grading, methods[m], nodes, count).run;
  for (std::int64_t bytes = 256; bytes < std::int64_t{1} << 32; bytes *= 4) {
    const auto chosen = at(static_cast<int>(answers.best(nodes.ranks, static_cast<double>(bytes), links)));
    grading.expect(chosen < methods.size(), "{}: no method has the number {}", nodes.name(), chosen);
    grading.expect(runs[chosen].has_value(), "{}: chosen: {}, which needs a power of two", nodes.name(),
                   methods[chosen].name);
    std::array<double, 4> seconds{};
    for (std::size_t m = 0; m < methods.size(); ++m)
      seconds[m] = runs[m] ? seconds_for(*runs[m], links, count * 4, static_cast<double>(bytes)) : 1e9;
    const auto fastest = at(std::ranges::min_element(seconds) - seconds.begin());
    grading.expect(seconds[chosen] <= 1.05 * seconds[fastest], "{}, {} bytes: chosen: {}, {:.1f} us; {}: {:.1f} us",
                   nodes.name(), bytes, methods[chosen].name, 1e6 * seconds[chosen], methods[fastest].name,
                   1e6 * seconds[fastest]);
  }
}

/// What is predicted is measured on the framework's own steps, so that a wrong all-reduce does not count twice.
void check_predictions(const Answers& answers, Grading& grading) {
  const comm::Link link{.latency = 1e-6 * grading.pick(5, 50), .seconds_per_byte = 1e-9 / grading.pick(1, 50)};
  const auto measured = [&](comm::Algorithm algorithm, int ranks, std::int64_t bytes) {
    return simulated(algorithm, {ranks, ranks}, bytes, {.ranks_per_node = ranks, .within = link, .between = link})
        .seconds;
  };
  const auto given = [&](int ranks, std::int64_t bytes) {
    return fmt::format("{} ranks, {} bytes, {:.0f} us, {:.3g} GB/s", ranks, bytes, 1e6 * link.latency,
                       1e-9 / link.seconds_per_byte);
  };
  const auto bytes_for = [&](int ranks) { return std::int64_t{ranks} * 1000 * grading.pick(10, 500); };
  const int power = 1 << grading.pick(2, 4), other = 3 << grading.pick(1, 2);
  for (const int ranks : {power, other}) {
    const std::int64_t bytes = bytes_for(ranks);
    grading.predict(fmt::format("seconds of a tree of {} ranks", ranks), given(ranks, bytes),
                    answers.tree_seconds(ranks, static_cast<double>(bytes), link),
                    measured(comm::Algorithm::tree, ranks, bytes));
  }
  const std::int64_t bytes = bytes_for(power);
  grading.predict("seconds of halving and doubling", given(power, bytes),
                  answers.halving_seconds(power, static_cast<double>(bytes), link),
                  measured(comm::Algorithm::halving, power, bytes));
  const Nodes nodes{4 * grading.pick(2, 5), 4};
  const comm::Links links = random_links(grading, nodes);
  const std::int64_t all = bytes_for(nodes.ranks);
  grading.predict("seconds of hierarchical",
                  fmt::format("{} ranks on {} nodes, {} bytes", nodes.ranks, nodes.ranks / 4, all),
                  answers.hierarchical_seconds(nodes.ranks, static_cast<double>(all), links),
                  simulated(comm::Algorithm::hierarchical, nodes, all, links).seconds);

  std::int64_t low = 1, high = std::int64_t{1} << 30;  // bytes of a piece: the tree is faster, the ring is
  while (high - low > 1) {
    const std::int64_t middle = (low + high) / 2;
    const bool tree =
        measured(comm::Algorithm::tree, power, middle * power) < measured(comm::Algorithm::ring, power, middle * power);
    (tree ? low : high) = middle;
  }
  grading.predict(fmt::format("bytes up to which a tree of {} ranks is faster than a ring", power),
                  fmt::format("{:.0f} us, {:.3g} GB/s", 1e6 * link.latency, 1e-9 / link.seconds_per_byte),
                  answers.tree_up_to(power, link), static_cast<double>(low * power), 1e-2);
}

}  // namespace

void grade(const Answers& answers, Grading& grading) {
  check_predictions(answers, grading);
  std::array<AllReduce, 4> methods = all_of(answers);
  auto& [ring, tree, halving, hierarchical] = methods;
  const int odd = 5 + 2 * grading.pick(0, 2), nodes = grading.pick(3, 5);
  tree.nodes = {{1, 1}, {4, 4}, {4, 4}, {6, 6}, {8, 8}, {odd, odd}};  // some twice: with fresh inputs
  halving.nodes = {{1, 1}, {2, 2}, {4, 4}, {4, 4}, {8, 8}, {16, 16}};
  hierarchical.nodes = {{1, 1}, {4, 4}, {3, 1}, {4, 2}, {4, 2}, {8, 4}, {3 * nodes, 3}};
  for (const AllReduce* method : {&tree, &halving, &hierarchical}) {
    grading.check(method->name + ": the sum", [&] { check_sums(grading, *method); });
    grading.check(method->name + ": the same bits on all ranks", [&] { check_bits(grading, *method); });
    grading.check(method->name + ": bytes and messages", [&] { check_traffic(grading, *method); });
    if (method == &hierarchical)
      grading.check(method->name + ": bytes over slow links", [&] { check_slow_links(grading, *method); });
    grading.check(method->name + ": time", [&] {
      check_time(grading, *method, method == &hierarchical ? Nodes{8, 4} : Nodes{8, 8});
    });
  }
  for (const Nodes n : {Nodes{8, 8}, Nodes{6, 6}, Nodes{12, 1}, Nodes{8, 2}, Nodes{16, 4}, Nodes{12, 4}, Nodes{12, 2}})
    grading.check("best: " + n.name(), [&] { check_best(answers, grading, n); });
}

}  // namespace trireme::labs::collectives
