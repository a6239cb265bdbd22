// The grader of lab 3. Layers are compared with those of one rank, in f64 on the tape, and the loss with its formula.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "examples/labs/03_tensor_parallel/batch.h"
#include "examples/labs/03_tensor_parallel/layers.h"
#include "examples/labs/harness/difference.h"

namespace trireme::labs::tensor_parallel {
namespace {

std::string on_rank(std::string_view name, std::size_t rank) { return fmt::format("{} on rank {}", name, rank); }

void expect_nothing_left(Grading& grading, const Run& run) {
  for (const std::string& left : run.left) grading.expect(left);
}

/// All ranks have the same tensor, which may be wrong.
void expect_agreement(Grading& grading, std::string_view name, const Tensors& got, const Tensor& want) {
  Tensor total = Tensor::zeros(want.shape(), DType::f64);
  bool same = true;
  for (std::size_t rank = 0; rank < got.size(); ++rank) {
    const Tensor& x = got[rank];
    const bool usable = x.defined() && x.shape() == want.shape() && std::isfinite(sum(x).item());
    if (!usable) grading.expect(difference(on_rank(name, rank), x, want));
    total += cast(x, DType::f64);
    same = same && difference(name, x, got[0]).empty();
  }
  grading.expect(same || !difference(name, total, want).empty(),
                 "{}: the ranks have {} different tensors, whose sum is right; every rank needs the sum", name,
                 got.size());
  for (std::size_t rank = 1; rank < got.size(); ++rank)
    grading.expect(
        difference(fmt::format("{} differs between ranks; rank {}, against rank 0", name, rank), got[rank], got[0]));
}

/// All ranks have `want`, with the same bits.
void expect_on_all(Grading& grading, std::string_view name, const Tensors& got, const Tensor& want) {
  expect_agreement(grading, name, got, want);
  const Tensor first = contiguous(got[0]);
  for (std::size_t rank = 0; rank < got.size(); ++rank) {
    grading.expect(difference(on_rank(name, rank), got[rank], want));
    const Tensor x = contiguous(got[rank]);
    grading.expect(x.bytes() == first.bytes() && std::memcmp(x.raw(), first.raw(), at(x.bytes())) == 0,
                   "{}: rank {} has other bits than rank 0: the same terms, added in two orders", name, rank);
  }
}

// ---- layers --------------------------------------------------------------------------------------------------------

Sizes sizes_of(Grading& grading, int tp) {
  return {.tp = tp,
          .batch = 2,
          .tokens = grading.pick(3, 6),
          .heads = tp * grading.pick(1, 2),
          .head_width = 4,
          .hidden = tp * grading.pick(33, 40)};  // F/tp is more than D
}

/// The first twice: with fresh inputs.
std::vector<Sizes> several(Grading& grading) {
  const Sizes two = sizes_of(grading, 2);
  return {two, two, sizes_of(grading, grading.pick(3, 4)), sizes_of(grading, 1)};
}

/// y, and in it the bias once.
template <class Layer>
void expect_forward(Grading& grading, const Trial<Layer>& trial) {
  const auto& last = Layer::parameters.back();
  const Tensor bias = cast(trial.weights.*last.tensor, DType::f64);
  for (const int times : {0, trial.sizes.tp}) {
    const Tensor wrong = trial.y + bias * (times - 1);
    const auto is_wrong = [&](const auto& forward) { return difference("y", forward.y, wrong).empty(); };
    grading.expect(times == 1 || !std::ranges::all_of(trial.forward, is_wrong),
                   "y: {} is in it {} times; expected once", last.name, times);
  }
  Tensors y;
  for (const auto& forward : trial.forward) y.push_back(forward.y);
  expect_on_all(grading, "y", y, trial.y);
}

/// Each rank's part of the gradients, from the output to the input, and dx: so that the first mistake is named.
template <class Layer>
void expect_backward(Grading& grading, const Trial<Layer>& trial) {
  const int tp = trial.sizes.tp;
  for (std::size_t i = Layer::parameters.size(); i-- > 0;) {
    const auto& [name, tensor, cut] = Layer::parameters[i];
    Tensors want;
    for (int rank = 0; rank < tp; ++rank) want.push_back(part_of(trial.gradients[i], cut, rank, tp));
    Tensor all = cast(want[0], DType::f64);
    for (int rank = 1; rank < tp; ++rank) all = all + cast(want[at(rank)], DType::f64);
    for (int rank = 0; rank < tp; ++rank) {
      const Tensor& got = trial.backward[at(rank)].gradients.*tensor;
      const std::string what = fmt::format("the gradient of {} on rank {}", name, rank);
      grading.expect(
          cut == whole || tp == 1 || !difference(what, got, all).empty(),
          "{} is the sum of all ranks' gradients of {}; {} is cut, so a rank keeps the gradient of its own part", what,
          name, name);
      grading.expect(difference(what, got, want[at(rank)]));
    }
  }
  Tensors dx;
  for (const auto& backward : trial.backward) dx.push_back(backward.dx);
  expect_on_all(grading, "dx", dx, trial.dx);
}

template <class Layer>
void check_forward(const Answers& answers, Grading& grading) {
  for (const Sizes& sizes : several(grading)) {
    Trial<Layer> trial(grading, sizes);
    trial.run_forward(answers);
    expect_forward(grading, trial);
    expect_nothing_left(grading, trial.forward_run);
  }
}

template <class Layer>
void check_backward(const Answers& answers, Grading& grading) {
  for (const Sizes& sizes : several(grading)) {
    Trial<Layer> trial(grading, sizes);
    trial.run_forward(answers);
    trial.run_backward(answers);
    expect_backward(grading, trial);
    expect_nothing_left(grading, trial.backward_run);
  }
}

// ---- messages ------------------------------------------------------------------------------------------------------

/// Ranks that do nothing but all-reduces of these shapes: what they send is measured, not calculated.
Run all_reduces(int ranks, const std::vector<Shape>& shapes) {
  return run_ranks({.ranks = ranks, .collectives = true}, [&](Rank& rank) {
    for (const Shape& shape : shapes) rank.all_reduce(Tensor::zeros(shape));
  });
}

void expect_bytes(Grading& grading, std::string_view what, const Run& run, const Run& least, const Run& most) {
  for (std::size_t rank = 0; rank < run.ranks.size(); ++rank) {
    const std::int64_t bytes = run.ranks[rank].bytes_sent(), enough = most.ranks[rank].bytes_sent();
    grading.expect(
        bytes >= least.ranks[rank].bytes_sent(),
        "{}: rank {} sent {} bytes, too few for its share of the sums. Ranks know of each other by messages only", what,
        rank, bytes);
    grading.expect(bytes <= enough, "{}: rank {} sent {} bytes; {} are enough", what, rank, bytes, enough);
  }
}

template <class Layer>
void check_bytes(const Answers& answers, Grading& grading) {
  Trial<Layer> trial(grading, sizes_of(grading, grading.pick(2, 4)));
  trial.run_forward(answers);
  trial.run_backward(answers);
  const Run least = all_reduces(trial.sizes.tp, {trial.sizes.stream()});
  expect_bytes(grading, "forward", trial.forward_run, least, least);
  expect_bytes(grading, "backward", trial.backward_run, least, least);
}

// ---- the loss ------------------------------------------------------------------------------------------------------

/// Losses of some tokens are right, and of others wrong: do these have something in common?
void expect_for_all_targets(Grading& grading, const Batch& batch, const Tensor& got, const Tensor& want) {
  std::vector<std::int64_t> wrong;  // targets
  const double allowed = 1e-5 * max(abs(want)).item();
  for (std::int64_t token = 0; token < batch.tokens(); ++token) {
    const double distance = std::abs(got.data<double>()[token] - want.data<double>()[token]);
    if (distance > allowed) wrong.push_back(batch.target(token));
  }
  if (wrong.empty() || std::ssize(wrong) == batch.tokens()) return;
  const auto [low, high] = std::ranges::minmax(wrong);
  grading.expect(false,
                 "loss: wrong for {} of {} tokens, whose targets are from {} to {}. Rank 0 of {} has the columns 0 to "
                 "{}, the last rank {} to {}",
                 wrong.size(), batch.tokens(), low, high, batch.tp, batch.columns() - 1,
                 (batch.tp - 1) * batch.columns(), batch.vocabulary() - 1);
}

/// Losses of two ranks may differ by what the largest logits of their columns differ by.
void expect_one_maximum(Grading& grading, const Batch& batch, const Tensors& losses) {
  const auto is_usable = [&](const Tensor& x) { return x.defined() && x.shape() == Shape{batch.tokens()}; };
  if (!std::ranges::all_of(losses, is_usable)) return;
  const auto largest = [&](int rank) { return max(batch.part(cast(batch.logits, DType::f64), rank), 1); };  // [N]
  for (int rank = 1; rank < batch.tp; ++rank) {
    const Tensor got = cast(losses[at(rank)], DType::f64) - cast(losses[0], DType::f64);
    const Tensor between = largest(rank) - largest(0);
    grading.expect(!difference("", got, between, {.tolerance = 1e-4}).empty(),
                   "loss differs between ranks: rank {} has another than rank 0, by exactly the difference of the "
                   "largest logits in their columns",
                   rank);
  }
}

/// Fails if the loss is that of a sum of exponentials from which each rank has subtracted its own largest logit.
void expect_equal_maxima(Grading& grading, const Batch& batch, const Tensor& one_hot, const Tensor& got,
                         const Tensor& want) {
  const Tensor x = cast(batch.logits, DType::f64);
  Tensor total = Tensor::zeros({batch.tokens()}, DType::f64), of_target = total;
  for (int rank = 0; rank < batch.tp; ++rank) {
    const Tensor own = batch.part(x, rank), shifted = own - reshape(max(own, 1), {-1, 1});
    total = total + sum(exp(shifted), 1);
    of_target = of_target + sum(shifted * batch.part(one_hot, rank), 1);
  }
  const Tensor wrong = log(total) - of_target;
  grading.expect(difference("loss", got, want).empty() || !difference("loss", got, wrong, {.tolerance = 1e-4}).empty(),
                 "loss: that of sums in which each rank has taken its own largest logit as m; sums with different m "
                 "cannot be added");
}

void expect_loss(Grading& grading, const Batch& batch) {
  const Tensor x = cast(batch.logits, DType::f64);
  Tensor one_hot = Tensor::zeros(x.shape(), DType::f64);
  for (std::int64_t token = 0; token < batch.tokens(); ++token)
    one_hot.data<double>()[token * batch.vocabulary() + batch.target(token)] = 1;
  const Tensor log_p = log_softmax(x);
  const Tensor loss = -sum(log_p * one_hot, 1), dlogits = exp(log_p) - one_hot;

  Tensors losses;
  for (const Loss& got : batch.got) losses.push_back(got.loss);
  expect_one_maximum(grading, batch, losses);
  expect_equal_maxima(grading, batch, one_hot, losses[0], loss);
  expect_agreement(grading, "loss", losses, loss);
  expect_for_all_targets(grading, batch, cast(losses[0], DType::f64), loss);
  expect_on_all(grading, "loss", losses, loss);
  Tensor total = Tensor::zeros(loss.shape(), DType::f64);
  for (std::size_t rank = 0; rank < losses.size(); ++rank) {
    const Tensor got = batch.got[rank].dlogits, want = batch.part(dlogits, static_cast<int>(rank));
    if (!got.defined() || got.shape() != want.shape()) grading.expect(difference(on_rank("dlogits", rank), got, want));
    total += sum(cast(got, DType::f64), 1);
  }
  grading.expect(difference("1 + the sum of a token's dlogits over all ranks", total + 1.0,
                            Tensor::ones(loss.shape(), DType::f64)));  // probabilities add up to 1
  for (std::size_t rank = 0; rank < losses.size(); ++rank)
    grading.expect(
        difference(on_rank("dlogits", rank), batch.got[rank].dlogits, batch.part(dlogits, static_cast<int>(rank))));
}

/// `missing`: the last rank has fewer columns than the others.
void check_loss(const Answers& answers, Grading& grading, bool missing, bool large) {
  const int tokens = grading.pick(6, 8), columns = grading.pick(30, 50), more = grading.pick(3, 5);
  for (const int tp : {2, 2, more, 1}) {  // twice: with fresh inputs
    Batch batch = batch_of(grading, tp, tp * tokens, tp * columns - (missing ? tp - 1 : 0));
    if (large) enlarge(batch);
    const Run run = batch.run(answers);
    expect_loss(grading, batch);
    expect_nothing_left(grading, run);
  }
}

void check_loss_bytes(const Answers& answers, Grading& grading) {
  const int tp = grading.pick(2, 5);
  Batch batch = batch_of(grading, tp, tp * grading.pick(6, 8), tp * grading.pick(30, 50));
  const Run run = batch.run(answers);
  const Shape one = {batch.tokens()};  // a number for each token
  expect_bytes(grading, fmt::format("{} tokens", batch.tokens()), run, all_reduces(tp, {one}),
               all_reduces(tp, {one, one, one}));
}

// ---- a block, in time ----------------------------------------------------------------------------------------------

/// A step of one block and the loss, checked and timed.
void check_block(const Answers& answers, Grading& grading) {
  const int tp = 4;
  const Sizes sizes = sizes_of(grading, tp);
  Trial<AttentionLayer> attention(grading, sizes);
  Trial<MlpLayer> mlp(grading, sizes);
  Batch batch = batch_of(grading, tp, 6 * tp, 40 * tp);
  const Run run = run_ranks({.ranks = tp, .collectives = true}, [&](Rank& rank) {
    rank.compute(300e-6, "attention");
    attention.forward_on(rank, answers);
    rank.compute(400e-6, "MLP");
    mlp.forward_on(rank, answers);
    rank.compute(200e-6, "logits");
    batch.loss_on(rank, answers);
    rank.compute(400e-6, "logits, backward");
    rank.compute(800e-6, "MLP, backward");
    mlp.backward_on(rank, answers);
    rank.compute(600e-6, "attention, backward");
    attention.backward_on(rank, answers);
  });
  const comm::Links links = equal_links(15e-6, 20e6);
  const Timeline timeline = timed(run, links);
  grading.show(timeline, "Lab 3: forward and backward of a block and of the loss");
  expect_forward(grading, attention);
  expect_forward(grading, mlp);
  expect_loss(grading, batch);
  expect_backward(grading, mlp);
  expect_backward(grading, attention);

  const Shape stream = sizes.stream(), one = {batch.tokens()};
  const Timeline least = timed(all_reduces(tp, {stream, stream, one, one, one, stream, stream}), links);
  grading.expect(timeline.exposed(0) <= 1.001 * least.seconds,
                 "rank 0 sent and waited for {:.0f} us, in which nothing was computed; {:.0f} us are enough. Look at "
                 "the picture",
                 1e6 * timeline.exposed(0), 1e6 * least.seconds);
}

/// What is predicted is then measured: on ranks that send what a right answer sends, so that a wrong one does not count
/// twice.
void check_predictions(const Answers& answers, Grading& grading) {
  const int tp = grading.pick(2, 8), blocks = grading.pick(2, 48);
  const std::int64_t tokens = tp * grading.pick(1, 9), width = tp * grading.pick(2, 9);
  const std::int64_t hidden = tp * grading.pick(20, 40), vocabulary = tp * grading.pick(100, 900);
  const double forward = answers.all_reduces_forward(blocks), backward = answers.all_reduces_backward(blocks);
  const auto mlp_bytes = static_cast<double>(answers.mlp_bytes(tp, tokens, width, hidden));
  const auto loss_bytes = static_cast<double>(answers.loss_bytes(tp, tokens, vocabulary));

  const Shape stream = {tokens, width}, one = {tokens};
  const auto messages = [&](const std::vector<Shape>& shapes) {
    return static_cast<double>(all_reduces(tp, shapes).ranks[0].messages_sent());
  };
  const auto bytes = [&](const std::vector<Shape>& shapes) {
    return static_cast<double>(all_reduces(tp, shapes).ranks[0].bytes_sent());
  };
  const double of_a_block = messages({stream, stream}) / messages({stream});
  grading.predict("all-reduces in forward", fmt::format("{} blocks", blocks), forward, blocks * of_a_block);
  grading.predict("all-reduces in backward", fmt::format("{} blocks", blocks), backward, blocks * of_a_block);
  grading.predict("bytes that a rank sends for an MLP",
                  fmt::format("tp = {}, {} tokens, D = {}, F = {}", tp, tokens, width, hidden), mlp_bytes,
                  bytes({stream, stream}));
  grading.predict("bytes that a rank sends for the loss",
                  fmt::format("tp = {}, {} tokens, V = {}", tp, tokens, vocabulary), loss_bytes,
                  bytes({one, one, one}));
}

}  // namespace

void grade(const Answers& answers, Grading& grading) {
  check_predictions(answers, grading);
  grading.check("mlp: forward", [&] { check_forward<MlpLayer>(answers, grading); });
  grading.check("mlp: backward", [&] { check_backward<MlpLayer>(answers, grading); });
  grading.check("mlp: no more bytes than needed", [&] { check_bytes<MlpLayer>(answers, grading); });
  grading.check("attention: forward", [&] { check_forward<AttentionLayer>(answers, grading); });
  grading.check("attention: backward", [&] { check_backward<AttentionLayer>(answers, grading); });
  grading.check("attention: no more bytes than needed", [&] { check_bytes<AttentionLayer>(answers, grading); });
  grading.check("cross_entropy: loss and gradient", [&] { check_loss(answers, grading, false, false); });
  grading.check("cross_entropy: a last rank with fewer columns", [&] { check_loss(answers, grading, true, false); });
  grading.check("cross_entropy: logits of 10000", [&] { check_loss(answers, grading, false, true); });
  grading.check("cross_entropy: no more bytes than needed", [&] { check_loss_bytes(answers, grading); });
  grading.check("a block and the loss: in time", [&] { check_block(answers, grading); });
}

}  // namespace trireme::labs::tensor_parallel
