// The folder of a run that was started without --out.
#include "train/runs/new_folder.h"

#include <doctest/doctest.h>
#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "core/io.h"
#include "parallel/comm/process_group.h"
#include "tests/support/files.h"

using namespace trireme;
using namespace trireme::testing;
namespace fs = std::filesystem;

namespace {

/// While it lives, a temporary folder is the working folder.
class Inside {
 public:
  Inside() : before_(fs::current_path()) { fs::current_path(folder_.path()); }
  ~Inside() { fs::current_path(before_); }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;

 private:
  TempFolder folder_;
  fs::path before_;
};

}  // namespace

TEST_CASE("a free folder has the name, the local time, and a number if that is taken") {
  const Inside inside;
  const std::time_t now = 1'780'000'000;
  const fs::path first = free_run_folder("gpt2-124m", now);
  CHECK(first.parent_path() == "runs");
  CHECK(first.filename().string().starts_with("gpt2-124m-2026"));
  CHECK(first.filename().string().size() == std::string("gpt2-124m-20260528-120000").size());
  CHECK_FALSE(fs::exists("runs"));
  CHECK(make_new_folder(first));
  CHECK_FALSE(make_new_folder(first));
  CHECK(free_run_folder("gpt2-124m", now) == first.string() + "-2");
  write_plainly(first.string() + "-2", "a file");
  CHECK(free_run_folder("gpt2-124m", now) == first.string() + "-3");
  CHECK(free_run_folder("gpt2-124m", now + 1) != first);
}

TEST_CASE(
    "all ranks get the folder that the first one has created, and it is another one if the planned one is taken") {
  const Inside inside;
  RunOptions shared;  // of ranks that are threads
  shared.config = "{\"seed\": 1, \"out\": \"auto\", \"resume\": \"none\"}";
  shared.out = free_run_folder("a", std::time(nullptr)).string();
  make_directories(shared.out);
  const std::string taken = shared.out;
  run_thread_ranks(3, 1, ProcessGroup::Deadline(1800), [&](const std::shared_ptr<ProcessGroup>& world) {
    create_run_folder(*world, shared, "a", false);
    CHECK(shared.out != taken);
    CHECK(fs::is_directory(shared.out));
  });
  CHECK(nlohmann::json::parse(shared.config)["out"] == shared.out);
  CHECK(shared.config.starts_with("{\n  \"seed\": 1,\n  \"out\""));
  CHECK(list_folder("runs").size() == 2);
}
