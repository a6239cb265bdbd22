// The grader of lab 4. Gradients are compared with those of the whole batch on one rank, in f64. The learner's lists
// are run by an executor of the grader's own, and the learner's run() gets lists of the grader's: each is graded for
// itself. The last check puts both together.
#include "examples/labs/04_pipeline/lab.h"
#include "examples/labs/04_pipeline/step.h"
#include "examples/labs/harness/difference.h"

namespace trireme::labs::pipeline {
namespace {

// ---- predictions ----------------------------------------------------------------------------------------------------

void check_predictions(const Answers& answers, Grading& grading) {
  const int ranks = grading.pick(3, 6), m = grading.pick(ranks + 1, 12), middle = grading.pick(1, ranks - 2);
  const double bubbles[] = {answers.gpipe_bubble(ranks, m), answers.one_f_one_b_bubble(ranks, m)};
  const int alive[] = {answers.gpipe_alive(ranks, middle, m), answers.one_f_one_b_alive(ranks, middle, m)};
  const int sent[] = {answers.messages_sent(ranks, 0, m), answers.messages_sent(ranks, middle, m)};
  const Step gpipe = step_of(grading, m, test_lists(ranks, m, 0, m - 1), run_list);
  const Step one_f_one_b = step_of(grading, m, test_lists(ranks, m, 1, 0), run_list);
  const std::string given = fmt::format("P = {}, M = {}", ranks, m),
                    of_middle = fmt::format("{}, rank {}", given, middle);
  const auto bubble = [&](const std::string& what, double predicted, double measured) {
    const bool of_step = std::abs(predicted - measured / (1 + measured)) < 1e-6;
    grading.predict(
        what, given, predicted, measured, 1e-6,
        of_step ? "that is its part of the whole step; give its ratio to the time that a rank computes" : "");
  };
  bubble("the bubble of GPipe", bubbles[0], gpipe.bubble());
  bubble("the bubble of 1F1B", bubbles[1], one_f_one_b.bubble());
  grading.predict("micro-batches that a rank keeps, GPipe", of_middle, alive[0], gpipe.alive(middle));
  grading.predict("micro-batches that a rank keeps, 1F1B", of_middle, alive[1], one_f_one_b.alive(middle));
  const auto measured = [&](int rank) { return static_cast<double>(one_f_one_b.run.ranks[at(rank)].messages_sent()); };
  grading.predict("messages that the first rank sends", given, sent[0], measured(0));
  grading.predict("messages that a rank in the middle sends", of_middle, sent[1], measured(middle));
}

// ---- run() ----------------------------------------------------------------------------------------------------------

void check_order(Grading& grading, const Step& step) {
  for (int rank = 0; rank < step.ranks(); ++rank) {
    std::vector<std::string> done;
    for (const Event& event : step.run.ranks[at(rank)].main)
      if (event.kind == Event::Kind::compute) done.push_back(event.what);
    const Actions& list = step.lists[at(rank)];
    for (std::size_t i = 0; i < std::max(list.size(), done.size()); ++i) {
      const std::string want = i < list.size() ? to_string(list[i]) : "its end";
      const std::string got = i < done.size() ? done[i] : "nothing more";
      grading.expect(got == want, "{}: in place {} of rank {}'s list is {}; its stage was asked for {}", step.size(), i,
                     rank, want, got);
    }
  }
}

void check_gradients(Grading& grading, const Step& step) {
  const auto rows = [](const Tensor& x) { return view::reshape(cast(x, DType::f64), {-1, x.size(2)}); };  // [M B, D]
  std::vector<Weights> stages;
  Tensor y = rows(step.model.x);
  for (const Weights& weights : step.model.stages) {
    stages.push_back(parameters(weights, DType::f64));
    y = block(y, stages.back());
  }
  const Tensor loss = loss_of(y, rows(step.model.target));
  trireme::backward(loss);
  grading.expect(difference(fmt::format("{}: the loss on rank {}", step.size(), step.ranks() - 1),
                            Tensor::full({}, step.loss, DType::f64), loss));
  for (std::size_t stage = 0; stage < stages.size(); ++stage) {
    const Weights &got = step.stages[stage]->weights(), &want = stages[stage];
    const auto expect = [&](std::string_view name, const Tensor& x, const Tensor& reference) {
      grading.expect(difference(fmt::format("{}: the gradient of stage {}'s {}", step.size(), stage, name), grad(x),
                                grad(reference)));
    };
    expect("in", got.in, want.in);
    expect("in_bias", got.in_bias, want.in_bias);
    expect("out", got.out, want.out);
    expect("out_bias", got.out_bias, want.out_bias);
  }
}

void check_messages(Grading& grading, const Step& step) {
  for (int rank = 0; rank < step.ranks(); ++rank) {
    const Record& record = step.run.ranks[at(rank)];
    std::int64_t messages = 0;
    for (int peer = 0; peer < step.ranks(); ++peer) {
      const bool neighbours = std::abs(peer - rank) == 1;
      const std::int64_t need = neighbours ? step.model.x.bytes() : 0, sent = record.bytes_sent_to(peer);
      messages += neighbours ? step.micro_batches() : 0;
      grading.expect(sent >= need,
                     "{}: rank {} sent {} bytes to rank {}, too few for that rank to do its part. Ranks know of each "
                     "other by messages only",
                     step.size(), rank, sent, peer);
      grading.expect(sent <= need, "{}: rank {} sent {} bytes to rank {}; {} are enough", step.size(), rank, sent, peer,
                     need);
    }
    grading.expect(record.messages_sent() == messages, "{}: rank {} sent {} messages; {} are enough", step.size(), rank,
                   record.messages_sent(), messages);
  }
  for (const std::string& left : step.run.left) grading.expect(left);
}

/// run() with GPipe, with 1F1B and some forwards more, with backwards in parts, and on one rank.
void check_run(const Answers& answers, Grading& grading, void (*check)(Grading&, const Step&)) {
  const auto on = [&](int ranks, int slope, int ahead, int delay) {
    int m = grading.pick(2, 9);
    m += m == ranks ? 1 : 0;  // so that a message tells the two apart
    check(grading, step_of(grading, m, test_lists(ranks, m, slope, std::min(ahead, m - 1), delay), answers.run));
  };
  on(2, 0, 9, -1);
  on(grading.pick(3, 6), 0, 9, -1);
  on(grading.pick(3, 6), 1, grading.pick(0, 3), -1);
  on(grading.pick(3, 6), 1, 0, grading.pick(1, 4));
  on(1, 0, 0, -1);
}

// ---- schedules ------------------------------------------------------------------------------------------------------

/// A list has everything once, and neighbours agree on the order of their messages.
void check_lists(Grading& grading, const std::vector<Actions>& lists, int micro_batches) {
  const auto order = [&](std::size_t rank, bool forwards) {
    std::vector<int> order;
    for (const auto& [kind, m] : lists[rank])
      if (kind != Kind::backward_weight && (kind == Kind::forward) == forwards) order.push_back(m);
    return order;
  };
  for (std::size_t rank = 0; rank < lists.size(); ++rank) {
    const std::string where = fmt::format("P = {}, M = {}: rank {}", lists.size(), micro_batches, rank);
    std::map<int, std::array<int, 4>> counts;  // of each kind, by micro-batch
    for (const Action& action : lists[rank]) {
      const int m = action.micro_batch;
      grading.expect(m >= 0 && m < micro_batches, "{} has a {}; expected 0 to {}", where, to_string(action),
                     micro_batches - 1);
      ++counts[m][at(action.kind)];
    }
    for (int m = 0; m < micro_batches; ++m) {
      const auto [forward, backward, input, weight] = counts[m];
      grading.expect(forward == 1 && backward + input == 1 && input == weight,
                     "{} has {} forward, {} backward, {} backward_input and {} backward_weight of micro-batch {}; "
                     "expected one forward, and one backward or one of each of its parts",
                     where, forward, backward, input, weight, m);
    }
    for (const bool forwards : {true, false})
      grading.expect(rank == 0 || order(rank, forwards) == order(rank - 1, forwards),
                     "{} has its {} in another order than rank {}. Messages carry no number: the first one sent is "
                     "taken for the first one expected",
                     where, forwards ? "forwards" : "backwards", rank - 1);
  }
}

/// What a schedule promises.
struct Promise {
  std::string_view title;
  double share;  ///< of (P - 1) / M: the bubble at most
  int (*alive)(int ranks, int rank, int micro_batches);
};

void check_promise(Grading& grading, const Step& step, const Promise& promise) {
  for (int rank = 0; rank < step.ranks(); ++rank) {
    const int most = promise.alive(step.ranks(), rank, step.micro_batches());
    grading.expect(step.alive(rank) <= most, "{}: rank {} keeps {} micro-batches at the same time; expected at most {}",
                   step.size(), rank, step.alive(rank), most);
  }
  // Weights' parts of fewer micro-batches than ranks cannot fill the gaps.
  const double share = step.micro_batches() < step.ranks() ? 1 : promise.share;
  const double most = share * (step.ranks() - 1) / step.micro_batches();
  grading.expect(step.bubble() <= most + 1e-6,
                 "{}: a step takes {:.0f} ms, of which each rank computes {:.0f}: a bubble of {:.3f}; expected at most "
                 "{:.3f}. Look at the picture: who waits, and for what?",
                 step.size(), 1e3 * step.timeline.seconds, 1e3 * step.ideal(), step.bubble(), most);
}

using Size = std::pair<int, int>;  // ranks and micro-batches

std::vector<Actions> lists_of(List list, const Size& size) {
  std::vector<Actions> lists;
  for (int rank = 0; rank < size.first; ++rank) lists.push_back(list(size.first, rank, size.second));
  return lists;
}

/// "rank 0: F0 F1 B0 B1; rank 1: ...".
std::string short_lists(const std::vector<Actions>& lists) {
  constexpr const char* letters = "FBBW";  // by Kind
  std::string text;
  for (std::size_t rank = 0; rank < lists.size(); ++rank) {
    text += fmt::format("{}rank {}:", rank == 0 ? "" : "; ", rank);
    for (const auto& [kind, m] : lists[rank]) text += fmt::format(" {}{}", letters[at(kind)], m);
  }
  return text;
}

/// A list of the learner's, in several sizes. The first one is drawn.
void check_schedule(Grading& grading, List list, const Promise& promise, const Size& drawn, std::string& pictures) {
  for (const Size& size :
       {drawn, Size(grading.pick(4, 6), 2), Size(grading.pick(3, 6), grading.pick(10, 12)), Size(2, 1), Size(1, 3)}) {
    const std::vector<Actions> lists = lists_of(list, size);
    check_lists(grading, lists, size.second);
    const Step step = [&] {
      try {
        return step_of(grading, size.second, lists, run_list);
      } catch (const Error& error) {
        grading.expect(fmt::format("P = {}, M = {}: {}. The lists: {}", size.first, size.second, error.reason(),
                                   short_lists(lists)));
        throw;
      }
    }();
    if (size == drawn) {
      pictures += drawing(step, promise.title);
      grading.show(step.timeline, fmt::format("Lab 4: {}", promise.title));
    }
    check_promise(grading, step, promise);
  }
}

void check_all_forwards_first(const Answers& answers, Grading& grading) {
  for (const Actions& list : lists_of(answers.gpipe, {3, 8}))
    grading.expect(std::ranges::is_partitioned(list, [](const Action& a) { return a.kind == Kind::forward; }),
                   "a forward comes after a backward; GPipe does all forwards first");
}

constexpr Promise gpipe = {"GPipe", 1, [](int, int, int m) { return m; }};
constexpr Promise one_f_one_b = {"1F1B", 1, [](int ranks, int rank, int m) { return std::min(ranks - rank, m); }};
constexpr Promise split_backward = {"split_backward", 0.5, [](int ranks, int, int m) { return std::min(ranks, m); }};

/// The same run is checked and timed.
void check_together(const Answers& answers, Grading& grading, const Size& size) {
  const Step step = step_of(grading, size.second, lists_of(answers.split_backward, size), answers.run);
  check_order(grading, step);
  check_gradients(grading, step);
  check_messages(grading, step);
  check_promise(grading, step, split_backward);
}

}  // namespace

void grade(const Answers& answers, Grading& grading) {
  check_predictions(answers, grading);
  grading.check("run: what the list says", [&] { check_run(answers, grading, check_order); });
  grading.check("run: loss and gradients", [&] { check_run(answers, grading, check_gradients); });
  grading.check("run: no more messages than needed", [&] { check_run(answers, grading, check_messages); });
  const int ranks = grading.pick(3, 4);
  const Size drawn(ranks, grading.pick(2 * ranks, 9));
  std::string pictures;
  grading.check("gpipe: memory and bubble", [&] {
    check_schedule(grading, answers.gpipe, gpipe, drawn, pictures);
    check_all_forwards_first(answers, grading);
  });
  grading.check("one_f_one_b: memory and bubble",
                [&] { check_schedule(grading, answers.one_f_one_b, one_f_one_b, drawn, pictures); });
  grading.check("split_backward: half the bubble, memory of P micro-batches",
                [&] { check_schedule(grading, answers.split_backward, split_backward, drawn, pictures); });
  grading.check("run with split_backward", [&] { check_together(answers, grading, drawn); });
  if (!pictures.empty())
    grading.show(pictures + "a column is 1 ms; F forward, B backward or its input's part, W weights' part, . waits\n");
}

}  // namespace trireme::labs::pipeline
