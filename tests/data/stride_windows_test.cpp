// Windows with a stride, and lines of JSON.
#include "data/eval_windows.h"

#include <doctest/doctest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "data/json_lines.h"

using namespace trireme;

namespace stride_windows_test {
namespace {

/// Tokens 0, 1, 2, ..
TokenRange counting(std::int32_t count) {
  TokenBuffer buffer(1000);
  for (std::int32_t i = 0; i < count; ++i) buffer.append(std::vector<std::int32_t>{i});
  return TokenRange(in_memory(std::move(buffer)));
}

}  // namespace

TEST_CASE("every token but the first is a target once, after as many tokens as the stride leaves") {
  for (const std::int32_t count : {2, 5, 8, 9, 10, 11, 12, 13, 27}) {
    for (const std::int64_t stride : {1, 3, 8}) {
      CAPTURE(count);
      CAPTURE(stride);
      const StrideWindows windows(counting(count), 8, stride);
      CHECK(windows.targets() == count - 1);
      std::map<std::int32_t, std::int64_t> context_of;                 // of each target
      const Batch batch = windows.make_batch(0, windows.count() + 2);  // two rows too many
      for (std::int64_t i = 0; i < batch["targets"].count(); ++i) {
        const std::int32_t target = batch["targets"].data<std::int32_t>()[i];
        if (target < 0) continue;
        CHECK(batch["inputs"].data<std::int32_t>()[i] == target - 1);
        CHECK(context_of.emplace(target, i % 8 + 1).second);
      }
      CHECK(context_of.size() == static_cast<std::size_t>(count - 1));
      for (const auto& [target, context] : context_of) CHECK(context >= std::min<std::int64_t>(target, 8 - stride + 1));
    }
  }
  CHECK_THROWS_WITH_AS(StrideWindows(counting(1), 8, 2), doctest::Contains("expected at least 2"), Error);
  CHECK_THROWS_AS(StrideWindows(counting(5), 8, 9), Error);
}

TEST_CASE("lines of JSON: each with its number, and errors with file and line") {
  const std::string text = "{\"a\": 1}\n\n  \n\"x\"\r\n[2]";
  std::vector<std::int64_t> numbers;
  for_each_json_line(text, "f.jsonl", "lines", [&](const nlohmann::json&, std::int64_t n) { numbers.push_back(n); });
  CHECK(numbers == std::vector<std::int64_t>{1, 4, 5});
  const auto ignore = [](const nlohmann::json&, std::int64_t) {};
  CHECK_THROWS_WITH_AS(for_each_json_line("1\n{", "f.jsonl", "lines", ignore), doctest::Contains("f.jsonl line 2"),
                       Error);
  const auto need = [](const nlohmann::json& line, std::int64_t) { json_text(line, "a", "lines"); };
  CHECK_THROWS_WITH_AS(for_each_json_line("{\"a\": \"x\"}\n{\"a\": 3}", "f.jsonl", "lines", need),
                       doctest::Contains("f.jsonl line 2: 'a' is 3; expected a text"), Error);
  const auto list = [](const nlohmann::json& line, std::int64_t) { json_texts(line, "a", "lines"); };
  CHECK_THROWS_WITH_AS(for_each_json_line("{\"a\": [\"x\", 3]}", "f.jsonl", "lines", list),
                       doctest::Contains("expected a list of texts"), Error);
  const auto number = [](const nlohmann::json& line, std::int64_t) { json_number(line, "a", 5, "lines"); };
  CHECK_THROWS_WITH_AS(for_each_json_line("{\"a\": 6}", "f.jsonl", "lines", number),
                       doctest::Contains("expected a whole number from 0 to 5"), Error);
}

}  // namespace stride_windows_test
