// Begin at the end of the file: run_ranks() starts the ranks by run_as_threads() or run_as_process(). Both give every
// error its place in the job, and write the flight record if a rank was lost.
#include "train/launch/ranks.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <optional>
#include <thread>

#include "core/cores.h"
#include "core/cpu/level.h"
#include "core/io.h"
#include "core/kernels.h"
#include "core/parallel_for.h"
#include "core/profiled_kernels.h"
#include "cuda/runtime/open.h"
#include "cuda/selection.h"
#include "parallel/comm/algorithms/message_group.h"
#include "parallel/comm/nccl/launch.h"
#include "parallel/comm/staged_group.h"
#include "parallel/comm/verifying_group.h"
#include "parallel/comm/watch/beacon.h"
#include "parallel/comm/watch/report.h"
#include "parallel/comm/watch/watchdog.h"
#include "train/options/links_file.h"
#include "train/program/launcher.h"
#include "train/program/program.h"
#include "train/program/screen.h"

namespace trireme {
namespace {

/// The error of a lost rank. Its place is that of the lost rank, not of the rank that noticed.
class PlacedLoss : public PlacedError {
 public:
  explicit PlacedLoss(const watch::LostRank& lost) : PlacedError(lost, lost.place()), lost_(lost) {}
  const std::string& record() const { return lost_.record(); }

 private:
  watch::LostRank lost_;
};

void rethrow_if_lost() {
  try {
    throw;
  } catch (const watch::LostRank& lost) { throw PlacedLoss(lost); } catch (...) {  // another error
  }
}

/// The error of a lost rank as a PlacedLoss.
std::exception_ptr placed_loss(const std::exception_ptr& lost) {
  try {
    std::rethrow_exception(lost);
  } catch (const watch::LostRank& rank) { return std::make_exception_ptr(PlacedLoss(rank)); }
}

/// Rethrows the current exception with its place in the job. Before the first step, errors in the request or its data
/// have no place, because they occur on every rank.
[[noreturn]] void rethrow_placed(const Rank& rank) {
  rethrow_if_lost();
  const Error error = to_error(std::current_exception());
  try {
    if (rank.failed) rank.failed();
  } catch (const std::exception&) {  // the original failure is reported
  }
  const ExitCode code = error.code();
  const bool shared =
      code == ExitCode::usage || code == ExitCode::data || code == ExitCode::io || code == ExitCode::locked;
  if (rank.step < 0) throw PlacedError(error, shared ? "" : rank.where);
  throw PlacedError(error, fmt::format("{} step {}", rank.where, rank.step), rank.unfinished_save);
}

ProcessGroup::Deadline timeout_of(const TrainOptions& options) { return ProcessGroup::Deadline(options.run.timeout); }

Rank make_rank(std::shared_ptr<ProcessGroup> world) {
  std::string where = fmt::format("rank {}", world->rank());
  Rank rank{.world = std::move(world), .where = std::move(where)};
  const std::shared_ptr<watch::RankPages>& pages = watch::Beacon::current()->pages();
  int first = 0;  // the lowest rank that this one can see
  while (!pages->visible(first)) ++first;
  if (first == rank.world->rank()) rank.stragglers = std::make_shared<watch::StragglerWatch>(pages);
  return rank;
}

/// True for the errors of a rank that waited for others in vain.
bool is_loss_of_ranks(ExitCode code) { return code == ExitCode::retryable || code == ExitCode::desync; }

/// The last actions of all ranks: recorded when a rank was lost, otherwise taken now.
std::string flight_record(const watch::RankPages& pages, const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const PlacedLoss& loss) { return loss.record(); } catch (...) {
    return watch::flight_record(pages);
  }
}

/// Writes the error message and the flight record into the run's folder, and prints the path.
void write_flight_record(const FolderName& folder, const watch::RankPages& pages, const std::exception_ptr& error) {
  std::error_code absent;
  const std::string out = folder.get();
  if (out.empty() || !std::filesystem::is_directory(out, absent)) return;
  const std::string record = flight_record(pages, error);
  if (record.empty()) return;  // another host writes it
  const std::filesystem::path path = std::filesystem::path(out) / "flight_recorder.txt";
  try {
    write_file(path, fatal_message(error) + "\n\n" + record);
    Screen::of_process().warn("trireme: what all ranks did last: " + path.string());
  } catch (const Error& failed) { Screen::of_process().warn(failed.what()); }
}

/// run_thread_ranks() rethrows the exception of one rank; comparing exception pointers finds that rank.
void run_as_threads(const TrainOptions& options, int ranks, int threads, const std::function<void(Rank&)>& body) {
  std::mutex mutex;
  std::vector<std::pair<std::exception_ptr, Rank>> failures;
  std::shared_ptr<watch::RankPages> pages;
  const auto folder = std::make_shared<FolderName>(options.run.out);
  // Called when a rank's thread will not return, so the others cannot be joined.
  const auto end = [&](const std::exception_ptr& error) {
    const std::exception_ptr loss = placed_loss(error);
    const int code = report(loss);
    const std::shared_ptr<watch::RankPages> current = [&] {
      const std::scoped_lock lock(mutex);
      return pages;
    }();
    if (current) write_flight_record(*folder, *current, loss);
    std::fflush(nullptr);
    std::_Exit(code);
  };
  try {
    try {
      run_thread_ranks(ranks, threads, {.timeout = timeout_of(options), .on_lost = end},
                       [&](std::shared_ptr<ProcessGroup> world) {
                         Rank rank = make_rank(std::move(world));
                         rank.folder = folder;
                         {
                           const std::scoped_lock lock(mutex);
                           pages = watch::Beacon::current()->pages();
                         }
                         try {
                           body(rank);
                         } catch (...) {
                           const std::scoped_lock lock(mutex);
                           failures.emplace_back(std::current_exception(), rank);
                           failures.back().second.world.reset();
                           throw;
                         }
                       });
    } catch (...) {
      for (const auto& [error, rank] : failures)
        if (error == std::current_exception()) rethrow_placed(rank);
      rethrow_if_lost();
      throw;
    }
  } catch (const Error& error) {
    if (ranks > 1 && is_loss_of_ranks(error.code())) write_flight_record(*folder, *pages, std::current_exception());
    throw;
  }
}

/// Runs f, and adds the estimate to the message of an error about memory.
void with_memory_estimate(const std::string& estimate, const std::function<void()>& f) {
  try {
    f();
  } catch (...) {
    const Error error = to_error(std::current_exception());
    constexpr std::string_view place = "trireme: [memory] ";
    const std::string_view what = error.what();
    if (!what.starts_with(place) || estimate.empty()) throw;
    fail(error.code(), "memory", "{}; {}", what.substr(place.size()), estimate);
  }
}

/// Reports a failure, once per job, and ends the job. Callable from any thread.
[[noreturn]] void end_job(const FolderName& folder, const std::exception_ptr& error) {
  static std::atomic_flag ending;
  while (ending.test_and_set()) std::this_thread::sleep_for(std::chrono::seconds(1));  // another thread ends it
  const int code = report(error);
  const std::shared_ptr<const watch::RankPages> pages = watch::mpi_rank_pages();
  if (pages && pages->ranks() > 1 && is_loss_of_ranks(to_error(error).code())) {
    if (!first_to_report()) mpi_leave(code);  // another process writes it and ends the job
    write_flight_record(folder, *pages, error);
  }
  mpi_abort(code);
}

bool on_gpu(const TrainOptions& options) { return options.precision.tensor_device() == Device::cuda; }

/// Uses NCCL if each rank is a process with a GPU of its own. Otherwise, ranks move tensors through the host.
void enter_gpus(const TrainOptions& options, Rank& rank) {
  const bool on_nccl = has_gpu_world(*rank.world);
  if (on_nccl && options.mesh.collectives != comm::Algorithm::exact)
    fail(ExitCode::usage, "collectives",
         "--collectives {} is for ranks that exchange host memory, and between GPUs NCCL chooses its own algorithms; "
         "expected exact; drop --collectives",
         comm::name(options.mesh.collectives));
  rank.traffic = on_nccl ? "by NCCL" : "through the host";
  if (!on_nccl) {
    rank.world = staged(rank.world);
    return;
  }
  // The watchdog cannot see progress on the GPU, so it is more patient.
  rank.world = gpu_world(
      rank.world, watch::patience_with_unseen * timeout_of(options),
      [folder = rank.folder, where = rank.where](const std::exception_ptr& error) {
        end_job(*folder, std::make_exception_ptr(PlacedError(to_error(error), where)));
      },
      options.mesh.reduction.value_or(SumOrder::any));
}

void run_as_process(const TrainOptions& options, int threads, const std::function<void(Rank&)>& body,
                    const CommonValues& read) {
  set_threads(threads);
  const auto folder = std::make_shared<FolderName>(options.run.out);
  // Shared: the watchdog still runs after main() returns.
  const auto end = [folder](const std::exception_ptr& error) { end_job(*folder, placed_loss(error)); };
  const auto notice = [](const std::string& text) { Screen::of_process().warning(text); };
  Rank rank = make_rank(mpi_world({.timeout = timeout_of(options), .on_lost = end, .on_notice = notice},
                                  options.mesh.reduction.value_or(SumOrder::ranks)));
  rank.folder = folder;
  try {
    CommonValues common = common_setup(options);
    common.insert(common.end(), read.begin(), read.end());
    require_common(*rank.world, common);
    body(rank);
    watch::Beacon::current()->set_state(watch::RankState::ended);
  } catch (...) {
    try {
      rethrow_placed(rank);
    } catch (...) { end_job(*folder, std::current_exception()); }
  }
}

/// For the whole process. The names are already validated.
void select_implementations(const TrainOptions& options) {
  profile_kernels(!options.run.profile.empty());
  cpu::require_processor();
  const PrecisionOptions& o = options.precision;
  if (on_gpu(options)) {
    cuda::select_gemm(o.gemm);
    cuda::select_attention(o.attention);
  } else {
    select_gemm(o.gemm == "auto" ? gemm_names().front() : o.gemm);
  }
}

}  // namespace

int run_ranks(const TrainOptions& options, const std::function<void(Rank&)>& body, const CommonValues& read,
              const std::string& memory) {
  select_implementations(options);
  if (on_gpu(options)) cuda::open_device(launched_gpu(static_cast<int>(cuda::find_devices().devices.size())));
  const int ranks = options.mesh.shape.ranks();
  const bool as_threads = !options.mesh.processes;
  std::atomic<int> exit_code{0};
  const int threads = options.threads_per_rank();
  const comm::AlgorithmOptions algorithm{
      .algorithm = options.mesh.collectives,
      .network =
          options.mesh.links.empty() ? nullptr : std::make_shared<comm::Network>(read_links(options.mesh.links, ranks)),
      .exact_sums = options.mesh.reduction == SumOrder::ranks};
  const auto run_rank = [&](Rank& rank) {
    std::optional<OwnCores> own_cores;
    if (options.precision.pin) {
      const CorePart part = as_threads ? CorePart{rank.world->rank() * threads, ranks * threads} : core_part(threads);
      own_cores.emplace(part.first, part.parts);
    }
    rank.world = comm::with_algorithm(rank.world, algorithm);
    if (on_gpu(options)) enter_gpus(options, rank);
    if (options.run.verify) rank.world = verifying(rank.world);
    with_memory_estimate(memory, [&] { body(rank); });
    if (rank.exit_code != 0) exit_code = rank.exit_code;  // all non-zero codes are equal
  };
  if (as_threads)
    run_as_threads(options, ranks, threads, run_rank);
  else
    run_as_process(options, threads, run_rank, read);
  return exit_code;
}

}  // namespace trireme
