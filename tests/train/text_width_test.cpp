// Text in the columns of a terminal.
#include "train/program/text_width.h"

#include <doctest/doctest.h>

using namespace trireme;

TEST_CASE("columns: wide characters take two, combining marks none, bytes that are no text one") {
  CHECK(columns_of("") == 0);
  CHECK(columns_of("abc") == 3);
  CHECK(columns_of("\u00e9t\u00e9") == 3);
  CHECK(columns_of("\u6570\u636e") == 4);
  CHECK(columns_of("e\u0301") == 1);
  CHECK(columns_of("\U0001F600") == 2);
  CHECK(columns_of("\xff\xfe") == 2);
}

TEST_CASE("a line is cut between characters") {
  CHECK(cut_to_columns("abc", 3) == "abc");
  CHECK(cut_to_columns("abc", 2) == "ab");
  CHECK(cut_to_columns("\u6570\u636e", 3) == "\u6570");  // half of a wide character cannot be shown
  CHECK(cut_to_columns("e\u0301x", 1) == "e\u0301");
  CHECK(cut_to_columns("abc", 0) == "");
  CHECK(padded_to_columns("\u6570", 4) == "\u6570  ");
  CHECK(padded_to_columns("abcde", 4) == "abcde");
}

TEST_CASE("text is wrapped at words, and a long word anywhere") {
  using Lines = std::vector<std::string>;
  CHECK(wrapped_lines("one two three", 20) == Lines{"one two three"});
  CHECK(wrapped_lines("one two three", 8) == Lines{"one two", "three"});
  CHECK(wrapped_lines("one two three", 7) == Lines{"one two", "three"});
  CHECK(wrapped_lines("one two three", 6) == Lines{"one", "two", "three"});
  CHECK(wrapped_lines("a/long/path here", 6) == Lines{"a/long", "/path", "here"});
  CHECK(wrapped_lines("one\ntwo three", 9) == Lines{"one", "two three"});
  CHECK(wrapped_lines("", 9) == Lines{""});
  CHECK(wrapped_lines("\u6570\u636e\u6570", 4) == Lines{"\u6570\u636e", "\u6570"});
  CHECK(wrapped_lines("\u6570", 1) == Lines{"\u6570"});  // wider than the screen: still shown
}

TEST_CASE("the rest of a line that was broken is indented, line ends stay") {
  CHECK(wrapped_text("", 40) == "");
  CHECK(wrapped_text("short\n", 40) == "short\n");
  CHECK(wrapped_text("one two three four five six seven\neight\n", 25) ==
        "one two three four five\n  six seven\neight\n");
  CHECK(wrapped_text("one two three", 8) == "one two\nthree");  // narrow: no indent
  const std::string word(60, 'x');
  CHECK(wrapped_text(word, 30) == std::string(30, 'x') + "\n  " + std::string(28, 'x') + "\n  xx");
}
