#include "ops/plan/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "train/program/units.h"

namespace trireme::plan {
namespace {

using nlohmann::ordered_json;

double global_batch(const Choice& choice) { return static_cast<double>(choice.options.batch_sizes().global_batch); }
int devices(const Choice& choice) { return choice.options.mesh.shape.ranks(); }

double targets_per_second(const Question& question, const Choice& choice) {
  return global_batch(choice) * static_cast<double>(question.targets) / choice.prediction.seconds;
}

/// The share of the devices' peak that the model's own FLOPs need (Chowdhery et al. 2022, "PaLM", appendix B).
double model_flops_utilization(const Question& question, const Choice& choice) {
  const Cluster::DeviceFigures& device = question.cluster.device;
  const double peak = choice.options.precision.dtype == DType::f32 ? device.f32_flops : device.bf16_flops;
  return question.model.flops * global_batch(choice) / choice.prediction.seconds / (peak * devices(choice));
}

std::string seconds_text(double seconds) {
  return seconds < 1 ? fmt::format("{:.1f} ms", 1e3 * seconds) : fmt::format("{:.2f} s", seconds);
}

double need(const Choice& choice) { return static_cast<double>(choice.prediction.most_memory().peak); }

std::string line(const Question& question, const Choice& choice) {
  return fmt::format("{:>9}  {:>8} {}  MFU {:4.1f} %  {:>9} of {} a rank  {}\n",
                     seconds_text(choice.prediction.seconds), format_count(targets_per_second(question, choice)),
                     question.per_second, 100 * model_flops_utilization(question, choice), format_bytes(need(choice)),
                     format_bytes(question.cluster.device.usable_memory()), settings_text(choice.options));
}

std::string heading(const Question& question) {
  return fmt::format("{}; {} parameters in {}; a sample: {} {}, {}FLOP\n", question.cluster.name,
                     format_count(static_cast<double>(question.model.parameters)), name(question.dtype),
                     question.targets, question.target_name, format_count(question.model.flops));
}

std::string whole_training(const Question& question, const Choice& choice) {
  const Outlook o = outlook(question, choice);
  const Operation& figures = question.cluster.operation;
  std::string text =
      fmt::format("\n{} {}: {} on {} devices, {} device hours", format_count(question.train_on), question.target_name,
                  format_duration(o.seconds), devices(choice), format_count(o.device_hours));
  if (o.dollars > 0) text += fmt::format(", {} dollars", format_count(o.dollars));
  if (o.joules > 0) text += fmt::format(", {:.1f} MWh", o.joules / 3.6e9);
  text += '\n';
  if (o.save_every > 0)
    text += fmt::format(
        "  {:.2g} interruptions expected, each with a restart of {:.3g} minutes; a save of {} takes {}: save every {}. "
        "Saves, restarts and lost steps take {}\n",
        o.interruptions, figures.restart_minutes, format_bytes(static_cast<double>(question.model.state())),
        format_elapsed(o.save_seconds), format_duration(o.save_every),
        format_duration(o.seconds - o.undisturbed_seconds));
  else if (figures.failures_per_device_year == 0)
    text += "  the machine file has no \"failures_per_device_year\", so none are counted\n";
  if (figures.dollars_per_device_hour == 0)
    text += "  the machine file has no \"dollars_per_device_hour\", so money is not counted\n";
  return text;
}

std::string nothing_fits(const Question& question, const Search& search) {
  if (search.smallest) {
    const auto& [options, bytes] = *search.smallest;
    const double most = question.cluster.device.usable_memory(), needs = static_cast<double>(bytes);
    return fmt::format("nothing fits into {}: the least, {} too much, is that of {}\n", format_bytes(most),
                       format_bytes(needs - most), settings_text(options));
  }
  const auto& [options, reason] = search.impossible.front();
  return fmt::format("nothing is possible; {}: {}\n", settings_text(options), reason);
}

ordered_json json_of(const Question& question, const Choice& choice) {
  const Prediction& p = choice.prediction;
  ordered_json parts_json, kernels, memory;
  for (const auto& [name, seconds] : parts(p)) parts_json[name] = seconds;
  for (const auto& [name, seconds] : busiest(p).kernels) kernels[name] = seconds;
  const RankMemory& most = p.most_memory();
  for (int c = 0; c < memory_categories; ++c)
    memory[std::string(name(static_cast<MemoryCategory>(c)))] = most.at_peak[static_cast<std::size_t>(c)];
  ordered_json result = {{"mesh", to_string(choice.options.mesh.shape)},
                         {"pipeline", choice.options.mesh.pipeline},
                         {"zero", choice.options.mesh.zero},
                         {"dp_shard", choice.options.mesh.dp_shard.value_or(0)},
                         {"recompute", choice.options.precision.recompute},
                         {"micro_batch", choice.options.batch_sizes().micro_batch},
                         {"global_batch", choice.options.batch_sizes().global_batch},
                         {"step_seconds", p.seconds},
                         {"targets_per_second", targets_per_second(question, choice)},
                         {"mfu", model_flops_utilization(question, choice)},
                         {"flops", p.flops},
                         {"parts_seconds", parts_json},
                         {"kernels_seconds", kernels},
                         {"memory_bytes", most.peak},
                         {"memory_at_peak", memory}};
  if (question.train_on > 0) {
    const Outlook o = outlook(question, choice);
    result["training"] = {{"seconds", o.seconds},
                          {"seconds_without_interruptions", o.undisturbed_seconds},
                          {"interruptions", o.interruptions},
                          {"save_seconds", o.save_seconds},
                          {"save_every_seconds", o.save_every},
                          {"device_hours", o.device_hours}};
    if (o.dollars > 0) result["training"]["dollars"] = o.dollars;  // else the machine file does not say
    if (o.joules > 0) result["training"]["joules"] = o.joules;
  }
  return result;
}

ordered_json json_of(const Answer& answer) {
  const auto& [question, search, would_fit] = answer;
  ordered_json result = {{"machine", question.cluster.name},
                         {"parameters", question.model.parameters},
                         {"flops_per_sample", question.model.flops},
                         {"targets_per_sample", question.targets},
                         {"dtype", name(question.dtype)},
                         {"usable_memory_bytes", question.cluster.device.usable_memory()},
                         {"state_bytes", question.model.state()},
                         {"possible", search.possible},
                         {"simulated", search.predicted},
                         {"impossible", search.impossible.size()},
                         {"choices", ordered_json::array()}};
  for (const Choice& choice : search.choices) result["choices"].push_back(json_of(question, choice));
  if (search.smallest)  // nothing fits
    result["smallest"] = {{"flags", settings_text(search.smallest->first)}, {"memory_bytes", search.smallest->second}};
  if (would_fit)
    result["would_fit"] = {{"devices", would_fit->mesh.shape.ranks()}, {"flags", settings_text(*would_fit)}};
  return result;
}

}  // namespace

std::string settings_text(const TrainOptions& options) {
  std::string text = "--mesh " + options.mesh.axes;
  if (options.mesh.shape.size(Axis::pp) > 1) text += " --pipeline " + options.mesh.pipeline;
  text += fmt::format(" --micro-batch {}", options.batch.micro_batch.value_or(1));
  if (options.mesh.shape.size(Axis::data) > 1 || options.mesh.zero > 0)
    text += fmt::format(" --zero {}", options.mesh.zero);
  if (options.mesh.dp_shard) text += fmt::format(" --dp-shard {}", *options.mesh.dp_shard);
  return text + " --recompute " + options.precision.recompute;
}

std::string parts_text(const Prediction& prediction) {
  std::string text;
  for (const auto& [name, seconds] : parts(prediction)) {
    const double percent = 100 * seconds / prediction.seconds;
    if (percent >= 0.5) text += fmt::format("{}{} {:.0f} %", text.empty() ? "" : ", ", name, percent);
  }
  return text;
}

std::string why_slower(const Prediction& best, const Prediction& other) {
  std::map<std::string, double> more;
  for (const auto& [name, seconds] : parts(other)) more[name] += seconds;
  for (const auto& [name, seconds] : parts(best)) more[name] -= seconds;
  std::vector<std::pair<double, std::string>> sorted;
  for (const auto& [name, seconds] : more) sorted.emplace_back(100 * seconds / best.seconds, name);
  std::sort(sorted.rbegin(), sorted.rend());
  std::string text;
  for (const auto& [percent, name] : sorted)
    if (percent >= 0.5) text += fmt::format("{}{} +{:.0f} %", text.empty() ? "" : ", ", name, percent);
  return text;
}

Outlook outlook(const Question& question, const Choice& choice) {
  const double per_step = global_batch(choice) * static_cast<double>(question.targets);
  const int per_node = question.cluster.links.ranks_per_node;
  return outlook(Job{.steps = std::ceil(question.train_on / per_step),
                     .seconds_per_step = choice.prediction.seconds,
                     .devices = devices(choice),
                     .nodes = (devices(choice) + per_node - 1) / per_node,
                     .checkpoint_bytes = static_cast<double>(question.model.state())},
                 question.cluster.operation);
}

std::string to_text(const Answer& answer) {
  const auto& [question, search, would_fit] = answer;
  std::string text = heading(question);
  for (const Choice& choice : search.choices) {
    text += line(question, choice) + "           " + parts_text(choice.prediction) + "\n";
    const Prediction& best = search.choices.front().prediction;
    const std::string reason = why_slower(best, choice.prediction);
    if (!reason.empty())
      text += fmt::format("           {:.1f} % slower than the first: {}\n",
                          100 * (choice.prediction.seconds / best.seconds - 1), reason);
  }
  text += fmt::format("possible settings: {}, of which {} were simulated; impossible: {}\n", search.possible,
                      search.predicted, search.impossible.size());
  if (search.choices.empty()) return text + nothing_fits(question, search);
  const Choice& best = search.choices.front();
  text += "memory: " + to_string(best.prediction.most_memory()) + "\n";
  text +=
      "these are times of kernels like ours: published trainings of other programs took, by table, 1.1 to 1.6 times as "
      "long (docs/planner.md)\n";
  if (question.train_on > 0) text += whole_training(question, best);
  if (!question.command.empty())
    text += fmt::format("\nmpirun -n {} {} {}\n", devices(best), question.command, settings_text(best.options));
  return text;
}

std::string would_fit_text(const TrainOptions& options) {
  return fmt::format("it would fit on {} devices: {}\n", options.mesh.shape.ranks(), settings_text(options));
}

std::string to_json(const Answer& answer) { return json_of(answer).dump(2) + "\n"; }

std::string to_text(const std::vector<Variant>& variants) {
  std::string text = heading(variants[0].answer.question);
  const Choice *smallest = nullptr, *fastest = nullptr;
  for (const Variant& variant : variants)
    for (const Choice& choice : variant.answer.found.choices) {
      if (smallest == nullptr) smallest = &choice;
      if (fastest == nullptr || choice.prediction.seconds < fastest->prediction.seconds) fastest = &choice;
    }
  bool says_impossible = false;  // once, as larger sizes are impossible for the same reason
  for (const auto& [varied, size, answer] : variants) {
    const auto& [question, search, would_fit] = answer;
    const bool is_axis = varied != "devices";
    if (is_axis && search.possible == 0 && std::exchange(says_impossible, true)) continue;
    text += is_axis ? fmt::format("{}={:<5}", varied, size) : fmt::format("{:>7}", size);
    if (search.choices.empty()) {
      text += "  " + nothing_fits(question, search);
      continue;
    }
    const Choice& best = search.choices.front();
    if (!is_axis)
      text += fmt::format("  {:>5.1f} % of the first's speed a device  global batch {:<6}",
                          100 * targets_per_second(question, best) / devices(best) /
                              (targets_per_second(question, *smallest) / devices(*smallest)),
                          static_cast<std::int64_t>(global_batch(best)));
    text += line(question, best) + fmt::format("{:9}{}", "", parts_text(best.prediction));
    if (is_axis && &best != fastest)
      text += fmt::format("\n{:9}{:.1f} % slower than the fastest: {}", "",
                          100 * (best.prediction.seconds / fastest->prediction.seconds - 1),
                          why_slower(fastest->prediction, best.prediction));
    if (question.train_on > 0)
      text += fmt::format("; {} {}: {}", format_count(question.train_on), question.target_name,
                          format_duration(outlook(question, best).seconds));
    text += '\n';
  }
  return text;
}

std::string to_json(const std::vector<Variant>& variants) {
  ordered_json list = ordered_json::array();
  for (const Variant& variant : variants) {
    list.push_back({{variant.varied, variant.size}});
    list.back().update(json_of(variant.answer));
  }
  return list.dump(2) + "\n";
}

}  // namespace trireme::plan
