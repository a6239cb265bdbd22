// The page: one file, in which texts from files stay texts.
#include "ops/view/page.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "tests/support/text.h"
#include "tests/view/traces.h"

using namespace trireme;
using namespace trireme::run_view;
using trireme::testing::contains;
using trireme::testing::occurrences;

namespace {

nlohmann::json data_of(const std::string& html) {
  const std::string mark = "id=\"data\">";
  const std::size_t begin = html.find(mark) + mark.size();
  return nlohmann::json::parse(html.substr(begin, html.find("</script>", begin) - begin));
}

Page small_page() {
  Page page;
  page.title = "</script><b>\xff";
  page.profile = profile_of(parse_trace(trace_text(slow_rank()), "trace.json"), "trace.json");
  page.findings = step_findings(*page.profile);
  page.run.metrics = parse_metrics("{\"step\":1,\"loss\":4.25}\n{\"step\":2,\"loss\":null}\n", "metrics.jsonl");
  page.run.options = {{"mesh", "dp=2"}};
  return page;
}

}  // namespace

TEST_CASE("view: a page is one file, and its data can be read back") {
  const std::string html = to_html(small_page());
  CHECK(html.starts_with(page_kind.beginning));
  CHECK(occurrences(html, "</script>") == 2);  // of the data, and of the scripts
  CHECK(!contains(html, "src="));
  CHECK(!contains(html, "<link"));
  const nlohmann::json data = data_of(html);
  CHECK(data["title"].get<std::string>().starts_with("</script><b>"));
  CHECK(data["metrics"]["loss"][0] == 4.25);
  CHECK(data["metrics"]["loss"][1].is_null());
  CHECK(data["findings"].size() == 4);
}

TEST_CASE("view: times in a page are whole tenths of a microsecond, and texts are stored once") {
  const nlohmann::json profile = data_of(to_html(small_page()))["profile"];
  CHECK(profile["mesh"]["dp"] == 2);
  CHECK(profile["places"].size() == 2);
  const nlohmann::json& step = profile["steps"][0];
  CHECK(step["ticks"] == 1'000'000);
  const nlohmann::json& waits = step["ranks"][0]["waits"];
  REQUIRE(waits.size() == 8);
  CHECK(waits[0] == 500'000);
  CHECK(waits[1] == 450'000);
  CHECK(profile["labels"][waits[3].get<std::size_t>()] == "dp[pp=0,tp=0]");
  CHECK(waits[5] == 32);
  CHECK(waits[6] == 1);
}

TEST_CASE("view: a page without a profile") {
  Page page = small_page();
  page.profile.reset();
  page.missing = {"the timeline"};
  const nlohmann::json data = data_of(to_html(page));
  CHECK(!data.contains("profile"));
  CHECK(data["missing"][0] == "the timeline");
}
