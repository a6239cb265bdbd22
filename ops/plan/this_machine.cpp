#include "ops/plan/this_machine.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <compare>
#include <cstring>
#include <ctime>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "core/cores.h"
#include "core/random.h"
#include "train/launch/ranks.h"

namespace trireme::plan {
namespace {

using Traces = std::vector<std::unique_ptr<Trace>>;
using SteadyClock = std::chrono::steady_clock;

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// For which this thread has had a core.
double thread_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

}  // namespace

// ---- kernels --------------------------------------------------------------------------------------------------------

/// How ranks run while their kernels are timed.
struct ThisMachine::Setting {
  int at_once = 1, threads = 1;  ///< ranks, and threads of each
  bool share_cores = false;      ///< more threads than cores, as in a run with so many ranks

  auto operator<=>(const Setting&) const = default;
};

/// Seconds of kernels.
class ThisMachine::Kernels {
 public:
  Trace::Measure timer(const Setting& setting) {
    return [this, setting](const ProfileEvent& call, const std::function<void()>& compute, int step) {
      const Key key(setting, identity(call));
      // Ranks that share cores find their caches used by others after each time slice. So all of them compute all the
      // time, and what counts is the time that a thread has a core.
      if (!setting.share_cores && known(key)) return;
      const Stopwatch stopwatch;
      const double before = thread_seconds();
      compute();
      const double seconds = setting.share_cores ? thread_seconds() - before : stopwatch.seconds();
      const std::scoped_lock lock(mutex_);
      Samples& samples = samples_[key];
      (step == 0 ? samples.first_step : samples.later).push_back(seconds);
    };
  }
  /// One of the times that were measured, by a random number.
  double seconds(const Setting& setting, const ProfileEvent& call, std::uint32_t random) const {
    const Samples& samples = samples_.at({setting, identity(call)});
    const std::vector<double>& seconds = samples.later.empty() ? samples.first_step : samples.later;
    return seconds[random % seconds.size()];
  }

 private:
  static constexpr std::size_t enough = 12;  // samples
  struct Samples {
    std::vector<double> first_step, later;  // the first step touches memory for the first time
  };

  using Key = std::pair<Setting, CallIdentity>;

  bool known(const Key& key) {
    const std::scoped_lock lock(mutex_);
    const auto found = samples_.find(key);
    return found != samples_.end() && found->second.later.size() >= enough;
  }

  std::mutex mutex_;
  std::map<Key, Samples> samples_;
};

// ---- exchanges ------------------------------------------------------------------------------------------------------

/// Seconds of collectives and messages between the ranks of a mesh, with all groups of an axis at it together.
class ThisMachine::Exchanges {
 public:
  double seconds(const Trace::Transfer& transfer, std::size_t ranks) const { return seconds_.at(key(transfer, ranks)); }

  /// Makes each exchange of the traces that is not known yet.
  void measure(const TrainOptions& options, const Traces& traces) {
    Wanted wanted;
    for (const auto& trace : traces)
      for (const Trace::Transfer& transfer : trace->transfers()) {
        const Trace::Group& group = trace->groups()[static_cast<std::size_t>(transfer.group)];
        const std::string k = key(transfer, group.members.size());
        if (!seconds_.contains(k)) wanted[{group.name, group.members}].emplace(k, transfer);
      }
    const int ranks = options.mesh.shape.ranks();
    if (wanted.empty() && wakes_.contains(ranks)) return;
    std::map<std::string, std::vector<double>> found;
    std::vector<double> waking;
    std::mutex mutex;
    std::atomic<SteadyClock::time_point> came{};
    run_ranks(options, [&](Rank& rank) {
      const std::vector<double> awake = wake_as(*rank.world, came);
      const auto exchanges = measure_as(*rank.world, wanted);
      const std::scoped_lock lock(mutex);
      waking.insert(waking.end(), awake.begin(), awake.end());
      for (const auto& [k, seconds] : exchanges) found[k].push_back(seconds);
    });
    for (const auto& [k, seconds] : found) seconds_[k] = median(seconds);
    wakes_[ranks] = waking.empty() ? 0 : median(waking);
  }
  /// Until a sleeping one of so many ranks goes on.
  double wake(int ranks) const { return wakes_.at(ranks); }

 private:
  /// By group, its name and members.
  using Wanted = std::map<std::pair<std::string, std::vector<int>>, std::map<std::string, Trace::Transfer>>;

  /// What the time of a transfer depends on.
  static std::string key(const Trace::Transfer& transfer, std::size_t ranks) {
    if (transfer.kind != Trace::TransferKind::collective) return fmt::format("message of {} bytes", transfer.bytes);
    return fmt::format("{} of {}{}", to_string(transfer.collective), ranks,
                       transfer.background ? " in the background" : "");
  }

  /// As one rank. All ranks go through one list, and take part where they are members.
  static std::vector<std::pair<std::string, double>> measure_as(ProcessGroup& world, const Wanted& wanted) {
    std::vector<std::pair<std::string, double>> measured;
    for (const auto& [name, transfers] : wanted) {
      const std::vector<int>& members = name.second;
      if (std::find(members.begin(), members.end(), world.rank()) == members.end()) continue;
      const auto group = world.subgroup(members, name.first);
      for (const auto& [k, transfer] : transfers) {
        constexpr int warm_up = 3, tries = 12;
        const Exchange exchange =
            transfer.kind == Trace::TransferKind::collective ? collective(*group, transfer) : message(*group, transfer);
        std::vector<double> seconds;
        for (int i = 0; i < warm_up + tries; ++i) {
          Tensor sent = exchange.sent;
          std::memset(sent.raw(), i, static_cast<std::size_t>(sent.bytes()));  // as in training: not in others' caches
          group->barrier();
          const Stopwatch stopwatch;
          exchange.run();
          if (i >= warm_up) seconds.push_back(stopwatch.seconds());
        }
        measured.emplace_back(k, median(seconds));
      }
    }
    return measured;
  }

  /// As one rank: times between the last rank's arrival at a barrier and the return of this one, which slept meanwhile.
  static std::vector<double> wake_as(ProcessGroup& world, std::atomic<SteadyClock::time_point>& came) {
    constexpr int tries = 15;
    constexpr auto asleep = std::chrono::milliseconds(1);
    std::vector<double> seconds;
    for (int i = 0; i < tries && world.size() > 1; ++i) {
      world.barrier();
      if (world.rank() == 0) {
        std::this_thread::sleep_for(asleep);
        came = SteadyClock::now();
      }
      world.barrier();
      if (world.rank() != 0) seconds.push_back(std::chrono::duration<double>(SteadyClock::now() - came.load()).count());
    }
    return seconds;
  }

  struct Exchange {
    Tensor sent;
    std::function<void()> run;
  };

  static Exchange collective(ProcessGroup& group, const Trace::Transfer& transfer) {
    const comm::Signature& s = transfer.collective;
    using Kind = comm::CollectiveKind;
    const std::int64_t all = s.count * group.size();
    const bool to_all = s.kind == Kind::all_gather || s.kind == Kind::gather || s.kind == Kind::all_to_all;
    comm::Collective c{.kind = s.kind, .op = s.op, .root = s.root, .x = {}, .y = {}, .order = s.order};
    c.x = Tensor::zeros({is_split(s.kind) ? all : s.count}, s.dtype);
    if (is_split(s.kind) || to_all) c.y = Tensor::zeros({to_all ? all : s.count}, s.dtype);
    const Launch launch = transfer.background ? Launch::background : Launch::lazy;
    return {c.x, [&group, c, launch] { comm::dispatch(group, c, launch).wait(); }};
  }

  /// Each rank sends to the next.
  static Exchange message(ProcessGroup& group, const Trace::Transfer& transfer) {
    const int ranks = group.size(), next = (group.rank() + 1) % ranks, last = (group.rank() + ranks - 1) % ranks;
    const Tensor x = Tensor::zeros({transfer.bytes}, DType::u8), y = Tensor::zeros({transfer.bytes}, DType::u8);
    return {x, [&group, next, last, x, y] {
              Work sent = group.send(x, next, 0);
              group.recv(y, last, 0).wait();
              sent.wait();
            }};
  }

  std::map<std::string, double> seconds_;
  std::map<int, double> wakes_;  // by number of ranks
};

// ---- predictions ----------------------------------------------------------------------------------------------------

namespace {

bool share_cores(const TrainOptions& options) {
  return options.mesh.shape.ranks() * options.threads_per_rank() > static_cast<int>(usable_cores().size());
}

/// As many as have cores of their own.
int ranks_at_once(const TrainOptions& options) {
  const int cores = static_cast<int>(usable_cores().size());
  return std::clamp(cores / options.threads_per_rank(), 1, options.mesh.shape.ranks());
}

/// Runs `run(rank, cores)` for all ranks, `at_once` at a time. Each has its own cores, unless all run at once on too
/// few.
template <class Run>
void run_some_at_once(const TrainOptions& options, int at_once, const Run& run) {
  const int ranks = options.mesh.shape.ranks(), threads = options.threads_per_rank();
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(at_once));
  for (int first = 0; first < ranks; first += at_once) {
    std::vector<std::thread> running;
    for (int i = 0; i < at_once && first + i < ranks; ++i)
      running.emplace_back([&, i, rank = first + i] {
        try {
          OwnCores::Share cores{.first = i * threads, .parts = at_once * threads};
          if (at_once > ranks_at_once(options)) cores = {};
          run(rank, cores);
        } catch (...) { errors[static_cast<std::size_t>(i)] = std::current_exception(); }
      });
    for (std::thread& thread : running) thread.join();
    for (const std::exception_ptr& error : errors)
      if (error) std::rethrow_exception(error);
  }
}

/// What the ranks tell one another when they start.
std::shared_ptr<DryFacts> facts_of(const TrainOptions& options, const DryProgram& program) {
  const std::shared_ptr<DryFacts> facts = make_dry_facts();
  const int ranks = options.mesh.shape.ranks();
  for (int rank = ranks - 1; rank >= 0 && ranks > 1; --rank) {
    Trace trace;
    dry_run_trace(options, program, rank, trace, facts);
  }
  return facts;
}

}  // namespace

class ThisMachine::Model final : public MachineModel {
 public:
  Model(const Kernels& kernels, const Exchanges& exchanges, const Setting& setting, int ranks, bool has_links)
      : kernels_(kernels), exchanges_(exchanges), setting_(setting), ranks_(ranks), has_links_(has_links) {}

  /// Each call takes one of the times that were measured. With more ranks than cores, a rank that is ready may wait until
  /// the system gives it a core: `waits`, found by every other row of bench/plan_runs.txt, the first, third and so on.
  double kernel(const ProfileEvent& call) const override {
    constexpr std::uint64_t seed = 1;
    constexpr double waits = 1.05;
    return (setting_.share_cores ? waits : 1) * kernels_.seconds(setting_, call, random_word(seed, draw_, calls_++));
  }
  void draw(std::uint64_t number) { draw_ = number, calls_ = 0; }
  TransferTime collective(const Trace::Transfer& transfer, const Trace::Group& group) const override {
    return time(exchanges_.seconds(transfer, group.members.size()));
  }
  TransferTime message(const Trace::Transfer& transfer, int) const override {
    return time(exchanges_.seconds(transfer, 2));
  }
  double wake() const override { return exchanges_.wake(ranks_); }
  int shared_cores() const override { return static_cast<int>(usable_cores().size()); }
  int node_of(int) const override { return 0; }

 private:
  TransferTime time(double seconds) const {
    // While exchanges were measured, each rank had this share of a core.
    const double share = std::min(1.0, static_cast<double>(shared_cores()) / ranks_);
    return has_links_ ? TransferTime{.link = seconds} : TransferTime{.processor = seconds * share};
  }

  const Kernels& kernels_;
  const Exchanges& exchanges_;
  Setting setting_;
  int ranks_;
  bool has_links_;  // artificial ones, on which ranks sleep
  std::uint64_t draw_ = 0;
  mutable std::uint64_t calls_ = 0;  // of kernels, in this draw
};

ThisMachine::ThisMachine() : kernels_(std::make_unique<Kernels>()), exchanges_(std::make_unique<Exchanges>()) {}
ThisMachine::~ThisMachine() = default;

std::vector<RankTime> ThisMachine::predict(const TrainOptions& options, const DryProgram& program,
                                           Recording* recording) {
  const int ranks = options.mesh.shape.ranks(), threads = options.threads_per_rank();
  Setting setting{.at_once = ranks_at_once(options), .threads = threads};
  const std::shared_ptr<DryFacts> facts = facts_of(options, program);
  Traces traces;
  for (int rank = 0; rank < ranks; ++rank) {
    traces.push_back(std::make_unique<Trace>(kernels_->timer(setting)));
    if (recording != nullptr) traces.back()->watch_memory(options.precision.tensor_device());
  }
  run_some_at_once(options, setting.at_once, [&](int rank, const OwnCores::Share& cores) {
    dry_run_trace(options, program, rank, *traces[static_cast<std::size_t>(rank)], facts, cores);
  });
  if (share_cores(options)) {
    setting = {.at_once = ranks, .threads = threads, .share_cores = true};
    run_some_at_once(options, ranks, [&](int rank, const OwnCores::Share& cores) {
      Trace trace(kernels_->timer(setting));
      dry_run_trace(options, program, rank, trace, facts, cores);
    });
  }
  exchanges_->measure(options, traces);
  Model model(*kernels_, *exchanges_, setting, ranks, !options.mesh.links.empty());
  std::vector<RankProgram> programs;
  for (int rank = 0; rank < ranks; ++rank)
    programs.push_back({.rank = rank, .trace = traces[static_cast<std::size_t>(rank)].get(), .threads = threads});
  constexpr std::uint64_t draws = 9;  // simulations, of which the one with the median time counts
  std::array<std::pair<double, std::uint64_t>, draws> steps;  // seconds, draw
  for (std::uint64_t draw = 0; draw < draws; ++draw) {
    model.draw(draw);
    steps[draw] = {step_seconds(simulate(programs, model)), draw};
  }
  std::nth_element(steps.begin(), steps.begin() + draws / 2, steps.end());
  model.draw(steps[draws / 2].second);
  if (recording == nullptr) return simulate(programs, model);
  const std::vector<RankTime> times = simulate(programs, model, &recording->timeline);
  recording->micro_batches = recording->of = options.batch_sizes().micro_batches;
  recording->traces.clear();
  for (const auto& trace : traces) recording->traces.push_back(std::move(*trace));
  return times;
}

double ThisMachine::measure(const TrainOptions& options, const DryProgram& program, double seconds) {
  constexpr int warm_up = 2;
  double result = 0;
  run_ranks(options, [&](Rank& rank) {
    const auto mesh = std::make_shared<const DeviceMesh>(rank.world, options.mesh.shape);
    Trainer trainer(program.model(options, mesh), options);
    const Trainer::NextBatch next_batch =
        copies_of_sample(program, options.batch_sizes().micro_batch, std::int64_t{rank.world->rank()} << 20);
    make_steps(trainer, next_batch, warm_up);
    std::vector<double> steps;
    for (int i = 0, count = 1; i < count; ++i) {
      const Stopwatch stopwatch;
      make_steps(trainer, next_batch, 1);
      Tensor slowest = Tensor::full({1}, stopwatch.seconds(), DType::f64);
      rank.world->all_reduce(slowest, ReduceOp::max).wait();
      steps.push_back(slowest.item());
      if (i == 0) count = static_cast<int>(std::clamp(seconds / slowest.item(), 3.0, 100.0));
    }
    if (rank.first()) result = median(steps);
  });
  return result;
}

}  // namespace trireme::plan
