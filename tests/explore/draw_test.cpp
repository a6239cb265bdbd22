#include <doctest/doctest.h>

#include <set>

#include "check/explore/kinds.h"
#include "check/explore/sizes.h"
#include "check/explore/space.h"

using namespace trireme;
using namespace trireme::explore;

TEST_CASE("a case is a function of seed and number, and possible") {
  for (const CaseKind kind : all_kinds()) {
    CAPTURE(name(kind));
    for (std::uint64_t i = 0; i < 5; ++i) {
      RandomChoices first(1, i), second(1, i);
      const Case c = draw_case(kind, first);
      CHECK(c == draw_case(kind, second));
      CHECK(is_possible(c));
      CHECK(parse_case(to_text(c)) == c);
    }
  }
}

TEST_CASE("every flag is drawn, but those that name a file or a time, or that a kind sets") {
  for (const Program* program : {&parity_program(), &train_program()}) {
    const Space space(*program);
    std::set<std::string> drawn;
    for (std::uint64_t i = 0; i < 250; ++i) {
      RandomChoices random(2, i);
      for (const auto& [flag, value] : space.draw(random)) drawn.insert(flag);
    }
    for (const Flags::Declared& flag : program->flags) {
      CAPTURE(flag.name);
      if (!is_fixed(flag.name)) CHECK(drawn.contains(flag.name));
    }
  }
}

TEST_CASE("every choice of a flag is drawn") {
  const Space space(train_program());
  std::map<std::string, std::set<std::string>> drawn;
  for (std::uint64_t i = 0; i < 300; ++i) {
    RandomChoices random(3, i);
    for (const auto& [flag, value] : space.draw(random)) drawn[flag].insert(value);
  }
  for (const Flags::Declared& flag : train_program().flags) {
    if (is_fixed(flag.name) || values_to_draw(flag.name) != nullptr || flag.name == "attention") continue;
    for (const std::string& choice : flag.choices) {
      CAPTURE(flag.name);
      CAPTURE(choice);
      CHECK(drawn[flag.name].contains(choice));
    }
  }
  CHECK(drawn["pipeline"].contains("interleaved:2"));
  CHECK(drawn["recompute"].contains("every:2"));
}

TEST_CASE("a flag that the explorer does not know is drawn from its declaration") {
  std::int64_t count = 2;
  double part = 0.5;
  bool on = false;
  std::string mode = "plain", path;
  Flags flags("new", "");
  flags.group("new");
  flags.add("new-count", "N", count, "", Range{.low = 2, .high = 4});
  flags.add("new-part", "F", part, "", Range::half_open(0, 1));
  flags.add_switch("new-switch", on, "");
  flags.add("new-mode", "plain|every:K", mode, "");
  flags.add("new-path", "FILE", path, "");
  const Program program = {"new", flags.declared(), nullptr};
  const Space space(program);
  std::map<std::string, std::set<std::string>> drawn;
  for (std::uint64_t i = 0; i < 200; ++i) {
    RandomChoices random(4, i);
    for (const Flags::Declared& flag : program.flags)
      if (const auto value = space.draw_value(flag, random)) drawn[flag.name].insert(*value);
  }
  CHECK(drawn["new-count"] == std::set<std::string>{"2", "3", "4"});
  CHECK(drawn["new-part"].contains("0.25"));
  CHECK(drawn["new-switch"] == std::set<std::string>{"on", "off"});
  CHECK(drawn["new-mode"].contains("plain"));
  CHECK(drawn["new-mode"].contains("every:3"));
  CHECK_FALSE(drawn.contains("new-path"));
}

TEST_CASE("AdamW with unbounded updates is compared only bit by bit") {
  const auto amplifies = [](const char* text) { return amplifies_rounding(parse_case(text)); };
  CHECK(amplifies("run --beta2=0"));
  CHECK(amplifies("resume --beta1=0.9 --beta2=0.475 then --mesh=dp=2"));
  CHECK(amplifies("faults --beta1=0.99"));
  CHECK_FALSE(amplifies("run"));
  CHECK_FALSE(amplifies("run --beta1=0.45 --beta2=0.475"));
  CHECK_FALSE(amplifies("run --optimizer=sgd --beta2=0"));
  CHECK_FALSE(amplifies("bits --beta2=0 then --zero=1"));
}
