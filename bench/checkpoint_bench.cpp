// Measures the cost of saving for a run, and the speed of writing and reading checkpoints.
//
//   build/bin/checkpoint_bench              GPT of 25M parameters, f32, AdamW, dp=2; a save every 20 steps; a minute
//   build/bin/checkpoint_bench 50 /scratch  a save every 50 steps, in that folder
//
// A checkpoint has 12 bytes per parameter (weight, m, v in f32), of which each of two ranks writes half. "step" is the
// mean over an interval; intervals alternate between a save begun at the first step boundary and none. "stood still" is
// the time that training spent in calls of the saver. Writing (snapshot, write, sync, read back, commit) is compared
// with one file of the same size that is written and synced; reading verifies every chunk, and both ranks read all that
// they hold, so every byte is read twice. Read next: parallel/checkpoint/saver.h.
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "bench/command_line.h"
#include "bench/gpt.h"
#include "core/cores.h"
#include "core/error.h"
#include "core/io.h"
#include "parallel/checkpoint/checkpoint.h"
#include "parallel/checkpoint/saver.h"
#include "train/gpt/gpt_setup.h"
#include "train/step/trainer.h"

using namespace trireme;

namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

GptOptions options() {
  GptOptions o;
  o.model.config = {.layers = 8, .heads = 8, .width = 512, .context = 64, .vocab = 256};
  o.mesh.axes = "dp=2";
  o.batch.micro_batch = 4;
  resolve(o, 0);
  return o;
}

/// One rank of the measurement; rank 0 prints.
struct Measurement {
  Measurement(const GptOptions& o, const std::shared_ptr<const DeviceMesh>& m, const fs::path& where)
      : gpt(o), mesh(*m), trainer(make_gpt(o, o.model.config, m), o), saver(where, *m, 1), folder(where) {}

  void step() {
    trainer.gradients([&](int) { return bench::random_batch(gpt, 4 * mesh.coord(Axis::dp)); }, 1e-3);
    trainer.update(1e-4, trainer.gradient_norm());
  }

  std::vector<checkpoint::HeldTensor> held() {
    return checkpoint::held_tensors(trainer.optimizer().weights_and_state(), trainer.model().buffers(), mesh);
  }

  /// Mean seconds of a step over an interval of training. If the save has not ended by then, waiting for it is
  /// included.
  double interval(int steps, bool save) {
    mesh.world().barrier();
    const Clock::time_point start = Clock::now();
    for (int i = 0; i < steps; ++i) {
      step();
      if (save && i == 0) saver.begin(++saves, held(), {});
      if (const auto ended = saver.poll()) last = *ended;
    }
    if (const auto ended = saver.finish()) last = *ended;
    return seconds_since(start) / steps;
  }

  void run(int steps) {
    interval(3, true);  // allocates memory, so that page faults are over
    std::vector<double> without, with;
    for (int i = 0; i < 3; ++i) {
      without.push_back(interval(steps, false));
      with.push_back(interval(steps, true));
    }
    std::sort(without.begin(), without.end());
    std::sort(with.begin(), with.end());
    print(fmt::format("step {:.1f} ms, with a save every {} steps {:.1f} ms: {:+.1f}%; stood still {:.0f} ms, {:.2f}%",
                      1e3 * without[1], steps, 1e3 * with[1], 100 * (with[1] / without[1] - 1),
                      1e3 * last.stall_seconds, 100 * last.stall_seconds / (with[1] * steps)));
    const double written = write(), plain = mesh.rank() == 0 ? write_plainly() : 0;
    mesh.world().barrier();
    const double read_back = read();
    const double megabytes = static_cast<double>(last.bytes) / 1e6;
    print(fmt::format(
        "checkpoint of {:.0f} MB: written at {:.0f} MB/s (one plain file, synced: {:.0f}, so {:.0f}%); read "
        "and verified at {:.0f} MB/s by each of two ranks",
        megabytes, megabytes / written, megabytes / plain, 100 * plain / written, megabytes / read_back));
  }

  /// Seconds of a blocking save: the best of three.
  double write() {
    double best = 1e9;
    for (int i = 0; i < 3; ++i) {
      mesh.world().barrier();
      const Clock::time_point start = Clock::now();
      saver.begin(++saves, held(), {});
      last = saver.finish().value();
      best = std::min(best, seconds_since(start));
    }
    if (!last.error.empty()) fail(ExitCode::io, "checkpoint_bench", "{}", last.error);
    return best;
  }

  double write_plainly() const {
    const std::string bytes(last.bytes, 'x');
    double best = 1e9;
    for (int i = 0; i < 3; ++i) {
      const Clock::time_point start = Clock::now();
      write_file(folder / "plain", bytes);
      best = std::min(best, seconds_since(start));
    }
    return best;
  }

  /// Seconds until both ranks have everything.
  double read() {
    double best = 1e9;
    for (int i = 0; i < 3; ++i) {
      mesh.world().barrier();
      const Clock::time_point start = Clock::now();
      checkpoint::Checkpoint(last.path).read(held(), "");
      mesh.world().barrier();
      best = std::min(best, seconds_since(start));
    }
    return best;
  }

  void print(const std::string& line) const {
    if (mesh.rank() == 0) std::puts(line.c_str());
  }

  const GptOptions& gpt;
  const DeviceMesh& mesh;
  Trainer trainer;
  checkpoint::Saver saver;
  fs::path folder;
  std::int64_t saves = 0;
  checkpoint::Saved last;
};

void measure(const fs::path& folder, int steps) {
  const GptOptions o = options();
  run_thread_ranks(2, 1, ProcessGroup::Deadline(120), [&](const std::shared_ptr<ProcessGroup>& world) {
    const OwnCores own_cores(world->rank(), world->size());
    const auto mesh = std::make_shared<const DeviceMesh>(world, o.mesh.shape);
    Measurement(o, mesh, folder).run(steps);
  });
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("What saving costs a run, and how fast checkpoints are written and read");
  int steps = 20;
  fs::path parent = fs::temp_directory_path();
  app.add_option("steps", steps, "Steps between two saves")->check(CLI::Range(1, 100000))->capture_default_str();
  app.add_option("folder", parent, "Where checkpoints are written")
      ->check(CLI::ExistingDirectory)
      ->capture_default_str();
  return bench::run_benchmark(app, argc, argv, [&] {
    const fs::path folder = parent / fmt::format("checkpoint_bench.{}", ::getpid());
    if (!make_new_folder(folder))
      fail(ExitCode::locked, "checkpoint_bench", "{} exists; expected a new folder; remove it, or start again",
           folder.string());
    try {
      measure(folder, steps);
    } catch (...) {
      remove_folder(folder);
      throw;
    }
    remove_folder(folder);
  });
}
