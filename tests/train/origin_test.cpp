// Where a run began, read from its folder.
#include "train/runs/origin.h"

#include <doctest/doctest.h>

#include "core/io.h"
#include "parallel/checkpoint/folder.h"
#include "parallel/checkpoint/manifest.h"
#include "tests/support/files.h"
#include "train/runs/run_texts.h"

using namespace trireme;
using namespace trireme::testing;
namespace fs = std::filesystem;

namespace {

struct Out : TempFolder {
  fs::path out = path() / "a";
  Out() { fs::create_directories(out); }
  void configure(const std::string& text) const { write_file(out / "config.json", text); }
  void save(std::int64_t step, const std::string& origin) const {
    const fs::path saved = out / "checkpoints" / checkpoint::folder_name(step);
    checkpoint::Manifest manifest;
    manifest.step = step;
    if (!origin.empty()) manifest.run[origin_entry] = origin;
    make_directories(saved);
    write_file(saved / checkpoint::manifest_name, checkpoint::to_text(manifest));
  }
};

}  // namespace

TEST_CASE("a run begins elsewhere when --resume names what is not in its own folder") {
  const Out o;
  const std::string out = o.out.string();
  for (const std::string& own : {std::string("auto"), std::string("none"), out, out + "/checkpoints/step_00000001"})
    CHECK_FALSE(begins_elsewhere(own, out));
  for (const std::string& other : {out + "b", out + "/../other", std::string("elsewhere")})
    CHECK(begins_elsewhere(other, out));
  CHECK(begins_elsewhere("elsewhere", ""));
  CHECK(begins_elsewhere(std::string(5000, 'x'), out));  // too long for a file's name
}

TEST_CASE("config.json tells where a run began until a start with auto") {
  const Out o;
  const std::string other = (o / "other").string();
  CHECK_FALSE(was_begun_from(o.out, other));
  o.configure(R"({"resume": ")" + other + R"("})");
  CHECK(was_begun_from(o.out, other));
  CHECK(was_begun_from(o.out, other + "/../other"));  // the same place
  CHECK_FALSE(was_begun_from(o.out, other + "2"));
  for (const char* none : {R"({"resume": "auto"})", R"({"resume": "none"})", R"({"resume": ""})", R"({"resume": 1})",
                           "{}", "[]", "", "{\"resume\": \"oth"}) {
    CAPTURE(none);
    o.configure(none);
    for (const std::string& path : {other, std::string("auto"), std::string("none"), std::string()})
      CHECK_FALSE(was_begun_from(o.out, path));
  }
}

TEST_CASE("the newest checkpoint tells where a run began, whatever config.json says") {
  const Out o;
  const std::string other = (o / "other").string();
  o.configure(R"({"resume": "auto"})");
  o.save(1, "another");
  o.save(2, other);
  CHECK(was_begun_from(o.out, other));
  CHECK_FALSE(was_begun_from(o.out, "another"));
  o.configure(R"({"resume": "another"})");
  CHECK(was_begun_from(o.out, other));
  CHECK_FALSE(was_begun_from(o.out, "another"));
  fs::remove(o.out / "config.json");
  CHECK(was_begun_from(o.out, other));
  // A checkpoint without an origin, as a run with new weights saves it.
  o.save(3, "");
  CHECK_FALSE(was_begun_from(o.out, other));
}

TEST_CASE("a run's own checkpoint is where it began only as the last start says") {
  const Out o;
  const std::string own = (o.out / "checkpoints" / "step_00000002").string();
  o.save(2, "other");
  o.configure(R"({"resume": "auto"})");
  CHECK_FALSE(was_begun_from(o.out, own));  // it may be an older one, which train_gpt reports
  o.configure(R"({"resume": ")" + own + R"("})");
  CHECK(was_begun_from(o.out, own));
}
