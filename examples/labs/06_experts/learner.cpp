// Lab 6: your answer. Fill in the eleven gaps, marked GAP, and run
//
//   ./trireme lab 6
//
// README.md beside this file says what is asked for; lab.h, autograd/ops.h and examples/labs/harness/cluster.h have
// what you may use: messages, and the collectives of Rank.
#include "examples/labs/06_experts/lab.h"

namespace trireme::labs::experts {
namespace {

// ---- predictions: first, with pencil and paper ---------------------------------------------------------------------

/// Bytes that one rank sends in the forward of a layer: rows [D] of f32, to the experts and back; counts are not
/// included. Each rank has `tokens` tokens, whose k choices fall on the experts of all ranks equally often.
std::int64_t bytes_sent(int ranks, std::int64_t tokens, int k, std::int64_t width) {
  return 0;  // GAP 1
}

/// How many choices are dropped if chosen[e] tokens choose expert e, with k = 1.
std::int64_t dropped(const std::vector<std::int64_t>& chosen, double capacity_factor) {
  return 0;  // GAP 2
}

/// Seconds of a forward with k = 1, from the first row sent to the last result received, if all ranks send each other
/// equally many rows. All begin at once, and a rank sends one message after the other: one of b bytes takes
/// b / bytes_per_second until the next can leave, and arrives `latency` later. Experts compute when all rows are there.
double balanced_seconds(const Cost& cost) {
  return 0;  // GAP 3
}

/// The same if all tokens choose one expert. A rank receives, too, one message after the other.
double hot_seconds(const Cost& cost) {
  return 0;  // GAP 4
}

// ---- part 1: the router's decisions --------------------------------------------------------------------------------

/// p [N, E]: the router's probabilities for this rank's tokens. The K largest are chosen. Gates: with K = 1 the
/// probability, otherwise the probabilities of the K chosen, divided by their sum. Places are given out token by token,
/// and of one token's choices the most probable first: the first `capacity` that choose an expert, of all T tokens on
/// all ranks, are kept. The others are dropped, which changes no gate.
Choices route(Rank& rank, const Tensor& p, const Routing& routing) {
  const TopK top = topk(p, routing.k);  // values [N, K], and indices [N, K] i32
  Choices choices{clone(top.indices), Tensor()};
  // GAP 5: choices.gate
  // GAP 6: -1 in choices.expert.span<std::int32_t>() where a choice is dropped
  return choices;
}

/// E sum_e f_e P_e, the same on all ranks. f_e: the part of the choices of all T tokens that fall on expert e, before
/// any are dropped. P_e: the mean of p[., e] over all T tokens.
double balance_loss(Rank& rank, const Tensor& p, const Routing& routing) {
  return 0;  // GAP 7
}

// ---- part 2: to the experts and back -------------------------------------------------------------------------------

/// What came to this rank, for the experts that it holds. Change it as you like.
struct Arrived {
  Tensor counts;             // [n, E/n] i32: rows that rank r has sent for each expert
  std::vector<Tensor> rows;  // by expert: [R, D]
};

/// One row for each choice: [N, D] -> [N K, D].
Tensor repeated(const Tensor& x, std::int64_t k) {
  return reshape(expand(unsqueeze(x, 1), {x.size(0), k, x.size(1)}), {x.size(0) * k, x.size(1)});
}

/// Brings row t K + j of rows [N K, D] to the expert that is choice j of token t.
Arrived dispatch(Rank& rank, const Experts& experts, const Choices& choices, const Tensor& rows) {
  // A receiver must know how many rows come for each of its experts: counts travel first. Then a message to each rank:
  //   rank.send(gather_rows(rows, choices_for(choices.expert, experts, to)), to);
  // GAP 8
  return {};
}

/// The way back: arrived.rows are results now. -> [N K, D], zeros for dropped choices
Tensor give_back(Rank& rank, const Experts& experts, const Choices& choices, const Arrived& arrived) {
  return {};  // GAP 9
}

/// y = x + sum over the kept choices of gate * result. Each expert computes all its rows in one call.
Output forward(Rank& rank, Experts& experts, const Choices& choices, const Tensor& x) {
  return {};  // GAP 10: dispatch, experts.forward, give_back, sum
}

// ---- part 3: backward ----------------------------------------------------------------------------------------------

/// dy [N, D], and `results` as forward returned them -> the gradients of x and of the gates. Rows travel here, too.
Gradients backward(Rank& rank, Experts& experts, const Choices& choices, const Tensor& results, const Tensor& dy) {
  return {};  // GAP 11
}

const Registered registered(answer("learner", {route, balance_loss, forward, backward, bytes_sent, dropped,
                                               balanced_seconds, hot_seconds}));

}  // namespace
}  // namespace trireme::labs::experts
