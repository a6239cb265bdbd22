// The suite of suite.h between processes: mpirun -n 4 build/bin/comm_mpi_suite [case]
//
// `pieces` is the same suite with MPI calls of at most 1000 elements, so that most operations take several; `large` has
// operations with more elements than fit in MPI's int. `fast` and `fast_pieces` are the suite in a group in which MPI
// may add. Each other case provokes one failure, or a delay that must not
// be one (`slow`); ctest checks its message and that the program ends by itself.
#include <mpi.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>

#include "core/heartbeat.h"
#include "parallel/comm/mpi/pieces.h"
#include "parallel/comm/progress_board.h"
#include "parallel/comm/watch/report.h"
#include "parallel/comm/watch/vital_signs.h"
#include "parallel/comm/watch/watchdog.h"
#include "tests/comm/patience.h"
#include "tests/comm/scene_time.h"
#include "tests/comm/suite.h"

using namespace trireme;
using testing::SceneTime;

/// In place of MPI's own: in the case `no_shared_memory` rank 0 gets what Open MPI returns when /dev/shm is full. The
/// other ranks then wait for it in MPI, without end.
static bool shares_memory = true;
int MPI_Win_allocate_shared(MPI_Aint size, int unit, MPI_Info info, MPI_Comm comm, void* base, MPI_Win* win) {
  int rank = 0;
  MPI_Comm_rank(comm, &rank);
  return rank == 0 && !shares_memory ? MPI_ERR_INTERN : PMPI_Win_allocate_shared(size, unit, info, comm, base, win);
}

namespace {

/// The watchdog's, in the cases in which ranks are silent.
SceneTime scene_time;

void begin_scene() { scene_time.join(watch::mpi_rank_pages()); }

/// Stops this process as soon as it shows that it waits.
void stop_this_process_when_it_waits() {
  std::thread([&page = watch::Beacon::current()->page()] {
    testing::eventually([&] {
      const auto waiting = page.waiting.read();
      return waiting && waiting->record != 0;
    });
    SceneTime::leave(page);
    std::raise(SIGSTOP);
  }).detach();
}

void wait_until_stopped(int rank) {
  const watch::RankPage& page = watch::mpi_rank_pages()->page(rank);
  const auto stopped = [&] { return watch::vital_signs({page.process, page.thread, page.process_space}).state == 'T'; };
  testing::verify(testing::eventually(stopped), "rank {} goes on", rank);
}

/// Until the job ends.
void never_come() {
  SceneTime::leave();
  while (true) pause();
}

/// Until the others have waited so long.
void compute(double seconds, bool beating) {
  SceneTime::leave();
  for (const double start = scene_time.seconds(); scene_time.seconds() < start + seconds;)
    if (beating) Heartbeat::beat();
  SceneTime::come_back();
}

/// Each rank sees on a progress board which operation the others began last, and nothing on a board of another
/// instance.
void check_board(ProcessGroup& world) {
  const auto board = comm::mpi_progress_board(77), other = comm::mpi_progress_board(78);
  comm::Signature mine;
  mine.kind = comm::CollectiveKind::all_gather;
  mine.dtype = DType::bf16;
  mine.count = 100 + world.rank();
  board->begin({static_cast<std::uint64_t>(world.rank()) + 3, mine});
  world.barrier();
  for (int r = 0; r < world.size(); ++r) {
    const auto seen = board->read(r), nothing = other->read(r);
    testing::verify(board->visible(r) && seen.has_value() && nothing.has_value(), "rank {} cannot be seen", r);
    mine.count = 100 + r;
    testing::verify(seen->sequence == static_cast<std::uint64_t>(r) + 3 && seen->signature == mine,
                    "rank {} shows {} #{}", r, comm::to_string(seen->signature), seen->sequence);
    testing::verify(nothing->sequence == 0, "rank {} shows #{} on a new board", r, nothing->sequence);
  }
  world.barrier();
}

/// A u8 tensor of zeros with the first, the middle and the last element set to `mark`.
Tensor marked(std::int64_t count, int mark) {
  Tensor x = Tensor::zeros({count}, DType::u8);
  for (const std::int64_t i : {std::int64_t{0}, count / 2, count - 1})
    x.data<std::uint8_t>()[i] = static_cast<std::uint8_t>(mark);
  return x;
}

void expect_marked(const char* what, const Tensor& x, std::int64_t begin, std::int64_t count, int mark) {
  const std::uint8_t* const share = x.data<std::uint8_t>() + begin;
  std::int64_t sum = 0;
  for (std::int64_t i = 0; i < count; ++i) sum += share[i];
  testing::verify(share[0] == mark && share[count / 2] == mark && share[count - 1] == mark && sum == 3 * mark,
                  "{}: the share at {} is wrong", what, begin);
}

/// Operations with more elements than fit in MPI's int. Takes 9 GB of memory on 2 ranks: run by hand only.
void check_large(ProcessGroup& world) {
  const int n = world.size(), me = world.rank(), root = n - 1;
  const std::int64_t beyond = (std::int64_t{1} << 31) + 5, share = beyond / n + 1;
  const int sum = n * (n + 1) / 2;  // of rank + 1
  {
    const Tensor x = marked(beyond, me + 1);
    world.all_reduce(x).wait();
    expect_marked("all_reduce", x, 0, beyond, sum);
  }
  {
    const Tensor x = marked(beyond, me + 1);
    world.broadcast(x, root).wait();
    expect_marked("broadcast", x, 0, beyond, n);
  }
  if (me == 0) world.send_final(marked(beyond, 7), root, 1).wait();
  if (me == root) {
    const Tensor y = Tensor::empty({beyond}, DType::u8);
    world.recv(y, 0, 1).wait();
    expect_marked("recv", y, 0, beyond, 7);
  }
  world.barrier();
  const auto all_shares = [&](int mark) {
    const Tensor all = Tensor::empty({n, share}, DType::u8), one = marked(share, mark);
    for (int r = 0; r < n; ++r)
      std::memcpy(all.data<std::uint8_t>() + r * share, one.raw(), static_cast<std::size_t>(one.bytes()));
    return all;
  };
  const auto expect_shares = [&](const char* what, const Tensor& all) {
    for (int r = 0; r < n; ++r) expect_marked(what, all, r * share, share, r + 1);
  };
  {
    const Tensor x = marked(share, me + 1), y = Tensor::empty({n, share}, DType::u8);
    world.all_gather(x, y).wait();
    expect_shares("all_gather", y);
    world.gather(x, me == root ? y : Tensor(), root).wait();
    if (me == root) expect_shares("gather", y);
  }
  {
    const Tensor x = all_shares(me + 1), y = Tensor::empty({n, share}, DType::u8);
    world.all_to_all(x, y).wait();
    expect_shares("all_to_all", y);
  }
  const Tensor x = all_shares(me + 1), y = Tensor::empty({share}, DType::u8);
  world.reduce_scatter(x, y).wait();
  expect_marked("reduce_scatter", y, 0, share, sum);
  world.scatter(me == root ? x : Tensor(), y, root).wait();
  expect_marked("scatter", y, 0, share, n);
}

void run_case(const std::string& which, ProcessGroup& world) {
  if (which == "all") {
    check_board(world);
    return testing::check_all(world);
  }
  if (which == "pieces") return testing::check_all(world);
  if (which == "fast" || which == "fast_pieces") {
    testing::check_all(world);
    testing::verify(!testing::sums_in_rank_order(world, SumOrder::any), "MPI did not add, or in rank order");
    return;
  }
  if (which == "unlike_orders") {  // a program that chooses by rank
    const SumOrder order = world.rank() == 0 ? SumOrder::ranks : SumOrder::any;
    return world.all_reduce(Tensor::zeros({60}), ReduceOp::sum, Launch::lazy, order).wait();
  }
  if (which == "large") return check_large(world);
  if (which == "late") {  // ranks 1 and 3 never come
    const auto group = world.subgroup(world.members(), "everyone");
    begin_scene();
    if (world.rank() % 2 == 1) never_come();
    return group->all_reduce(Tensor::zeros({100000}, DType::bf16), ReduceOp::sum, Launch::background).wait();
  }
  if (which == "stopped") {  // rank 1 joins, and is stopped before the last rank joins
    begin_scene();
    if (world.rank() == 2) wait_until_stopped(1);
    if (world.rank() == 1) stop_this_process_when_it_waits();
    return world.all_reduce(Tensor::zeros({100000})).wait();
  }
  if (which == "chain") {  // rank 0 waits for rank 1, which waits for rank 2, which is stopped
    begin_scene();
    if (world.rank() == 2) SceneTime::leave();
    if (world.rank() == 2) std::raise(SIGSTOP);
    world.recv(Tensor::zeros({7}), world.rank() + 1, 3).wait();
    return world.send(Tensor::zeros({7}), 0, 3).wait();
  }
  if (which == "killed") {
    if (world.rank() == 1) std::raise(SIGKILL);
    return world.barrier();
  }
  if (which == "crossed") {  // each waits for something that the other does later
    const auto pair = world.subgroup({0, 1}, "pair");
    begin_scene();
    if (world.rank() == 0) world.recv(Tensor::zeros({7}), 1, 3).wait();
    pair->barrier();
    return world.send(Tensor::zeros({7}), 0, 3).wait();
  }
  if (which == "slow") {  // for longer than the timeout: once with heartbeats, once without
    begin_scene();
    if (world.rank() == 1) compute(3, true);
    world.barrier();
    if (world.rank() == 2) compute(2, false);
    return world.barrier();
  }
  if (which == "desync") {
    Tensor y = Tensor::zeros({world.size(), 5});
    if (world.rank() == 2) return world.all_gather(Tensor::zeros({5}), y).wait();
    return world.all_reduce(Tensor::zeros({60})).wait();
  }
  if (which == "unlike") {  // MPI itself would match these silently
    const Tensor x = Tensor::full({60}, 1.0);
    return world.all_reduce(x, world.rank() == 2 ? ReduceOp::max : ReduceOp::sum).wait();
  }
  if (which == "message" || which == "long_message") {
    if (world.rank() == 0) return world.send(Tensor::zeros({4}), 1, 6).wait();
    if (world.rank() == 1) world.recv(Tensor::zeros({7}), 0, 6).wait();
    return;
  }
  if (which == "polled") {  // as "message", but found by done()
    if (world.rank() == 0) return world.send(Tensor::zeros({4}), 1, 6).wait();
    Work received = world.recv(Tensor::zeros({7}), 0, 6);
    try {
      testing::eventually([&] { return received.done(); });
    } catch (...) { fail(ExitCode::internal, "comm_mpi_suite", "done() has thrown"); }
    return received.wait();
  }
  if (which == "subgroup") {
    begin_scene();
    if (world.rank() == 1) never_come();
    world.subgroup({0, 1, 2, 3}, "quartet");
    return;
  }
  if (which == "leave") {  // one rank fails outside the library; the others are waiting
    if (world.rank() == 3) fail(ExitCode::numerical, "loss", "loss is nan");
    return world.barrier();
  }
  fail(ExitCode::usage, "comm_mpi_suite", "no case '{}'", which);
}

}  // namespace

int main(int count, char** arguments) {
  const std::string which = count > 1 ? arguments[1] : "all";
  const bool fast = which == "fast" || which == "fast_pieces" || which == "unlike_orders";
  const bool counts_silence = which == "late" || which == "stopped" || which == "chain" || which == "crossed" ||
                              which == "slow" || which == "subgroup";
  shares_memory = which != "no_shared_memory";
  try {
    testing::verify(under_mpi_launcher(), "start this program with mpirun");
    const std::int64_t most = which.ends_with("pieces") ? 1000 : which == "long_message" ? 3 : comm::mpi::most_per_call;
    WatchOptions options{.timeout = testing::patience};
    if (counts_silence) options = {.timeout = std::chrono::seconds(1), .now = [] { return scene_time.look(); }};
    const auto world = mpi_world_in_pieces(options, fast ? SumOrder::any : SumOrder::ranks, most);
    testing::verify(world->size() == mpi_launcher_size(), "{} ranks, launcher says {}", world->size(),
                    mpi_launcher_size());
    run_case(which, *world);
    if (world->rank() == 0) std::puts("comm_mpi_suite: all checks passed");
  } catch (const watch::LostRank& lost) {
    std::fprintf(stderr, "%s: %s\n", lost.place().c_str(), lost.what());
    mpi_abort(static_cast<int>(lost.code()));
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    mpi_abort(static_cast<int>(error.code()));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    mpi_abort(1);
  }
}
