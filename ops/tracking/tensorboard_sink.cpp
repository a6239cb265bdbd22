#include "ops/tracking/tensorboard_sink.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <string_view>

#include "core/error.h"
#include "ops/tracking/tensorboard_records.h"
#include "train/program/screen.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view name_begin = "events.out.tfevents.";

/// The tag of a key of metrics.jsonl. The part before the slash is the group in which TensorBoard shows the curve.
std::string tag_of(std::string_view key) {
  if (key == "loss") return "loss/training";
  if (key == "lr" || key == "grad_norm" || key == "loss_scale" || key == "skipped")
    return fmt::format("optimizer/{}", key);
  if (key == "tokens_per_s" || key == "step_ms") return fmt::format("speed/{}", key);
  if (key == "aux_loss" || key == "z_loss" || key == "expert_imbalance") return fmt::format("experts/{}", key);
  if (key == "peak_bytes") return "memory/peak_bytes";
  if (key.ends_with("_ms")) return fmt::format("phases/{}", key);
  return fmt::format("progress/{}", key);
}

double wall_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string host_name() {
  std::array<char, 256> host{};
  return ::gethostname(host.data(), host.size() - 1) == 0 && host[0] != '\0' ? host.data() : "host";
}

/// A name that sorts after those in `folder`: TensorBoard reads the files in this order. A number of seconds has ten
/// digits until the year 2286.
std::string next_name(const fs::path& folder) {
  auto second = static_cast<std::int64_t>(wall_time());
  for (const std::string& name : list_folder(folder)) {
    std::int64_t earlier = 0;
    if (!name.starts_with(name_begin)) continue;
    std::from_chars(name.data() + name_begin.size(), name.data() + name.size(), earlier);
    second = std::max(second, earlier + 1);
  }
  return fmt::format("{}{:010}.{}", name_begin, second, host_name());
}

void tell(const std::string& text) { Screen::of_process().warning(text); }

}  // namespace

TensorboardSink::~TensorboardSink() {
  if (!waiting_.empty()) tell(fmt::format("{} bytes for {} were never written", waiting_.size(), folder_.string()));
}

void TensorboardSink::receive(const Event& event) {
  using namespace tensorboard;
  std::visit(Match{[this](const RunBegan& run) { begin(run); },
                   [this](const StepLogged& logged) {
                     Scalars scalars;
                     for_each_value(logged.record, [&scalars](std::string_view key, auto value) {
                       if (key != "step" && key != "val_loss")
                         scalars.emplace_back(tag_of(key), static_cast<double>(value));
                     });
                     write(scalars_record({wall_time(), logged.record.step}, scalars));
                   },
                   [this](const Validated& v) {
                     write(scalars_record({wall_time(), v.step}, {{"loss/validation", v.loss}}));
                   },
                   [this](const Sampled& s) {
                     write(text_record({wall_time(), s.step}, "sample", verbatim(s.text)));
                   },
                   [this](const RolledBack& back) {
                     write(restart_record({wall_time(), back.step + 1}));
                   },
                   [](const auto&) {}},
             event);
}

void TensorboardSink::begin(const RunBegan& run) {
  if (run.out.empty()) return;
  folder_ = fs::path(run.out) / folder_name;
  const double time = wall_time();
  // A run that begins from another run's checkpoint keeps the point of its first validation, at that step.
  const std::int64_t first = run.first_step == 0 ? 0 : run.first_step + 1;
  open_file();
  write(tensorboard::restart_record({time, first}) +
        tensorboard::text_record({time, run.first_step}, "configuration", tensorboard::verbatim(run.config)));
}

void TensorboardSink::open_file() {
  file_.reset();
  try {
    make_directories(folder_);
    file_ = std::make_unique<AppendFile>(folder_ / next_name(folder_));
    waiting_ = tensorboard::version_record(wall_time()) + waiting_;
  } catch (const Error& error) { tell(fmt::format("{}; training goes on without TensorBoard", error.reason())); }
}

void TensorboardSink::write(const std::string& records) {
  if (!file_) return;
  if (!file_->still_there()) {
    tell(
        fmt::format("a file for TensorBoard was removed from {}; training goes on, with a new file", folder_.string()));
    open_file();
    if (!file_) return;
  }
  waiting_ += records;
  try {
    file_->record(waiting_);
    waiting_.clear();
  } catch (const Error& error) {
    if (!waits_) tell(fmt::format("{}; training goes on, and what is for TensorBoard waits for room", error.reason()));
  }
  waits_ = !waiting_.empty();
}

void TensorboardTracker::declare(Flags& flags) {
  flags.add_switch("tensorboard", on_, "write event files for TensorBoard, in OUT/tensorboard");
}

void TensorboardTracker::validate(const RunOptions& run) const {
  if (on_ && !run.keeps_files())
    fail(
        ExitCode::usage, "tensorboard",
        "--tensorboard on writes into the folder of --out, which is none; expected --out DIR or auto; change --out, or "
        "drop --tensorboard");
}

void TensorboardTracker::add_sink(EventStream& events) {
  if (on_) events.add(std::make_unique<TensorboardSink>());
}

}  // namespace trireme
