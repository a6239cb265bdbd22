// How text reaches a terminal or a pipe.
#include "train/program/screen.h"

#include <doctest/doctest.h>

#include <chrono>
#include <cstdlib>
#include <thread>
#include <vector>

#include "tests/support/test_screen.h"
#include "tests/support/text.h"
#include "tests/support/virtual_terminal.h"

using namespace trireme;
using namespace trireme::testing;
using namespace std::chrono_literals;

namespace {

constexpr Terminal in_colour{.updates = true, .colour = true, .unicode = true}, plain{.updates = true};

Screen::LiveLine live(const std::string& text) {
  return [text](int) { return text; };
}

}  // namespace

TEST_CASE("in a pipe every line is plain, and there is no live line") {
  TestScreen b({});
  b.screen.show_live(live("10%"));
  b.screen.print("one\ntwo\n");
  b.screen.print("bold", Style::bold);
  b.screen.warn("careful");
  b.screen.end_live();
  CHECK(b.bytes == "one\ntwo\nbold\ncareful\n");
}

TEST_CASE("text of both streams appears above the live line and stays") {
  TestScreen b(plain);
  b.screen.show_live(live("10%"));
  CHECK(b.take() == "10%");
  b.screen.print("step 1", Style::bold);
  CHECK(b.take() == "\r\x1b[Jstep 1\n10%");
  b.screen.warn("careful");
  CHECK(b.take() == "\r\x1b[Jcareful\n10%");
  b.screen.end_live();
  b.screen.print("done");
  CHECK(b.take() == "\r\x1b[Jdone\n");
}

TEST_CASE("a warning is broken at words on a terminal, and not in a pipe or where another program shows it") {
  const std::string text = "careful: rank 0 takes long";
  TestScreen terminal(plain), pipe({}), passed_on({.updates = true, .errors = false});
  for (TestScreen* b : {&terminal, &pipe, &passed_on}) b->screen.warn(text);
  CHECK(terminal.bytes == "careful: rank 0\ntakes long\n");
  CHECK(pipe.bytes == text + "\n");
  CHECK(passed_on.bytes == text + "\n");
}

TEST_CASE("if another program shows standard error, the live line waits for it") {
  TestScreen b({.updates = true, .errors = false});
  b.screen.show_live(live("10%"));
  b.screen.warn("careful");
  b.screen.show_live(live("11%"));
  CHECK(b.take() == "10%\r\x1b[Jcareful\n");
  b.now += 100ms;
  b.screen.show_live(live("12%"));
  CHECK(b.take() == "12%");
}

TEST_CASE("after the last words, there is no live line any more") {
  TestScreen b(plain);
  b.screen.show_live(live("10%"));
  b.take();
  b.screen.last_words("trireme: FATAL[70]");
  b.screen.show_live(live("20%"));
  CHECK(b.take() == "\r\x1b[Jtrireme: FATAL[70]\n");
}

TEST_CASE("the live line is drawn ten times a second, and with every line above it") {
  TestScreen b(plain);
  b.screen.show_live(live("1"));
  b.take();
  for (int i = 2; i <= 9; ++i) {
    b.now += 11ms;
    b.screen.show_live(live(std::to_string(i)));
  }
  CHECK(b.take().empty());
  b.now += 20ms;
  b.screen.show_live(live("10"));
  CHECK(b.take() == "\r\x1b[J10");
  b.screen.show_live(live("11"));
  b.screen.print("line");
  CHECK(b.take() == "\r\x1b[Jline\n11");
}

TEST_CASE("the live line is cut to the window, and columns stay free for ^C") {
  TestScreen b(plain);
  std::vector<int> asked;
  b.screen.show_live([&](int columns) {
    asked.push_back(columns);
    return std::string("0123456789012345678901234567890");
  });
  CHECK(b.take() == "01234567890123456");
  CHECK(asked == std::vector<int>{17});
}

TEST_CASE("while the window changes its width, nothing is written; then text follows what is erased") {
  TestScreen b(plain);
  b.screen.show_live(live("01234567890123456789"));
  b.take();
  b.columns = 8;  // the terminal has broken 17 columns into three rows
  b.screen.print("line 1");
  b.now += 200ms;
  b.screen.warn("line 2");
  b.columns = 7;
  b.screen.show_live(live("0123456789"));
  b.now += 200ms;
  b.screen.print("line 3");
  CHECK(b.take().empty());
  b.now += 100ms;
  b.screen.show_live(live("0123456789"));
  CHECK(b.take() == "\r\x1b[A\x1b[A\x1b[Jline 1\nline 2\nline 3\n0123");
  b.columns = 40;
  b.screen.print("line 4");
  b.screen.end_live();  // does not wait
  CHECK(b.take() == "\r\x1b[Jline 4\n");
  b.columns = 30;
  b.screen.print("line 5");  // without a live line there is nothing to erase
  CHECK(b.take() == "line 5\n");
}

TEST_CASE("a window that becomes narrower and wider shows each line once, and one live line") {
  TestScreen b(plain, 60);
  VirtualTerminal terminal(60);
  std::vector<std::string> expected;
  const auto show = [&] {
    b.screen.show_live([&](int columns) { return std::string(static_cast<std::size_t>(columns), '#'); });
  };
  for (int i = 0; i < 50; ++i) {
    const int width = std::vector<int>{60, 23, 9, 80}[static_cast<std::size_t>(i / 5 % 4)];
    b.columns = width;
    terminal.resize(width);
    show();
    expected.push_back("line " + std::to_string(i));
    b.screen.print(expected.back());
    b.now += 300ms;
    show();
    terminal.write(b.take());
    std::vector<std::string> shown = expected;
    shown.emplace_back(static_cast<std::size_t>(width - 3), '#');
    REQUIRE(terminal.lines() == shown);
  }
}

TEST_CASE("dragging the window leaves no piece of the live line, though a terminal tells its width late") {
  for (const auto every : {20ms, 50ms, 100ms}) {
    TestScreen b(plain, 120);
    VirtualTerminal terminal(120);
    std::vector<std::string> expected;
    const auto begin = b.now;
    auto told_at = begin - 1s;
    int width = 120;
    for (int tick = 0; tick < 600; ++tick) {  // 10 ms each: three drags of a second, each followed by a pause
      b.now = begin + tick * 10ms;
      const auto since = (b.now - begin) % 2s;
      if (since < 1s && since % every == 0ms) {
        width = 60 + static_cast<int>(std::abs(since / 10ms - 50) * 60 / 50);
        terminal.resize(width);
      }
      if (b.columns != width && b.now - told_at >= 250ms) {  // as tmux does
        b.columns = width;
        told_at = b.now;
      }
      b.screen.show_live([&](int columns) { return std::string(static_cast<std::size_t>(columns), '#'); });
      if (tick % 7 == 0) {
        expected.push_back("line " + std::to_string(tick));
        b.screen.print(expected.back());
      }
      terminal.write(b.take());
    }
    expected.emplace_back(static_cast<std::size_t>(width - 3), '#');
    CHECK(terminal.lines() == expected);
  }
}

TEST_CASE("colour says something, and is never in a pipe") {
  TestScreen b(in_colour), without(plain);
  for (TestScreen* s : {&b, &without}) {
    s->screen.print("saved\n", Style::bold);
    s->screen.print("careful", Style::warning);
  }
  CHECK(b.bytes == "\x1b[1msaved\x1b[0m\n\x1b[33mcareful\x1b[0m\n");
  CHECK(without.bytes == "saved\ncareful\n");
}

TEST_CASE("warnings have one form, yellow where there is colour, and an error is red") {
  TestScreen coloured({.error_colour = true}), without({});
  for (TestScreen* s : {&coloured, &without}) {
    s->screen.warning("careful");
    s->screen.last_words("trireme: FATAL[70] x");
  }
  CHECK(coloured.bytes == "\x1b[33mwarning: careful\x1b[0m\n\x1b[31mtrireme: FATAL[70] x\x1b[0m\n");
  CHECK(without.bytes == "warning: careful\ntrireme: FATAL[70] x\n");
}

TEST_CASE("a terminal that cannot update lines still has a width") {
  TestScreen dumb({.window = true}), pipe({});
  CHECK(dumb.screen.line_columns() == 20);
  CHECK(dumb.screen.text_columns() == 20);
  CHECK(pipe.screen.line_columns() == 0);
  CHECK(pipe.screen.text_columns() == 80);
  dumb.screen.warn("careful: rank 0 takes long");
  CHECK(dumb.bytes == "careful: rank 0\ntakes long\n");
}

TEST_CASE("no text can drive the terminal") {
  TestScreen b(plain);
  b.screen.print("a\tb\nc\x1b[2J\r\x7f");
  CHECK(b.take() == "a\tb\nc\\x1b[2J\\x0d\\x7f\n");
  b.screen.print("\u009b2J \u00e9\u00a0 \xff");  // U+009B begins a command
  CHECK(b.take() == "\\xc2\\x9b2J \u00e9\u00a0 \\xff\n");
  b.screen.warn("\x1b]0;title\x07");
  CHECK(b.take() == "\\x1b]0;title\\x07\n");
  b.screen.print("\u202egnp.exe");  // would be shown from right to left
  CHECK(b.take() == "\\xe2\\x80\\xaegnp.exe\n");
}

TEST_CASE("lines of several threads do not mix") {
  TestScreen b(plain);
  const auto print = [&](char letter) {
    for (int i = 0; i < 200; ++i) b.screen.print(std::string(30, letter));
  };
  std::thread other(print, 'b');
  print('a');
  other.join();
  CHECK(occurrences(b.bytes, std::string(30, 'a') + "\n") == 200);
  CHECK(occurrences(b.bytes, std::string(30, 'b') + "\n") == 200);
}
