// Curves of runs: reading metrics.jsonl, scales, and charts of text.
#include <doctest/doctest.h>

#include <set>
#include <sstream>

#include "ops/plot/braille.h"
#include "ops/plot/curves.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "train/program/text_width.h"

using namespace trireme;
using namespace trireme::testing;

namespace {

RunCurves falling(const std::string& name, double from, double to) {
  RunCurves run{.name = name};
  for (int step = 0; step <= 100; ++step)
    run.loss.push_back({static_cast<double>(step), from + (to - from) * step / 100});
  run.validation = {{0, from}, {100, to}};
  return run;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

}  // namespace

TEST_CASE("curves are read from metrics.jsonl: losses that were not finite, and a line half written, are left out") {
  const TempFolder folder;
  const auto file = folder / "metrics.jsonl";
  write_plainly(file,
                "{\"step\":10,\"loss\":3.5}\n{\"step\":20,\"loss\":null,\"val_loss\":1e305}\n"
                "{\"step\":30,\"loss\":2.5,\"val_loss\":2.75}\n{\"step\":40,\"lo");
  for (const auto& path : {folder.path(), file}) {
    const RunCurves run = read_curves(path);
    CHECK(run.name == path.string());
    REQUIRE(run.loss.size() == 2);
    CHECK(run.loss[1].x == 30);
    CHECK(run.loss[1].y == 2.5);
    REQUIRE(run.validation.size() == 1);
    CHECK(run.validation[0].y == 2.75);
  }
}

TEST_CASE("what is no run, has no step or is damaged is refused with its place") {
  const TempFolder folder;
  CHECK(contains(failure([&] { read_curves(folder.path()); }),
                 "64 trireme: [plot] " + (folder / "metrics.jsonl").string()));
  const auto refused = [&](const std::string& text) {
    write_plainly(folder / "metrics.jsonl", text);
    return failure([&] { read_curves(folder.path()); });
  };
  CHECK(contains(refused("{\"step\":1"), "64 trireme: [plot] "));
  CHECK(contains(refused("{\"step\":1,\"loss\":1}\n{\"loss\":1}\n"), "metrics.jsonl:2: no step"));
  CHECK(contains(refused("{\"step\":1,\"loss\":\"low\"}\n"), "metrics.jsonl:1: 'loss' is not a number"));
  CHECK(contains(refused("nonsense\n"), "metrics.jsonl:1"));
  CHECK(contains(refused("[1]\n"), "65 trireme: "));
  std::filesystem::remove(folder / "metrics.jsonl");
  std::filesystem::create_symlink("metrics.jsonl", folder / "metrics.jsonl");
  CHECK(contains(failure([&] { read_curves(folder.path()); }), "74 trireme: [io] cannot look at"));
  CHECK(contains(failure([] { read_curves("/dev/null"); }), "65 trireme: [io] /dev/null is not a regular file"));
}

TEST_CASE("a scale has round marks around the values") {
  const auto check = [](double low, double high, int marks, double first, double last, double step) {
    const Scale scale = Scale::around(low, high, marks);
    CHECK(scale.low == doctest::Approx(first));
    CHECK(scale.high == doctest::Approx(last));
    CHECK(scale.step == doctest::Approx(step));
    CHECK(scale.marks().size() <= static_cast<std::size_t>(marks) + 1);
    CHECK(scale.marks().back() == doctest::Approx(last));
  };
  check(0, 300, 6, 0, 300, 50);
  check(1.83, 4.28, 6, 1.5, 4.5, 0.5);
  check(1.83, 4.28, 5, 1, 5, 1);  // steps of 0.5 would be six
  check(-0.3, 0.31, 4, -0.4, 0.4, 0.2);
  check(0, 1'000'000, 5, 0, 1'000'000, 200'000);
  const Scale one = Scale::around(2.5, 2.5, 4);  // a run of one step
  CHECK(one.low < 2.5);
  CHECK(one.high > 2.5);
  CHECK(Scale::around(-0.3, 0.3, 6).marks()[3] == 0);
}

TEST_CASE("the marks of an axis have different labels, with the same number of decimals") {
  const auto labels = [](double low, double high, double step, bool counts) {
    std::string all;
    for (const std::string& label : mark_labels({low, high, step}, counts)) all += label + " ";
    return all;
  };
  CHECK(labels(1.85, 1.95, 0.05, false) == "1.85 1.90 1.95 ");
  CHECK(labels(2, 4, 1, false) == "2 3 4 ");
  CHECK(labels(3200, 3400, 50, true) == "3200 3250 3300 3350 3400 ");
  CHECK(labels(12000, 12100, 50, true) == "12.00k 12.05k 12.10k ");
  CHECK(labels(0, 1'000'000, 500'000, true) == "0 0.5M 1.0M ");
  CHECK(labels(0, 40'000, 20'000, true) == "0 20k 40k ");
  CHECK(labels(-0.2, 0.2, 0.2, false) == "-0.2 0.0 0.2 ");
  for (const double size : {1e-99, 1e-8, 1.0, 1e6, 1e12, 1e99}) {
    for (const bool counts : {false, true}) {
      const std::vector<std::string> all = mark_labels(Scale::around(size, 1.1 * size, 5), counts);
      CHECK(std::set<std::string>(all.begin(), all.end()).size() == all.size());
      for (const std::string& label : all) CHECK(label.size() <= 12);
    }
  }
}

TEST_CASE("a chart is as high as its window, and there is none in a small one") {
  const auto size = [](int columns, int rows) {
    const Screen screen({.out = {}, .err = {}, .columns = [=] { return columns; }, .rows = [=] { return rows; }}, {});
    return chart_size(screen);
  };
  CHECK(size(80, 24)->rows == 20);
  CHECK(size(80, 16)->rows == 12);
  CHECK(size(200, 60)->columns == 100);
  CHECK_FALSE(size(39, 24));
  CHECK_FALSE(size(80, 14));
}

TEST_CASE("a chart fits its columns; the curve runs from corner to corner") {
  const std::string text = draw_curves({falling("run1", 4, 2)}, {.columns = 40, .rows = 12}, true);
  INFO(text);
  const std::vector<std::string> lines = lines_of(text);
  CHECK(lines.size() == 12);
  for (const std::string& line : lines) CHECK(columns_of(line) <= 40);
  CHECK(lines[0].starts_with("     4 \u2502o"));  // the validation loss at step 0
  CHECK(lines[8].starts_with("     2 \u2502"));
  CHECK(lines[8].ends_with("o"));
  CHECK(contains(text, "\xe2\xa0"));  // braille
  CHECK(lines[10].ends_with("100"));
  CHECK(contains(lines[11], "o validation loss"));
  CHECK(contains(lines[11], "run1"));
}

TEST_CASE("a chart begins with step 0, or where the curve begins if most of it would be empty") {
  RunCurves resumed{.name = "resumed"};
  for (const double step : {120, 130, 140, 150, 160}) resumed.loss.push_back({step, 2});
  CHECK(axes_of({resumed}, 4, 4).x.low == 120);
  resumed.loss.front().x = 70;
  CHECK(axes_of({resumed}, 4, 4).x.low == 0);
}

TEST_CASE("several runs share a chart, and letters name them") {
  const std::string text =
      draw_curves({falling("run1", 4, 2), falling("run2", 3, 1)}, {.columns = 60, .rows = 16}, false);
  INFO(text);
  for (const char byte : text) CHECK((byte == '\n' || (byte >= ' ' && byte <= '~')));  // in ASCII
  CHECK(contains(text, "a loss  A validation loss  run1\n"));
  CHECK(contains(text, "b loss  B validation loss  run2\n"));
  CHECK(lines_of(text)[0].starts_with("     4 |A"));
  CHECK(occurrences(text, "a") > 3);
}

TEST_CASE("names and extreme values do not break a chart") {
  RunCurves run{.name = "run\x1b[2J\nx", .loss = {{1, 1e99}}};
  CHECK_FALSE(contains(draw_curves({run}, {.columns = 1, .rows = 1}, true), "\x1b"));
  CHECK(contains(draw_curves({run}, {.columns = 60, .rows = 1}, true), "run\\x1b[2J\\x0ax"));
  run.loss = {{1, 1e-99}, {2, 1e99}, {1e15, -1e99}};
  for (const std::string& line : lines_of(draw_curves({run}, {}, true))) CHECK(columns_of(line) <= 80);
}
