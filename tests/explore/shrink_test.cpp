#include <doctest/doctest.h>

#include "check/explore/explorer.h"
#include "check/explore/sizes.h"

using namespace trireme::explore;

namespace {

bool always() { return true; }

}  // namespace

TEST_CASE("a case shrinks to the flags that make it wrong") {
  const Case c{CaseKind::run,
               {{"mesh", "dp=4,pp=2"},
                {"layers", "5"},
                {"zero", "2"},
                {"dropout", "0.1"},
                {"steps", "5"},
                {"heads", "2"},
                {"ffn-width", "5"},
                {"width", "8"},
                {"micro-batch", "2"},
                {"data", "text-3"}},
               {}};
  REQUIRE(is_possible(c));
  const auto wrong = [](const Case& candidate) {  // like a bug of ZeRO 2 on two or more data ranks
    const auto zero = candidate.flags.find("zero");
    return zero != candidate.flags.end() && zero->second == "2" &&
           parse_axes(with(candidate.flags, {})["mesh"])["dp"] >= 2;
  };
  const Case smallest = shrink(c, wrong, always);
  CHECK(wrong(smallest));
  CHECK(smallest.flags.at("mesh") == "dp=2");
  CHECK(smallest.flags.at("zero") == "2");
  CHECK(smallest.flags.at("layers") == "1");
  for (const char* flag : {"dropout", "ffn-width"}) {
    CAPTURE(flag);
    CHECK_FALSE(smallest.flags.contains(flag));
  }
}

TEST_CASE("a change shrinks too, and time ends the search") {
  const Case c{CaseKind::bits,
               {{"mesh", "dp=2"}, {"layers", "4"}, {"steps", "3"}},
               {{"recompute", "full"}, {"check-replicas", "1"}}};
  const auto wrong = [](const Case& candidate) { return with(candidate.change, {})["check-replicas"] == "1"; };
  const Case smallest = shrink(c, wrong, always);
  CHECK(smallest.change == Arguments{{"check-replicas", "1"}});
  CHECK(shrink(c, wrong, [] { return false; }) == c);
}
