// The checkpoint with the lowest validation loss: which it is, and that it stays.
#include "parallel/checkpoint/best.h"

#include <doctest/doctest.h>

#include "core/io.h"
#include "parallel/checkpoint/folder.h"
#include "tests/support/files.h"

using namespace trireme;
using namespace trireme::checkpoint;
using namespace trireme::testing;
namespace fs = std::filesystem;

namespace {

/// A folder with checkpoints that have only a manifest.
struct Checkpoints {
  fs::path save(std::int64_t step, std::optional<ValidationLoss> validation_loss = {}) const {
    Manifest manifest;
    manifest.step = step;
    if (validation_loss) validation_loss->describe(manifest.run);
    const fs::path path = folder.path() / folder_name(step);
    make_directories(path);
    write_plainly(path / manifest_name, to_text(manifest));
    return path;
  }
  std::vector<std::string> names() const { return list_folder(folder.path()); }
  TempFolder folder;
};

}  // namespace

TEST_CASE("the best checkpoint is that with the lowest loss, and pruning keeps it") {
  const Checkpoints all;
  const fs::path& folder = all.folder.path();
  CHECK_FALSE(Best::read(folder));
  const double losses[] = {3, 2.5, 2.75, 2.5, 4};
  for (std::int64_t step = 1; step <= 5; ++step) {
    const fs::path fresh = all.save(step);
    Best::update(folder, step, losses[step - 1]);
    prune(folder, 1, fresh);
  }
  CHECK(Best::read(folder)->step == 2);  // the first of equals
  CHECK(Best::read(folder)->loss == 2.5);
  CHECK(all.names() == std::vector<std::string>{"best.json", "step_00000002", "step_00000005"});
  const fs::path fresh = all.save(6);
  Best::update(folder, 6, 1.0 / 3);
  prune(folder, 2, fresh);
  CHECK(Best::read(folder)->loss == 1.0 / 3);
  CHECK(all.names() == std::vector<std::string>{"best.json", "step_00000005", "step_00000006"});
}

TEST_CASE(
    "a checkpoint that was saved only as the best goes when a better one comes, and is not one of those to keep") {
  const Checkpoints all;
  const fs::path& folder = all.folder.path();
  const auto save = [&](std::int64_t step, double loss, bool only_best, std::optional<std::int64_t> keep) {
    const fs::path fresh = all.save(step, ValidationLoss{.loss = loss, .only_best = only_best});
    Best::update(folder, step, loss);
    prune(folder, keep, fresh);
  };
  using Names = std::vector<std::string>;
  save(1, 9, false, {});
  save(2, 8, true, {});
  CHECK(all.names() == Names{"best.json", "step_00000001", "step_00000002"});
  save(3, 7, true, {});
  CHECK(all.names() == Names{"best.json", "step_00000001", "step_00000003"});
  save(4, 7.5, false, {});
  CHECK(all.names() == Names{"best.json", "step_00000001", "step_00000003", "step_00000004"});
  save(5, 6, true, 2);  // the newest two that were due, and the best
  CHECK(all.names() == Names{"best.json", "step_00000001", "step_00000004", "step_00000005"});
  prune(folder, 2, all.save(6));
  CHECK(all.names() == Names{"best.json", "step_00000004", "step_00000005", "step_00000006"});
  save(7, 5, false, 1);
  CHECK(all.names() == Names{"best.json", "step_00000007"});
}

TEST_CASE("a run that goes back knows the best checkpoint up to that step") {
  const Checkpoints all;
  const fs::path& folder = all.folder.path();
  const double losses[] = {3, 2, 2, 1};
  for (std::int64_t step = 1; step <= 4; ++step) all.save(step, ValidationLoss{.loss = losses[step - 1]});
  all.save(5);
  Best::update(folder, 4, 1);
  Best::go_back(folder, 4);
  CHECK(Best::read(folder)->step == 4);
  Best::go_back(folder, 3);
  CHECK(Best::read(folder)->step == 2);  // the first of equals
  CHECK(Best::read(folder)->loss == 2);
  remove_file(folder / "best.json");  // a run was killed before it had written the file
  Best::go_back(folder, 5);
  CHECK(Best::read(folder)->step == 4);
  Best::go_back(folder, 0);
  CHECK_FALSE(fs::exists(folder / "best.json"));
}

TEST_CASE("a loss in a manifest that is not a number counts as none") {
  std::map<std::string, std::string> run;
  CHECK_FALSE(ValidationLoss::of(run));
  ValidationLoss{.loss = 1.0 / 3, .only_best = true}.describe(run);
  CHECK(ValidationLoss::of(run)->loss == 1.0 / 3);
  CHECK(ValidationLoss::of(run)->only_best);
  for (const char* text : {"", "x", "1x", " 1", "nan", "inf", "1e999"}) {
    run["val_loss"] = text;
    CHECK_MESSAGE(!ValidationLoss::of(run), text);
  }
}

TEST_CASE("a best checkpoint that is gone, or a file that is not valid, counts as none") {
  const Checkpoints all;
  const fs::path& folder = all.folder.path();
  all.save(1);
  Best::update(folder, 1, 2);
  for (const char* text : {"", "{", "[]", "{\"step\":-1,\"val_loss\":1}", "{\"step\":7,\"val_loss\":1}",
                           "{\"step\":1,\"val_loss\":\"x\"}", "{\"val_loss\":1}"}) {
    write_plainly(folder / "best.json", text);
    CHECK_MESSAGE(!Best::read(folder), text);
  }
  Best::update(folder, 1, 5);
  CHECK(Best::read(folder)->loss == 5);
  remove_folder(folder / folder_name(1));
  CHECK_FALSE(Best::read(folder));
  write_plainly(folder / "best.json.tmp.12.0", "{");
  remove_leftovers(folder);
  CHECK(all.names() == std::vector<std::string>{"best.json"});
}
