// The suite of suite.h between processes: mpirun -n 4 build/bin/comm_mpi_suite [case]
//
// The other cases each provoke one failure; ctest looks for its message and that the program ends by itself.
#include <chrono>
#include <csignal>
#include <cstdio>
#include <string>
#include <thread>

#include "core/heartbeat.h"
#include "parallel/comm/progress_board.h"
#include "parallel/comm/watch/report.h"
#include "tests/comm/suite.h"

using namespace trireme;

namespace {

void stop_this_process_soon() {
  std::thread([] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    std::raise(SIGSTOP);
  }).detach();
}

void compute(double seconds, bool beating) {
  const auto start = std::chrono::steady_clock::now();
  while (std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() < seconds)
    if (beating) Heartbeat::beat();
}

/// Ranks see on a progress board what the others began last, and nothing on a board of another instance.
void check_board(ProcessGroup& world) {
  const auto board = comm::mpi_progress_board(77), other = comm::mpi_progress_board(78);
  comm::Signature mine;
  mine.kind = comm::Kind::all_gather;
  mine.dtype = DType::bf16;
  mine.count = 100 + world.rank();
  board->begin({static_cast<std::uint64_t>(world.rank()) + 3, mine});
  world.barrier();
  for (int r = 0; r < world.size(); ++r) {
    const auto seen = board->read(r), nothing = other->read(r);
    test::verify(board->visible(r) && seen.has_value() && nothing.has_value(), "rank {} cannot be seen", r);
    mine.count = 100 + r;
    test::verify(seen->sequence == static_cast<std::uint64_t>(r) + 3 && seen->signature == mine, "rank {} shows {} #{}",
                 r, comm::to_string(seen->signature), seen->sequence);
    test::verify(nothing->sequence == 0, "rank {} shows #{} on a new board", r, nothing->sequence);
  }
  world.barrier();
}

void run_case(const std::string& which, ProcessGroup& world) {
  if (which == "all") {
    check_board(world);
    return test::check_all(world);
  }
  if (which == "late") {  // ranks 1 and 3 never come
    const auto group = world.subgroup(world.members(), "everyone");
    if (world.rank() % 2 == 1) return std::this_thread::sleep_for(std::chrono::seconds(20));
    return group->all_reduce(Tensor::zeros({100000}, DType::bf16), ReduceOp::sum, Launch::background).wait();
  }
  if (which == "stopped") {  // rank 1 comes, and is stopped before the last rank lets the operation go on
    if (world.rank() == 2) std::this_thread::sleep_for(std::chrono::milliseconds(500));
    if (world.rank() == 1) stop_this_process_soon();
    return world.all_reduce(Tensor::zeros({100000})).wait();
  }
  if (which == "chain") {  // rank 0 waits for rank 1, which waits for rank 2, which is stopped
    if (world.rank() == 2) std::raise(SIGSTOP);
    world.recv(Tensor::zeros({7}), world.rank() + 1, 3).wait();
    return world.send(Tensor::zeros({7}), 0, 3).wait();
  }
  if (which == "killed") {
    if (world.rank() == 1) std::raise(SIGKILL);
    return world.barrier();
  }
  if (which == "crossed") {  // each waits for what the other will do afterwards
    const auto pair = world.subgroup({0, 1}, "pair");
    if (world.rank() == 0) world.recv(Tensor::zeros({7}), 1, 3).wait();
    pair->barrier();
    return world.send(Tensor::zeros({7}), 0, 3).wait();
  }
  if (which == "slow") {  // for longer than the timeout: once with heartbeats, once without
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
  if (which == "unlike") {  // MPI itself would pair these without a word
    const Tensor x = Tensor::full({60}, 1.0);
    return world.all_reduce(x, world.rank() == 2 ? ReduceOp::max : ReduceOp::sum).wait();
  }
  if (which == "message") {
    if (world.rank() == 0) return world.send(Tensor::zeros({4}), 1, 6).wait();
    if (world.rank() == 1) world.recv(Tensor::zeros({7}), 0, 6).wait();
    return;
  }
  if (which == "subgroup" && world.rank() != 1) world.subgroup({0, 1, 2, 3}, "quartet");
  if (which == "subgroup") return std::this_thread::sleep_for(std::chrono::seconds(20));
  if (which == "leave") {  // one rank fails outside the library; the others are waiting
    if (world.rank() == 3) fail(ExitCode::numerical, "loss", "loss is nan");
    return world.barrier();
  }
  fail(ExitCode::usage, "comm_mpi_suite", "no case '{}'", which);
}

}  // namespace

int main(int count, char** arguments) {
  const std::string which = count > 1 ? arguments[1] : "all";
  try {
    test::verify(under_mpi_launcher(), "start this program with mpirun");
    const auto world = mpi_world(std::chrono::seconds(which == "all" ? 60 : 1));
    test::verify(world->size() == mpi_launcher_size(), "{} ranks, launcher says {}", world->size(),
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
