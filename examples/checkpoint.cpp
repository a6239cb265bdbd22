// Inspects checkpoints that train_gpt has saved:
//
//   build/bin/checkpoint inspect run1                      what it holds, who wrote it and when
//   build/bin/checkpoint verify run1                       reads everything, compares it with its checksums, and
//                                                          checks that the entries about the run are valid
//   build/bin/checkpoint diff run1 run2                    compares two as whole tensors, whatever meshes wrote them
//
// A path is a checkpoint, or a run's folder, which stands for its newest checkpoint. Exit code 0: valid, or equal; 1:
// diff found differences; 65: damaged.
// Read next: parallel/checkpoint/checkpoint.h, parallel/checkpoint/compare.h.
#include <algorithm>

#include "data/utf8.h"
#include "parallel/checkpoint/compare.h"
#include "train/gpt/gpt_source.h"
#include "train/program/output.h"
#include "train/program/program.h"
#include "train/program/progress.h"
#include "train/program/screen.h"
#include "train/program/text_width.h"
#include "train/program/units.h"
#include "train/program/version.h"
#include "train/runs/checkpoint_report.h"
#include "train/runs/saved_run.h"

using namespace trireme;

namespace {

constexpr const char* usage =
    "Inspects checkpoints that train_gpt has saved.\n\n"
    "usage:   checkpoint inspect PATH [--tensors] [--configuration]\n"
    "         checkpoint verify PATH\n"
    "         checkpoint diff PATH PATH\n"
    "         checkpoint --version\n"
    "example: checkpoint inspect run1\n\n"
    "PATH is a checkpoint, or the --out folder of train_gpt, which stands for its newest checkpoint.\n\n"
    "inspect says what it holds; --tensors: also every tensor with its pieces; --configuration: also the flags of the "
    "run.\n"
    "verify compares every byte with its checksum.\n"
    "diff compares two as whole tensors, whatever meshes wrote them, and exits with 1 when they differ.";

checkpoint::Checkpoint open(const std::string& path) { return checkpoint::Checkpoint(find_saved_run(path)); }

void verify(checkpoint::Checkpoint& saved) {
  ProgressBar bar(Screen::of_process(), "verifying", static_cast<double>(saved.manifest().bytes()), format_bytes);
  saved.verify([&](std::uint64_t bytes) { bar.set(static_cast<double>(bytes)); });
}

int inspect(const std::vector<std::string>& words) {
  bool tensors = false, configuration = false;
  for (std::size_t i = 2; i < words.size(); ++i) {
    if (words[i] != "--tensors" && words[i] != "--configuration")
      fail(ExitCode::usage, "checkpoint", "inspect does not take {}; expected --tensors or --configuration; see --help",
           in_quotes(words[i]));
    (words[i] == "--tensors" ? tensors : configuration) = true;
  }
  write_out(describe_checkpoint(open(words[1]), tensors, configuration, Screen::of_process().line_columns()));
  return 0;
}

int run(const std::vector<std::string>& words) {
  if (words.empty())
    fail(ExitCode::usage, "checkpoint",
         "no command is given; expected inspect PATH, verify PATH or diff PATH PATH; see --help");
  const auto is = [&](const char* command, std::size_t count) { return words[0] == command && words.size() == count; };
  const auto asks = [](const std::string& word) { return word == "--help" || word == "-h"; };
  if (std::any_of(words.begin(), words.end(), asks)) {
    write_out(wrapped_text(usage, Screen::of_process().text_columns()) + "\n");
    return 0;
  }
  if (is("--version", 1)) {
    write_out(version_text("checkpoint"));
    return 0;
  }
  if (words[0] == "inspect" && words.size() >= 2) return inspect(words);
  if (is("verify", 2)) {
    checkpoint::Checkpoint saved = open(words[1]);
    verify(saved);
    require_whole_run(saved);
    if (saved_architecture(saved) == "gpt") static_cast<void>(read_saved_gpt(saved));
    write_out(verified_line(saved));
    return 0;
  }
  if (is("diff", 3)) {
    checkpoint::Checkpoint a = open(words[1]), b = open(words[2]);
    const std::vector<checkpoint::Difference> differences = checkpoint::compare(a, b);
    write_out(describe_differences(a, b, differences, Screen::of_process().line_columns()));
    return differences.empty() ? 0 : 1;
  }
  fail(ExitCode::usage, "checkpoint",
       "{} with {} argument{} is not a command; expected inspect PATH, verify PATH or diff PATH PATH; see --help",
       in_quotes(words[0]), words.size() - 1, words.size() == 2 ? "" : "s");
}

}  // namespace

int main(int argc, char** argv) {
  return run_program([&] { return run({argv + 1, argv + argc}); });
}
