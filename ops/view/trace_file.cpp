#include "ops/view/trace_file.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/io.h"
#include "data/json.h"

namespace trireme::run_view {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr int most_ranks = 1 << 14;

class Reader {
 public:
  explicit Reader(const fs::path& path) : path_(path) {}

  TraceFile read(std::string_view text) {
    // The facts come before the events, so an event can be checked when it is met.
    const json rest = parse_json(text, path_, [this](const JsonPlace& place, json& value) {
      if (place.depth == 1 && place.key == "otherData") {
        take_facts(value);
        return true;
      }
      if (place.depth != 2 || place.parent != "traceEvents") return false;
      take_event(value);
      return true;
    });
    if (trace_.ranks.empty() || rest.find("traceEvents") == rest.end()) refuse("no otherData before its traceEvents");
    take_weights(rest);
    for (TraceFile::Rank& rank : trace_.ranks) {
      std::ranges::stable_sort(rank.events, [](const TraceEvent& a, const TraceEvent& b) {
        return a.begin != b.begin ? a.begin < b.begin : a.end > b.end;
      });
      std::ranges::stable_sort(rank.memory, {}, &MemorySample::seconds);
    }
    return std::move(trace_);
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    fail(ExitCode::data, "view", "{}: {}; expected a trace as --profile writes it; make it again with this version",
         path_.string(), what);
  }
  const json* find(const json& object, const char* key) const {
    if (!object.is_object()) refuse(fmt::format("{} instead of an object", shown(object)));
    const auto found = object.find(key);
    return found == object.end() ? nullptr : &*found;
  }
  std::string text(const json& object, const char* key, const char* otherwise = "") const {
    const json* value = find(object, key);
    if (value == nullptr) return otherwise;
    if (!value->is_string()) refuse(fmt::format("'{}' is {}, not a text", key, shown(*value)));
    return value->get<std::string>();
  }
  double number(const json& object, const char* key) const {
    constexpr double most = 1e15;
    const json* value = find(object, key);
    if (value == nullptr) return 0;
    if (!value->is_number() || !(std::abs(value->get<double>()) < most))
      refuse(fmt::format("'{}' is {}, not a number below 1e15", key, shown(*value)));
    return value->get<double>();
  }
  int count(const json& object, const char* key) const {
    constexpr double most = 1 << 30;
    return static_cast<int>(std::clamp(number(object, key), -1.0, most));
  }

  void take_facts(const json& facts) {
    Profile& to = trace_.facts;
    try {
      to.mesh = parse_mesh(text(facts, "mesh"), 0);
    } catch (const Error&) { refuse("no mesh in 'otherData'"); }
    if (to.mesh.ranks() > most_ranks) refuse(fmt::format("more than {} ranks", most_ranks));
    to.pipeline = text(facts, "pipeline");
    to.configuration = text(facts, "configuration");
    to.micro_batches = std::max(count(facts, "micro-batches"), 1);
    to.zero = count(facts, "zero");
    to.threads = count(facts, "threads");
    to.cores = count(facts, "cores");
    to.device = text(facts, "device");
    const json* sequence = find(facts, "sequence-parallel");
    to.sequence_parallel = sequence != nullptr && *sequence == true;
    to.hosts.resize(static_cast<std::size_t>(to.ranks()));
    trace_.ranks.resize(static_cast<std::size_t>(to.ranks()));
  }

  void take_event(const json& event) {
    const int pid = count(event, "pid");
    if (trace_.ranks.empty()) refuse("no otherData before its traceEvents");
    if (pid < 0 || pid >= trace_.facts.ranks())
      refuse(fmt::format("an event of rank {}, and the mesh has {}", pid, trace_.facts.ranks()));
    TraceFile::Rank& rank = trace_.ranks[static_cast<std::size_t>(pid)];
    const std::string phase = text(event, "ph");
    const json* arguments = find(event, "args");
    if (phase == "M" && arguments != nullptr && text(event, "name") == "process_labels")
      trace_.facts.hosts[static_cast<std::size_t>(pid)] = text(*arguments, "labels");
    if (phase == "C" && arguments != nullptr) {
      MemorySample sample{.seconds = number(event, "ts") / 1e6};
      for (std::size_t c = 0; c < sample.bytes.size(); ++c)
        sample.bytes[c] =
            static_cast<std::int64_t>(number(*arguments, std::string(name(static_cast<MemoryCategory>(c))).c_str()));
      rank.memory.push_back(sample);
    }
    if (phase == "X") take_span(event, arguments, rank);
  }

  void take_span(const json& event, const json* arguments, TraceFile::Rank& rank) const {
    TraceEvent& to = rank.events.emplace_back();
    to.name = text(event, "name");
    to.category = text(event, "cat");
    to.lane = count(event, "tid");
    to.begin = number(event, "ts") / 1e6;
    to.end = to.begin + std::max(number(event, "dur"), 0.0) / 1e6;
    if (arguments == nullptr) return;
    to.detail = text(*arguments, "of");
    if (find(*arguments, "group") == nullptr) return;
    ProfileTransfer transfer;
    transfer.group = text(*arguments, "group");
    transfer.site = text(*arguments, "site");
    transfer.bytes = static_cast<std::int64_t>(number(*arguments, "bytes"));
    transfer.number = static_cast<std::uint64_t>(std::max(number(*arguments, "number"), 0.0));
    transfer.peer = find(*arguments, "peer") == nullptr ? -1 : count(*arguments, "peer");
    transfer.tag = count(*arguments, "tag");
    if (transfer.peer >= trace_.facts.ranks()) refuse(fmt::format("a message of rank {}", transfer.peer));
    to.transfer = std::move(transfer);
  }

  void take_weights(const json& rest) {
    const json* stages = find(rest, "parameters");
    if (stages == nullptr || !stages->is_array()) return;
    for (const json& stage : *stages) {
      if (!stage.is_array()) refuse("'parameters' is not a list of lists");
      for (const json& one : stage) {
        Weight weight{.name = text(one, "name"),
                      .pp = count(one, "pp"),
                      .shape = {},
                      .tp = text(one, "tp"),
                      .ep = text(one, "ep"),
                      .edp = text(one, "edp")};
        const json* shape = find(one, "shape");
        for (std::size_t i = 0; shape != nullptr && shape->is_array() && i < shape->size(); ++i) {
          if (!(*shape)[i].is_number_integer()) refuse("a shape that is not of whole numbers");
          weight.shape.push_back((*shape)[i].get<std::int64_t>());
        }
        trace_.facts.weights.push_back(std::move(weight));
      }
    }
  }

  const fs::path& path_;
  TraceFile trace_;
};

}  // namespace

TraceFile read_trace(const fs::path& path) {
  if (!is_there(path))
    fail(ExitCode::usage, "view", "{} is not there; expected a trace that --profile has written; change the path",
         path.string());
  return parse_trace(read_file(path), path);
}

TraceFile parse_trace(std::string_view text, const fs::path& path) { return Reader(path).read(text); }

}  // namespace trireme::run_view
