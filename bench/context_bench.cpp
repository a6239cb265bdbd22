// Measures how much of ring attention's communication is hidden behind computation, and compares it with Ulysses:
//   context_bench --ranks 2 --length 2048
//   mpirun -n 2 context_bench --length 2048
//
// Ranks are threads, or under mpirun processes, of one core each. "waiting" is the time a rank spends in wait() of its
// receives; "sending" is the time in send_final(), which copies nothing (MPI may copy). Both are medians over the
// repetitions, of the slowest rank. "one rank" is 1/cp of the time of plain attention for the whole sequence on one
// core while the others are idle: the ring's time with free communication and perfect balance.
// Read next: nn/ring_attention.h.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>

#include "autograd/engine.h"
#include "autograd/ops.h"
#include "bench/command_line.h"
#include "core/cores.h"
#include "core/parallel_for.h"
#include "core/random.h"
#include "nn/context_attention.h"
#include "nn/ring_attention.h"

using namespace trireme;

namespace {

struct Options {
  int ranks = 2, repetitions = 7;
  std::int64_t batch = 1, length = 2048, heads = 8, kv_heads = 8, width = 64;
};

using Clock = std::chrono::steady_clock;
double since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

/// A group that times its sends and receives; it supports only what a ring needs.
class TimedRing final : public ProcessGroup {
 public:
  explicit TimedRing(ProcessGroup& inner) : ProcessGroup(inner.name(), inner.rank(), inner.members()), inner_(inner) {}
  double waiting = 0, sending = 0;

  Work send(Tensor x, int to, int tag) override {
    const auto start = Clock::now();
    Work work = inner_.send(x, to, tag);
    sending += since(start);
    return work;
  }
  Work send_final(Tensor x, int to, int tag) override {
    const auto start = Clock::now();
    Work work = inner_.send_final(x, to, tag);
    sending += since(start);
    return work;
  }
  Work recv(Tensor y, int from, int tag) override {
    return Work(std::make_shared<Timed>(inner_.recv(y, from, tag), waiting));
  }
  Work all_reduce(Tensor, ReduceOp, Launch, SumOrder) override { return unused(); }
  Work all_gather(Tensor, Tensor, Launch) override { return unused(); }
  Work reduce_scatter(Tensor, Tensor, Launch, SumOrder) override { return unused(); }
  Work all_to_all(Tensor, Tensor, Launch) override { return unused(); }
  Work broadcast(Tensor, int, Launch) override { return unused(); }
  Work reduce(Tensor, int, Launch) override { return unused(); }
  Work gather(Tensor, Tensor, int, Launch) override { return unused(); }
  Work scatter(Tensor, Tensor, int, Launch) override { return unused(); }
  void barrier() override { unused(); }
  std::shared_ptr<ProcessGroup> subgroup(const std::vector<int>&, const std::string&) override {
    unused();
    return nullptr;
  }

 private:
  class Timed final : public Work::State {
   public:
    Timed(Work work, double& seconds) : work_(std::move(work)), seconds_(seconds) {}
    void wait() override {
      const auto start = Clock::now();
      work_.wait();
      seconds_ += since(start);
    }
    bool done() override { return work_.done(); }

   private:
    Work work_;
    double& seconds_;
  };

  static Work unused() { fail(ExitCode::internal, "context_bench", "the ring only sends and receives"); }
  ProcessGroup& inner_;
};

Tensor random(const Shape& shape, std::uint64_t stream) {
  Tensor x = Tensor::empty(shape);
  for (std::int64_t i = 0; i < x.count(); ++i)
    x.data<float>()[i] = static_cast<float>(random_normal(1, stream, static_cast<std::uint64_t>(i)));
  return x;
}

struct Times {
  double forward = 0, backward = 0, waiting = 0, sending = 0;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

using Attend = std::function<Tensor(const Tensor&, const Tensor&, const Tensor&)>;

/// Forward and backward of this rank's tokens, all ranks starting together; medians over the repetitions.
Times time(const Options& o, std::int64_t length, ProcessGroup& world, const Attend& attend, const TimedRing* ring) {
  Tensor q = random({o.batch, length, o.heads, o.width}, 1);
  Tensor k = random({o.batch, length, o.kv_heads, o.width}, 2), v = random({o.batch, length, o.kv_heads, o.width}, 3);
  const Tensor dout = random(q.shape(), 4);
  for (Tensor* x : {&q, &k, &v}) require_grad(*x);
  std::vector<double> forward, backward_times, waiting, sending;
  for (int i = 0; i <= o.repetitions; ++i) {
    const double waited = ring != nullptr ? ring->waiting : 0, sent = ring != nullptr ? ring->sending : 0;
    world.barrier();
    const auto start = Clock::now();
    const Tensor out = attend(q, k, v);
    const double half = since(start);
    backward(out, dout);
    const double whole = since(start);
    if (i == 0) continue;  // warm-up
    forward.push_back(half);
    backward_times.push_back(whole - half);
    waiting.push_back(ring != nullptr ? ring->waiting - waited : 0);
    sending.push_back(ring != nullptr ? ring->sending - sent : 0);
  }
  const Tensor slowest = Tensor::from(std::span<const double>(std::vector<double>{
                                          median(forward), median(backward_times), median(waiting), median(sending)}),
                                      {4});
  world.all_reduce(slowest, ReduceOp::max, Launch::lazy).wait();
  const double* t = slowest.data<double>();
  return {t[0], t[1], t[2], t[3]};
}

void print(const char* what, const Times& t, bool ring) {
  const double whole = t.forward + t.backward;
  fmt::print("{:<10} {:>9.2f} ms forward {:>9.2f} ms backward", what, 1e3 * t.forward, 1e3 * t.backward);
  if (ring)
    fmt::print("   waiting {:.2f} ms ({:.1f}%), sending {:.2f} ms ({:.1f}%)", 1e3 * t.waiting, 100 * t.waiting / whole,
               1e3 * t.sending, 100 * t.sending / whole);
  fmt::print("\n");
}

void measure(const Options& o, const std::shared_ptr<ProcessGroup>& world) {
  MeshShape shape;
  shape.at(Axis::cp) = o.ranks;
  const DeviceMesh mesh(world, shape);
  const bool first = world->rank() == 0;
  if (first) {
    fmt::print("B={} T={} H={} Hkv={} Dh={} f32, cp={}, {}\n", o.batch, o.length, o.heads, o.kv_heads, o.width, o.ranks,
               under_mpi_launcher() ? "processes (MPI)" : "threads");
    const Attend plain = [](const Tensor& q, const Tensor& k, const Tensor& v) { return attention(q, k, v); };
    Times one = time(o, o.length, *self_group(), plain, nullptr);
    one.forward /= o.ranks;
    one.backward /= o.ranks;
    print("one rank", one, false);
  }
  world->barrier();
  const std::int64_t local = o.length / o.ranks;
  TimedRing ring(mesh.group(Axis::cp));
  const Attend around = [&](const Tensor& q, const Tensor& k, const Tensor& v) {
    return nn::ring_attention(q, k, v, ring);
  };
  const Times ring_times = time(o, local, *world, around, &ring);
  if (first) print("ring", ring_times, true);
  if (o.heads % o.ranks != 0 || o.kv_heads % o.ranks != 0) return;
  const Attend exchange = [&](const Tensor& q, const Tensor& k, const Tensor& v) {
    return nn::context_attention(q, k, v, mesh, nn::ContextParallel::ulysses, {});
  };
  const Times ulysses_times = time(o, local, *world, exchange, nullptr);
  if (first) print("ulysses", ulysses_times, false);
}

void validate(const Options& o) {
  if (o.length % (2 * o.ranks) != 0)
    fail(ExitCode::usage, "context_bench",
         "--length {} is cut into two runs for each of {} ranks; expected a multiple of {}; change --length", o.length,
         o.ranks, 2 * o.ranks);
  if (o.heads % o.kv_heads != 0)
    fail(ExitCode::usage, "context_bench", "--kv-heads {} does not divide --heads {}; change either", o.kv_heads,
         o.heads);
  constexpr double most = 1e12;  // below it byte counts do not overflow, and the allocator reports what is too much
  const double count = static_cast<double>(o.batch) * static_cast<double>(o.length) * static_cast<double>(o.heads) *
                       static_cast<double>(o.width);
  if (count > most)
    fail(ExitCode::usage, "context_bench",
         "queries of --batch {} x --length {} x --heads {} x --width {} = {:.3g} numbers; expected at most {:.0g}; "
         "lower one of them",
         o.batch, o.length, o.heads, o.width, count, most);
}

}  // namespace

int main(int count, char** arguments) {
  Options o;
  CLI::App app("Ring attention and Ulysses: time, and what of the ring's communication is exposed");
  app.add_option("--ranks", o.ranks, "Context-parallel ranks, threads of one core each (without mpirun)")
      ->check(CLI::Range(2, 64));
  app.add_option("--repetitions", o.repetitions, "After one that is not counted")->check(CLI::Range(1, 1 << 20));
  app.add_option("--batch", o.batch, "B")->check(CLI::Range(1, 1 << 20));
  app.add_option("--length", o.length, "T, a multiple of 2 x ranks")->check(CLI::Range(1, 1 << 20));
  app.add_option("--heads", o.heads, "H")->check(CLI::Range(1, 1 << 20));
  app.add_option("--kv-heads", o.kv_heads, "Hkv, which divides H")->check(CLI::Range(1, 1 << 20));
  app.add_option("--width", o.width, "Dh")->check(CLI::Range(1, 1 << 20));
  return bench::run_benchmark(app, count, arguments, [&] {
    const bool processes = under_mpi_launcher();
    if (processes) o.ranks = mpi_launcher_size();
    validate(o);
    const auto measure_rank = [&](const std::shared_ptr<ProcessGroup>& world) {
      const OwnCores own_cores(world->rank(), world->size());
      measure(o, world);
    };
    if (!processes) return run_thread_ranks(o.ranks, 1, std::chrono::seconds(60), measure_rank);
    set_threads(1);
    bench::run_as_process(app, measure_rank);
  });
}
