// Parses a mesh: "dp=2,tp=2,pp=2".
#include <charconv>

#include "parallel/mesh/mesh.h"

namespace trireme {
namespace {

constexpr const char* where = "--mesh";
constexpr int most_ranks = 1 << 20;
constexpr std::array<Axis, 5> given_axes = {Axis::dp, Axis::tp, Axis::pp, Axis::cp, Axis::ep};

Axis axis_named(std::string_view text) {
  for (const Axis axis : given_axes) {
    if (name(axis) == text) return axis;
  }
  fail(ExitCode::usage, where,
       "unknown axis '{}'; the axes are dp, tp, pp, cp and ep, as in parse_mesh(\"dp=2,tp=2,pp=2\") or --mesh "
       "dp=2,tp=2,pp=2",
       text);
}

int parse_size(std::string_view axis, std::string_view text) {
  int size = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), size);
  if (text == "auto") fail(ExitCode::usage, where, "{}=auto: only dp can be auto; give {} a size", axis, axis);
  if (error == std::errc::result_out_of_range || size > most_ranks) {
    fail(ExitCode::usage, where, "{}={} is more than {} ranks; expected a smaller size; change the mesh", axis, text,
         most_ranks);
  }
  if (error != std::errc() || end != text.data() + text.size() || size < 1) {
    fail(ExitCode::usage, where, "axis {} needs a size of 1 or more{}, got '{}'", axis,
         axis == "dp" ? " (or auto)" : "", text);
  }
  return size;
}

/// Each size is within the limit; this checks their product.
void check_product(const MeshShape& shape) {
  std::int64_t ranks = 1;
  for (const Axis axis : grid_axes) {
    ranks *= shape.size(axis);
    if (ranks > most_ranks)
      fail(ExitCode::usage, where,
           "dp x tp x pp x cp = {} x {} x {} x {} are more than {} ranks; expected fewer; change the mesh",
           shape.size(Axis::dp), shape.size(Axis::tp), shape.size(Axis::pp), shape.size(Axis::cp), most_ranks);
  }
}

/// The text up to `separator`, which is removed from `rest`.
std::string_view next_part(std::string_view& rest, char separator) {
  const std::size_t end = rest.find(separator);
  const std::string_view part = rest.substr(0, end);
  rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
  return part;
}

}  // namespace

std::string_view name(Axis axis) {
  constexpr std::array<std::string_view, all_axes.size()> names = {"pp", "dp", "cp", "tp", "ep", "edp", "data"};
  return names[index(axis)];
}

int MeshShape::size(Axis axis) const {
  if (axis == Axis::data) return size(Axis::dp) * size(Axis::cp);
  if (axis == Axis::edp) return size(Axis::data) / size(Axis::ep);
  return sizes[index(axis)];
}

int& MeshShape::at(Axis axis) {
  require(index(axis) < sizes.size(), "MeshShape", "the size of {} follows from the others", name(axis));
  return sizes[static_cast<std::size_t>(axis)];
}

MeshShape parse_mesh(std::string_view text, int world) {
  MeshShape shape;
  std::array<bool, all_axes.size()> given{};
  bool automatic = false;
  if (text.empty() || text.ends_with(',') || text.find(' ') != std::string_view::npos) {
    fail(ExitCode::usage, where, "'{}' is not a mesh; expected axes and sizes without spaces, as in dp=2,tp=2,pp=2",
         text);
  }
  std::string_view rest = text;
  while (!rest.empty()) {
    std::string_view value = next_part(rest, ',');
    const std::string_view key = next_part(value, '=');
    const Axis axis = axis_named(key);
    if (std::exchange(given[static_cast<std::size_t>(axis)], true)) {
      fail(ExitCode::usage, where, "axis {} is given twice in '{}'", key, text);
    }
    automatic = automatic || (axis == Axis::dp && value == "auto");
    if (!(axis == Axis::dp && value == "auto")) shape.at(axis) = parse_size(key, value);
  }
  check_product(shape);
  if (automatic && world > 0) {
    if (world % shape.ranks() != 0) {
      fail(ExitCode::usage, where, "dp=auto: {} ranks are not a multiple of tp x pp x cp = {} x {} x {} = {}", world,
           shape.size(Axis::tp), shape.size(Axis::pp), shape.size(Axis::cp), shape.ranks());
    }
    shape.at(Axis::dp) = world / shape.ranks();
  }
  if (world > 0 && shape.ranks() != world) {
    fail(ExitCode::usage, where,
         "dp x tp x pp x cp = {} x {} x {} x {} = {} ranks, but the launcher started {}; change the mesh or the "
         "number of ranks",
         shape.size(Axis::dp), shape.size(Axis::tp), shape.size(Axis::pp), shape.size(Axis::cp), shape.ranks(), world);
  }
  if (shape.size(Axis::data) % shape.size(Axis::ep) != 0) {
    fail(ExitCode::usage, where,
         "ep={} does not divide dp x cp = {} x {} = {}: experts are spread over those ranks; change ep, dp or cp",
         shape.size(Axis::ep), shape.size(Axis::dp), shape.size(Axis::cp), shape.size(Axis::data));
  }
  return shape;
}

std::string to_string(const MeshShape& shape) {
  std::string text = fmt::format("dp={},tp={},pp={}", shape.size(Axis::dp), shape.size(Axis::tp), shape.size(Axis::pp));
  for (const Axis axis : {Axis::cp, Axis::ep}) {
    if (shape.size(axis) > 1) text += fmt::format(",{}={}", name(axis), shape.size(axis));
  }
  return text;
}

}  // namespace trireme
