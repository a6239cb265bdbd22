#include "parallel/comm/mpi/runtime.h"

#include <sched.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "core/cores.h"
#include "core/parallel_for.h"
#include "parallel/comm/common/barrier.h"
#include "parallel/comm/common/records.h"

namespace trireme::comm::mpi {
namespace {

std::atomic<bool> initialised{false};

constexpr auto spin_time = std::chrono::microseconds(100);  // without yielding, if every rank has its own core
constexpr auto yield_time = std::chrono::milliseconds(2);   // yields to others but still reacts quickly
constexpr auto shortest_sleep = std::chrono::microseconds(20), longest_sleep = std::chrono::microseconds(500);

}  // namespace

std::string error_text(int code) {
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) return fmt::format("error {}", code);
  return fmt::format("MPI says: {}", text);
}

void check_code(int code, const char* where) {
  if (code == MPI_SUCCESS) return;
  int kind = MPI_SUCCESS;
  if (MPI_Error_class(code, &kind) == MPI_SUCCESS && kind == MPI_ERR_TRUNCATE) {
    fail(ExitCode::desync, where,
         "a peer sent more elements than this rank expects ({}); every rank must call the same "
         "operations with the same counts",
         error_text(code));
  }
  fail(ExitCode::retryable, where, "{}", error_text(code));
}

MPI_Datatype bits_of(DType dtype) {
  switch (size_of(dtype)) {
    case 8:
      return MPI_UINT64_T;
    case 4:
      return MPI_UINT32_T;
    case 2:
      return MPI_UINT16_T;
    default:
      return MPI_UINT8_T;
  }
}

MPI_Datatype number_of(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return MPI_DOUBLE;
    case DType::f32:
      return MPI_FLOAT;
    case DType::i64:
      return MPI_INT64_T;
    case DType::i32:
      return MPI_INT32_T;
    case DType::u8:
      return MPI_UINT8_T;
    default:
      return MPI_DATATYPE_NULL;
  }
}

// Never destroyed: groups in static storage may still refer to it when the process ends.
Runtime& Runtime::get() {
  static Runtime* const runtime = new Runtime;
  return *runtime;
}

bool Runtime::up() { return initialised; }

Runtime::Runtime() {
  int provided = MPI_THREAD_SINGLE;
  if (MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided) != MPI_SUCCESS ||
      provided < MPI_THREAD_SERIALIZED) {
    trireme::fail(ExitCode::usage, "mpi",
                  "this MPI cannot be called from several threads (level {}, needs MPI_THREAD_SERIALIZED)", provided);
  }
  check_code(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "mpi");  // copies of it inherit this
  check_code(MPI_Comm_dup(MPI_COMM_WORLD, &world_), "mpi");
  check_code(MPI_Comm_dup(MPI_COMM_WORLD, &control_), "mpi");
  check_code(MPI_Comm_rank(world_, &rank_), "mpi");
  check_code(MPI_Comm_size(world_, &size_), "mpi");
  if (under_mpi_launcher() && size_ != mpi_launcher_size()) {
    trireme::fail(ExitCode::usage, "mpi",
                  "the launcher says there are {} ranks, MPI says {}; start with the mpirun of the Open MPI "
                  "this program was built with, or srun --mpi=pmix",
                  mpi_launcher_size(), size_);
  }
  board_ = std::make_unique<NodeBoard>(world_);
  spin_ = board_->ranks_here() <= static_cast<int>(std::thread::hardware_concurrency());
  std::atexit([] { get().finalize(); });
  initialised = true;
}

void Runtime::watch(const WatchOptions& options) {
  const auto pages = board_->pages();
  beacon_ = std::make_shared<watch::Beacon>(pages, rank_);
  watch::Beacon::set_current(beacon_);
  if (size_ == 1) return;
  const auto on_lost = [this, options](const std::exception_ptr& error) {
    if (options.on_lost) options.on_lost(error);
    fail(error);
  };
  // For a rank that was stopped, and runs again because mpirun ends the job.
  const auto on_end = [this] { leave(static_cast<int>(ExitCode::retryable)); };
  watchdog_ = std::make_unique<watch::Watchdog>(pages, options.timeout, on_lost, on_end, options.now);
  watchdog_->add(beacon_);
  HostPlace place = link_hosts(control_, pages, options.timeout.count(), {on_lost, options.on_notice});
  links_ = std::move(place.links);
  // Ranks of several hosts may find at the same moment that they wait in vain. The first to report ends the job.
  watchdog_->report_unseen_later(std::min(0.5 * place.host, 10.0));
}

void Runtime::poll(watch::Wait& wait, const std::function<bool()>& test, bool patiently,
                   const std::function<void()>& look) {
  const auto start = Clock::now();
  const auto spinning = spin_ && !patiently ? spin_time : Clock::duration::zero();
  const auto yielding = patiently ? std::chrono::microseconds(50) : yield_time;
  auto sleep = std::chrono::duration_cast<std::chrono::microseconds>(shortest_sleep);
  while (true) {
    {
      const std::scoped_lock lock(mutex_);
      if (test()) return;
    }
    throw_failure();
    const auto waited = Clock::now() - start;
    if (waited < spinning) continue;
    if (waited < yielding) {
      sched_yield();
      continue;
    }
    wait.lasts();
    look();
    std::this_thread::sleep_for(sleep);
    sleep = std::min<std::chrono::microseconds>(2 * sleep, longest_sleep);
  }
}

void Runtime::finish_later(MPI_Request request, Tensor x) {
  sends_.push_back({request, std::move(x)});
  if (reap()) return;
  if (!pump_.joinable())
    pump_ = std::thread([this] {
      use_all_cores();
      pump();
    });
  sends_changed_.notify_one();
}

bool Runtime::reap() {
  sends_.remove_if([](Send& send) {
    int over = 0;
    check_code(MPI_Test(&send.request, &over, MPI_STATUS_IGNORE), "send");
    return over != 0;
  });
  return sends_.empty();
}

// A long message makes progress only when its sender calls MPI, several times. Without this thread it would wait for
// the sender's next operation.
void Runtime::pump() {
  std::unique_lock lock(mutex_);
  while (true) {
    sends_changed_.wait(lock, [this] { return stop_ || !sends_.empty(); });
    if (stop_) return;
    try {
      reap();
    } catch (...) {
      lock.unlock();
      return fail(std::current_exception());  // the next wait of this rank throws it
    }
    lock.unlock();
    std::this_thread::sleep_for(std::chrono::microseconds(50));
    lock.lock();
  }
}

void Runtime::fail(std::exception_ptr error) {
  const std::scoped_lock lock(mutex_);
  if (!error_) error_ = std::move(error);
  failed_ = true;
}

void Runtime::throw_failure() {
  if (!failed_) return;
  const std::scoped_lock lock(mutex_);
  if (error_) std::rethrow_exception(error_);
  trireme::fail(ExitCode::retryable, "mpi", "this rank has failed while the operation was under way");
}

void Runtime::keep(const Tensor& x) {
  const std::scoped_lock lock(mutex_);
  kept_.push_back(x);
}

// MPI_Finalize needs every rank. A failed rank never gets here, and MPI_Finalize would wait for it forever; so wait for
// all ranks first. A failed rank exits without MPI_Finalize; mpirun then ends the others.
void Runtime::finalize() {
  if (failed_) {
    if (beacon_) beacon_->set_state(watch::RankState::failed);
    return;
  }
  MPI_Request request = MPI_REQUEST_NULL;
  const auto over = [&] {
    int flag = 0;
    check_code(MPI_Test(&request, &flag, MPI_STATUS_IGNORE), "mpi");
    return flag != 0 && reap();
  };
  try {
    {
      const std::scoped_lock lock(mutex_);
      check_code(MPI_Ibarrier(control_, &request), "mpi");
    }
    const watch::Blocked blocked;
    const watch::Recording record(subgroup_record("the end of the job"));
    const auto missing = [this] { return running(); };
    watch::Wait wait(record, missing);
    poll(wait, over, false);
  } catch (const std::exception& error) {  // from the watchdog, which may already be ending the job itself
    std::this_thread::sleep_for(std::chrono::seconds(1));
    std::fprintf(stderr, "%s\n", error.what());
    abort(static_cast<int>(ExitCode::retryable));
  }
  if (beacon_) beacon_->set_state(watch::RankState::ended);
  watchdog_.reset();
  links_.reset();
  {
    const std::scoped_lock lock(mutex_);
    stop_ = true;
  }
  sends_changed_.notify_one();
  if (pump_.joinable()) pump_.join();
  failed_ = true;                     // nothing may call MPI from here on
  static_cast<void>(MPI_Finalize());  // the process ends with or without it
}

std::shared_ptr<const watch::RankPages> Runtime::pages() const { return beacon_ ? beacon_->pages() : nullptr; }

std::vector<int> Runtime::running() const {
  std::vector<int> ranks;
  for (int rank = 0; beacon_ && rank < size_; ++rank) {
    const auto& pages = *beacon_->pages();
    if (rank != rank_ && pages.visible(rank) && pages.page(rank).state != watch::RankState::ended)
      ranks.push_back(rank);
  }
  return ranks;
}

void Runtime::abort(int exit_code) {
  failed_ = true;
  if (beacon_) beacon_->set_state(watch::RankState::failed);  // so that nobody reports this rank as dead
  // Take the lock and keep it, so that no other thread is inside MPI while it is torn down. Give up after a while: a
  // thread that holds the lock may hang.
  const auto patience = Clock::now() + std::chrono::milliseconds(200);
  while (!mutex_.try_lock() && Clock::now() < patience) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  // If mpirun is already ending the job because a rank died, MPI_Abort does not return before that is done; so exit
  // anyway.
  std::thread([exit_code] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    std::_Exit(exit_code);
  }).detach();
  static_cast<void>(MPI_Abort(MPI_COMM_WORLD, exit_code));
  std::_Exit(exit_code);
}

// mpirun ends the rest of an aborted job with SIGCONT, SIGTERM and SIGKILL. It sleeps for a second before SIGTERM and
// before SIGKILL; a rank that exits meanwhile wakes it. So ranks leave one after the other, which ends a job with a
// hung rank in a tenth of a second. They wait until the aborting rank has written its messages.
void Runtime::leave(int exit_code) {
  const auto patience = Clock::now() + std::chrono::milliseconds(300);
  while (!aborted() && Clock::now() < patience) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  failed_ = true;
  if (beacon_) beacon_->set_state(watch::RankState::failed);  // so that nobody reports this rank as dead
  std::this_thread::sleep_for(std::chrono::milliseconds(50 * (1 + rank_ % 4)));
  std::_Exit(exit_code);
}

bool Runtime::aborted() const {
  for (int rank = 0; beacon_ && rank < size_; ++rank) {
    const auto& pages = *beacon_->pages();
    if (rank != rank_ && pages.visible(rank) && pages.page(rank).state == watch::RankState::failed) return true;
  }
  return false;
}

}  // namespace trireme::comm::mpi
