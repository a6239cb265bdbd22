// How text reaches a terminal or a pipe.
#include "train/program/screen.h"

#include <doctest/doctest.h>

#include <chrono>
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

TEST_CASE("the live line is cut to the window, which may change its width") {
  TestScreen b(plain);
  std::vector<int> asked;
  b.screen.show_live([&](int columns) {
    asked.push_back(columns);
    return std::string("0123456789012345678901234567890");
  });
  CHECK(b.take() == "0123456789012345678");  // the last column stays free
  b.columns = 8;                             // the terminal has broken 19 columns into three rows
  b.screen.print("line");
  CHECK(b.take() == "\r\x1b[A\x1b[A\x1b[Jline\n0123456");
  b.columns = 40;
  b.screen.print("line");
  CHECK(b.take() == "\r\x1b[Jline\n0123456789012345678901234567890");
  CHECK(asked == std::vector<int>{19, 7, 39});
}

TEST_CASE("a window that becomes narrower and wider shows each line once, and one live line") {
  TestScreen b(plain, 60);
  VirtualTerminal terminal(60);
  std::vector<std::string> expected;
  for (int i = 0; i < 50; ++i) {
    const int width = std::vector<int>{60, 23, 9, 80}[static_cast<std::size_t>(i / 5 % 4)];
    b.columns = width;
    terminal.resize(width);
    b.now += 200ms;
    b.screen.show_live([&](int columns) { return std::string(static_cast<std::size_t>(columns), '#'); });
    expected.push_back("line " + std::to_string(i));
    b.screen.print(expected.back());
    terminal.write(b.take());
    std::vector<std::string> shown = expected;
    shown.emplace_back(static_cast<std::size_t>(width - 1), '#');
    REQUIRE(terminal.lines() == shown);
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
