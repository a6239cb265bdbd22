// The text form of TRIREME_FAULT: names, keys, defaults and errors. Read next: check/faults/injection.cpp.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>

#include "check/faults/injection.h"

namespace trireme::fault {
namespace {

constexpr std::array<std::string_view, 10> kind_names = {"kill",   "stop", "slow",  "throw", "oom",
                                                         "desync", "nan",  "spike", "flip",  "noise"};
constexpr std::array<std::string_view, 6> point_names = {"step", "data", "forward", "backward", "optimizer", "save"};

/// The default point of a kind, and all points it accepts; empty: any point.
struct Places {
  Point usual;
  std::vector<Point> possible;
};
Places places(FaultKind kind) {
  switch (kind) {
    case FaultKind::oom:
      return {Point::forward, {}};
    case FaultKind::nan:
      return {Point::backward, {Point::backward, Point::forward}};
    case FaultKind::spike:
      return {Point::forward, {Point::forward}};
    case FaultKind::flip:
      return {Point::optimizer, {Point::optimizer}};
    case FaultKind::noise:
      return {Point::step, {Point::step}};
    default:
      return {Point::backward, {}};
  }
}

[[noreturn]] void refuse(std::string_view fault, const std::string& why) {
  fail(ExitCode::usage, fault_variable,
       "'{}': {}; expected KIND@step=S[-T][,rank=R|all][,point=P][,times=N][,start=N|any], with ';' between faults; "
       "KIND of {}; P of {}; slow needs ms=N, spike and noise take factor=F, noise takes seed=N, "
       "nan and flip take tensor=NAME and element=I, flip takes bit=B; change {}",
       fault, why, fmt::join(kind_names, ", "), fmt::join(point_names, ", "), fault_variable);
}

/// The parts of `text` between separators; none for an empty text.
std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(separator), text.size());
    parts.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

template <class List, class Item>
std::optional<std::size_t> place_in(const List& names, const Item& name) {
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) return std::nullopt;
  return static_cast<std::size_t>(found - names.begin());
}

/// Parses all of `value` as an integer in [low, high].
std::int64_t number(std::string_view fault, std::string_view key, std::string_view value, std::int64_t low,
                    std::int64_t high = std::numeric_limits<std::int32_t>::max()) {
  std::int64_t result = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), result);
  if (error != std::errc{} || end != value.data() + value.size() || result < low || result > high)
    refuse(fault, fmt::format("{}={} is no whole number from {} to {}", key, value, low, high));
  return result;
}

double real(std::string_view fault, std::string_view key, std::string_view value) {
  double result = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), result);
  if (error != std::errc{} || end != value.data() + value.size())
    refuse(fault, fmt::format("{}={} is not a number", key, value));
  return result;
}

/// True if `key` is one of the keys that only some kinds take, and `kind` takes it.
bool takes(FaultKind kind, std::string_view key) {
  if (key == "ms") return kind == FaultKind::slow;
  if (key == "factor") return kind == FaultKind::spike || kind == FaultKind::noise;
  if (key == "seed") return kind == FaultKind::noise;
  if (key == "bit") return kind == FaultKind::flip;
  return (key == "tensor" || key == "element") && (kind == FaultKind::flip || kind == FaultKind::nan);
}

void set(Fault& fault, std::string_view text, std::string_view key, std::string_view value) {
  if (key == "rank") {
    fault.rank = value == "all" ? Fault::all_ranks : static_cast<int>(number(text, key, value, 0));
  } else if (key == "step") {
    const std::size_t dash = value.find('-');
    fault.first_step = fault.last_step = number(text, key, value.substr(0, dash), 1);
    if (dash != std::string_view::npos) fault.last_step = number(text, key, value.substr(dash + 1), fault.first_step);
  } else if (key == "point") {
    const auto point = place_in(point_names, value);
    if (!point) refuse(text, fmt::format("there is no point '{}'", value));
    fault.point = static_cast<Point>(*point);
    const std::vector<Point> possible = places(fault.kind).possible;
    if (!possible.empty() && !place_in(possible, fault.point))
      refuse(text, fmt::format("{} cannot happen at {}", name(fault.kind), value));
  } else if (key == "times") {
    fault.times = number(text, key, value, 1);
  } else if (key == "start") {
    fault.start = value == "any" ? std::nullopt : std::optional(number(text, key, value, 0));
  } else if (!takes(fault.kind, key)) {
    refuse(text, fmt::format("{} takes no '{}'", name(fault.kind), key));
  } else if (key == "ms") {
    fault.ms = number(text, key, value, 1);
  } else if (key == "factor") {
    fault.factor = real(text, key, value);
  } else if (key == "seed") {
    fault.seed = number(text, key, value, 0);
  } else if (key == "bit") {
    fault.bit = static_cast<int>(number(text, key, value, 0, 31));
  } else if (key == "element") {
    fault.element = number(text, key, value, 0);
  } else {
    fault.tensor = value;
  }
}

Fault parse_one(std::string_view text) {
  const std::size_t at = text.find('@');
  const auto kind = place_in(kind_names, text.substr(0, at));
  if (!kind) refuse(text, fmt::format("there is no kind '{}'", text.substr(0, at)));
  Fault fault{.kind = static_cast<FaultKind>(*kind), .tensor = {}};
  fault.point = places(fault.kind).usual;
  if (fault.kind == FaultKind::spike || fault.kind == FaultKind::noise) fault.rank = Fault::all_ranks;
  fault.factor = fault.kind == FaultKind::noise ? 1e-6 : 1000;
  const auto assignments = at == std::string_view::npos ? std::string_view() : text.substr(at + 1);
  for (const std::string_view assignment : split(assignments, ',')) {
    const std::size_t equals = assignment.find('=');
    if (equals == std::string_view::npos) refuse(text, fmt::format("'{}' has no value", assignment));
    set(fault, text, assignment.substr(0, equals), assignment.substr(equals + 1));
  }
  if (fault.first_step == 0) refuse(text, "step= is missing");
  if (fault.times == 0) fault.times = fault.last_step - fault.first_step + 1;
  if (fault.kind == FaultKind::slow && fault.ms == 0) refuse(text, "ms= is missing");
  return fault;
}

}  // namespace

std::string_view name(FaultKind kind) { return kind_names[static_cast<std::size_t>(kind)]; }
std::string_view name(Point point) { return point_names[static_cast<std::size_t>(point)]; }

std::vector<Fault> parse(std::string_view text) {
  std::vector<Fault> faults;
  for (const std::string_view one : split(text, ';')) faults.push_back(parse_one(one));
  if (faults.empty()) refuse(text, "it names no fault");
  return faults;
}

}  // namespace trireme::fault
