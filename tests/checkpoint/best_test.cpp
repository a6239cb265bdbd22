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
  fs::path save(std::int64_t step) const {
    Manifest manifest;
    manifest.step = step;
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
