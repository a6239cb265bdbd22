// Measures the speed of the collectives, with ranks as threads or, under mpirun, as processes:
//   comm_bench --ranks 2
//   comm_bench --mesh dp=2,tp=2
//   mpirun -n 4 comm_bench --mesh dp=2,tp=2
//   mpirun -n 8 comm_bench --device cuda --dtype bf16
//
// With --mesh, the groups of each axis are measured in turn, all groups of an axis at once, as a training step uses
// them. algorithm bandwidth = bytes of the larger tensor of a rank / time. bus bandwidth = algorithm bandwidth times
// the share that must move, 2 (n-1)/n for an all-reduce and (n-1)/n for the others: it is comparable between operations
// and numbers of ranks. Times are the fastest and the median of the repetitions, of the slowest rank. The second line
// is the limit of this machine: each rank's memory speed while all ranks use memory.
//
//   comm_bench --ranks 8 --links cluster.json --algorithms     # docs/collectives.md
//
// all_reduce and reduce_scatter add in rank order. Under mpirun, all_reduce_fast and reduce_scatter_fast are the sums
// of MPI or NCCL (--reduction fast of the training programs). With --device cuda, times end when the GPU has finished.
// If ranks share a GPU, tensors go through the host, and MPI adds.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <map>
#include <optional>

#include "bench/algorithms.h"
#include "bench/command_line.h"
#include "core/cores.h"
#include "core/io.h"
#include "cuda/runtime/open.h"
#include "parallel/comm/algorithms/algorithm.h"
#include "parallel/comm/nccl/launch.h"
#include "parallel/comm/staged_group.h"
#include "parallel/mesh/mesh.h"

using namespace trireme;

namespace {

struct Options {
  int ranks = 2, threads = 1;
  std::int64_t smallest = 8, largest = 64 << 20;
  int factor = 8;
  double seconds = 0.3;  // per line
  std::string only, dtype = "f32", mesh, device = "cpu";
  bool background = false, pin = false;
  bool algorithms = false;  // compare those of --links
  std::string links, trace, svg;

  Device tensor_device() const { return device == name(Device::cuda) ? Device::cuda : Device::cpu; }
};

struct Case {
  const char* name;
  double moved;  // of the larger tensor, times (n - 1) / n
  std::function<Work(ProcessGroup&, const Tensor& share, const Tensor& whole, const Tensor& other, Launch)> run;
  SumOrder order = SumOrder::ranks;
};

/// Elsewhere such a sum is made in rank order: its line would be a copy of another.
bool is_measured(const Case& c, const Options& o, const ProcessGroup& group) {
  if (c.order == SumOrder::ranks) return true;
  const bool in_16_bits = o.dtype == "bf16" || o.dtype == "f16";  // MPI has no such numbers
  return group.fastest_order() == SumOrder::any && (o.tensor_device() == Device::cuda || !in_16_bits);
}

void set_zero(const Tensor& x) {
  const auto bytes = static_cast<std::size_t>(x.bytes());
  if (x.device() == Device::cpu) return static_cast<void>(std::memset(x.raw(), 0, bytes));
  backend(x.device()).set(x.device_address(), 0, bytes);
}

void synchronize(Device device) {
  if (device != Device::cpu) backend(device).synchronize();
}

// share: whole / n. An operation's "size" is that of its larger tensor.
const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {"all_reduce", 2,
       [](auto& g, auto&, auto& whole, auto&, Launch l) { return g.all_reduce(whole, ReduceOp::sum, l); }},
      {"all_reduce_fast", 2,
       [](auto& g, auto&, auto& whole, auto&, Launch l) {
         return g.all_reduce(whole, ReduceOp::sum, l, SumOrder::any);
       },
       SumOrder::any},
      {"all_gather", 1,
       [](auto& g, auto& share, auto& whole, auto&, Launch l) { return g.all_gather(share, whole, l); }},
      {"reduce_scatter", 1,
       [](auto& g, auto& share, auto& whole, auto&, Launch l) { return g.reduce_scatter(whole, share, l); }},
      {"reduce_scatter_fast", 1,
       [](auto& g, auto& share, auto& whole, auto&, Launch l) {
         return g.reduce_scatter(whole, share, l, SumOrder::any);
       },
       SumOrder::any},
      {"all_to_all", 1,
       [](auto& g, auto&, auto& whole, auto& other, Launch l) { return g.all_to_all(whole, other, l); }},
      {"broadcast", 1, [](auto& g, auto&, auto& whole, auto&, Launch l) { return g.broadcast(whole, 0, l); }},
      {"send_recv", 1,
       [](auto& g, auto&, auto& whole, auto& other, Launch) {  // a ring shift
         g.send(whole, (g.rank() + 1) % g.size(), 0);
         return g.recv(other, (g.rank() + g.size() - 1) % g.size(), 0);
       }},
  };
  return all;
}

std::vector<std::string> case_names() {
  std::vector<std::string> names;
  for (const Case& c : cases()) names.emplace_back(c.name);
  return names;
}

std::vector<std::string> algorithm_names() {
  std::vector<std::string> names;
  for (const auto& [name, algorithm] : comm::algorithms()) names.push_back(name);
  return names;
}

std::map<std::string, DType> dtypes() {
  std::map<std::string, DType> all;
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16, DType::i64, DType::i32, DType::u8})
    all.emplace(name(dtype), dtype);
  return all;
}

/// The sorted times of the repetitions, each of the slowest rank of all groups. `prepare` runs before each, untimed.
std::vector<double> times_of(ProcessGroup& world, const std::function<void()>& prepare,
                             const std::function<void()>& run, double seconds) {
  using Clock = std::chrono::steady_clock;
  const auto timed = [&] {
    prepare();
    world.barrier();
    const auto start = Clock::now();
    run();
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  timed();
  Tensor repetitions = Tensor::full({1}, std::clamp(seconds / timed(), 5.0, 2000.0));
  world.broadcast(repetitions, 0).wait();
  Tensor times = Tensor::zeros({static_cast<std::int64_t>(repetitions.item())}, DType::f64);
  for (double& time : times.span<double>()) time = timed();
  world.all_reduce(times, ReduceOp::max).wait();
  const auto all = times.span<double>();
  std::vector<double> sorted(all.begin(), all.end());
  std::sort(sorted.begin(), sorted.end());
  return sorted;
}

/// Prints the speed of the machine's memory. An all-reduce through shared memory reads and writes each rank's tensor
/// once, in place, so its algorithm bandwidth is at most the second figure. A copy also reads what it overwrites.
void print_memory_rates(ProcessGroup& world, const Options& options) {
  const Tensor x = Tensor::zeros({options.largest}, DType::u8), y = Tensor::zeros({options.largest}, DType::u8);
  const auto bytes = static_cast<std::size_t>(x.bytes());
  const auto fill = [&] { std::memset(x.raw(), 0, bytes); };
  const auto rate = [&](const std::function<void()>& run) {
    const auto times = times_of(world, fill, run, options.seconds);
    return static_cast<double>(bytes) / times[times.size() / 2] / 1e9;
  };
  const double copy = rate([&] { std::memcpy(y.raw(), x.raw(), bytes); });
  const double pass = rate([&] {
    for (std::uint8_t& value : x.span<std::uint8_t>()) ++value;
  });
  if (world.rank() == 0)
    fmt::print(
        "memory, {} bytes on each rank, all at once: copied at {:.3f} GB/s, read and written in place at {:.3f} GB/s\n",
        bytes, copy, pass);
}

/// One operation on one size.
void bench_line(ProcessGroup& world, ProcessGroup& group, const Options& options, const Case& c, std::int64_t bytes) {
  const DType dtype = dtypes().at(options.dtype);
  const int n = group.size();
  const std::int64_t count = std::max<std::int64_t>(1, bytes / static_cast<std::int64_t>(size_of(dtype)) / n);
  const Device device = options.tensor_device();
  const Tensor share = Tensor::zeros({count}, dtype, device), whole = Tensor::zeros({n, count}, dtype, device),
               other = Tensor::zeros({n, count}, dtype, device);
  const Launch launch = options.background ? Launch::background : Launch::lazy;
  // Written before each repetition, like gradients, so that a rank's data is in its own core's cache.
  const auto fill = [&] {
    for (const Tensor& x : {share, whole}) set_zero(x);
    synchronize(device);
  };
  const auto run = [&] {
    c.run(group, share, whole, other, launch).wait();
    synchronize(device);
  };
  const auto times = times_of(world, fill, run, options.seconds);
  const double median = times[times.size() / 2], algorithm = static_cast<double>(whole.bytes()) / median / 1e9;
  const double bus = algorithm * c.moved * (n - 1) / n;
  if (world.rank() != 0) return;
  fmt::print("{:<19} {:>10} {:>12.1f} {:>12.1f} {:>12.3f} {:>12.3f}\n", c.name, whole.bytes(), times.front() * 1e6,
             median * 1e6, algorithm, bus);
  std::fflush(stdout);
}

void bench_group(ProcessGroup& world, ProcessGroup& group, const Options& options) {
  if (world.rank() == 0)
    fmt::print("{:<19} {:>10} {:>12} {:>12} {:>12} {:>12}\n", "operation", "bytes", "fastest us", "median us",
               "alg GB/s", "bus GB/s");
  for (const Case& c : cases()) {
    if (!options.only.empty() && options.only != c.name) continue;
    if (!is_measured(c, options, group)) continue;
    for (std::int64_t bytes = options.smallest; bytes <= options.largest; bytes *= options.factor)
      bench_line(world, group, options, c, bytes);
  }
}

void measure(const std::shared_ptr<ProcessGroup>& world, const Options& options, const std::string& transport) {
  std::optional<OwnCores> own_cores;
  if (options.pin) own_cores.emplace(world->rank() * options.threads, world->size() * options.threads);
  if (world->rank() == 0)
    fmt::print("{} ranks as {}, {}, launched {}\n", world->size(), transport, options.dtype,
               options.background ? "in the background" : "lazily");
  if (options.tensor_device() == Device::cpu) print_memory_rates(*world, options);
  if (options.mesh.empty()) return bench_group(*world, *world, options);
  const DeviceMesh mesh(world, parse_mesh(options.mesh, world->size()));
  std::vector<std::vector<int>> measured;  // an axis may have the same groups as an earlier one
  for (const Axis axis : all_axes) {
    ProcessGroup& group = mesh.group(axis);
    const std::vector<int> ranks = group.members();
    if (group.size() == 1 || std::find(measured.begin(), measured.end(), ranks) != measured.end()) continue;
    measured.push_back(ranks);
    if (world->rank() == 0)
      fmt::print("\naxis {}: {} groups of {} ranks at once; the first is ranks {}\n", name(axis),
                 world->size() / group.size(), group.size(), fmt::join(ranks, ", "));
    bench_group(*world, group, options);
  }
}

/// One of the launcher's processes.
void measure_process(const std::shared_ptr<ProcessGroup>& host, const Options& options) {
  if (options.tensor_device() == Device::cpu) return measure(host, options, "processes (MPI)");
  cuda::open_device(launched_gpu(static_cast<int>(cuda::find_devices().devices.size())));
  if (!has_gpu_world(*host)) return measure(staged(host), options, "processes (MPI, through the host)");
  const auto end = [](const std::exception_ptr& error) { mpi_abort(report(error)); };
  measure(gpu_world(host, std::chrono::seconds(60), end, SumOrder::any), options, "processes (NCCL)");
}

/// `ranks`: of this process.
void validate(const Options& o, int ranks) {
  const auto refuse_unless = [](bool holds, const std::string& what) {
    if (!holds) fail(ExitCode::usage, "comm_bench", "{}", what);
  };
  refuse_unless(o.smallest <= o.largest,
                fmt::format("--smallest {} is more than --largest {}; expected at most that; change either", o.smallest,
                            o.largest));
  refuse_unless(o.tensor_device() == Device::cpu || under_mpi_launcher(),
                "--device cuda: expected a process for each GPU; start this program with mpirun");
  const bool fast = o.only.ends_with("_fast"), wide = o.dtype != "bf16" && o.dtype != "f16";
  refuse_unless(
      !fast || (under_mpi_launcher() && (wide || o.tensor_device() == Device::cuda)),
      fmt::format("--only {}: MPI adds among processes, and has no 16-bit floats; expected mpirun, and another "
                  "--dtype or --device cuda; change --dtype {}, or start this program with mpirun",
                  o.only, o.dtype));
  refuse_unless(o.seconds > 0 && o.seconds <= 3600,
                fmt::format("--seconds {}: expected a number in (0, 3600]; change --seconds", o.seconds));
  refuse_unless(ranks <= bench::most_ranks,
                fmt::format("--mesh {} has {} ranks; expected at most {} as threads of one process; change --mesh",
                            o.mesh, ranks, bench::most_ranks));
  refuse_unless(ranks * o.threads <= bench::most_threads,
                fmt::format("--threads {} x {} ranks = {} threads; expected at most {}; change --threads or the ranks",
                            o.threads, ranks, ranks * o.threads, bench::most_threads));
}

/// --algorithms and --trace.
void bench_or_draw(const CLI::App& app, const Options& o, bool processes) {
  const auto refuse = [](const std::string& what) { fail(ExitCode::usage, "comm_bench", "{}", what); };
  for (const char* unused : {"--mesh", "--threads", "--seconds", "--dtype", "--device", "--pin", "--background"})
    if (app.count(unused) > 0)
      refuse(fmt::format("{} has no effect with --algorithms or --trace; expected neither; drop one", unused));
  if (processes) refuse("--links is for rank threads, and mpirun starts processes; start this program without mpirun");
  if (!o.trace.empty() && o.svg.empty())
    refuse("--trace draws a picture, and has no file for it; expected --svg FILE; give it");
  const bench::AlgorithmBench bench{.ranks = o.ranks,
                                    .smallest = app.count("--smallest") > 0 ? o.smallest : 1024,
                                    .largest = o.largest,
                                    .factor = o.factor,
                                    .links = o.links,
                                    .operation = o.only.empty() ? "all_reduce" : o.only,
                                    .svg = o.svg};
  if (!o.trace.empty()) return bench::draw_trace(bench, o.trace);
  bench::bench_algorithms(bench);
}

}  // namespace

int main(int count, char** arguments) {
  CLI::App app("Bandwidth and latency of the collectives, on threads or under mpirun");
  Options options;
  auto* ranks = app.add_option("--ranks", options.ranks, "Rank threads (without mpirun)")
                    ->check(CLI::Range(1, bench::most_ranks))
                    ->capture_default_str();
  app.add_option("--mesh", options.mesh, "Measure the groups of each axis of this mesh, dp=2,tp=2, with as many ranks")
      ->excludes(ranks);
  app.add_option("--threads", options.threads, "Threads per rank")
      ->check(CLI::Range(1, bench::most_threads))
      ->capture_default_str();
  constexpr std::int64_t most_bytes = std::int64_t{1} << 40;  // its product with the largest factor fits
  const CLI::Range sizes(std::int64_t{1}, most_bytes);
  app.add_option("--smallest", options.smallest, "Smallest tensor, bytes")->check(sizes)->capture_default_str();
  app.add_option("--largest", options.largest, "Largest tensor, bytes")->check(sizes)->capture_default_str();
  app.add_option("--factor", options.factor, "From one size to the next")
      ->check(CLI::Range(2, 1 << 20))
      ->capture_default_str();
  app.add_option("--seconds", options.seconds, "Time to spend on a line")->capture_default_str();
  app.add_option("--only", options.only, "One operation")->check(CLI::IsMember(case_names()));
  app.add_option("--dtype", options.dtype, "Element type")->check(CLI::IsMember(dtypes()))->capture_default_str();
  app.add_option("--device", options.device, "Where tensors are; cuda: a GPU for each process of mpirun")
      ->check(CLI::IsMember({"cpu", "cuda"}))
      ->capture_default_str();
  app.add_flag("--pin", options.pin, "Keep each thread on a core of its own, if there are as many");
  app.add_flag("--background", options.background, "Launch on the communication thread");
  auto* links = app.add_option("--links", options.links, "With --algorithms or --trace: file of artificial links");
  auto* algorithms =
      app.add_flag("--algorithms", options.algorithms, "Compare algorithms of one operation, measured and predicted")
          ->needs(links);
  app.add_option("--trace", options.trace, "Draw the messages of an operation of --largest bytes by this algorithm")
      ->check(CLI::IsMember(algorithm_names()))
      ->needs(links)
      ->excludes(algorithms);
  app.add_option("--svg", options.svg, "With --algorithms or --trace: file for the picture");
  return bench::run_benchmark(app, count, arguments, [&] {
    const bool processes = under_mpi_launcher();
    if (!processes && !options.mesh.empty()) options.ranks = parse_mesh(options.mesh, 0).ranks();
    validate(options, processes ? 1 : options.ranks);
    if (!options.algorithms && options.trace.empty() && (!options.links.empty() || !options.svg.empty()))
      fail(ExitCode::usage, "comm_bench",
           "--links and --svg are for --algorithms and --trace; expected one of these; give it, or drop --links and "
           "--svg");
    if (!options.svg.empty()) require_own_kind("--svg", options.svg, drawing_file);
    if (options.algorithms || !options.trace.empty()) return bench_or_draw(app, options, processes);
    if (processes)
      return bench::run_as_process(
          app, [&](const auto& world) { measure_process(world, options); }, SumOrder::any);
    run_thread_ranks(options.ranks, options.threads, std::chrono::seconds(60),
                     [&](const std::shared_ptr<ProcessGroup>& world) { measure(world, options, "threads"); });
  });
}
