// Will it fit, how fast, which mesh:
//
//   build/bin/plan --machine examples/machines/h100_sxm_ndr.json --devices 32 --model gpt2-1.5b --dtype bf16
//     --global-batch 512
//   build/bin/plan --model gpt2-124m --mesh dp=2          this machine: kernels and exchanges are measured
//
// With --devices N it searches: every mesh of N devices, micro-batch, ZeRO stage, recomputation and schedule, but those
// that flags give; without, it plans for --mesh. Nothing is trained: each rank's program makes two steps that compute
// nothing, and a simulation finds how long they would take.
// Read next: ops/plan/search.h, ops/plan/report.h, docs/planner.md.
#include <fmt/format.h>

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cstdio>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "check/parity/parity.h"
#include "core/cores.h"
#include "core/io.h"
#include "examples/tasks/list.h"
#include "ops/plan/explain.h"
#include "ops/plan/page.h"
#include "ops/plan/report.h"
#include "ops/plan/this_machine.h"
#include "train/options/options.h"
#include "train/program/program.h"
#include "train/program/units.h"
#include "train/validate/memory_limit.h"

using namespace trireme;

namespace {

struct PlanOptions {
  std::string task = "gpt", machine, devices, tokens, scaling = "strong", page;
  std::optional<Axis> vary;
  std::optional<std::int64_t> dp_shard;  // of --dp-shard, for a search
  std::int64_t shown = 5;
  bool explain = false, json = false;
};

/// "2T": 2e12. Throws ExitCode::usage.
double count_of(const std::string& text) {
  static const std::map<char, double> units = {{'k', 1e3}, {'K', 1e3}, {'M', 1e6}, {'B', 1e9}, {'G', 1e9}, {'T', 1e12}};
  std::string digits = text;
  double unit = 1;
  if (!text.empty() && units.contains(text.back())) {
    unit = units.at(text.back());
    digits.pop_back();
  }
  double value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc() || end != digits.data() + digits.size() || !(value > 0) || value > 1e18)
    fail(ExitCode::usage, "--tokens",
         "expected a number above 0 and up to 1e18, as 300B or 2T, got '{}'; change --tokens", text);
  return value * unit;
}

/// "64,1024". Throws ExitCode::usage.
std::vector<int> device_counts(const std::string& text) {
  constexpr int most = 1 << 20;
  std::vector<int> counts;
  std::istringstream list(text);
  for (std::string word; std::getline(list, word, ',');) {
    int count = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), count);
    if (error != std::errc() || end != word.data() + word.size() || count < 1 || count > most)
      fail(ExitCode::usage, "--devices",
           "'{}' of '{}' is no number of devices; expected some from 1 to {}, as 32 or 64,1024; change --devices", word,
           text, most);
    counts.push_back(count);
  }
  return counts;
}

/// On this machine, one mesh. `page`: a file to draw it into, or empty.
int plan_here(Task& task, const std::string& page) {
  const TrainOptions& options = task.options();
  const DryProgram program = dry_program(parity_model(task), options);
  const auto memory = [&program](const TrainOptions& o, int rank) { return dry_run_memory(o, program, rank); };
  const MachineMemory needs = memory_here(options, memory);
  require_memory(options, needs, memory, usable_memory(options));  // it will be used
  plan::ThisMachine machine;
  plan::Prediction prediction;
  plan::Recording recording;
  prediction.ranks = machine.predict(options, program, page.empty() ? nullptr : &recording);
  prediction.seconds = plan::step_seconds(prediction.ranks);
  const double per_second =
      static_cast<double>(options.batch_sizes().global_batch * task.targets()) / prediction.seconds;
  fmt::print("{}: {:.1f} ms a step, {} {}, {} of memory\n    {}\n", to_string(options.mesh.shape),
             1e3 * prediction.seconds, format_count(per_second), task.unit_names().per_second,
             format_bytes(needs.all()), plan::parts_text(prediction));
  if (!page.empty())
    write_file(page, run_view::to_html(
                         plan::page_here(fmt::format("A step of {}, predicted", task.name()), options, recording)));
  return 0;
}

/// The size of an axis in a text such as "tp=2,ep=4"; nothing if it has none, or dp=auto.
std::optional<int> named_size(const std::string& mesh, Axis axis) {
  const std::string text = "," + mesh, begin = fmt::format(",{}=", name(axis));
  const std::size_t at = text.find(begin);
  if (at == std::string::npos || text.compare(at + begin.size(), 4, "auto") == 0) return std::nullopt;
  int size = 0;
  const char* const digits = text.data() + at + begin.size();
  if (std::from_chars(digits, text.data() + text.size(), size).ec != std::errc())
    fail(ExitCode::usage, "--mesh", "'{}' has no number after {}=; expected one, as in {}=2; change --mesh", mesh,
         name(axis), name(axis));
  return size;
}

/// Without ep, which cannot be judged before dp is known.
std::string without_ep(const std::string& mesh) {
  std::string kept;
  std::istringstream list(mesh);
  for (std::string word; std::getline(list, word, ',');)
    if (!word.starts_with("ep=")) kept += (kept.empty() ? "" : ",") + word;
  return kept.empty() ? "dp=1" : kept;
}

/// The meshes of `devices` ranks that have the axes in --mesh, such as tp=8.
std::vector<MeshShape> meshes_with(const std::string& given, int devices, int experts) {
  std::vector<MeshShape> meshes = plan::meshes(devices, experts);
  for (const Axis axis : {Axis::pp, Axis::dp, Axis::cp, Axis::tp, Axis::ep})
    if (const std::optional<int> size = named_size(given, axis))
      std::erase_if(meshes, [&](const MeshShape& mesh) { return mesh.size(axis) != *size; });
  if (meshes.empty())
    fail(ExitCode::usage, "plan",
         "--mesh {} on {} devices: no mesh has these axes; expected sizes whose product divides {}{}; change --mesh or "
         "--devices",
         given, devices, devices,
         named_size(given, Axis::ep) ? fmt::format(", and ep that divides dp x cp and the {} experts", experts) : "");
  return meshes;
}

/// The settings that a search chooses from, as far as flags leave them open. No `meshes`: no search, --mesh alone.
/// `small`: only settings that need little memory.
plan::Space space_of(const TrainOptions& given, const Flags& flags, const std::vector<MeshShape>& meshes, bool small) {
  const auto open = [&](const std::string& flag) { return !meshes.empty() && !flags.given(flag); };
  plan::Space space{.meshes = meshes,
                    .micro_batches = {given.batch_sizes().micro_batch},
                    .zero = {given.mesh.zero},
                    .recompute = {given.precision.recompute},
                    .pipelines = {given.mesh.pipeline}};
  if (meshes.empty()) space.meshes = {given.mesh.shape};
  if (small) {
    space.micro_batches = {1};
    space.zero = {1, 3};
    space.recompute = {"full"};
    space.pipelines = {"1f1b"};
    return space;
  }
  if (open("micro-batch")) space.micro_batches = {1, 2, 4, 8, 16};
  if (open("zero")) space.zero = {0, 1, 2, 3};
  if (open("recompute")) space.recompute = {"none", "selective", "full"};
  if (open("pipeline")) space.pipelines = {"1f1b", "zero-bubble", "interleaved:2", "interleaved:4"};
  return space;
}

/// As a shell reads it: in quotes where it would take characters for something else.
std::string shell_word(const std::string& argument) {
  constexpr std::string_view plain = "=,.:/_-+%@";
  const bool is_plain = !argument.empty() && std::ranges::all_of(argument, [&](unsigned char c) {
    return std::isalnum(c) != 0 || plain.find(static_cast<char>(c)) != std::string_view::npos;
  });
  if (is_plain) return argument;
  std::string quoted = "'";
  for (const char c : argument) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

/// The command line without what plan() chooses or alone understands.
std::string training_command(const std::vector<std::string>& arguments, const PlanOptions& asked) {
  static const std::set<std::string, std::less<>> dropped = {"machine",     "devices", "scaling",   "vary", "show",
                                                             "tokens",      "explain", "json",      "mesh", "pipeline",
                                                             "micro-batch", "zero",    "recompute", "task", "page"};
  std::string text = asked.task == "gpt" ? "build/bin/train_gpt" : "build/bin/train --task " + asked.task;
  bool keep = true;
  for (const std::string& argument : arguments) {
    if (argument.starts_with("--")) keep = !dropped.contains(argument.substr(2, argument.find('=') - 2));
    if (keep) text += " " + shell_word(argument);
  }
  return text + (asked.task == "gpt" ? " --data TEXT" : "") + " --device cuda";
}

plan::Answer answer(Task& task, const Flags& flags, const PlanOptions& asked, const TrainOptions& given,
                    const std::vector<MeshShape>& meshes, bool small = false) {
  plan::Question question;
  question.cluster = plan::read_cluster(asked.machine);
  plan::require_room(question.cluster, (meshes.empty() ? given.mesh.shape : meshes.front()).ranks());
  question.dtype = given.precision.dtype;
  question.targets = task.targets();
  question.target_name = task.unit_names().targets;
  question.per_second = task.unit_names().per_second;
  if (!asked.tokens.empty()) question.train_on = count_of(asked.tokens);
  const auto make_ready = [&](const TrainOptions& wanted) {
    TrainOptions& o = task.options();
    o = wanted;
    resolve(o, parse_mesh(wanted.mesh.axes, 0).ranks());
    task.validate();
    TrainOptions options = o;
    options.precision.device = name(Device::cuda);
    return options;
  };
  const DryProgram program = dry_program(parity_model(task), given);
  question.model = plan::model_facts(make_ready(given), program);
  const bool watched = !meshes.empty() && isatty(STDERR_FILENO) != 0;
  const auto progress = [watched](std::int64_t simulated, double fastest) {
    if (watched && fastest > 0) fmt::print(stderr, "\r{} simulated, the fastest {:.4g} s", simulated, fastest);
  };
  const plan::Space space = space_of(given, flags, meshes, small);
  TrainOptions wanted = given;
  if (asked.dp_shard) wanted.mesh.dp_shard = asked.dp_shard;
  plan::Search found = plan::search(plan::combinations(wanted, space), make_ready, program, question.model,
                                    plan::ClusterModel(question.cluster),
                                    {.memory = question.cluster.device.usable_memory(),
                                     .shown = static_cast<std::size_t>(asked.shown),
                                     .threads = static_cast<int>(usable_cores().size()),
                                     .front = !asked.page.empty(),
                                     .smallest = !small,
                                     .enough = small ? 4 : std::numeric_limits<int>::max(),
                                     .progress = progress});
  if (watched) fmt::print(stderr, "\r{:40}\r", "");
  return {std::move(question), std::move(found)};
}

void write_page(Task& task, const PlanOptions& asked, const plan::Answer& answer) {
  const TrainOptions& options = answer.found.choices.front().options;
  const plan::Recording recording =
      plan::record(options, dry_program(parity_model(task), options), plan::ClusterModel(answer.question.cluster),
                   static_cast<int>(usable_cores().size()));
  write_file(asked.page, run_view::to_html(plan::page_of(answer, recording)));
}

/// A fast one on the fewest devices, of `devices` times a power of two, on which the model fits, whatever flags say.
std::optional<TrainOptions> what_would_fit(Task& task, const PlanOptions& asked, const TrainOptions& given,
                                           int devices) {
  const Flags none("plan", "");
  PlanOptions one = asked;
  one.shown = 1;
  one.page.clear();
  for (int more = 1; more <= 1024; more *= 2) {
    const auto experts = static_cast<int>(task.experts().count);
    const plan::Answer a = answer(task, none, one, given, plan::meshes(devices * more, experts), true);
    if (!a.found.choices.empty()) return a.found.choices.front().options;
  }
  return std::nullopt;
}

/// One answer for each number of devices, or for each size of an axis; prints them beside each other.
int compare(Task& task, const Flags& flags, const PlanOptions& asked, const TrainOptions& given,
            const std::vector<int>& counts, const std::function<std::vector<MeshShape>(int)>& meshes_of) {
  PlanOptions one = asked;
  one.shown = 1;
  std::vector<plan::Variant> variants;
  if (asked.vary) {
    std::map<int, std::vector<MeshShape>> by_size;
    for (const MeshShape& mesh : meshes_of(counts[0])) by_size[mesh.size(*asked.vary)].push_back(mesh);
    for (const auto& [size, meshes] : by_size)
      variants.push_back({std::string(name(*asked.vary)), size, answer(task, flags, one, given, meshes)});
  }
  for (const int count : asked.vary ? std::vector<int>() : counts) {
    TrainOptions there = given;
    if (asked.scaling == "weak") {
      if (*given.batch.global_batch * count % counts[0] != 0)
        fail(ExitCode::usage, "plan",
             "--global-batch {} on {} devices would be {:.2f} on {}; expected whole numbers; change --global-batch or "
             "--devices",
             *given.batch.global_batch, counts[0], static_cast<double>(*given.batch.global_batch) * count / counts[0],
             count);
      *there.batch.global_batch = *given.batch.global_batch * count / counts[0];
    }
    variants.push_back({"devices", count, answer(task, flags, one, there, meshes_of(count))});
  }
  fmt::print("{}", asked.json ? plan::to_json(variants) : plan::to_text(variants));
  return std::ranges::all_of(variants, [](const auto& v) { return v.answer.found.choices.empty(); }) ? 1 : 0;
}

int plan_there(Task& task, const Flags& flags, const PlanOptions& asked, const std::vector<std::string>& arguments) {
  if (!asked.page.empty()) require_own_kind("--page", asked.page, run_view::page_kind);
  const TrainOptions given = task.options();
  const std::vector<int> counts = asked.devices.empty() ? std::vector<int>{0} : device_counts(asked.devices);
  if (counts[0] > 0 && !flags.given("global-batch"))
    fail(ExitCode::usage, "plan",
         "--devices {} compares meshes that do the same work; expected --global-batch N; give it, or drop --devices",
         asked.devices);
  const auto meshes_of = [&](int devices) {
    if (devices == 0) return std::vector<MeshShape>();
    return meshes_with(flags.given("mesh").value_or(""), devices, static_cast<int>(task.experts().count));
  };
  if (counts.size() > 1 || asked.vary) return compare(task, flags, asked, given, counts, meshes_of);
  plan::Answer a = answer(task, flags, asked, given, meshes_of(counts[0]));
  if (counts[0] > 0) a.question.command = training_command(arguments, asked);
  const auto look_further = [&] {
    if (a.found.smallest)
      a.would_fit = what_would_fit(task, asked, given, std::max(counts[0], given.mesh.shape.ranks()));
  };
  if (asked.json) {
    look_further();
    fmt::print("{}", plan::to_json(a));
  } else {
    fmt::print("{}", plan::to_text(a));
    std::fflush(stdout);  // to look further may take a minute
    look_further();
    if (a.would_fit) fmt::print("{}", plan::would_fit_text(*a.would_fit));
  }
  if (a.found.choices.empty()) return 1;
  if (asked.explain) fmt::print("{}", plan::explain(a.question, a.found.choices.front()));
  if (!asked.page.empty()) write_page(task, asked, a);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return run_program([&] {
    const std::unique_ptr<Task> task = chosen_task(argc, argv);
    PlanOptions asked;
    Flags flags("plan", "Predicts memory and time of a training step, and finds the best mesh.");
    flags.example(
        "plan --machine examples/machines/h100_sxm_ndr.json --devices 32 --model gpt2-1.5b --dtype bf16 --global-batch "
        "512");
    declare_task_choice(flags, asked.task);
    flags.group("plan");
    flags.add("machine", "FILE", asked.machine, "the machine, as a file of its figures; empty: this one, measured");
    const auto there = [&asked] { return !asked.machine.empty(); };
    const auto for_machine = [&] { flags.only_with("machine", "FILE", there); };
    flags.add("devices", "N[,N..]", asked.devices,
              "find the fastest mesh, micro-batch, ZeRO stage, recomputation and schedule on N devices, but for those "
              "given (--mesh tp=8: meshes with this axis); several: how training scales; empty: plan for --mesh");
    for_machine();
    flags.add_choice("scaling", asked.scaling, {"strong", "weak"},
                     "with several --devices: all have the same --global-batch, or one that grows with them from that "
                     "of the first");
    for_machine();
    const auto scales = [&asked] { return asked.devices.find(',') != std::string::npos; };
    flags.only_with("devices", "several numbers", scales);
    flags.add_choice("vary", asked.vary,
                     {{"none", std::nullopt},
                      {"dp", Axis::dp},
                      {"tp", Axis::tp},
                      {"pp", Axis::pp},
                      {"cp", Axis::cp},
                      {"ep", Axis::ep}},
                     "find the fastest for each size of an axis of the mesh, and what makes the others slower");
    for_machine();
    flags.only_with("devices", "one number", [&] { return !asked.devices.empty() && !scales(); });
    flags.add("tokens", "N", asked.tokens,
              "tokens, or other targets, to train on, as 300B or 2T: also says days, cost, energy and interruptions");
    for_machine();
    const auto for_one_answer = [&] {
      flags.only_with("devices", "one number", [&] { return !scales(); });
      flags.only_with("vary", "none", [&asked] { return !asked.vary; });
    };
    flags.add("show", "N", asked.shown, "how many of the fastest to print", Range::count());
    for_machine();
    for_one_answer();
    flags.add_switch("explain", asked.explain, "also go from FLOPs to the time of a step, in words and numbers", true);
    for_machine();
    flags.only_with("json", "off", [&asked] { return !asked.json; });
    for_one_answer();
    flags.add_switch("json", asked.json, "print JSON", true);
    for_machine();
    flags.add("page", "FILE", asked.page,
              "also write an HTML page: the step and its memory drawn; with --devices also memory against time of all "
              "settings that were simulated");
    for_one_answer();
    task->declare_model(flags);
    task->declare_parity_data(flags);
    TrainOptions& options = task->options();
    declare_batch(flags, options.batch);
    declare_mesh(flags, options.mesh);
    declare_precision(flags, options.precision);
    declare_optimizer(flags, options.optimizer);
    if (!flags.parse_or_print(argc, argv)) return 0;
    if (!asked.devices.empty()) options.mesh.axes = without_ep(options.mesh.axes);
    resolve(options, there() ? parse_mesh(options.mesh.axes, 0).ranks() : 0);
    flags.refuse_unused();
    task->prepare_parity();
    for (const int count : asked.devices.empty() ? std::vector<int>() : device_counts(asked.devices))
      meshes_with(flags.given("mesh").value_or(""), count, static_cast<int>(task->experts().count));  // throws
    // --dp-shard has to divide dp x cp, which is known of each mesh that the search tries, and not before.
    if (!asked.devices.empty()) asked.dp_shard = std::exchange(options.mesh.dp_shard, {});
    task->validate();
    if (!there()) return plan_here(*task, asked.page);
    return plan_there(*task, flags, asked, {argv + 1, argv + argc});
  });
}
