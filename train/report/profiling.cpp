#include "train/report/profiling.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "core/cores.h"
#include "core/hash.h"
#include "core/io.h"
#include "core/parallel_for.h"
#include "parallel/comm/texts.h"
#include "parallel/comm/values.h"
#include "train/program/screen.h"
#include "train/program/text_width.h"
#include "train/report/report.h"

namespace trireme {
namespace {

constexpr std::size_t most_rows = 30;

struct Row {
  std::string name;
  std::int64_t calls = 0;
  double seconds = 0, flops = 0, bytes = 0;
  double bf16_flops = 0;  // included in flops

  void add(const ProfileEvent& event) {
    ++calls;
    seconds += event.seconds;
    flops += event.cost.flops;
    bytes += event.cost.bytes;
    if (event.cost.dtype == DType::bf16) bf16_flops += event.cost.flops;
  }
  void add(const Row& row) {
    calls += row.calls;
    seconds += row.seconds;
    flops += row.flops;
    bytes += row.bytes;
    bf16_flops += row.bf16_flops;
  }
  /// The least time in seconds that the machine needs: the roofline.
  double least(const MachineSpeed& machine) const {
    const double arithmetic = (flops - bf16_flops) / machine.flops + bf16_flops / machine.flops_of(DType::bf16);
    return std::max(arithmetic, bytes / machine.bytes);
  }
};

/// Kernels by name and shapes, longest first.
std::vector<Row> kernel_rows(const std::vector<ProfileEvent>& events) {
  std::map<std::string, Row> by_name;
  for (const ProfileEvent& event : events) {
    if (std::string_view(event.category) != "kernel") continue;
    Row& row = by_name[event.name + " " + event.detail];
    row.name = event.name + " " + event.detail;
    row.add(event);
  }
  std::vector<Row> rows;
  rows.reserve(by_name.size());
  for (auto& [name, row] : by_name) rows.push_back(std::move(row));
  std::sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) { return a.seconds > b.seconds; });
  if (rows.size() > most_rows) {
    Row rest{.name = fmt::format("{} smaller ones", rows.size() - most_rows)};
    for (std::size_t i = most_rows; i < rows.size(); ++i) rest.add(rows[i]);
    rows.resize(most_rows);
    rows.push_back(std::move(rest));
  }
  return rows;
}

/// Seconds in events of `category` on the rank's own thread. Events nested in another event of that category count
/// once.
double outermost_seconds(const std::vector<ProfileEvent>& events, std::string_view category) {
  std::vector<const ProfileEvent*> found;
  for (const ProfileEvent& event : events)
    if (event.category == category && event.lane == 0) found.push_back(&event);
  std::sort(found.begin(), found.end(), [](const auto* a, const auto* b) { return a->begin < b->begin; });
  double seconds = 0, end = 0;
  for (const ProfileEvent* event : found) {
    if (event->begin < end) continue;
    seconds += event->seconds;
    end = event->begin + event->seconds;
  }
  return seconds;
}

/// The columns of the table of kernels, for a line of `columns`; 0: any width. A narrow line leaves out the rates, and
/// a narrower one also the share of the roofline, so that names stay long enough to tell kernels apart.
class TableColumns {
 public:
  TableColumns(const std::optional<MachineSpeed>& machine, int columns) {
    constexpr int longest_name = 58, good_name = 40, shortest_name = 12;
    constexpr int times_width = 25, rates_width = 17, roofline_width = 14;
    const auto fits = [columns](int others) { return columns == 0 || columns - others >= good_name; };
    int others = times_width;
    roofline_ = machine && fits(others + roofline_width);
    if (roofline_) others += roofline_width;
    rates_ = fits(others + rates_width);
    if (rates_) others += rates_width;
    name_width_ = columns == 0 ? longest_name : std::clamp(columns - others, shortest_name, longest_name);
  }
  bool roofline() const { return roofline_; }

  std::string line(const std::string& name, const std::string& calls, const std::string& ms, const std::string& share,
                   const std::string& rates, const std::string& of_roofline) const {
    return fmt::format("{} {:>7} {:>9} {:>6}{}{}\n",
                       padded_to_columns(shortened_to_columns(name, name_width_), name_width_), calls, ms, share,
                       rates_ ? rates : "", roofline_ ? of_roofline : "");
  }
  static std::string rates(const std::string& flops, const std::string& bytes) {
    return fmt::format(" {:>8} {:>7}", flops, bytes);
  }

 private:
  bool rates_ = false, roofline_ = false;
  int name_width_ = 0;
};

std::string roofline_text(const MachineSpeed& machine) {
  return fmt::format(
      "roofline: this rank's threads compute at most {:.0f} GFLOP/s in f32{} and copy {:.1f} GB/s, measured just "
      "now; a kernel whose data is still in a cache may exceed it\n",
      machine.flops * 1e-9, machine.bf16_flops > 0 ? fmt::format(", {:.0f} in bf16", machine.bf16_flops * 1e-9) : "",
      machine.bytes * 1e-9);
}

std::string lane_name(int lane) { return lane == 0 ? "computation" : "communication"; }

std::string this_host() {
  std::array<char, 256> host{};
  return ::gethostname(host.data(), host.size() - 1) == 0 ? host.data() : "";
}

/// With a precision of nanoseconds.
double microseconds(double seconds) { return std::round(seconds * 1e9) / 1e3; }

nlohmann::ordered_json event_line(const ProfileEvent& event, int rank) {
  nlohmann::ordered_json line = {{"name", event.name},
                                 {"cat", event.category},
                                 {"ph", "X"},
                                 {"pid", rank},
                                 {"tid", event.lane},
                                 {"ts", microseconds(event.begin)},
                                 {"dur", microseconds(event.seconds)}};
  if (!event.detail.empty()) line["args"]["of"] = event.detail;
  if (event.cost.flops > 0) line["args"]["GFLOP/s"] = event.cost.flops / event.seconds * 1e-9;
  if (event.cost.bytes > 0) line["args"]["GB/s"] = event.cost.bytes / event.seconds * 1e-9;
  if (!event.transfer) return line;
  const ProfileTransfer& transfer = *event.transfer;
  line["args"]["group"] = transfer.group;
  line["args"]["bytes"] = transfer.bytes;
  if (!transfer.site.empty()) line["args"]["site"] = transfer.site;
  if (transfer.peer < 0) {
    line["args"]["number"] = transfer.number;
  } else {
    line["args"]["peer"] = transfer.peer;
    line["args"]["tag"] = transfer.tag;
  }
  return line;
}

/// A counter: the viewers draw it as an area by category.
nlohmann::ordered_json memory_line(const MemorySample& sample, int rank) {
  nlohmann::ordered_json line = {{"name", "memory"}, {"ph", "C"}, {"pid", rank}, {"ts", microseconds(sample.seconds)}};
  for (std::size_t c = 0; c < sample.bytes.size(); ++c)
    line["args"][std::string(name(static_cast<MemoryCategory>(c)))] = sample.bytes[c];
  return line;
}

/// One rank's clock when it left a barrier, in nanoseconds, for all ranks of its host.
Profiler::Clock::time_point common_origin(ProcessGroup& world) {
  const std::vector<std::string> hosts = all_gather_texts(world, this_host());
  world.barrier();
  using std::chrono::nanoseconds;
  const std::int64_t now = std::chrono::duration_cast<nanoseconds>(Profiler::Clock::now().time_since_epoch()).count();
  const std::vector<std::int64_t> all = all_gather_values(world, now);
  const auto first = std::ranges::find(hosts, hosts[static_cast<std::size_t>(world.rank())]) - hosts.begin();
  return Profiler::Clock::time_point(nanoseconds(all[static_cast<std::size_t>(first)]));
}

/// The weights of the stages of the first rank along all other axes, as a list; elsewhere empty.
std::string parameter_list(const ParameterList& parameters, const DeviceMesh& mesh) {
  if (mesh.coord(Axis::data) != 0 || mesh.coord(Axis::tp) != 0) return "";
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const ParameterPtr& parameter : parameters) {
    nlohmann::ordered_json one = {{"name", parameter->name}, {"pp", mesh.coord(Axis::pp)}};
    for (const std::int64_t extent : parameter->global_shape) one["shape"].push_back(extent);
    for (const Axis axis : {Axis::tp, Axis::ep, Axis::edp})
      one[std::string(name(axis))] = to_string(parameter->placements.on(axis));
    list.push_back(std::move(one));
  }
  return list.dump();
}

}  // namespace

std::string trace_events(const RankTrace& trace) {
  using nlohmann::ordered_json;
  const int rank = trace.rank;
  std::vector<std::string> lines = {
      ordered_json{{"name", "process_name"}, {"ph", "M"}, {"pid", rank}, {"args", {{"name", trace.where}}}}.dump()};
  if (!trace.host.empty())
    lines.push_back(
        ordered_json{{"name", "process_labels"}, {"ph", "M"}, {"pid", rank}, {"args", {{"labels", trace.host}}}}
            .dump());
  int lanes = 0;
  for (const ProfileEvent& event : trace.events) lanes = std::max(lanes, event.lane);
  for (int lane = 0; lane <= lanes; ++lane)
    lines.push_back(ordered_json{
        {"name", "thread_name"}, {"ph", "M"}, {"pid", rank}, {"tid", lane}, {"args", {{"name", lane_name(lane)}}}}
                        .dump());
  for (const ProfileEvent& event : trace.events) lines.push_back(event_line(event, rank).dump());
  for (const MemorySample& sample : trace.memory) lines.push_back(memory_line(sample, rank).dump());
  return fmt::format("{}", fmt::join(lines, ",\n"));
}

std::string kernel_table(const std::vector<ProfileEvent>& events, double wall, std::int64_t steps,
                         const std::optional<MachineSpeed>& machine, int columns) {
  const TableColumns table(machine, columns);
  const auto per_step = [&](double seconds) {
    return fmt::format("{:.2f}", seconds * 1e3 / static_cast<double>(std::max<std::int64_t>(1, steps)));
  };
  const auto share = [&](double seconds) { return fmt::format("{:.1f}%", 100 * seconds / wall); };
  const auto billions = [](double value) { return value > 0 ? fmt::format("{:.1f}", value * 1e-9) : std::string("-"); };
  std::string text =
      table.line("kernel", "calls", "ms/step", "share", TableColumns::rates("GFLOP/s", "GB/s"), "  of roofline");
  double kernels = 0;
  for (const Row& row : kernel_rows(events)) {
    const bool known = machine && row.bytes > 0;
    text += table.line(row.name, std::to_string(row.calls), per_step(row.seconds), share(row.seconds),
                       TableColumns::rates(billions(row.flops / row.seconds), billions(row.bytes / row.seconds)),
                       known ? fmt::format("  {:>10.0f}%", 100 * row.least(*machine) / row.seconds) : "");
    kernels += row.seconds;
  }
  const double collectives = outermost_seconds(events, "collective");
  const auto sum = [&](const char* name, double seconds) {
    return table.line(name, "", per_step(seconds), share(seconds), "", "");
  };
  text += sum("all kernels", kernels);
  if (collectives > 0) text += sum("waiting for other ranks", collectives);
  text += sum("everything else", std::max(0.0, wall - kernels - collectives));
  return table.roofline() ? text + roofline_text(*machine) : text;
}

std::string device_work_line(const DeviceWork& work, std::int64_t steps) {
  const double count = static_cast<double>(std::max<std::int64_t>(1, steps));
  const auto each = [&](std::uint64_t total) {
    const double mean = static_cast<double>(total) / count;  // whole, unless steps differ
    return mean == std::floor(mean) ? thousands(static_cast<std::int64_t>(mean)) : fmt::format("{:.1f}", mean);
  };
  return fmt::format("per step: {} launches, {} copies, {} allocations on the device; waits for the device: {}",
                     each(work.launches), each(work.copies), each(work.allocations), each(work.waits));
}

Profiling::Profiling(const TrainOptions& options, const DeviceMesh& mesh)
    : mesh_(mesh),
      options_(options),
      path_(options.run.profile),
      steps_(options.run.profile_steps),
      device_(options.precision.tensor_device()) {
  if (path_.empty()) return;
  if (options.precision.tensor_device() == Device::cpu)
    machine_ = measure_machine_speed(threads(), options.precision.dtype);
  profiler_ = std::make_shared<Profiler>();
  profiler_->watch_memory(device_);
  Profiler::set_current(profiler_);
}

Profiling::~Profiling() {
  if (profiler_ != nullptr) Profiler::set_current(nullptr);
}

void Profiling::describe(ParameterList parameters, std::int64_t first_step) {
  parameters_ = std::move(parameters);
  first_step_ = first_step;
}

void Profiling::before_step(std::int64_t made) {
  made_ = made;
  if (profiler_ == nullptr) return;
  if (made == warm_up) start();
  if (began_ >= 0 && made == began_ + steps_) stop(steps_);
  if (began_ < 0) return;
  profiler_->resume();
  before_ = device_work();
  step_began_ = Profiler::Clock::now();
}

void Profiling::after_step() {
  if (began_ < 0) return;
  profiler_->add({.category = "step", .name = fmt::format("step {}", first_step_ + made_ + 1), .detail = {}},
                 step_began_);
  profiler_->stop();
  work_ += device_work() - before_;
}

void Profiling::start() {
  profiler_->start(common_origin(mesh_.world()));
  began_ = made_;
}

void Profiling::stop(std::int64_t steps) {
  profiler_->stop();
  recorded_ = true;
  const std::vector<ProfileEvent> events = profiler_->events();
  const std::vector<std::string> ranks = gather_texts(
      mesh_.world(), trace_events({mesh_.rank(), mesh_.where(), this_host(), events, profiler_->memory()}));
  std::vector<std::string> parameters = gather_texts(mesh_.world(), parameter_list(parameters_, mesh_));
  std::erase(parameters, "");
  if (mesh_.rank() == 0) {
    write_file(path_, fmt::format("{}\"ms\", \"otherData\": {},\n\"parameters\": [{}],\n\"traceEvents\": [\n{}\n]}}\n",
                                  trace_beginning, facts(), fmt::join(parameters, ",\n"), fmt::join(ranks, ",\n")));
    table_ = fmt::format(
        "{} steps of rank 0\n{}{}trace of all ranks: {}; chrome://tracing and ui.perfetto.dev show it\n", steps,
        kernel_table(events, profiler_->seconds(), steps, machine_, Screen::of_process().line_columns()),
        device_ == Device::cpu ? "" : device_work_line(work_, steps) + "\n", path_);
  }
  began_ = -1;
}

/// What a viewer needs to know of the run.
std::string Profiling::facts() const {
  const MeshOptions& mesh = options_.mesh;
  return nlohmann::ordered_json{{"configuration", fmt::format("{:016x}", hash_bytes(options_.run.config))},
                                {"mesh", to_string(mesh_.shape())},
                                {"pipeline", mesh.pipeline},
                                {"micro-batches", options_.batch_sizes().micro_batches},
                                {"zero", mesh.zero},
                                {"sequence-parallel", mesh.parallelism().sequence},
                                {"device", options_.precision.device},
                                {"threads", threads()},
                                {"cores", usable_cores().size()},
                                {"processes", mesh.processes}}
      .dump();
}

std::optional<std::string> Profiling::finish() {
  if (began_ >= 0) stop(made_ + 1 - began_);
  // Too few steps: a resumed run near its end, or one that a signal has ended.
  if (profiler_ != nullptr && !recorded_ && mesh_.rank() == 0)
    table_ = fmt::format(
        "--profile {}: nothing was recorded, as this start made no steps after its first {}; run it for more "
        "steps\n",
        path_, warm_up);
  return std::exchange(table_, std::nullopt);
}

}  // namespace trireme
