// Reading weights from one file: first names and shapes, then what this rank holds.
#include <set>
#include <sstream>

#include "data/safetensors.h"
#include "data/utf8.h"
#include "parallel/checkpoint/weights.h"
#include "parallel/checkpoint/weights_text.h"
#include "parallel/comm/texts.h"

namespace trireme::checkpoint {
namespace {

constexpr const char* where_loaded = "load_weights";

/// What to read, and whether names and shapes fit.
struct Plan {
  LoadReport report;
  std::vector<std::pair<const HeldTensor*, std::string>> reads;  // of this rank: into what, and the name in the file
};

/// The different lines in the texts of all ranks of the group, sorted. Collective.
std::set<std::string> lines_of_all(const std::string& text, ProcessGroup& group) {
  std::set<std::string> all;
  for (const std::string& of_rank : all_gather_texts(group, text)) {
    std::istringstream lines(of_rank);
    for (std::string line; std::getline(lines, line);) all.insert(line);
  }
  return all;
}

/// A line that says how the tensor does not fit, for add_misfits(); empty if it fits:
///   s SHAPE-IN-FILE SHAPE NAME    another shape
///   d NAME                        an integer dtype and a floating one
std::string misfit(const HeldTensor& tensor, const std::string& name, const SafetensorsFile& file,
                   const std::string& full_name) {
  if (file.shape(full_name) != tensor.global)
    return fmt::format("s {} {} {}\n", numbers(file.shape(full_name)), numbers(tensor.global), name);
  if (is_floating(file.dtype(full_name)) != is_floating(tensor.value.dtype())) return fmt::format("d {}\n", name);
  return {};
}

void add_misfits(const std::set<std::string>& lines, LoadReport& report) {
  for (const std::string& line : lines) {
    std::istringstream in(line.substr(2));
    if (line[0] == 'd') {
      report.wrong_dtype.push_back(line.substr(2));
      continue;
    }
    const Shape in_file = parse_shape(in), expected = parse_shape(in);
    report.wrong_shape.push_back({line.substr(2 + static_cast<std::size_t>(in.tellg()) + 1), in_file, expected});
  }
}

Plan compare(const SafetensorsFile& file, const std::vector<HeldTensor>& held, ProcessGroup& group,
             const LoadOptions& options) {
  Plan plan;
  std::string names, misfits;
  for (const HeldTensor& tensor : held) {
    const std::string name = stored_name(tensor, options.name_in_file, where_loaded), full = options.prefix + name;
    if (name.empty()) continue;
    names += name + "\n";
    if (!file.contains(full)) continue;
    misfits += misfit(tensor, name, file, full);
    plan.reads.emplace_back(&tensor, full);
  }
  const std::set<std::string> wanted = lines_of_all(names, group);
  add_misfits(lines_of_all(misfits, group), plan.report);
  for (const std::string& name : wanted)
    (file.contains(options.prefix + name) ? plan.report.loaded : plan.report.missing).push_back(name);
  for (const std::string& full : file.names()) {
    if (!full.starts_with(options.prefix)) continue;
    std::string name = full.substr(options.prefix.size());
    if (name.ends_with("num_batches_tracked")) continue;  // a counter of PyTorch's BatchNorm, which nothing here uses
    if (!wanted.contains(name)) plan.report.extra.push_back(std::move(name));
  }
  return plan;
}

std::string listed(const char* what, const std::vector<std::string>& names) {
  if (names.empty()) return {};
  std::string text = fmt::format("; {}: ", what);
  for (const std::string& name : names)
    text += fmt::format("{}{}", &name == &names.front() ? "" : ", ", in_quotes(name));
  return text;
}

void require_fit(const LoadReport& report, const std::filesystem::path& path, bool strict) {
  const bool wrong = !report.wrong_shape.empty() || !report.wrong_dtype.empty();
  const bool incomplete = !report.missing.empty() || !report.extra.empty();
  if (!wrong && !(strict && incomplete)) return;
  std::string text;
  for (const LoadReport::WrongShape& shape : report.wrong_shape)
    text += fmt::format("{}{} is {}, and {} in the module", text.empty() ? "; of another shape: " : ", ",
                        in_quotes(shape.name), shape.in_file, shape.expected);
  text += listed("integers in one of the two and floating numbers in the other", report.wrong_dtype);
  text += listed("missing in the file", report.missing) + listed("not used by the module", report.extra);
  fail(ExitCode::data, where_loaded,
       "{} does not fit the module{}; expected the same names and shapes; nothing was loaded; {}", path.string(), text,
       wrong ? "leave tensors out, or give them other names, with LoadOptions::name_in_file"
             : "change LoadOptions::prefix or name_in_file, or set strict = false to load what both have");
}

}  // namespace

LoadReport read_weights(const std::filesystem::path& path, const std::vector<HeldTensor>& held, ProcessGroup& group,
                        const LoadOptions& options) {
  std::optional<SafetensorsFile> file;
  fail_together(group, [&] { file.emplace(path); });
  const Plan plan = compare(*file, held, group, options);
  fail_together(group, [&] { require_fit(plan.report, path, options.strict); });
  fail_together(group, [&] {
    for (const auto& [tensor, name] : plan.reads) {
      if (tensor->value.count() == 0) continue;  // padding only
      Tensor stored = Tensor::empty(tensor->value.shape(), file->dtype(name)), value = tensor->value;
      file->read(name, tensor->start, stored);
      copy(stored, value);
    }
    file->require_whole();
  });
  return plan.report;
}

}  // namespace trireme::checkpoint
