// What the benchmarks with CLI11 flags share: they report errors like all programs, and before they measure anything.
// Read next: train/program/program.h, the frame of all programs.
#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <exception>
#include <filesystem>
#include <functional>
#include <string>

#include "core/cpu/level.h"
#include "core/io.h"
#include "data/utf8.h"
#include "parallel/comm/process_group.h"
#include "train/launch/common_values.h"
#include "train/program/program.h"
#include "train/program/version.h"

namespace trireme::bench {

constexpr int most_threads = 4096, most_ranks = 1024;  // of one process, as those of train_gpt

/// Parses the command line and runs `body` in run_program(). Invalid arguments give ExitCode::usage, not CLI11's code.
inline int run_benchmark(CLI::App& app, int argc, const char* const* argv, const std::function<void()>& body) {
  return run_program([&] {
    app.set_version_flag("--version", version_text(std::filesystem::path(argv[0]).filename().string()));
    try {
      app.parse(argc, argv);
    } catch (const CLI::Success& asked) {  // --help
      return app.exit(asked);
    } catch (const CLI::ParseError& error) {
      fail(ExitCode::usage, std::filesystem::path(argv[0]).filename().string(), "{}; --help lists what is expected",
           safe_text(error.what()));
    }
    cpu::require_processor();
    body();
    return 0;
  });
}

/// Runs `body` as one of the launcher's processes, which must all have the same options. If it fails here, ends the
/// others, so that they do not wait. `fastest`: see mpi_world().
inline void run_as_process(const CLI::App& app, const std::function<void(const std::shared_ptr<ProcessGroup>&)>& body,
                           SumOrder fastest = SumOrder::ranks) {
  try {
    const std::shared_ptr<ProcessGroup> world = mpi_world(std::chrono::seconds(60), fastest);
    CommonValues options;
    for (const CLI::Option* option : app.get_options())
      options.push_back(common_flag(option->get_single_name(), fmt::format("{}", fmt::join(option->results(), " "))));
    require_common(*world, options);
    body(world);
  } catch (...) { mpi_abort(report(std::current_exception())); }
}

/// The file of --markdown.
class MarkdownFile {
 public:
  void declare(CLI::App& app) { option_ = app.add_option("--markdown", path_, "write tables into this file, too"); }
  /// Throws if the file cannot be written: after minutes of measuring it would be too late to find out.
  void require_writable() const {
    if (option_->count() == 0) return;
    const std::filesystem::path folder = std::filesystem::path(path_).parent_path();
    if (!folder.empty() && !std::filesystem::is_directory(folder))
      fail(ExitCode::usage, "--markdown", "{}: there is no folder {}; make it, or change --markdown", in_quotes(path_),
           in_quotes(folder.string()));
    if (path_.empty() || std::filesystem::is_directory(path_))
      fail(ExitCode::usage, "--markdown", "{} is not a file name; expected one; change --markdown", in_quotes(path_));
    const AtomicFile attempt(path_);  // leaves nothing
  }
  void write(const std::string& tables) const {
    if (option_->count() > 0) write_file(path_, tables);
  }

 private:
  CLI::Option* option_ = nullptr;
  std::string path_;
};

}  // namespace trireme::bench
