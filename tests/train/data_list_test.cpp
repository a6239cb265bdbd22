// The list of the files that a run was trained on.
#include "train/runs/data_list.h"

#include <doctest/doctest.h>

#include "core/io.h"
#include "tests/support/files.h"

using namespace trireme;
using namespace trireme::testing;

TEST_CASE("two lists of files: the first one that differs is named, with what differs") {
  const std::vector<SourceFile> files = {{"a.txt", 10, 1}, {"b c.txt", 20, 2}, {"d\n.txt", 30, 3}};
  const std::string before = data_list(files);
  const auto difference = [&](std::vector<SourceFile> now) { return first_changed_file(before, data_list(now)); };
  CHECK(difference(files) == "");
  CHECK(difference({files[0], files[1]}) == "d\\x0a.txt is missing");
  CHECK(difference({files[0], {"b c.txt", 21, 2}, files[2]}) == "b c.txt had 20 bytes and now has 21");
  CHECK(difference({files[0], {"b c.txt", 20, 4}, files[2]}) == "the content of b c.txt has changed");
  CHECK(difference({files[0], {"aa.txt", 5, 5}, files[1], files[2]}) == "aa.txt is new (5 bytes)");
  // Whatever stands in the file.
  CHECK(first_changed_file("", before) == "a.txt is new (10 bytes)");
  CHECK(first_changed_file("\n \n  \nx", "") == " is missing");
}

TEST_CASE("the list of a checkpoint is that of its run's folder, if there is one") {
  const TempFolder folder;
  const auto checkpoint = folder / "checkpoints" / "step_00000001";
  const std::string now = data_list({{"a.txt", 10, 1}});
  CHECK(difference_to_saved(checkpoint, now) == "");
  write_file(folder / data_list_name, data_list({{"a.txt", 9, 1}}));
  for (const auto& path : {checkpoint, checkpoint / ""})
    CHECK(difference_to_saved(path, now) == "a.txt had 9 bytes and now has 10");
  CHECK(difference_to_saved(checkpoint, "") == "");
}
