#include "nn/summary.h"

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <ostream>
#include <set>
#include <typeinfo>

namespace trireme::nn {
namespace {

/// "Linear" of trireme::nn::Linear; "ModuleList<Block>" keeps what is between its brackets.
std::string type_name(const ModuleBase& module) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> text(
      abi::__cxa_demangle(typeid(module).name(), nullptr, nullptr, &status), std::free);
  std::string name = status == 0 ? text.get() : typeid(module).name();
  const std::size_t bracket = name.find('<');
  const std::size_t colons = name.rfind("::", bracket);
  return colons == std::string::npos ? name : name.substr(colons + 2);
}

struct Line {
  std::string name = {}, type = {}, shape = {}, count = {}, note = {};
};

/// A level of names: a module, a parameter or a buffer; or none of them, if only what is below it has been registered.
struct Level {
  std::vector<const ModuleBase*> modules;
  const Parameter* parameter = nullptr;
  const Buffer* buffer = nullptr;
  std::int64_t elements = 0;       // of the parameters here and below
  std::vector<std::string> names;  // of `below`, in the order in which they were made
  std::vector<Level> below;

  Level& at(std::string_view name) {
    if (name.empty()) return *this;
    const std::size_t dot = name.find('.');
    const std::string_view first = name.substr(0, dot);
    const auto place = static_cast<std::size_t>(std::find(names.begin(), names.end(), first) - names.begin());
    if (place == names.size()) {
      names.emplace_back(first);
      below.emplace_back();
    }
    return below[place].at(dot == std::string_view::npos ? std::string_view() : name.substr(dot + 1));
  }
};

std::int64_t elements_of(const Parameter& parameter) {
  return parameter.global_shape.with(0, parameter.logical_rows).count();
}

std::string with_commas(std::int64_t number) {
  std::string digits = std::to_string(number);
  for (auto at = static_cast<std::ptrdiff_t>(digits.size()) - 3; at > 0; at -= 3)
    digits.insert(static_cast<std::size_t>(at), ",");
  return digits;
}

/// How a tensor is cut, and what this rank has of it; empty if it has all.
std::string part_here(const Placements& placements, const Shape& global, const Shape& local) {
  if (local == global) return {};
  std::string text;
  for (const auto& [axis, placement] : {std::pair("ep", placements.ep), std::pair("tp", placements.tp)})
    if (placement.sharded()) text += fmt::format("{}{} on {}", text.empty() ? "" : ", ", to_string(placement), axis);
  return fmt::format("{}: {} here", text, local);
}

void add_note(std::string& note, const std::string& more) {
  if (!more.empty()) note += (note.empty() ? "" : "; ") + more;
}

Line parameter_line(const Parameter& parameter) {
  Line line{.shape = to_string(parameter.global_shape.with(0, parameter.logical_rows)),
            .count = with_commas(elements_of(parameter))};
  add_note(line.note, part_here(parameter.placements, parameter.global_shape, parameter.local.shape()));
  if (parameter.logical_rows != parameter.global_shape[0])
    add_note(line.note, fmt::format("padded to {} rows", parameter.global_shape[0]));
  if (!parameter.requires_grad()) add_note(line.note, "frozen");
  if (parameter.copy_of_earlier_stage) add_note(line.note, "copy of an earlier stage's, not counted");
  return line;
}

void write(const std::string& name, const Level& level, int depth, std::vector<Line>& lines) {
  Line line;
  if (level.parameter != nullptr) {
    line = parameter_line(*level.parameter);
  } else if (level.buffer != nullptr) {
    line = {.shape = to_string(level.buffer->global_shape), .note = "buffer"};
    add_note(line.note, part_here(level.buffer->placements, level.buffer->global_shape, level.buffer->value.shape()));
  } else {
    for (const ModuleBase* module : level.modules) line.type += (line.type.empty() ? "" : " ") + type_name(*module);
    line.count = with_commas(level.elements);
    if (!level.modules.empty() && level.modules.front()->build().begins_unit()) line.note = "unit";
  }
  line.name = std::string(static_cast<std::size_t>(2 * depth), ' ') + name;
  lines.push_back(std::move(line));
  for (std::size_t i = 0; i < level.below.size(); ++i) write(level.names[i], level.below[i], depth + 1, lines);
}

std::int64_t count_up(Level& level) {
  if (level.parameter != nullptr && !level.parameter->copy_of_earlier_stage)
    level.elements += elements_of(*level.parameter);
  for (Level& below : level.below) level.elements += count_up(below);
  return level.elements;
}

std::string table(const std::vector<Line>& lines) {
  std::size_t name = 0, type = 0, shape = 0, count = 0;
  for (const Line& line : lines) {
    name = std::max(name, line.name.size());
    type = std::max(type, line.type.size());
    shape = std::max(shape, line.shape.size());
    count = std::max(count, line.count.size());
  }
  std::string text;
  for (const Line& line : lines) {
    std::string row = fmt::format("{:<{}}  {:<{}}  {:<{}}  {:>{}}  {}", line.name, name, line.type, type, line.shape,
                                  shape, line.count, count, line.note);
    row.erase(row.find_last_not_of(' ') + 1);
    text += row + "\n";
  }
  return text;
}

std::string totals(const ParameterList& parameters) {
  std::int64_t bytes = 0, frozen = 0;
  std::set<std::string_view> dtypes;
  for (const ParameterPtr& parameter : parameters) {
    bytes += parameter->local.bytes();
    dtypes.insert(trireme::name(parameter->local.dtype()));
    if (!parameter->requires_grad()) frozen += count_elements({parameter});
  }
  std::string names;
  for (const std::string_view dtype : dtypes) names += fmt::format("{}{}", names.empty() ? " in " : " and ", dtype);
  const std::string trained =
      frozen == 0 ? "all of them trained" : fmt::format("{} of them frozen", with_commas(frozen));
  return fmt::format("{} parameters{}, {}; {} bytes on this rank\n", with_commas(count_elements(parameters)), names,
                     trained, with_commas(bytes));
}

}  // namespace

std::int64_t count_elements(const ParameterList& parameters) {
  std::int64_t count = 0;
  for (const ParameterPtr& parameter : parameters)
    if (!parameter->copy_of_earlier_stage) count += elements_of(*parameter);
  return count;
}

std::string summary(const Build& build) {
  const std::string& base = build.name();
  Level root;
  for (const ModuleBase* module : build.modules_below())
    root.at(name_within(module->name(), base)).modules.push_back(module);
  const ParameterList parameters = build.parameters_below();
  for (const ParameterPtr& parameter : parameters)
    root.at(name_within(parameter->name, base)).parameter = parameter.get();
  const BufferList buffers = build.buffers_below();
  for (const BufferPtr& buffer : buffers) root.at(name_within(buffer->name, base)).buffer = buffer.get();
  count_up(root);
  std::vector<Line> lines;
  write(base.empty() ? "model" : base, root, 0, lines);
  return table(lines) + totals(parameters);
}

std::string summary(const ModuleBase& module) { return summary(module.build()); }

fmt::format_context::iterator write_summary(const ModuleBase& module, fmt::format_context& context) {
  return fmt::format_to(context.out(), "{}", summary(module));
}

std::ostream& operator<<(std::ostream& out, const ModuleBase& module) { return out << summary(module); }

}  // namespace trireme::nn
