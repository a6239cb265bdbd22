#include <doctest/doctest.h>

#include "check/explore/case.h"
#include "core/error.h"

using namespace trireme;
using namespace trireme::explore;

TEST_CASE("a case is read back from its text") {
  const Case c{CaseKind::gradients, {{"mesh", "dp=2,tp=2"}, {"zero", "1"}}, {}};
  CHECK(to_text(c) == "gradients --mesh=dp=2,tp=2 --zero=1");
  CHECK(parse_case(to_text(c)) == c);
  const Case change{CaseKind::bits, {{"mesh", "dp=2"}}, {{"pipeline", "interleaved:2"}}};
  CHECK(to_text(change) == "bits --mesh=dp=2 then --pipeline=interleaved:2");
  const Case read = parse_case(to_text(change));
  CHECK(read.kind == CaseKind::bits);
  CHECK(read.change == change.change);
  CHECK(read.flags.at("mesh") == "dp=2");
  CHECK(parse_case(to_text(read)) == read);
}

TEST_CASE("a training run that says nothing of its sizes is a tiny one") {
  const Case c = parse_case("run --width=6");
  CHECK(c.flags.at("width") == "6");
  CHECK(c.flags.at("layers") == "2");
  CHECK(c.flags.at("micro-batch") == "2");
  CHECK_FALSE(parse_case("run --global-batch=4").flags.contains("micro-batch"));
}

TEST_CASE("text that is not a case is refused, with the form of a case") {
  for (const char* text : {"", "bit --zero=1", "bits zero=1", "bits --zero 1", "bits then --a=1 then --b=2"}) {
    CAPTURE(text);
    CHECK_THROWS_WITH_AS(parse_case(text), doctest::Contains("is not a case"), Error);
  }
}
