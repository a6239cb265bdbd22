#include "parallel/checkpoint/saver.h"

#include <thread>

#include "core/io.h"
#include "parallel/checkpoint/background.h"
#include "parallel/checkpoint/chunks.h"
#include "parallel/checkpoint/folder.h"
#include "parallel/checkpoint/resume_attempts.h"
#include "parallel/comm/texts.h"

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;

/// Runs f. Returns its error as a text that can be sent to other ranks, or an empty text.
template <class F>
std::string problem_of(const F& f) {
  try {
    f();
    return {};
  } catch (const Error& error) { return error.reason(); } catch (const std::exception& error) {
    return error.what();
  }
}

template <class T>
bool ready(const std::future<T>& future) {
  return !future.valid() || future.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

/// True if `mine` is true on every rank. Collective.
bool everywhere(ProcessGroup& world, bool mine) { return !any_rank(world, !mine); }

std::int64_t sum_of(ProcessGroup& world, std::uint64_t mine) {
  const auto value = static_cast<std::int64_t>(mine);
  const Tensor sum = Tensor::from(std::span(&value, 1), {1});
  world.all_reduce(sum).wait();
  return *sum.data<std::int64_t>();
}

void commit(const Manifest& manifest, const fs::path& temporary, const fs::path& final_path) {
  // Check that all files are here: ranks on other machines may have written to another disk under the same path.
  require_not_removed(temporary);
  for (const StoredFile& file : manifest.files) static_cast<void>(ChunkReader(temporary, file));
  const std::string text = to_text(manifest);
  if (text.size() > manifest_most_bytes)
    fail(ExitCode::io, "checkpoint", "{} would have {} bytes; expected at most {}, which is what a reader takes",
         (final_path / manifest_name).string(), text.size(), manifest_most_bytes);
  write_file(temporary / manifest_name, text);
  sync_folder(temporary);
  publish(temporary, final_path);
}

}  // namespace

Saver::Saver(fs::path checkpoints, const DeviceMesh& mesh, std::optional<std::int64_t> keep)
    : checkpoints_(std::move(checkpoints)),
      mesh_(mesh),
      keep_(keep),
      nonce_(broadcast_text(mesh.world(), make_nonce())) {
  const std::string problem = first_text(
      mesh_.world(), mesh_.rank() == 0 ? problem_of([&] { remove_leftovers(checkpoints_); }) : std::string());
  if (!problem.empty()) fail(ExitCode::io, "checkpoint", "{}", problem);
}

// If a run ends in an error during a save, this waits for the threads, because they use file_. What they wrote has a
// name that nothing reads, and the next run in the folder removes it.
Saver::~Saver() {
  if (writing_.valid()) writing_.wait();
  if (committing_.valid()) committing_.wait();
}

void Saver::require_possible() const {
  ProcessGroup& world = mesh_.world();
  std::error_code unknown;
  const bool first = mesh_.rank() == 0, existed = fs::exists(fs::symlink_status(checkpoints_, unknown));
  const fs::path trial = checkpoints_ / temporary_name(0, nonce_);
  const auto file = [&](int rank) { return trial / fmt::format("{}", rank); };
  const auto of_first = [&](const auto& f) { return first_text(world, first ? problem_of(f) : std::string()); };
  std::string problem = of_first([&] { make_temporary_folder(checkpoints_.parent_path(), trial); });
  if (problem.empty()) {
    problem = problem_of([&] { write_file(file(mesh_.rank()), ""); });
    if (!problem.empty() && !first)
      problem = fmt::format(
          "rank {} cannot write where rank 0 can: {}; expected one folder for all ranks, on a file system that they "
          "share",
          mesh_.rank(), problem);
    problem = first_text(world, problem);
  }
  if (problem.empty())
    problem = of_first([&] {
      for (int rank = 0; rank < world.size(); ++rank)
        if (!is_there(file(rank)))
          fail(ExitCode::io, "checkpoint",
               "what rank {} writes to {} does not arrive at rank 0: expected one folder for all ranks, on a file "
               "system that they share",
               rank, checkpoints_.string());
    });
  if (first)
    static_cast<void>(problem_of([&] {
      remove_folder(trial);
      std::error_code not_empty;
      if (!existed) fs::remove(checkpoints_, not_empty);
    }));
  if (!problem.empty())
    fail(ExitCode::io, "checkpoint", "no checkpoint could be saved: {}; mend it before the run begins", problem);
}

void Saver::begin(std::int64_t step, const std::vector<HeldTensor>& held, std::map<std::string, std::string> run,
                  std::optional<ValidationLoss> validation_loss) {
  require(!busy(), "checkpoint", "a save is still under way; call finish() first");
  began_ = Clock::now();
  validation_loss_ = validation_loss;
  temporary_ = checkpoints_ / temporary_name(step, nonce_);
  file_.take(owned_parts(held), mesh_.rank());
  saved_ = {.step = step,
            .path = checkpoints_ / folder_name(step),
            .bytes = static_cast<std::uint64_t>(sum_of(mesh_.world(), file_.bytes())),
            .error = {},
            .warning = {}};
  manifest_ = {.step = step,
               .ranks = mesh_.world().size(),
               .mesh = to_string(mesh_.shape()),
               .run = std::move(run),
               .files = {},
               .tensors = {}};
  if (validation_loss_) validation_loss_->describe(manifest_.run);
  refused_ = first_text(mesh_.world(), mesh_.rank() != 0 ? std::string() : problem_of([&] {
                          make_temporary_folder(checkpoints_.parent_path(), temporary_);
                          require_space(temporary_, saved_.bytes);
                        }));
  if (refused_.empty()) {
    writing_ = in_background([this] { return file_.write(temporary_); });
  }
  phase_ = Phase::writing;
  saved_.stall_seconds = std::chrono::duration<double>(Clock::now() - began_).count();
}

Saved Saver::ended(std::string error) {
  phase_ = Phase::idle;
  saved_.error = std::move(error);
  if (!saved_.error.empty() && mesh_.rank() == 0) {
    // Report only the first failure. If the folder cannot be removed now, the next run removes it.
    static_cast<void>(problem_of([&] { remove_folder(temporary_); }));
  }
  return saved_;
}

// Called when all ranks have written or failed: sends the descriptions to rank 0, whose thread commits.
std::optional<Saved> Saver::after_writing() {
  Manifest mine;
  std::string problem = refused_;
  if (writing_.valid()) problem = problem_of([&] { mine = writing_.get(); });
  problem = first_text(mesh_.world(), problem);
  if (!problem.empty()) return ended(std::move(problem));
  mine.step = manifest_.step;
  const std::vector<std::string> descriptions = gather_texts(mesh_.world(), to_text(mine));
  phase_ = Phase::committing;
  if (mesh_.rank() != 0) return std::nullopt;
  committing_ = in_background([this, descriptions] {
    for (const std::string& text : descriptions) merge(manifest_, parse_part(text));
    require_complete(manifest_, saved_.path / manifest_name);
    commit(manifest_, temporary_, saved_.path);
    return problem_of([&] {
      ResumeAttempts(checkpoints_).take_back(saved_.path, 0);
      if (validation_loss_) Best::update(checkpoints_, saved_.step, validation_loss_->loss);
      if (keep_ || validation_loss_) prune(checkpoints_, keep_, saved_.path);
    });
  });
  return std::nullopt;
}

/// The result of f, whose time counts as stall time.
template <class F>
std::optional<Saved> Saver::timed(const F& f) {
  const Clock::time_point start = Clock::now();
  std::optional<Saved> result = f();
  const Clock::time_point end = Clock::now();
  (result ? result->stall_seconds : saved_.stall_seconds) += std::chrono::duration<double>(end - start).count();
  if (result) result->seconds = std::chrono::duration<double>(end - began_).count();  // includes the stall
  return result;
}

std::optional<Saved> Saver::advance() {
  if (phase_ == Phase::writing) { return everywhere(mesh_.world(), ready(writing_)) ? after_writing() : std::nullopt; }
  if (!everywhere(mesh_.world(), ready(committing_))) return std::nullopt;
  std::string warning;
  const std::string problem = committing_.valid() ? problem_of([&] { warning = committing_.get(); }) : std::string();
  saved_.warning = broadcast_text(mesh_.world(), warning);
  return ended(first_text(mesh_.world(), problem));
}

std::optional<Saved> Saver::poll() {
  return timed([&] { return busy() ? advance() : std::nullopt; });
}

std::optional<Saved> Saver::finish() {
  return timed([&] {
    std::optional<Saved> result;
    while (busy() && !(result = advance())) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return result;
  });
}

std::optional<Saved> Saver::finish_within(std::chrono::duration<double> limit) {
  const Clock::time_point start = Clock::now();
  return timed([&] {
    std::optional<Saved> result;
    while (busy() && !(result = advance()) && everywhere(mesh_.world(), Clock::now() - start < limit))
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return result;
  });
}

}  // namespace trireme::checkpoint
