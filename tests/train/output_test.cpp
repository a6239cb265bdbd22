// What is shown and what is recorded: line formats, tables, metrics.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "tests/support/errors.h"
#include "train/events/metrics.h"
#include "train/events/texts.h"
#include "train/gpt/gpt_setup.h"
#include "train/gpt/gpt_task.h"
#include "train/program/text_width.h"
#include "train/program/timer.h"
#include "train/program/units.h"
#include "train/report/report.h"

using namespace trireme;
using namespace trireme::testing;

namespace {

StepRecord example() {
  StepRecord r;
  r.step = 120;
  r.loss = 2.10344;
  r.lr = 9.7e-4;
  r.grad_norm = 0.812;
  r.tokens = 92160;
  r.tokens_per_s = 20104.7;
  r.step_ms = 38.2;
  return r;
}

}  // namespace

TEST_CASE("the step line") {
  CHECK(step_line(example(), 2000, "tok/s", 71.8) ==
        "step 120/2000 | loss 2.1034 | lr 9.7e-04 | norm 0.81 | 38.2 ms | 20.1k tok/s | eta 1m12s");
}

TEST_CASE("the step line in a window: aligned, and with what fits") {
  const auto line = [](int columns) { return step_line_in(columns, example(), 12000, "tok/s", 71.8); };
  CHECK(line(100) ==
        "step   120/12000 | loss 2.1034 | lr 9.7e-04 | grad norm 0.81 | 38.2 ms | 20.1k tok/s | eta 1m12s");
  CHECK(line(95) == "step   120/12000 | loss 2.1034 | lr 9.7e-04 | norm 0.81 | 38.2 ms | 20.1k tok/s | eta 1m12s");
  CHECK(line(78) == "step   120/12000 | loss 2.1034 | lr 9.7e-04 | norm 0.81 | 38.2 ms");
  CHECK(validation_line({.step = 1, .loss = 0.5}, 2000, true) == "step    1/2000 | validation loss 0.5000");
}

TEST_CASE("durations, counts and bytes") {
  CHECK(format_elapsed(0.41) == "0.4 s");
  CHECK(format_elapsed(59.94) == "59.9 s");
  CHECK(format_elapsed(59.96) == "1m00s");
  CHECK(format_elapsed(72.4) == "1m12s");
  CHECK(format_duration(0.31) == "0s");
  CHECK(format_duration(59.6) == "1m00s");
  CHECK(format_duration(72.4) == "1m12s");
  CHECK(format_duration(7384) == "2h03m");
  CHECK(format_duration(190000) == "2d04h");
  CHECK(format_duration(std::nan("")) == "?");
  CHECK(format_count(950) == "950");
  CHECK(format_count(20140) == "20.1k");
  CHECK(format_count(1234567) == "1.2M");
  CHECK(format_count(1.1e16) == "11.0P");
  CHECK(format_bytes(100) == "100 B");
  CHECK(format_bytes(1536) == "1.5 KiB");
  CHECK(format_bytes(3.0 * (1LL << 30)) == "3.0 GiB");
}

TEST_CASE("validation lines: of a GPT beside a random guess before the first step, with perplexity after") {
  GptTask task;
  task.gpt().model.config.vocab = 65;
  CHECK(validation_line({.step = 0, .loss = 4.18214, .meaning = task.explain_loss(0, 4.18214)}, 2000) ==
        "step 0/2000 | validation loss 4.1821 | a random guess scores 4.1744 (ln 65)");
  CHECK(validation_line({.step = 500, .loss = 1.8423, .meaning = task.explain_loss(500, 1.8423)}, 2000) ==
        "step 500/2000 | validation loss 1.8423 | perplexity 6.31");
  CHECK(task.explain_loss(500, 38.9) == "perplexity 7.84e+16");  // of a run that diverges
  CHECK(validation_line({.step = 1, .loss = 0.5}, 2) == "step 1/2 | validation loss 0.5000");
}

TEST_CASE("samples and saves") {
  CHECK(sample_block({.step = 5, .text = "a\nb"}) == "--- sample at step 5 ---\na\nb\n---");
  Saved saved{.step = 20, .path = "out/step_20", .bytes = 1536, .seconds = 0.03, .stall_seconds = 0.001};
  const std::string line = "saved step 20 in out/step_20 (1.5 KiB, 0.030 s; training paused 0.001 s)";
  CHECK(saved_line(saved) == line);
  saved.best = true;
  CHECK(saved_line(saved) == line + ", the best so far");
  CHECK(saved_line(saved, false) == "saved step 20, the best so far (1.5 KiB)");
  saved.asked = true;
  CHECK(saved_line(saved) == "saved step 20, the best so far; continuing");
  saved.asked = false;
  saved.best = false;
  saved.warning = "cannot remove step_10";
  CHECK(saved_line(saved) == line + "; cannot remove step_10");
}

TEST_CASE("a metrics line has the keys of the contract in their order, and only those that are known") {
  CHECK(to_json_line(example()) ==
        R"({"step":120,"loss":2.10344,"lr":0.00097,"grad_norm":0.812,"tokens":92160,"tokens_per_s":20104.7,)"
        R"("step_ms":38.2})");
  StepRecord mixed = example();
  mixed.epochs = {{"web", 0.5}, {"a \"b\"", 2}};
  CHECK(contains(to_json_line(mixed), R"("step_ms":38.2,"epochs":{"web":0.5,"a \"b\"":2}})"));
  StepRecord all = example();
  all.val_loss = 1.5;
  all.forward_ms = 1.0;
  all.backward_ms = 2.0;
  all.optimizer_ms = 3.0;
  all.data_ms = 4.0;
  all.comm_exposed_ms = 5.0;
  all.peak_bytes = 6;
  CHECK(contains(to_json_line(all),
                 R"("step_ms":38.2,"val_loss":1.5,"forward_ms":1,"backward_ms":2,"optimizer_ms":3,"data_ms":4,)"
                 R"("comm_exposed_ms":5,"peak_bytes":6})"));
}

TEST_CASE("metrics keep every bit of a number, and are JSON also for infinity and NaN") {
  for (const double loss : {1.0 / 3, 4.174387269895637, 1e-310, 1e22, 0.1 + 0.2, std::nextafter(2.0, 3.0)}) {
    StepRecord r = example();
    r.loss = loss;
    CHECK(nlohmann::json::parse(to_json_line(r))["loss"].get<double>() == loss);
  }
  StepRecord r = example();
  r.loss = std::nan("");
  r.grad_norm = std::numeric_limits<double>::infinity();
  const auto parsed = nlohmann::json::parse(to_json_line(r));
  CHECK(parsed["loss"].is_null());
  CHECK(parsed["grad_norm"].is_null());
}

TEST_CASE("an inner phase's time is not counted in the outer one") {
  const auto sleep = [](int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); };
  PhaseTimes times;
  {
    const auto backward = times.time(Phase::backward);
    sleep(20);
    {
      const auto waiting = times.time(Phase::communication);
      sleep(40);
    }
    times.add(Phase::forward, 0.005);
  }
  {
    const auto evaluation = times.time(Phase::evaluation);
    sleep(30);
  }
  const double wall = times.seconds();
  const auto total = [&](Phase phase) { return times.totals()[static_cast<std::size_t>(phase)]; };
  CHECK(total(Phase::communication) >= 0.040);
  CHECK(total(Phase::backward) >= 0.014);  // 20 ms, less the 5 ms claimed by add()
  CHECK(total(Phase::forward) == 0.005);
  double sum = 0;
  for (const double seconds : times.totals()) sum += seconds;
  CHECK(sum <= wall);
  CHECK(sum >= 0.085);

  const PhaseTimes::Lap lap = times.lap(2);
  CHECK(lap.ms_of(Phase::communication) == doctest::Approx(total(Phase::communication) * 500));
  CHECK(lap.step_ms >= 30.0);                                                // (20 + 40) ms over two steps
  CHECK(lap.step_ms <= (times.seconds() - total(Phase::evaluation)) * 500);  // evaluation is between steps
  CHECK(times.lap(1).ms_of(Phase::communication) == 0.0);
}

TEST_CASE("a lap becomes times and a rate") {
  PhaseTimes::Lap lap;
  lap.step_ms = 50;
  lap.ms[static_cast<std::size_t>(Phase::forward)] = 20;
  StepRecord r;
  r.set_times(lap, 768);
  CHECK(r.tokens_per_s == doctest::Approx(15360));
  CHECK(r.forward_ms == 20.0);
  CHECK(r.step_ms == 50);
}

TEST_CASE("the ranks of each group follow the placement order pp, dp, tp") {
  MeshShape mesh;
  for (const Axis axis : {Axis::pp, Axis::dp, Axis::tp}) mesh.at(axis) = 2;
  CHECK(axis_groups(mesh, Axis::tp) == "[0 1] [2 3] [4 5] [6 7]");
  CHECK(axis_groups(mesh, Axis::dp) == "[0 2] [1 3] [4 6] [5 7]");
  CHECK(axis_groups(mesh, Axis::pp) == "[0 4] [1 5] [2 6] [3 7]");
  mesh.at(Axis::dp) = 3;
  CHECK(axis_groups(mesh, Axis::dp) == "[0 2 4] [1 3 5] [6 8 10] [7 9 11]");
  mesh.at(Axis::dp) = 16;
  CHECK(axis_groups(mesh, Axis::pp).ends_with("[6 38] [7 39] ... (32 groups)"));
  CHECK(axis_groups(mesh, Axis::dp).starts_with("[0 2 4 6 8 10 12 14 ... 30] "));
  mesh = {};
  mesh.at(Axis::dp) = mesh.at(Axis::cp) = mesh.at(Axis::tp) = 2;
  mesh.at(Axis::ep) = 4;
  CHECK(axis_groups(mesh, Axis::dp) == "[0 4] [1 5] [2 6] [3 7]");
  CHECK(axis_groups(mesh, Axis::cp) == "[0 2] [1 3] [4 6] [5 7]");
  CHECK(axis_groups(mesh, Axis::ep) == "[0 2 4 6] [1 3 5 7]");
}

TEST_CASE("two columns are wrapped at words") {
  CHECK(aligned_lines({{"a", "x"}, {"label", "y\nz"}}) == "a      x\nlabel  y\n       z\n");
  CHECK(aligned_lines({{"label", "one two three four five six seven eight nine ten"}}, 50) ==
        "label  one two three four five six seven eight\n       nine ten\n");
  CHECK(aligned_lines({{"label", "one two three four five"}, {"a", "x"}}, 27) ==
        "label\n  one two three four five\na\n  x\n");
  CHECK(aligned_lines({{"\u6570", "wide"}, {"abc", "x"}}) == "\u6570   wide\nabc  x\n");
}

TEST_CASE("the table of times fits its window") {
  PhaseSeconds seconds{};
  seconds[static_cast<std::size_t>(Phase::forward)] = 2;
  seconds[static_cast<std::size_t>(Phase::communication)] = 1;
  for (const int columns : {0, 80, 58, 57, 40, 38, 30}) {
    const std::string table = time_table(seconds, 4, 2, columns);
    INFO(table);
    CHECK(contains(table, "where the time went"));
    CHECK(contains(table, "ms per step") == (columns == 0 || columns >= 58));
    CHECK(contains(table, "50.0%") == (columns == 0 || columns >= 38));
    std::istringstream lines(table);
    for (std::string line; std::getline(lines, line);) CHECK((columns == 0 || columns_of(line) <= columns));
  }
}

TEST_CASE("the table before training") {
  GptOptions options;
  options.data.data = "book.txt";
  options.mesh.axes = "dp=2,pp=2";
  options.batch.micro_batches = 4;
  resolve(options, 0);
  const auto start_table = [&](const StartFacts& facts) {
    const RunPlanned plan = plan_of_run(options, facts);
    return aligned_lines(plan.rows) + aligned_lines(plan.details);
  };
  const std::string text = start_table({.task = {{"data", "book.txt"}, {"parameters", thousands(1234567)}},
                                        .batch = "2 x 3 = 6",
                                        .plan = gpt_plan(options.mesh, options.model.config),
                                        .threads = 1,
                                        .bubble = 0.2,
                                        .memory = "12 MiB"});
  CHECK(contains(text, "device           cpu, 1 thread per rank, ranks are threads"));
  CHECK(contains(text, "data             book.txt\n"));
  CHECK(contains(text, "parameters       1,234,567\n"));
  CHECK(contains(text, "mesh             dp=2,tp=1,pp=2 = 4 ranks\n"));
  CHECK(contains(text, "groups   dp [0 1] [2 3]\n         pp [0 2] [1 3]\n"));
  CHECK(contains(text, "schedule         1f1b, 2 stages of 5,1 layers, 4 micro-batches: bubble 20.0% of a step\n"));
  CHECK(contains(text, "learning rate    0.001, cosine to 0.0001 at step 1000\n"));
  CHECK(contains(text, "memory per rank  12 MiB\n"));
  CHECK(contains(text, "batch            2 x 3 = 6\n"));
  CHECK_FALSE(contains(text, "reduction"));
  CHECK(contains(text, "kept in          nothing is kept: --out none\n"));
  CHECK_FALSE(contains(text, "checkpoints"));
  options.mesh.processes = true;
  StartFacts facts;
  CHECK(contains(start_table(facts), "\nreduction  exact\n"));
  facts.sums = SumOrder::any;
  CHECK(contains(start_table(facts), "\nreduction  fast\n"));
}

TEST_CASE("the table before training says when checkpoints are saved, and which stay") {
  GptOptions options;
  options.mesh.axes = "dp=1";
  resolve(options, 0);
  options.run.out = "run1";
  const auto row = [&](std::int64_t eval_every) {
    StartFacts facts;
    facts.eval_every = eval_every;
    const RunPlanned plan = plan_of_run(options, facts);
    const auto found = std::find_if(plan.rows.begin(), plan.rows.end(),
                                    [](const LabelledValue& r) { return r.first == "checkpoints"; });
    return found == plan.rows.end() ? "" : found->second;
  };
  CHECK(row(0) == "after the last step, and on a signal; all stay");
  CHECK(row(50) ==
        "after the last step, on a signal, and at each new lowest validation loss (computed every 50 steps); of the "
        "latter only the best stays");
  options.run.checkpoint_every = 100;
  options.run.checkpoint_minutes = 7.5;
  options.run.keep = 3;
  CHECK(row(50) ==
        "every 100 steps, every 7.5 minutes, after the last step, on a signal, and at each new lowest validation loss "
        "(computed every 50 steps); the newest 3 and the best stay");
  options.run.keep_best = false;
  CHECK(row(50) == "every 100 steps, every 7.5 minutes, after the last step, and on a signal; the newest 3 stay");
}

TEST_CASE("the table after training adds up to the wall clock") {
  PhaseSeconds totals{};
  totals[static_cast<std::size_t>(Phase::forward)] = 2.0;
  totals[static_cast<std::size_t>(Phase::evaluation)] = 1.0;
  const std::string text = time_table(totals, 4.0, 100);
  CHECK(contains(text, "forward                          2.00   50.0%        20.00\n"));
  CHECK(contains(text, "evaluation                       1.00   25.0%\n"));
  CHECK(contains(text, "everything else                  1.00   25.0%\n"));
  CHECK(contains(text, "total                            4.00  100.0%\n"));
  CHECK_FALSE(contains(text, "backward"));
}
