// The pictures of the documentation: those of the mesh and of schedules are what examples/pictures draws, and a
// schedule is drawn whole. Run from the repository's root, as ctest does.
#include "examples/pictures/pictures.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <set>

#include "core/io.h"
#include "examples/pictures/schedule.h"
#include "parallel/pipeline/drawing.h"
#include "parallel/pipeline/schedules.h"
#include "tests/support/text.h"

using namespace trireme;
using namespace trireme::testing;

TEST_CASE("docs/pictures holds what the program pictures draws: if not, run ./trireme pictures") {
  for (const pictures::Picture& picture : pictures::draw_all()) {
    CAPTURE(picture.name);
    // CHECK(same) does not print the two documents, which are long.
    const bool same = read_file(std::filesystem::path("docs/pictures") / picture.name) == picture.svg;
    CHECK(same);
  }
}

TEST_CASE("every picture is small, explains itself, and has colours for a dark page") {
  const std::string chapter = read_file("docs/parallelism.md");
  for (const std::string& name : list_folder("docs/pictures")) {
    if (name.ends_with(".png")) continue;
    CAPTURE(name);
    const std::string svg = read_file(std::filesystem::path("docs/pictures") / name);
    CHECK(svg.size() < 40'000);
    CHECK(svg.find("<title id=\"title\">") != std::string::npos);
    CHECK(svg.find("<desc id=\"description\">") != std::string::npos);
    CHECK(svg.find("prefers-color-scheme: dark") != std::string::npos);
    CHECK(occurrences(svg, "<text") == occurrences(svg, "</text>"));
    CHECK(svg.ends_with("</svg>\n"));
    CHECK(chapter.find("pictures/" + name) != std::string::npos);
  }
}

TEST_CASE("every screenshot is small, and the page about view shows it") {
  const std::string page = read_file("docs/view.md");
  for (const std::string& name : list_folder("docs/pictures")) {
    if (!name.ends_with(".png")) continue;
    CAPTURE(name);
    const std::string png = read_file(std::filesystem::path("docs/pictures") / name);
    CHECK(png.starts_with("\x89PNG"));
    CHECK(png.size() < 150'000);
    CHECK(page.find("pictures/" + name) != std::string::npos);
  }
}

TEST_CASE("a schedule as a picture: a box for each computation, its colour by kind and chunk") {
  using namespace pipeline;
  for (const std::string& name : schedule_examples(3)) {
    CAPTURE(name);
    const Schedule schedule = make_schedule(name, 3, 5);
    const std::string svg = pictures::draw_schedule(schedule);
    CHECK(svg.find("Pipeline schedule " + headline(schedule)) != std::string::npos);
    int computations = 0;
    for (const auto& row : simulate(schedule)) computations += static_cast<int>(row.size());
    CHECK(occurrences(svg, "<title>") == computations);
    CHECK(occurrences(svg, "forward of micro-batch 4") == schedule.stages);
    CHECK((svg.find("stronger colour") != std::string::npos) == (schedule.chunks() > 1));
    std::set<std::string> looks;  // of boxes with a tooltip: one for each kind and chunk
    for (std::size_t at = svg.find("<rect"); at != std::string::npos; at = svg.find("<rect", at + 1)) {
      const std::string box = svg.substr(at, svg.find('\n', at) - at);
      if (box.find("<title>") != std::string::npos)
        looks.insert(box.substr(box.find("class="), box.find('>') - box.find("class=")));
    }
    const auto splits = [](const Action& action) { return action.kind == ActionKind::backward_weight; };
    const int kinds = std::any_of(schedule.ranks[0].begin(), schedule.ranks[0].end(), splits) ? 3 : 2;
    CHECK(static_cast<int>(looks.size()) == kinds * schedule.chunks());
  }
}
