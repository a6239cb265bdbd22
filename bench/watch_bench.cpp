// Measures the cost of the watchdog for a rank: build/bin/watch_bench [LAYERS WIDTH STEPS]
//
// First the parts, in nanoseconds: a heartbeat, a call site, a phase, an entry in the flight record. Then their number
// in a training step of a GPT (dp=2,tp=2, threads), counted on the ranks' own pages, and the share of the step that
// they take. Times are the least of several tries, so that other programs have little effect.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <limits>
#include <span>
#include <string_view>

#include "core/cpu/level.h"
#include "parallel/comm/call_site.h"
#include "parallel/comm/watch/beacon.h"
#include "parallel/comm/watch/watchdog.h"
#include "train/gpt/gpt_setup.h"
#include "train/program/program.h"
#include "train/step/trainer.h"

using namespace trireme;

namespace {

template <class F>
double nanoseconds(const F& f) {
  constexpr int calls = 20000, tries = 25;
  double least = std::numeric_limits<double>::max();
  for (int i = 0; i < tries; ++i) {
    const auto start = watch::Clock::now();
    for (int call = 0; call < calls; ++call) f();
    least = std::min(least, std::chrono::duration<double, std::nano>(watch::Clock::now() - start).count() / calls);
  }
  return least;
}

struct Parts {
  double heartbeat, site, phase, record;
};

Parts measure_parts() {
  Parts parts{};
  run_thread_ranks(1, 1, ProcessGroup::Deadline(30), [&](const std::shared_ptr<ProcessGroup>&) {
    watch::Record record;
    record.group = watch::FixedText<40>("dp[pp=0,cp=0,tp=0]");
    parts = {.heartbeat = nanoseconds([] { Heartbeat::beat(); }),
             .site = nanoseconds([] { const CallSite site("blocks.3.attn.qkv"); }),
             .phase = nanoseconds([] { const watch::PhaseScope phase(Phase::forward); }),
             .record = nanoseconds([&] { const watch::Recording recording(record); })};
  });
  return parts;
}

constexpr std::int64_t heads = 4;

struct Sizes {
  std::int64_t layers = 4, width = 128, steps = 20;
};

struct Step {
  double milliseconds = 0, heartbeats = 0, records = 0;
};

Step measure_step(const Sizes& sizes) {
  GptOptions o;
  o.model.config = {.layers = sizes.layers, .heads = heads, .width = sizes.width, .context = 64, .vocab = 256};
  o.mesh.axes = "dp=2,tp=2";
  o.batch.micro_batch = 4;
  resolve(o, 0);
  Step found;
  run_thread_ranks(4, 1, ProcessGroup::Deadline(30), [&](const std::shared_ptr<ProcessGroup>& world) {
    const auto mesh = std::make_shared<const DeviceMesh>(world, o.mesh.shape);
    Trainer trainer(make_gpt(o, o.model.config, mesh), o);
    const watch::RankPage& page = watch::Beacon::current()->page();
    const Tensor tokens = Tensor::zeros({4, 64}, DType::i32);  // [B, T]
    const std::int64_t sample = 4 * mesh->coord(Axis::dp);
    const auto step = [&] {
      (void)trainer.gradients(
          [&](int) {
            return token_batch(tokens, tokens, {sample, sample + 1, sample + 2, sample + 3});
          },
          1.0 / 512);
      trainer.update(1e-3, trainer.gradient_norm());
    };
    step();
    const std::uint64_t beats = page.beats, records = page.recorded;
    double least = std::numeric_limits<double>::max();
    for (int i = 0; i < sizes.steps; ++i) {
      const auto start = watch::Clock::now();
      step();
      least = std::min(least, std::chrono::duration<double, std::milli>(watch::Clock::now() - start).count());
    }
    if (world->rank() != 0) return;
    found = {least, static_cast<double>(page.beats - beats) / static_cast<double>(sizes.steps),
             static_cast<double>(page.recorded - records) / static_cast<double>(sizes.steps)};
  });
  return found;
}

Sizes read_sizes(std::span<const char* const> arguments) {
  Sizes sizes;
  const std::array<std::pair<const char*, std::int64_t*>, 3> places = {
      {{"LAYERS", &sizes.layers}, {"WIDTH", &sizes.width}, {"STEPS", &sizes.steps}}};
  if (arguments.size() > places.size())
    fail(ExitCode::usage, "watch_bench", "{} arguments; expected at most {}: LAYERS WIDTH STEPS", arguments.size(),
         places.size());
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const auto& [name, target] = places[i];
    const std::string_view text = arguments[i];
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *target);
    if (error != std::errc() || end != text.data() + text.size() || *target < 1 || *target > 4096)
      fail(ExitCode::usage, "watch_bench",
           "{} is '{}'; expected an integer in [1, 4096]; usage: watch_bench [LAYERS WIDTH STEPS]", name, text);
  }
  if (sizes.width % heads != 0)
    fail(ExitCode::usage, "watch_bench", "WIDTH {} is not a multiple of the {} heads: {} / {} leaves {}; try {}",
         sizes.width, heads, sizes.width, heads, sizes.width % heads, (sizes.width / heads + 1) * heads);
  return sizes;
}

int bench(const Sizes& sizes) {
  const Parts parts = measure_parts();
  fmt::print("heartbeat {:.1f} ns, call site {:.1f} ns, phase {:.1f} ns, record {:.1f} ns\n", parts.heartbeat,
             parts.site, parts.phase, parts.record);
  const Step step = measure_step(sizes);
  // Heartbeats inside records, sites and phases are counted twice here: this overestimates the cost.
  const double cost = step.heartbeats * std::max(parts.heartbeat, parts.site / 2) + step.records * parts.record;
  fmt::print("a step: {:.2f} ms, {:.0f} heartbeats, {:.0f} records: at most {:.1f} us, {:.2f}%\n", step.milliseconds,
             step.heartbeats, step.records, 1e-3 * cost, 1e-4 * cost / step.milliseconds);
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  return run_program([&] {
    if (count == 2 && std::string_view(arguments[1]) == "--help") {
      fmt::print("The watchdog's cost for a rank.\n\nusage: watch_bench [LAYERS [WIDTH [STEPS]]]   4, 128 and 20\n");
      return 0;
    }
    const Sizes sizes = read_sizes({arguments + std::min(count, 1), arguments + count});
    cpu::require_processor();
    return bench(sizes);
  });
}
