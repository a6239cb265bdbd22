#include "train/ranks.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>

#include "core/kernels.h"
#include "core/parallel_for.h"
#include "cuda/runtime/open.h"
#include "cuda/selection.h"
#include "parallel/comm/nccl_group.h"
#include "parallel/comm/staged_group.h"
#include "parallel/comm/verifying_group.h"
#include "train/launcher.h"
#include "train/program.h"

namespace trireme {
namespace {

// Long enough for a rank that evaluates, samples or saves while others wait; short enough that a hang is noticed.
constexpr ProcessGroup::Deadline deadline = std::chrono::seconds(120);

/// Throws the current exception again with its place in the job. What is wrong with the request or its data is
/// wrong on every rank: before the first step such an error has no place.
[[noreturn]] void rethrow_placed(const Rank& rank) {
  const Error error = to_error(std::current_exception());
  const ExitCode code = error.code();
  const bool shared =
      code == ExitCode::usage || code == ExitCode::data || code == ExitCode::io || code == ExitCode::locked;
  if (rank.step < 0) throw PlacedError(error, shared ? "" : rank.where);
  throw PlacedError(error, fmt::format("{} step {}", rank.where, rank.step));
}

Rank make_rank(std::shared_ptr<ProcessGroup> world) {
  std::string where = fmt::format("rank {}", world->rank());
  return {.world = std::move(world), .where = std::move(where)};
}

/// The rank whose error run_thread_ranks() rethrows is told by the identity of the exception.
void run_as_threads(int ranks, int threads, const std::function<void(Rank&)>& body) {
  std::mutex mutex;
  std::vector<std::pair<std::exception_ptr, Rank>> failures;
  try {
    run_thread_ranks(ranks, threads, deadline, [&](std::shared_ptr<ProcessGroup> world) {
      Rank rank = make_rank(std::move(world));
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
    throw;
  }
}

bool on_gpu(const TrainOptions& options) { return options.precision.tensor_device() == Device::cuda; }

/// Over NCCL where each rank is a process with a GPU of its own. Ranks that share one move its tensors through the host.
void enter_gpus(Rank& rank) {
  const bool own = has_gpu_world(*rank.world);
  rank.traffic = own ? "by NCCL" : "through the host";
  if (!own) {
    rank.world = staged(rank.world);
    return;
  }
  rank.world = gpu_world(rank.world, deadline, [where = rank.where](const std::exception_ptr& error) {
    mpi_abort(report(std::make_exception_ptr(PlacedError(to_error(error), where))));
  });
}

void run_as_process(const TrainOptions& options, int threads, const std::function<void(Rank&)>& body) {
  set_threads(threads);
  Rank rank = make_rank(mpi_world(deadline));
  try {
    require_same_configuration(*rank.world, config_text(options));
    body(rank);
  } catch (...) {
    int code = 0;
    try {
      rethrow_placed(rank);
    } catch (...) { code = report(std::current_exception()); }
    mpi_abort(code);
  }
}

/// For the whole process; names have been validated.
void select_implementations(const TrainOptions& options) {
  const PrecisionOptions& o = options.precision;
  if (on_gpu(options)) {
    cuda::select_gemm(o.gemm);
    cuda::select_attention(o.attention);
  } else {
    select_gemm(o.gemm == "auto" ? gemm_names().front() : o.gemm);
  }
}

}  // namespace

void run_ranks(const TrainOptions& options, const std::function<void(Rank&)>& body) {
  select_implementations(options);
  if (on_gpu(options)) cuda::open_device(launched_gpu(static_cast<int>(cuda::find_devices().devices.size())));
  const int ranks = options.mesh.shape.ranks();
  const bool as_threads = !options.mesh.processes;
  const auto checked = [&](Rank& rank) {
    if (on_gpu(options)) enter_gpus(rank);
    if (options.run.verify) rank.world = verifying(rank.world);
    body(rank);
  };
  const int automatic = std::max(1, as_threads ? cores() / ranks : cores());
  const int threads = static_cast<int>(options.precision.threads.value_or(automatic));
  if (as_threads)
    run_as_threads(ranks, threads, checked);
  else
    run_as_process(options, threads, checked);
}

std::string configuration_difference(const std::vector<std::string>& by_rank) {
  if (std::all_of(by_rank.begin(), by_rank.end(), [&](const std::string& text) { return text == by_rank.front(); }))
    return "";
  std::vector<nlohmann::json> objects;
  objects.reserve(by_rank.size());
  for (const std::string& text : by_rank) objects.push_back(nlohmann::json::parse(text));
  for (const auto& item : objects.front().items()) {
    std::map<std::string, std::string> ranks;  // by value: "0, 1, 3"
    for (std::size_t rank = 0; rank < objects.size(); ++rank) {
      std::string& list = ranks[objects[rank].value(item.key(), nlohmann::json()).dump()];
      list += fmt::format("{}{}", list.empty() ? "" : ", ", rank);
    }
    if (ranks.size() == 1) continue;
    std::string values;
    for (const auto& [value, list] : ranks)
      values += fmt::format("{}{} on rank {}", values.empty() ? "" : "; ", value, list);
    return fmt::format(
        "--{} differs between ranks: {}; expected one configuration; start every rank with the same flags", item.key(),
        values);
  }
  return "the ranks' configurations have different keys; expected one version of the program on all ranks";
}

void require_same_configuration(ProcessGroup& world, const std::string& configuration) {
  const auto own = static_cast<std::int64_t>(configuration.size());
  Tensor size = Tensor::full({1}, static_cast<double>(own), DType::i64),
         sizes = Tensor::empty({world.size(), 1}, DType::i64);
  world.all_gather(size, sizes).wait();
  const auto all = sizes.span<std::int64_t>();
  const std::int64_t longest = *std::max_element(all.begin(), all.end());
  Tensor text = Tensor::zeros({longest}, DType::u8),
         texts = Tensor::empty({world.size(), longest}, DType::u8);  // [longest], [ranks, longest]
  std::memcpy(text.raw(), configuration.data(), configuration.size());
  world.all_gather(text, texts).wait();
  std::vector<std::string> by_rank;
  for (std::int64_t rank = 0; rank < world.size(); ++rank)
    by_rank.emplace_back(reinterpret_cast<const char*>(texts.data<std::uint8_t>()) + rank * longest,
                         static_cast<std::size_t>(all[static_cast<std::size_t>(rank)]));
  if (const std::string difference = configuration_difference(by_rank); !difference.empty())
    fail(ExitCode::usage, "configuration", "{}", difference);
}

}  // namespace trireme
