// Prints how far apart this program's cores are: the nanoseconds in which a cache line goes from the first core to the
// last one and back, as one line of JSON.
//
//   build/bin/core_distance      {"cores":2,"round_trip_ns":94.2}
//
// About 100 ns is usual for cores that share a level-3 cache, and more than 300 ns for cores that do not. The
// processors of a virtual machine can change between the two while programs run: the host moves them. A step of two
// threads then takes up to 1.3 times as long, and a step of one thread as long as before. bench/paired.py repeats such
// runs.
#include <atomic>
#include <thread>
#include <vector>

#include "bench/timing.h"
#include "bench/turns.h"
#include "core/cores.h"
#include "train/program/program.h"

using namespace trireme;

namespace {

constexpr int trips = 20000;

struct alignas(128) Ball {
  std::atomic<int> turn = 0;
};

/// Waits for `turn` without a system call, and gives the ball back.
void play(Ball& ball, int turn) {
  while (ball.turn.load(std::memory_order_acquire) != turn) {}
  ball.turn.store(turn + 1, std::memory_order_release);
}

double round_trip_seconds(int cores) {
  Ball ball;
  const OwnCores first(0, cores);
  std::thread other([&] {
    OwnCores::keep_to({0, cores}, cores - 1);
    for (int trip = 0; trip < trips; ++trip) play(ball, 2 * trip + 1);
  });
  play(ball, 0);
  play(ball, 2);  // the other thread has started
  const auto start = bench::Clock::now();
  for (int trip = 2; trip < trips; ++trip) play(ball, 2 * trip);
  const double seconds = bench::seconds_since(start) / (trips - 2);
  other.join();
  return seconds;
}

}  // namespace

int main() {
  return run_program([] {
    const int cores = static_cast<int>(usable_cores().size());
    if (cores < 2) fail(ExitCode::usage, "cores", "this program may use one core; expected at least two to compare");
    std::vector<double> times(5);
    for (double& time : times) time = round_trip_seconds(cores);
    bench::Turns::say({{"cores", cores}, {"round_trip_ns", bench::median(times) * 1e9}});
    return 0;
  });
}
