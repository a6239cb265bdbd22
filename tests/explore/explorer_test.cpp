// What the explorer shows while it works. Its programs are scripts here.
#include "check/explore/explorer.h"

#include <doctest/doctest.h>

#include <atomic>

#include "tests/support/files.h"
#include "tests/support/text.h"

using namespace trireme::explore;
using namespace trireme::testing;
namespace fs = std::filesystem;

namespace {

/// A folder with programs that refuse everything.
struct Programs {
  Programs() {
    for (const char* name : {"train_gpt", "parity"}) {
      write_plainly(folder / name, "#!/bin/sh\nsleep 0.1\necho \"trireme: FATAL[64] [mesh] no\" >&2\nexit 64\n");
      fs::permissions(folder / name, fs::perms::owner_all);
    }
  }
  Settings settings(std::vector<Status>& shown) const {
    Settings settings;
    settings.seconds = 1;
    settings.limit = 1800;
    settings.seed = 5;
    settings.jobs = 2;
    settings.first = true;
    settings.programs = folder.path();
    settings.folder = folder / "work";
    settings.show = [&shown](const Status& status) { shown.push_back(status); };
    return settings;
  }
  TempFolder folder;
};

}  // namespace

TEST_CASE("the explorer shows how many cases it has replayed, then how much of its time is over") {
  const Programs programs;
  std::vector<Status> shown;
  std::string told;
  Explorer explorer(programs.settings(shown), [&](const std::string& text) { told += text + "\n"; });
  explorer.explore();
  REQUIRE_FALSE(shown.empty());
  CHECK_FALSE(shown.front().replaying);
  for (std::size_t i = 1; i < shown.size(); ++i) CHECK(shown[i].done >= shown[i - 1].done);
  CHECK(shown.back().done == 1);
  CHECK(shown.back().total == 1);
  CHECK(shown.back().wrong == 0);  // a case that the programs refuse is none
  CHECK_MESSAGE(!contains(told, "WRONG"), told);

  shown.clear();
  const Case c = parse_case("verify --mesh=dp=2");
  explorer.replay({c, c, c});
  CHECK(shown.front().replaying);
  CHECK(shown.back().done == 3);
  CHECK(shown.back().total == 3);
  CHECK(shown.back().wrong == 3);  // a case that was wrong before must not be refused
}

TEST_CASE("the explorer checks a case each time that it is not told to stop") {
  const Programs programs;
  std::vector<Status> shown;
  Settings settings = programs.settings(shown);
  settings.seconds = 36000;
  std::atomic<int> asked{0};
  settings.stop = [&] { return ++asked > 5; };
  Explorer explorer(settings, [](const std::string&) {});
  explorer.explore();
  CHECK(shown.back().cases == 5);
  CHECK(shown.back().wrong == 0);
}
