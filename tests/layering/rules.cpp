// The tables, and the two checks that read them: includes and identifiers.
#include "tests/layering/rules.h"

#include <fmt/core.h>

#include <algorithm>

namespace layering {

namespace {

/// A layer may include itself and layers of a lower height. `only`, when given, narrows that further.
struct Layer {
  std::string path;  ///< a folder, or a family of files: parallel/zero matches parallel/zero/x.h and parallel/zero.h
  int height;
  std::vector<std::string> only = {};
};

constexpr int kHighestLayer = 29;  // above it: code that uses the framework from outside

/// The first row that holds a path counts, so parallel/comm/nccl comes before parallel/comm.
const std::vector<Layer>& layers() {
  static const std::vector<Layer> table = {
      {"core", 0},
      {"cuda", 1},
      {"data", 1},
      {"autograd", 2},
      {"parallel/comm/nccl", 4, {"core", "cuda", "parallel/comm"}},  // streams, and the kernel that sums
      {"parallel/comm", 3, {"core"}},
      {"parallel/mesh", 4},
      {"parallel/pipeline/actions", 5},  // what a schedule is; above it: what makes, checks, draws and runs schedules
      {"parallel/pipeline/stage_plan", 5},
      {"parallel/pipeline/timeline", 6},
      {"parallel/pipeline/messages", 7},
      {"parallel/pipeline/check", 7},
      {"parallel/pipeline/schedule", 8},
      {"parallel/pipeline/schedules", 9},  // their names
      {"parallel/pipeline/drawing", 8},
      {"parallel/pipeline/executor", 8},
      {"parallel/parameters", 9},  // what the layers from here on know of a model
      {"parallel/grad_sync", 10},
      {"parallel/gradient_norm", 10},
      {"parallel/verify", 10},
      {"parallel/checkpoint", 10},
      {"parallel/data_parallel", 11},
      {"parallel/replicated", 12},
      {"parallel/zero", 13},  // shards what grad_sync reduces
      {"nn", 14},
      {"optim", 15},
      {"models/gguf", 17},
      {"models/hugging_face", 17},
      {"models", 16},
      {"train/program", 18},   // the frame around main(), the terminal
      {"train/events", 19},    // what happens in a run, for all that shows or stores it
      {"train/tracking", 20},  // events for other programs: TensorBoard, Prometheus
      {"train/options", 20},
      {"train/report", 21},
      {"train/faults", 21},
      {"train/plot", 21},      // curves, drawn with text
      {"train/terminal", 22},  // a run as a person sees it
      {"train/validate", 22},
      {"train/launch", 22},
      {"train/step", 23},
      {"train/runs", 24},  // saved, resumed, in a folder
      {"train/guards", 25},
      {"train/parity", 25},
      {"train/supervisor", 25},
      {"train/loop", 26},
      {"train/gpt", 27},  // a task, its flags and its text; nothing below names it
      {"train/explore", 28},
      {"examples/external", 30},  // a project of its own, which includes <trireme/...>
      {"examples", 29},
      // Code outside the framework may include everything and helpers in its own folder; nothing may include it.
      {"bench", 30},
      {"tests", 31},
  };
  return table;
}

/// Names that only some files may use. Tests and benchmarks are exempt, because they compare with the raw functions.
struct Confined {
  std::string what;
  std::vector<std::string> prefixes;      ///< of an identifier or an included file
  std::vector<std::string> names;         ///< whole identifiers
  std::vector<std::string> headers;       ///< included files
  std::vector<std::string> allowed_path;  ///< beginnings of the paths that may use it
};

const std::vector<Confined>& confined() {
  static const std::vector<Confined> table = {
      {"MPI", {"MPI_", "PMPI_"}, {}, {"mpi.h"}, {"parallel/comm/mpi"}},
      {"NCCL", {"nccl"}, {}, {}, {"parallel/comm/nccl"}},
      {"vector intrinsics",
       {"_mm_", "_mm256_", "_mm512_", "_tile_", "vld1q_", "vst1q_"},
       {},
       {"immintrin.h", "x86intrin.h", "arm_neon.h"},
       {"core/half.h", "core/cpu/", "cuda/device/"}},
      {"inline assembly", {}, {"asm", "__asm__"}, {}, {"cuda/device/", "cuda/emu/fiber"}},
      {"raw file writes",
       {},
       {"fopen", "freopen", "ofstream", "fstream", "rename", "copy_file", "resize_file", "mkstemp", "O_WRONLY",
        "O_RDWR", "O_CREAT", "O_APPEND"},
       {},
       {"core/io"}},
  };
  return table;
}

bool contains(const std::vector<std::string>& list, const std::string& item) {
  return std::find(list.begin(), list.end(), item) != list.end();
}

/// "core, cuda": the items with `separator` between them.
std::string joined(const std::vector<std::string>& items, const std::string& separator) {
  std::string text;
  for (const std::string& item : items) text += (text.empty() ? "" : separator) + item;
  return text;
}

bool begins_with_any(const std::string& text, const std::vector<std::string>& beginnings) {
  return std::any_of(beginnings.begin(), beginnings.end(), [&](const auto& b) { return text.starts_with(b); });
}

/// parallel/zero holds parallel/zero/x.h, parallel/zero.h and parallel/zero_buckets.h, but not parallel/zeros.h.
bool holds(const Layer& layer, const std::string& path) {
  if (!path.starts_with(layer.path) || path.size() == layer.path.size()) return false;
  const char next = path[layer.path.size()];
  return next == '/' || (layer.path.find('/') != std::string::npos && (next == '.' || next == '_'));
}

const Layer* find_layer(const std::string& path) {
  const auto found = std::find_if(layers().begin(), layers().end(), [&](const Layer& l) { return holds(l, path); });
  return found == layers().end() ? nullptr : &*found;
}

/// Why a file of layer `from` may not include one of layer `to`, or empty.
std::string objection(const Layer& from, const Layer& to) {
  if (from.path == to.path) return {};
  if (!from.only.empty() && !contains(from.only, to.path))
    return fmt::format("{} may include only itself and {}", from.path, joined(from.only, ", "));
  if (to.height < from.height) return {};
  return fmt::format("{} is not below {} in the layering", to.path, from.path);
}

void check_include(const Source& source, const Layer& layer, const Line& line, std::vector<std::string>& broken) {
  const std::string file = included_file(line.code);
  const bool quoted = line.code.find('"') != std::string::npos;
  if (file.empty()) return;
  const Layer* target = find_layer(file);
  const auto report = [&](const std::string& rule) {
    broken.push_back(fmt::format("{}:{}: includes {}; {}", source.path, line.number, file, rule));
  };
  if (target != nullptr) {
    if (!quoted) report("our own files are included in quotes");
    if (const std::string rule = objection(layer, *target); !rule.empty()) report(rule);
  } else if (quoted && !(layer.height > kHighestLayer && file.find('/') == std::string::npos)) {
    report("a quoted include is a path from the repository's root into a layer of tests/layering/rules.cpp");
  }
}

void check_names(const Source& source, const Line& line, std::vector<std::string>& broken) {
  const std::string file = included_file(line.code);
  const std::vector<std::string> names = file.empty() ? identifiers(line.code) : std::vector<std::string>{file};
  for (const Confined& rule : confined()) {
    if (begins_with_any(source.path, rule.allowed_path)) continue;
    for (const std::string& name : names)
      if (contains(file.empty() ? rule.names : rule.headers, name) || begins_with_any(name, rule.prefixes))
        broken.push_back(fmt::format("{}:{}: uses {}; {} belong only in {}*", source.path, line.number, name, rule.what,
                                     joined(rule.allowed_path, "*, ")));
  }
}

/// True if the statement that ends with `before` has ended, so what follows it begins one.
bool ends_statement(std::string_view before) {
  const std::size_t last = before.find_last_not_of(" \t\n");
  return last != std::string_view::npos && std::string_view(";{})").find(before[last]) != std::string_view::npos;
}

/// A statement that is a call of MPI alone drops its result: a failure would be noticed only by what goes wrong later.
void check_results(const Source& source, const std::vector<Line>& lines, std::vector<std::string>& broken) {
  std::string before;  // the code up to here
  for (const Line& line : lines) {
    const std::size_t at = line.code.find("MPI_");
    const std::size_t end = line.code.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz", at);
    if (at != std::string::npos && end != std::string::npos && line.code[end] == '(' &&
        ends_statement(before + line.code.substr(0, at)))
      broken.push_back(fmt::format("{}:{}: drops the result of {}; pass it to check_code()", source.path, line.number,
                                   line.code.substr(at, end - at)));
    before = line.code.find_first_not_of(' ') == std::string::npos ? before : line.code;
  }
}

}  // namespace

const std::vector<std::string>& source_folders() {
  static const std::vector<std::string> folders = [] {
    std::vector<std::string> tops;
    for (const Layer& layer : layers()) {
      const std::string top = layer.path.substr(0, layer.path.find('/'));
      if (!contains(tops, top)) tops.push_back(top);
    }
    return tops;
  }();
  return folders;
}

std::string layer_of(const std::string& path) {
  const Layer* layer = find_layer(path);
  return layer == nullptr ? std::string() : layer->path;
}

std::vector<std::string> check(const Source& source) {
  const Layer* layer = find_layer(source.path);
  if (layer == nullptr)
    return {
        fmt::format("{}:1: belongs to no layer; move it, or add its layer to tests/layering/rules.cpp", source.path)};
  std::vector<std::string> broken;
  const std::vector<Line> lines = code_lines(source.text);
  for (const Line& line : lines) {
    check_include(source, *layer, line, broken);
    if (layer->height <= kHighestLayer) check_names(source, line, broken);
  }
  if (source.path.starts_with("parallel/comm/mpi")) check_results(source, lines, broken);
  return broken;
}

std::vector<std::string> unused_paths(const std::vector<Source>& sources) {
  const auto none = [&](const auto& matches) {
    return std::none_of(sources.begin(), sources.end(), [&](const Source& source) { return matches(source.path); });
  };
  std::vector<std::string> unused;
  for (const Layer& layer : layers()) {
    if (none([&](const std::string& path) { return find_layer(path) == &layer; })) unused.push_back(layer.path);
    for (const std::string& lower : layer.only)
      if (none([&](const std::string& path) { return layer_of(path) == lower; })) unused.push_back(lower);
  }
  for (const Confined& rule : confined())
    for (const std::string& beginning : rule.allowed_path)
      if (none([&](const std::string& path) { return path.starts_with(beginning); })) unused.push_back(beginning);
  return unused;
}

}  // namespace layering
