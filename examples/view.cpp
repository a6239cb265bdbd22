// Draws a run as a page for a browser: the mesh, who did what when in a step, memory, curves, placements of weights, and
// in words which rank was slow and why.
//
//   build/bin/train_gpt ... --profile trace.json --out run1
//   build/bin/view run1                          writes run1/view.html, which needs no other file
//
// Read next: ops/view/page.h; docs/view.md.
#include <algorithm>
#include <filesystem>
#include <optional>

#include "core/error.h"
#include "core/io.h"
#include "ops/view/page.h"
#include "ops/view/steps.h"
#include "train/program/output.h"
#include "train/program/program.h"
#include "train/program/screen.h"
#include "train/program/text_width.h"
#include "train/program/version.h"

using namespace trireme;

namespace {

namespace fs = std::filesystem;

constexpr const char* usage =
    "usage: view RUN [--trace FILE] [--out FILE]\n\n"
    "Draws a run as an HTML page that needs no other file and no network.\n\n"
    "RUN           the --out folder of train_gpt or train, also while it trains, or a trace of --profile\n"
    "--trace FILE  the run's trace; default: the file that its --profile names\n"
    "--out FILE    the page; default: RUN/view.html";

struct Request {
  fs::path run, trace, out;
};

Request read(const std::vector<std::string>& words) {
  Request request;
  for (std::size_t i = 0; i < words.size(); ++i) {
    std::string name = words[i], value;
    if (!name.starts_with('-')) {
      if (!request.run.empty())
        fail(ExitCode::usage, "view", "two runs are named, {} and {}; expected one; see --help", request.run.string(),
             name);
      request.run = name;
      continue;
    }
    if (const std::size_t equals = name.find('='); equals != std::string::npos) {
      value = name.substr(equals + 1);
      name.resize(equals);
    } else if (i + 1 < words.size()) {
      value = words[++i];
    }
    if (name != "--trace" && name != "--out")
      fail(ExitCode::usage, "view", "'{}' is not understood; expected RUN, --trace FILE and --out FILE; see --help",
           name);
    if (value.empty()) fail(ExitCode::usage, "view", "{} has no file; expected {} FILE; see --help", name, name);
    (name == "--out" ? request.out : request.trace) = value;
  }
  if (request.run.empty())
    fail(ExitCode::usage, "view", "no run is named; expected RUN, the --out folder of a run; see --help");
  return request;
}

/// Refuses a trace of another mesh. One of other options is shown, with a warning.
void compare(const run_view::Profile& profile, const run_view::RunFiles& run, const fs::path& trace,
             run_view::Page& page) {
  const std::string mesh = run.option("mesh");
  if (run.options.empty() || mesh == "auto" || mesh.find("=auto") != std::string::npos) return;
  if (const MeshShape expected = parse_mesh(mesh, 0); profile.mesh != expected)
    fail(ExitCode::usage, "view",
         "{} is the trace of a run with mesh {}, and {} has {}; expected the run's own trace; change "
         "--trace",
         trace.string(), to_string(profile.mesh), run.name, to_string(expected));
  if (profile.configuration != run.configuration)
    page.missing.push_back(
        fmt::format("{} was recorded by another start of this run, or by another run with this mesh: "
                    "its options differ.",
                    trace.string()));
}

run_view::Page make_page(const Request& request) {
  run_view::Page page;
  std::optional<fs::path> trace;
  std::error_code unknown;
  if (fs::is_regular_file(request.run, unknown)) {
    trace = request.run;
    page.title = request.run.filename().string();
    page.missing.emplace_back("The options and the curves: name the run's folder, and the trace with --trace.");
  } else {
    page.run = run_view::read_run(request.run);
    page.title = page.run.name;
    trace = request.trace.empty() ? run_view::find_trace(request.run, page.run) : request.trace;
    const std::string named = page.run.option("profile");
    if (!trace && named.empty())
      page.missing.emplace_back(
          "The timeline, the memory and the placements: the run recorded no trace. --profile FILE records one.");
    if (!trace && !named.empty())
      page.missing.push_back(
          fmt::format("The timeline, the memory and the placements: the run's trace, {}, is not there. "
                      "If it is elsewhere, name it with --trace.",
                      named));
    if (page.run.metrics.empty())
      page.missing.emplace_back("The curves: no step is logged yet. --log-every N logs every N-th.");
    else if (std::ranges::none_of(page.run.metrics,
                                  [](const auto& record) { return record.values.contains("val_loss"); }))
      page.missing.emplace_back("Validation losses: there are none yet. --eval-every N computes them.");
  }
  if (trace) {
    page.profile = run_view::profile_of(run_view::read_trace(*trace), *trace);
    compare(*page.profile, page.run, *trace, page);
    page.findings = run_view::step_findings(*page.profile);
  }
  for (run_view::Finding& finding : run_view::metrics_findings(page.run.metrics))
    page.findings.push_back(std::move(finding));
  return page;
}

int run(const std::vector<std::string>& words) {
  Screen& screen = Screen::of_process();
  require_output();
  if (std::ranges::any_of(words, [](const std::string& word) { return word == "--help" || word == "-h"; })) {
    screen.print(wrapped_text(usage, screen.text_columns()));
    return 0;
  }
  if (words == std::vector<std::string>{"--version"}) {
    write_out(version_text("view"));
    return 0;
  }
  Request request = read(words);
  std::error_code unknown;
  if (request.out.empty())
    request.out = fs::is_directory(request.run, unknown) ? request.run / "view.html"
                                                         : fs::path(request.run).replace_extension(".html");
  require_own_kind("--out", request.out, run_view::page_kind);
  const run_view::Page page = make_page(request);
  write_file(request.out, run_view::to_html(page));
  for (const run_view::Finding& finding : page.findings)
    screen.print(fmt::format("{} {}\n", finding.warning ? "!" : "-", finding.title));
  screen.print(fmt::format("{}\n", request.out.string()));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return run_program([&] { return run({argv + 1, argv + argc}); });
}
