// A run as a person sees it: time left, progress, what stays on a terminal and in a pipe.
#include <doctest/doctest.h>

#include <cmath>
#include <sstream>

#include "ops/terminal/eta.h"
#include "ops/terminal/plain_sinks.h"
#include "ops/terminal/terminal_sink.h"
#include "tests/support/test_screen.h"
#include "tests/support/text.h"
#include "train/program/progress.h"
#include "train/program/text_width.h"
#include "train/program/units.h"

using namespace trireme;
using namespace trireme::testing;

namespace {

StepLogged logged(std::int64_t step) {
  StepLogged event;
  event.record.step = step;
  event.record.loss = 2.5;
  event.record.lr = 1e-3;
  event.record.grad_norm = 1;
  event.record.tokens_per_s = 1000;
  event.record.step_ms = 500;
  event.record.peak_bytes = 1 << 20;
  return event;
}

/// The events of a run of four steps, the last of them evaluated.
template <class Sink>
void run(Sink& sink) {
  sink.receive(RunPlanned{.rows = {{"device", "cpu"}, {"data", "a.txt: 12 training and 3 validation tokens"}},
                          .details = {{"kernels", "products: eigen"}}});
  sink.receive(RunBegan{.steps = 4, .rate_unit = "tok/s", .out = "out"});
  sink.receive(Validated{.step = 0, .loss = 4.5, .meaning = "a random guess scores 4.4"});
  for (std::int64_t step = 1; step <= 4; ++step) {
    sink.receive(StepMade{.step = step, .seconds = 0.5});
    if (step % 2 == 0) sink.receive(logged(step));
  }
  sink.receive(Said{.level = Said::Level::warning, .text = "careful"});
  sink.receive(Validated{.step = 4, .loss = 2.25, .meaning = "perplexity 9.49"});
  sink.receive(Saved{.step = 4, .path = "out/step_4", .bytes = 1024, .seconds = 1, .stall_seconds = 0.5});
  PhaseSeconds phases{};
  phases[static_cast<std::size_t>(Phase::forward)] = 2;
  sink.receive(RunEnded{.steps = 4, .wall_seconds = 4, .phases = phases, .last_step = true});
}

std::string last_line(std::string_view bytes) { return std::string(bytes.substr(bytes.rfind('\n') + 1)); }

}  // namespace

TEST_CASE("time left: a slow step barely counts, evaluations and saves that are due do") {
  Eta eta({.steps = 1000, .eval_every = 100, .sample_every = 0, .save_every = 300});
  CHECK(eta.seconds_left(0) == 0);  // not known
  for (int i = 0; i < 100; ++i) eta.stepped(1.0);
  CHECK(eta.seconds_left(400) == doctest::Approx(600));
  for (int i = 0; i < 5; ++i) eta.stepped(30.0);  // another program
  CHECK(eta.seconds_left(400) == doctest::Approx(600));
  eta.evaluated(400, 10);
  CHECK(eta.seconds_left(400) == doctest::Approx(600 + 6 * 10));  // after 500, 600, ..., 1000
  CHECK(eta.seconds_left(500) == doctest::Approx(500 + 6 * 10));  // that after 500 is still to come
  eta.saved(300, 2, 5);
  CHECK(eta.seconds_left(400) == doctest::Approx(600 + 6 * 10 + 2 * 2 + 5));  // after 600, 900, and the last save
  for (int i = 0; i < 100; ++i) eta.stepped(2.0);                             // the machine stays slower
  CHECK(eta.step_seconds() == doctest::Approx(2.0));
}

TEST_CASE("time left: after the last step, the last evaluation and the last save are left") {
  Eta eta({.steps = 10, .eval_every = 4});
  eta.stepped(1);
  eta.evaluated(0, 3);
  eta.saved(4, 0.1, 2);
  CHECK(eta.seconds_left(10) == doctest::Approx(3 + 2));
  eta.evaluated(10, 3);
  CHECK(eta.seconds_left(10) == doctest::Approx(2));
  eta.saved(10, 2, 2);
  CHECK(eta.seconds_left(10) == 0);
}

TEST_CASE("time left: steps of 1 to 9 s, in no order, give a steady estimate") {
  Eta eta({.steps = 10000});
  double lowest = 1e9, highest = 0;
  for (int step = 1; step <= 400; ++step) {
    eta.stepped(1 + 8 * std::abs(std::sin(step * 12.9898)));
    if (step < 100) continue;
    const double left = eta.seconds_left(step) / (10000 - step);
    lowest = std::min(lowest, left);
    highest = std::max(highest, left);
  }
  CHECK(highest < 1.1 * lowest);
}

TEST_CASE("a progress line fits its columns: first the bar goes, then the last fields") {
  const std::vector<std::string> fields = {"step 45/100", "eta 1m12s", "26.1 steps/s"};
  CHECK(progress_line(0.45, fields, 56, false) == "####------  45% | step 45/100 | eta 1m12s | 26.1 steps/s");
  CHECK(progress_line(0.45, fields, 50, false) == " 45% | step 45/100 | eta 1m12s | 26.1 steps/s");
  CHECK(progress_line(0.45, fields, 41, false) == "####------  45% | step 45/100 | eta 1m12s");
  CHECK(progress_line(0.45, fields, 30, true) == " 45% | step 45/100 | eta 1m12s");
  CHECK(progress_line(0.45, fields, 10, true) == " 45%");
  CHECK(columns_of(progress_line(2, fields, 200, true)) == 40 + 1 + 45);
  CHECK(contains(progress_line(std::nan(""), fields, 60, false), "  0%"));
  for (int columns = 4; columns < 120; ++columns)
    CHECK(columns_of(progress_line(0.5, fields, columns, true)) <= columns);
}

TEST_CASE("in a pipe: the whole plan and plain lines, the step lines as programs read them") {
  TestScreen s({}, 80);
  {
    TerminalSink sink(s.screen, {.steps = 4}, false);
    run(sink);
  }
  CHECK(contains(s.bytes,
                 "device   cpu\ndata     a.txt: 12 training and 3 validation tokens\nkernels  products: eigen\n"));
  CHECK(contains(s.bytes, "\nstep 0/4 | validation loss 4.5000 | a random guess scores 4.4\n"));
  CHECK(contains(s.bytes, "\nstep 2/4 | loss 2.5000 | lr 1.0e-03 | norm 1.00 | 500.0 ms | 1.0k tok/s | eta 1s\n"));
  CHECK(contains(s.bytes, "\nstep 4/4 | loss 2.5000 | lr 1.0e-03 | norm 1.00 | 500.0 ms | 1.0k tok/s | eta 0s\n"));
  CHECK(contains(s.bytes, "\nwarning: careful\n"));
  CHECK(contains(s.bytes, "\nsaved step 4 in out/step_4 (1.0 KiB, 1.000 s; "));
  CHECK(contains(s.bytes, "\nwhere the time went"));
  for (const char byte : s.bytes) CHECK((byte == '\n' || (byte >= ' ' && byte <= '~')));
}

TEST_CASE("on a terminal: a short plan in its columns, every line stays, and a live line at the bottom") {
  for (const bool verbose : {false, true}) {
    TestScreen s({.updates = true}, 30);
    TerminalSink sink(s.screen, {.steps = 4}, verbose);
    sink.receive(RunPlanned{.rows = {{"device", "cpu"}, {"data", "a.txt: 12 training and 3 validation tokens"}},
                            .details = {{"kernels", "products: eigen"}}});
    CHECK(contains(s.bytes, "a.txt: 12 training"));
    CHECK(contains(s.bytes, "eigen") == verbose);
    std::istringstream lines(s.take());
    for (std::string line; std::getline(lines, line);) CHECK(columns_of(line) <= 30);
    sink.receive(RunBegan{.steps = 4, .rate_unit = "tok/s"});
    CHECK(s.take() == "  0% | step 0/4 | starting");
    s.now += std::chrono::seconds(1);
    sink.receive(StepMade{.step = 2, .seconds = 0.5});
    sink.receive(logged(2));
    CHECK(contains(s.bytes, "step 2/4 | loss 2.5000\n"));  // what fits: the live line has the time left
    CHECK(last_line(s.take()) == " 50% | step 2/4 | eta 1s");
    sink.receive(RunEnded{.steps = 2});
    CHECK(s.bytes.starts_with("\r\x1b[J"));
    CHECK(contains(s.bytes, "where the time went"));
    CHECK(last_line(s.take()).empty());  // no live line any more
  }
}

TEST_CASE("on a terminal long lines are broken at words, in a pipe they are not") {
  const std::string path = "runs/gpt-20260131-120000/checkpoints/step_00000100";
  const Saved saved{.step = 100, .path = path, .bytes = 1024, .seconds = 1, .stall_seconds = 0.5, .best = true};
  const std::string line =
      "saved step 100 in " + path + " (1.0 KiB, 1.000 s; training paused 0.500 s), the best so far";
  TestScreen terminal({.updates = true}, 80), pipe({}, 80);
  for (TestScreen* s : {&terminal, &pipe}) {
    TerminalSink sink(s->screen, {.steps = 4}, false);
    sink.receive(saved);
    sink.receive(Said{.level = Said::Level::warning, .text = "one\ntwo"});
  }
  CHECK(pipe.bytes == line + "\nwarning: one\ntwo\n");
  CHECK(terminal.bytes == "saved step 100, the best so far (1.0 KiB)\nwarning: one\ntwo\n");
  TestScreen verbose({.window = true}, 80);
  TerminalSink sink(verbose.screen, {.steps = 4}, true);
  sink.receive(saved);
  CHECK(verbose.bytes ==
        "saved step 100 in " + path + " (1.0 KiB,\n  1.000 s; training paused 0.500 s), the best so far\n");
}

TEST_CASE("--quiet: warnings and one line with the result") {
  TestScreen s({}, 80);
  QuietSink sink(s.screen);
  run(sink);
  CHECK(s.bytes ==
        "warning: careful\nmade 4 steps in 4.0 s | step 4 | loss 2.5000 | validation loss 2.2500 | perplexity 9.49 | "
        "saved in out/step_4\n");
  s.take();
  sink.receive(RunBegan{.first_step = 4, .steps = 9});
  sink.receive(logged(6));
  sink.receive(RunEnded{.steps = 3, .wall_seconds = 0.4, .last_step = false});
  CHECK(s.bytes ==
        "made 3 steps in 0.4 s, until a signal | step 7 | loss 2.5000 at step 6 | validation loss 2.2500 at step 4 | "
        "saved in out/step_4\n");
  TestScreen terminal({.updates = true}, 40);
  QuietSink narrow(terminal.screen);
  run(narrow);
  std::istringstream lines(terminal.bytes);
  for (std::string line; std::getline(lines, line);) CHECK(columns_of(line) <= 40);
  CHECK(contains(terminal.bytes, "made 4 steps in 4.0 s | step 4 | loss\n  2.5000"));
}

TEST_CASE("on a terminal: what the run does when it makes no steps is in the live line, at once") {
  TestScreen s({.updates = true}, 100);
  TerminalSink sink(s.screen, {.steps = 100}, false);
  sink.receive(RunBegan{.steps = 100});
  CHECK(contains(s.take(), " | starting"));
  sink.receive(Activity{.name = "evaluating", .done = 0, .total = 20});
  CHECK(contains(s.take(), " | evaluating  0/20"));
  s.now += std::chrono::seconds(1);
  sink.receive(Activity{.name = "evaluating", .done = 7, .total = 20});
  CHECK(contains(s.take(), " | evaluating  7/20"));
  sink.receive(Validated{.step = 0, .loss = 4, .seconds = 3});
  CHECK(contains(s.take(), " | starting"));
  s.now += std::chrono::seconds(1);
  sink.receive(StepMade{.step = 100, .seconds = 0.5});
  sink.receive(logged(100));
  CHECK(contains(last_line(s.take()), "100% | step 100/100 | eta 3s"));  // the evaluation
  sink.receive(Activity{.name = "evaluating", .done = 0, .total = 20});
  const std::string line = last_line(s.take());
  CHECK(contains(line, " 99% | step 100/100 | evaluating  0/20"));
  CHECK(contains(line, "eta 3s"));
  sink.receive(Validated{.step = 100, .loss = 4, .seconds = 3});
  sink.receive(Activity{.name = "saving"});
  CHECK(contains(last_line(s.take()), " 99% | step 100/100 | saving"));
}

TEST_CASE("on a terminal: the fields of the live line stay where they are") {
  TestScreen s({.updates = true}, 80);
  TerminalSink sink(s.screen, {.steps = 1000}, false);
  sink.receive(RunBegan{.steps = 1000});
  std::vector<std::size_t> places;
  for (const double seconds : {2.0, 0.01, 0.2}) {
    for (int i = 0; i < 100; ++i) sink.receive(StepMade{.step = 9, .seconds = seconds});
    s.now += std::chrono::seconds(1);
    sink.receive(logged(9));
    places.push_back(last_line(s.take()).find("step "));
  }
  CHECK(places == std::vector<std::size_t>(3, places[0]));
}

TEST_CASE("on a terminal the last line is the result, and a run of a few points has no chart") {
  const auto ended = [](int points, bool last, int columns = 120) {
    TestScreen s({.updates = true}, columns);
    TerminalSink sink(s.screen, {.steps = points}, false);
    sink.receive(RunBegan{.steps = points, .out = "r1", .use = "generate --checkpoint r1"});
    for (int step = 1; step <= points; ++step) sink.receive(logged(step));
    sink.receive(Validated{.step = points, .loss = 2.25});
    sink.receive(Saved{.step = points, .path = "r1/step", .best = true});
    s.take();
    sink.receive(RunEnded{.steps = points, .wall_seconds = 1.94, .last_step = last});
    return s.take();
  };
  const std::string few = ended(9, true), many = ended(10, true), stopped = ended(9, false);
  CHECK_FALSE(contains(few, "o validation loss"));
  CHECK(contains(many, "o validation loss"));
  CHECK(ended(9, true, 80)
            .ends_with(
                "\ndone: 9 steps in 1.9 s | validation loss 2.2500 | best in r1/best\n  generate --checkpoint r1\n"));
  CHECK(few.ends_with(
      "\ndone: 9 steps in 1.9 s | validation loss 2.2500 | best in r1/best | generate --checkpoint r1\n"));
  CHECK(
      stopped.ends_with("\nstopped after step 9/9: 9 steps in 1.9 s | validation loss 2.2500 | best in r1/best | "
                        "--resume auto goes on\n"));
}

TEST_CASE("a save that a signal asks for has one line") {
  for (const Terminal terminal : {Terminal{}, Terminal{.updates = true}}) {
    TestScreen s(terminal, 80);
    TerminalSink sink(s.screen, {.steps = 4}, false);
    sink.receive(Saved{.step = 3, .path = "out/step_3", .asked = true});
    sink.receive(Saved{.step = 4, .path = "out/step_4", .leaving = true});
    CHECK(s.bytes == "saved step 3; continuing\n");
  }
}

TEST_CASE("a bar for other programs, on a terminal only") {
  TestScreen pipe({}, 60), terminal({.updates = true}, 60);
  {
    ProgressBar in_pipe(pipe.screen, "verifying", 2048, format_bytes),
        bar(terminal.screen, "verifying", 2048, format_bytes);
    in_pipe.set(1024);
    bar.set(1024);
    CHECK(contains(terminal.bytes, " 50% | verifying 1.0 KiB/2.0 KiB | "));
    CHECK(contains(terminal.bytes, "/s | eta "));
    TestScreen other({.updates = true}, 80);
    ProgressBar exploring(other.screen, "exploring", 60, format_duration);
    exploring.set(15, {"7 cases", "0 wrong"});
    CHECK(contains(other.bytes, " 25% | exploring 15s/1m00s | 7 cases | 0 wrong | eta "));
  }
  CHECK(pipe.bytes.empty());
  CHECK(terminal.bytes.ends_with("\r\x1b[J"));
}
