// Trackers: their flags, and what they refuse.
#include <doctest/doctest.h>

#include "ops/tracking/tracker.h"
#include "tests/support/errors.h"
#include "tests/support/text.h"

using namespace trireme;
using namespace trireme::testing;

namespace trackers_test {

/// What the trackers say of a flag in a run with this --out.
std::string refusal(const std::string& flag, const std::string& value, const std::string& out) {
  return failure([&] {
    RunOptions run;
    run.out_choice = out;
    const Trackers trackers = all_trackers();
    Flags flags("train", "");
    declare_trackers(flags, trackers);
    flags.parse({"--" + flag, value});
    for (const std::unique_ptr<Tracker>& tracker : trackers) tracker->validate(run);
  });
}

TEST_CASE("event files need a folder, the page an address") {
  CHECK(refusal("tensorboard", "on", "none") ==
        "64 trireme: [tensorboard] --tensorboard on writes into the folder of --out, which is none; expected --out DIR "
        "or auto; change --out, or drop --tensorboard");
  CHECK(contains(refusal("prometheus", "localhost", "none"), "'localhost' is not an address"));
  CHECK(refusal("prometheus", "9400", "none") == "nothing");
}

TEST_CASE("a run with a folder accepts the example of every tracker") {
  for (const std::unique_ptr<Tracker>& tracker : all_trackers()) {
    const auto [flag, value] = tracker->example();
    CAPTURE(flag);
    CHECK(refusal(flag, value, "auto") == "nothing");
  }
}

}  // namespace trackers_test
