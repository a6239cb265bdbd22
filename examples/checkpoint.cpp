// Inspects checkpoints that train_gpt has saved:
//
//   build/bin/checkpoint inspect run1                      what it holds, who wrote it, and with which configuration
//   build/bin/checkpoint verify run1                       reads everything, compares it with its checksums, and
//                                                          checks that the entries about the run are valid
//   build/bin/checkpoint diff run1 run2                    compares two as whole tensors, whatever meshes wrote them
//
// A path is a checkpoint, or a run's folder, which stands for its newest checkpoint. Exit code 0: valid, or equal; 1:
// diff found differences; 65: damaged.
// Read next: parallel/checkpoint/checkpoint.h, parallel/checkpoint/compare.h.
#include <algorithm>

#include "parallel/checkpoint/compare.h"
#include "train/gpt/saved_gpt.h"
#include "train/program/program.h"
#include "train/program/screen.h"
#include "train/program/units.h"
#include "train/runs/checkpoint_report.h"
#include "train/runs/saved_run.h"
#include "train/terminal/progress.h"

using namespace trireme;

namespace {

constexpr const char* usage =
    "usage: checkpoint inspect PATH [--tensors]\n"
    "       checkpoint verify PATH\n"
    "       checkpoint diff PATH PATH\n\n"
    "PATH: a checkpoint, or the --out folder of train_gpt, which stands for its newest checkpoint.\n"
    "inspect says what it holds (--tensors: every tensor with its pieces), verify compares every byte with its\n"
    "checksum, diff compares two as whole tensors, whatever meshes wrote them, and exits with 1 when they differ.\n";

checkpoint::Checkpoint open(const std::string& path) { return checkpoint::Checkpoint(find_saved_run(path)); }

void verify(checkpoint::Checkpoint& saved, Screen& screen) {
  ProgressBar bar(screen, "verifying", static_cast<double>(saved.manifest().bytes()), format_bytes);
  saved.verify([&](std::uint64_t bytes) { bar.set(static_cast<double>(bytes)); });
}

int run(const std::vector<std::string>& words) {
  Screen& screen = Screen::of_process();
  const auto is = [&](const char* command, std::size_t count) { return words[0] == command && words.size() == count; };
  const auto asks = [](const std::string& word) { return word == "--help" || word == "-h"; };
  if (words.empty() || std::any_of(words.begin(), words.end(), asks)) {
    screen.print(usage);
    return 0;
  }
  const bool tensors = words.size() == 3 && words[2] == "--tensors";
  if (is("inspect", 2) || (words[0] == "inspect" && tensors)) {
    screen.print(describe_checkpoint(open(words[1]), tensors));
    return 0;
  }
  if (is("verify", 2)) {
    checkpoint::Checkpoint saved = open(words[1]);
    verify(saved, screen);
    require_whole_run(saved);
    if (saved_architecture(saved) == "gpt") static_cast<void>(read_saved_gpt(saved));
    screen.print(verified_line(saved));
    return 0;
  }
  if (is("diff", 3)) {
    checkpoint::Checkpoint a = open(words[1]), b = open(words[2]);
    const std::vector<checkpoint::Difference> differences = checkpoint::compare(a, b);
    screen.print(describe_differences(a, b, differences));
    return differences.empty() ? 0 : 1;
  }
  fail(ExitCode::usage, "checkpoint",
       "'{}' with {} arguments is not a command; expected inspect PATH, verify PATH or diff PATH PATH; see --help",
       words[0], words.size() - 1);
}

}  // namespace

int main(int argc, char** argv) {
  return run_program([&] { return run({argv + 1, argv + argc}); });
}
