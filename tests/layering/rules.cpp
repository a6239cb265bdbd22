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
  bool outside = false;  ///< uses the framework from outside: any names, and helpers in its own folder
};

/// The longest row that holds a path counts: check/faults before check. Each height says why it is above the one below.
const std::vector<Layer>& layers() {
  static const std::vector<Layer> table = {
      // Tensors, kernels, files, errors.
      {"core", 0},
      // Uses of a tensor that know nothing of each other: gradients, another device, files of data, ranks.
      {"autograd", 1},
      {"cuda", 1},
      {"data", 1},
      {"parallel/comm", 1, {"core"}},  // the interface
      // Groups of ranks by axes; and what ranks show of themselves, by which a lost one is found.
      {"parallel/comm/watch", 2, {"core", "parallel/comm"}},
      {"parallel/mesh", 2},
      // What is placed on a mesh: weights, stages. What all ways to start ranks have in common.
      {"parallel/comm/common", 3, {"core", "parallel/comm", "parallel/comm/watch"}},
      {"parallel/comm/hosts", 3, {"core", "parallel/comm", "parallel/comm/watch"}},
      {"parallel/parameters", 3},
      {"parallel/pipeline", 3},
      // Ranks as threads and processes, and collectives made of their messages. What is done with all weights of a
      // model: sums of gradients, files.
      {"parallel/comm/algorithms", 4, {"core", "parallel/comm", "parallel/comm/watch", "parallel/comm/common"}},
      {"parallel/comm/threads", 4, {"core", "parallel/comm", "parallel/comm/watch", "parallel/comm/common"}},
      {"parallel/comm/mpi",
       4,
       {"core", "parallel/comm", "parallel/comm/watch", "parallel/comm/common", "parallel/comm/hosts"}},
      {"parallel/comm/nccl", 4, {"core", "cuda", "parallel/comm", "parallel/comm/watch", "parallel/comm/common"}},
      {"parallel/data_parallel", 4},
      {"parallel/checkpoint", 4},
      // Parts of a model, and what shards and updates them. The frame around main().
      {"parallel/zero", 5},
      {"nn", 5},
      {"optim", 5},
      {"train/program", 5},
      // Whole models, and the options and events of programs that train them.
      {"models", 6},
      {"train/events", 6},
      {"train/options", 6},
      {"ops/plot", 6},
      // A step, the ranks that make it, and what is said about it.
      {"train/launch", 7},
      {"train/report", 7},
      {"train/step", 7},
      {"ops/tracking", 7},
      {"ops/view", 7},
      // Steps that are saved and resumed, in a folder. What may be done to a step, and how long it takes.
      {"train/runs", 8},
      {"train/validate", 8},
      {"check/faults", 8},
      {"ops/terminal", 8},
      {"ops/plan", 8},
      // The loop over steps, of any task; and who starts it again.
      {"train/loop", 9},
      {"ops/supervisor", 9},
      // A task; and a program that trains any task, with all that shows and disturbs it.
      {"train/gpt", 10},
      {"ops/run", 10},
      // What compares whole runs.
      {"check", 11},
      // Programs.
      {"examples", 12},
      // They may include everything but tests, which nothing may include.
      {.path = "examples/external", .height = 13, .outside = true},  // its own project; it includes <trireme/...>
      {.path = "bench", .height = 13, .outside = true},
      {.path = "tests", .height = 13, .outside = true},
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
      {"MPI", {"MPI_", "PMPI_"}, {}, {"mpi.h"}, {"parallel/comm/mpi/"}},
      {"NCCL", {"nccl"}, {}, {}, {"parallel/comm/nccl/"}},
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
  const Layer* longest = nullptr;
  for (const Layer& layer : layers())
    if (holds(layer, path) && (longest == nullptr || layer.path.size() > longest->path.size())) longest = &layer;
  return longest;
}

/// True for what checks, shows and runs training, and for what is above that.
bool above_training(const Layer& layer) {
  return layer.outside || begins_with_any(layer.path, {"check", "ops", "examples"});
}

/// Why a file of layer `from` may not include one of layer `to`, or empty.
std::string objection(const Layer& from, const Layer& to) {
  if (from.path == to.path || (from.outside && to.path != "tests")) return {};
  if (!from.only.empty() && !contains(from.only, to.path))
    return fmt::format("{} may include only itself and {}", from.path, joined(from.only, ", "));
  if (above_training(to) && !above_training(from))
    return fmt::format("training knows nothing of {}, which attaches to it: train/loop/training.h", to.path);
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
  } else if (quoted && !(layer.outside && file.find('/') == std::string::npos)) {
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
    if (!layer->outside) check_names(source, line, broken);
  }
  if (source.path.starts_with("parallel/comm/mpi/")) check_results(source, lines, broken);
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
