// Targets for what a user writes: configuration files, the command line with the environment, meshes and schedules.
#include <map>

#include "parallel/comm/launch_environment.h"
#include "parallel/pipeline/check.h"
#include "parallel/pipeline/schedules.h"
#include "tests/fuzz/targets.h"
#include "train/gpt/gpt_options.h"
#include "train/gpt/validate_gpt.h"
#include "train/options/links_file.h"

namespace trireme::fuzz {

namespace {

/// Removes the first line from `rest` and returns it, without its newline.
std::string_view next_line(std::string_view& rest) {
  const std::size_t end = rest.find('\n');
  const std::string_view line = rest.substr(0, end);
  rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
  return line;
}

/// The flags of train_gpt, and the options that they set.
struct Program {
  GptOptions options;
  Flags flags{"train_gpt", ""};
  Program() { declare_all(flags, options); }
};

/// The configuration can be written to a file, and is the same after it is read from there.
void check_round_trip(const Program& program) {
  static Program other;  // static for speed, and safe because a whole configuration sets every flag
  const std::string text = program.flags.config_text();
  other.flags.read_config(text, "config.json");
  expect(other.flags.config_text() == text, "a configuration changed by being written");
}

/// Everything between the flags and the first step, except what needs data.
void check_options(GptOptions& options, int launched) {
  const std::int64_t layers_given = options.model.config.layers;
  if (layers_given > 64) return;     // placing many layers on stages is too slow for a fuzzer
  options.precision.device = "cpu";  // whether there is a GPU depends on the machine
  if (!accepted([&] {
        resolve(options, launched);
        validate(options);
      }))
    return;
  const MeshShape& shape = options.mesh.shape;
  expect(shape.ranks() >= 1 && (launched == 0 || !options.mesh.processes || shape.ranks() == launched),
         "a mesh of another size than what was launched");
  expect(parse_mesh(to_string(shape), 0) == shape, "a mesh changed by being written");
  const BatchSizes sizes = options.batch_sizes();
  expect(sizes.micro_batch * sizes.dp * sizes.micro_batches == sizes.global_batch && sizes.global_batch > 0,
         "batch sizes that do not multiply");
  std::int64_t layers = 0;
  for (const pipeline::BlockRange& range : options.mesh.stage_plan(static_cast<int>(layers_given)))
    layers += range.count;
  expect(layers == options.model.config.layers, "a stage plan without some layers");
}

}  // namespace

void config(std::string_view input) {
  Program program;
  if (!accepted([&] { program.flags.read_config(input, "config.json"); })) return;
  check_round_trip(program);
  check_options(program.options, 0);
}

void command_line(std::string_view input) {
  std::map<std::string, std::string> variables;
  std::vector<std::string> arguments;
  for (std::string_view rest = input; !rest.empty();) {
    const std::string line(next_line(rest));
    if (line.starts_with("--config")) return;  // would read a file: the target config tests those
    const std::size_t equals = line.find('=');
    if (arguments.empty() && equals != std::string::npos && !line.starts_with('-')) {
      variables[line.substr(0, equals)] = line.substr(equals + 1);
    } else {
      arguments.push_back(line);
    }
  }
  const Environment environment = [&](const char* variable) -> const char* {
    const auto found = variables.find(variable);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
  int launched = 0;
  const bool environment_is_right = accepted([&] {
    launched = launched_ranks(environment);
    const int rank = launched_rank(environment);
    expect(launched >= 0 && rank >= 0 && rank < std::max(launched, 1), "a rank that is none of those launched");
    expect(launched_local_ranks(environment).value_or(1) > 0, "no rank on this machine");
    expect(launched_local_rank(environment).value_or(0) >= 0, "a negative rank on this machine");
  });
  Program program;
  Flags::Asked asked = Flags::Asked::help;
  if (!accepted([&] { asked = program.flags.parse(arguments); })) return;
  if (asked == Flags::Asked::help) {
    expect(!program.flags.help_text().empty(), "no help");
    return;
  }
  check_round_trip(program);
  if (environment_is_right) check_options(program.options, launched);
}

void mesh(std::string_view input) {
  std::string_view rest = input;
  const std::string_view axes = next_line(rest), schedule = next_line(rest), layers = next_line(rest);
  for (const int world : {0, 1, 8, 24}) {
    MeshShape shape;
    if (!accepted([&] { shape = parse_mesh(axes, world); })) continue;
    expect(world == 0 || shape.ranks() == world, "a mesh of another size than asked for");
    expect(shape.ranks() >= 1 && shape.size(Axis::edp) * shape.size(Axis::ep) == shape.size(Axis::data),
           "axes that do not multiply");
    expect(parse_mesh(to_string(shape), world) == shape, "a mesh changed by being written");
  }
  int chunks = 0;
  if (accepted([&] { chunks = pipeline::chunks_per_rank(schedule); }) && chunks <= 8) {
    const pipeline::Schedule made = pipeline::make_schedule(schedule, 3, 4);
    pipeline::check(made);
    expect(made.stages == 3 * chunks && made.microbatches == 4, "a schedule of another size");
  }
  pipeline::StagePlan plan;
  if (accepted([&] { plan = pipeline::listed_stage_plan(layers, 8, 3); })) {
    expect(plan.size() == 3 && plan.back().end() == 8, "a stage plan that does not fit");
    for (const pipeline::BlockRange& range : plan) expect(range.count > 0, "an empty stage");
  }
}

void links(std::string_view input) {
  comm::Links links;
  if (!accepted([&] { links = parse_links(input, "input", 24); })) return;
  expect(links.ranks_per_node > 0 && 24 % links.ranks_per_node == 0, "nodes that the ranks do not fill");
  comm::Network network(links);
  for (const int to : {1, 8, 23}) {
    const comm::Network::Times times = network.deliver(0, to, 1000, 0);
    expect(times.leaves >= 0 && times.arrives >= 0, "a message that arrives before it is sent");
  }
}

}  // namespace trireme::fuzz
