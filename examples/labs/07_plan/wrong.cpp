// Lab 7: wrong answers, each with a part of the message that it must get. The last three try to fool the grader.
// tests/labs runs them. Do not read this before your own answer: what is wrong shows what is right.
#include <limits>

#include "examples/labs/07_plan/solution.h"

namespace trireme::labs::planning {
namespace {

using solution::memory;
using solution::step_seconds;

template <class F>
Answer wrong(std::string name, F Answers::*function, F with, std::string expected) {
  Answers answers = solution::answers;
  answers.*function = with;
  return answer(std::move(name), answers, std::move(expected));
}
using MemoryOf = Memory(const Model&, const Setting&, int);
Answer wrong_memory(std::string name, MemoryOf* with, std::string expected) {
  return wrong(std::move(name), &Answers::memory, with, std::move(expected));
}
using SecondsOf = double(const Model&, const Cluster&, const Setting&);
Answer wrong_time(std::string name, SecondsOf* with, std::string expected) {
  return wrong(std::move(name), &Answers::step_seconds, with, std::move(expected));
}
using Choice = Setting(const Model&, const Cluster&, const std::vector<Setting>&);
Answer wrong_choice(std::string name, Choice* with, std::string expected) {
  return wrong(std::move(name), &Answers::choose, with, std::move(expected));
}

// ---- predictions ----------------------------------------------------------------------------------------------------

const Registered a(wrong(
    "ZeRO 1 shards gradients too", &Answers::zero_saves,
    +[](double parameters, int dp) { return 16 * parameters * (dp - 1) / dp; },
    "prediction: bytes that ZeRO 1 saves a rank"));

const Registered b(wrong(
    "all axes send more", &Answers::when_micro_batches_double, +[] { return Growth{.tp = 2, .dp = 2, .pp = 2}; },
    "prediction: growth of what dp sends"));

// ---- memory ---------------------------------------------------------------------------------------------------------

/// The moments only: with bf16 weights, the framework keeps them in f32 too.
Memory no_master_weights(const Model& m, const Setting& s, int stage) {
  Memory right = memory(m, s, stage);
  if (m.dtype == DType::bf16) right.optimizer *= 8.0 / 12;
  return right;
}
const Registered c(wrong_memory("no master weights", no_master_weights,
                                "memory: optimizer state: optimizer state of stage 0 of 1"));

Memory short_gradients(const Model& m, const Setting& s, int stage) {
  Memory right = memory(m, s, stage);
  right.gradients = right.parameters;
  return right;
}
const Registered d(wrong_memory("gradients in bf16", short_gradients, "memory: gradients"));

Memory sharded_gradients(const Model& m, const Setting& s, int stage) {
  Memory right = memory(m, s, stage);
  if (s.zero == 1) right.gradients /= s.dp;
  return right;
}
const Registered e(wrong_memory("ZeRO 1 as if it were 2", sharded_gradients,
                                "memory: gradients: gradients of stage 0"));

/// The last stage has the head, whose weight is tied: to another rank's.
double one_table(const Model& m, const Setting& s, int stage) {
  const double all = solution::parameters(m, s, stage);
  if (s.pp == 1 || stage + 1 < s.pp) return all;
  return all - m.vocab * m.width / s.tp;
}
Memory no_head(const Model& m, const Setting& s, int stage) {
  const double share = one_table(m, s, stage) / solution::parameters(m, s, stage);
  Memory right = memory(m, s, stage);
  right.parameters *= share;
  right.gradients *= share;
  right.optimizer *= share;
  return right;
}
const Registered f(wrong_memory("a tied head takes nothing", no_head, "parameters of stage 3 of 4"));

/// tp divides all that a block keeps, also the gathered outputs of its norms; and the positions.
Memory tp_divides_all(const Model& m, const Setting& s, int stage) {
  Setting one = s;
  one.tp = 1;
  Memory divided = memory(m, s, stage);
  divided.activations = memory(m, one, stage).activations / s.tp;
  return divided;
}
const Registered g(wrong_memory("tp divides all activations", tp_divides_all, "activations of stage 0 of 1"));

/// A micro-batch comes and goes.
Memory one_micro_batch(const Model& m, const Setting& s, int stage) {
  Setting single = s;
  single.micro_batches = 1;
  return memory(m, single, stage);
}
const Registered h(wrong_memory("one micro-batch at a time", one_micro_batch, "activations of stage 0 of 4"));

/// As gpipe does. Every rank keeps all.
Memory all_micro_batches(const Model& m, const Setting& s, int stage) {
  Memory right = memory(m, s, stage);
  right.activations *= static_cast<double>(s.micro_batches) / std::min(s.micro_batches, s.pp - stage);
  return right;
}
const Registered i(wrong_memory("all micro-batches", all_micro_batches, "memory: activations"));

/// What is computed again takes memory again.
Memory nothing_rebuilt(const Model& m, const Setting& s, int stage) {
  Memory right = memory(m, s, stage);
  if (s.recompute) right.activations -= solution::block_numbers(m, s) * m.element() * s.micro_batch * m.context;
  return right;
}
const Registered j(wrong_memory("recomputation is free", nothing_rebuilt, ", recomputed; "));

// ---- time -----------------------------------------------------------------------------------------------------------

double no_bubble(const Model& m, const Cluster& c, const Setting& s) {
  return step_seconds(m, c, s) - (s.pp - 1) * solution::blocks_seconds(m, c, s);
}
const Registered k(wrong_time("no bubble", no_bubble, "time: the bubble of a pipeline"));

double dp_is_free(const Model& m, const Cluster& c, const Setting& s) {
  return step_seconds(m, c, s) - solution::dp_seconds(m, c, s);
}
const Registered l(wrong_time("dp's all-reduce is free", dp_is_free, "time: dp between nodes"));

/// Ranks of tp one per node, those of dp together: so links are mistaken.
double tp_across_nodes(const Model& m, const Cluster& c, const Setting& s) {
  Cluster mistaken = c;
  mistaken.per_node = 1;
  return step_seconds(m, mistaken, s);
}
const Registered n(wrong_time("tp across nodes", tp_across_nodes, "time: tp on one node"));

double tp_is_free(const Model& m, const Cluster& c, const Setting& s) {
  Cluster fast = c;
  if (s.tp > 1 && s.dp == 1) fast.within = {.latency = 0, .bytes_per_second = 1e15};
  return step_seconds(m, fast, s);
}
const Registered o(wrong_time("tp's all-reduces are free", tp_is_free, "time: tp on one node"));

/// Three times the forward, whatever is computed again.
double no_recomputation(const Model& m, const Cluster& c, const Setting& s) {
  Setting plain = s;
  plain.recompute = false;
  return step_seconds(m, c, plain);
}
const Registered p(wrong_time("recomputation takes no time", no_recomputation, "time: recomputation"));

/// Kernels reach the peak.
double at_the_peak(const Model& m, const Cluster& c, const Setting& s) {
  Cluster ideal = c;
  ideal.efficiency = 1;
  return step_seconds(m, ideal, s);
}
const Registered q(wrong_time("at the peak", at_the_peak, "time: one device"));

// ---- the choice -----------------------------------------------------------------------------------------------------

/// The candidate for which `cost` is least, of those that fit.
template <class Cost>
Setting least(const Model& m, const Cluster& c, const std::vector<Setting>& candidates, const Cost& cost) {
  Setting best;
  double lowest = std::numeric_limits<double>::infinity();
  for (const Setting& s : candidates)
    if (solution::fits(m, c, s) && cost(s) < lowest) lowest = cost(best = s);
  return best;
}

Setting whatever_it_needs(const Model& m, const Cluster& c, const std::vector<Setting>& candidates) {
  Cluster endless = c;
  endless.memory = 1e15;
  return solution::choose(m, endless, candidates);
}
const Registered r(wrong_choice("the fastest, which does not fit", whatever_it_needs,
                                "GB on its fullest rank, and there are"));

Setting most_dp(const Model& m, const Cluster& c, const std::vector<Setting>& candidates) {
  return least(m, c, candidates, [&](const Setting& s) { return -s.dp + 1e-9 * step_seconds(m, c, s); });
}
const Registered t(wrong_choice("as much dp as fits", most_dp, "and the fastest candidate that fits"));

Setting most_tp(const Model& m, const Cluster& c, const std::vector<Setting>& candidates) {
  return least(m, c, candidates, [&](const Setting& s) { return -s.tp + 1e-9 * step_seconds(m, c, s); });
}
const Registered u(wrong_choice("as much tp as there is", most_tp, "and the fastest candidate that fits"));

/// Looks at the first stage only, and trusts it to the last byte.
Setting least_memory(const Model& m, const Cluster& c, const std::vector<Setting>& candidates) {
  return least(m, c, candidates, [&](const Setting& s) { return memory(m, s, 0).total(); });
}
const Registered v(wrong_choice("the one that needs least memory", least_memory, "by your formulas"));

// ---- attempts at cheating -------------------------------------------------------------------------------------------

/// A plan with less work.
Setting less_work(const Model& m, const Cluster& c, const std::vector<Setting>& candidates) {
  Setting s = solution::choose(m, c, candidates);
  s.micro_batches = 1;
  return s;
}
const Registered w(wrong_choice("cheat: fewer micro-batches", less_work, "is none of the"));

/// No number is larger or smaller than this one.
Memory no_number(const Model&, const Setting&, int) {
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  return {.parameters = nan, .gradients = nan, .optimizer = nan, .activations = nan};
}
const Registered x(wrong_memory("cheat: not a number", no_number, "nan GB predicted"));

/// Formulas that make the plan of a rule of thumb look like the best.
double looks_best(const Model& m, const Cluster& c, const Setting& s) { return step_seconds(m, c, s) / s.tp / s.tp; }
const Registered y([] {
  Answers answers = solution::answers;
  answers.step_seconds = looks_best;
  answers.choose = most_tp;
  return answer("cheat: formulas that fit the choice", answers, "time: tp on one node");
}());

}  // namespace
}  // namespace trireme::labs::planning
