// The page that `view` writes: one HTML file without any other, from what a run left behind or from a prediction. C++
// checks the numbers and writes them as one JSON value into the page; the scripts of ops/view/page/ draw them.
// Read next: ops/view/page.cpp, ops/view/page/main.js.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/io.h"
#include "ops/view/findings.h"
#include "ops/view/profile.h"
#include "ops/view/run_files.h"

namespace trireme::run_view {

/// Settings that were simulated: a point of a chart of memory against time.
struct Setting {
  std::string text;
  double seconds = 0;
  std::int64_t memory = 0;
  bool on_front = false;
};

struct TextBlock {
  std::string title, words, text;
};

struct Page {
  std::string title;
  RunFiles run;
  std::optional<Profile> profile;
  std::vector<Finding> findings;
  std::vector<std::string> missing;  ///< what is not shown, and the flag that would write it
  std::vector<Setting> settings;     ///< of a search
  std::vector<TextBlock> texts;
};

/// How every page begins; used to recognise one.
inline constexpr OutputKind page_kind{"a page of view", "<!doctype html>\n<!-- drawn by trireme view -->\n"};

std::string to_html(const Page& page);

}  // namespace trireme::run_view
