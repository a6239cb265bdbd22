#include "train/runs/saved_run.h"

#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "core/io.h"
#include "nn/lora.h"
#include "parallel/checkpoint/folder.h"
#include "parallel/checkpoint/resume_attempts.h"
#include "parallel/comm/texts.h"
#include "train/events/texts.h"
#include "train/launch/common_values.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;
using checkpoint::Candidate;
using checkpoint::Checkpoint;

constexpr const char* checkpoints_name = "checkpoints";
constexpr const char* best_name = "best";  // PATH/best: the best checkpoint of the run PATH

std::vector<checkpoint::HeldTensor> all_held(const Model& model, optim::Optimizer& optimizer) {
  return checkpoint::held_tensors(optimizer.weights_and_state(), model.buffers(), model.mesh());
}

/// On different machines, the same path may lead to different files.
void require_same_content(ProcessGroup& world, const Checkpoint& saved) {
  require_common(
      world, {{"the checkpoint", fmt::format("{} (content {:016x})", saved.path().string(), saved.manifest().checksum),
               "expected one; give every rank the same files: a folder that all of them share, or equal copies"}});
}

/// Opens `path`, which is the same on every rank, on all ranks.
Checkpoint open_on_all(ProcessGroup& world, const fs::path& path) {
  std::optional<Checkpoint> saved;
  fail_together(world, [&] { saved.emplace(path); });
  require_same_content(world, *saved);
  return std::move(*saved);
}

/// A weight that nothing loads would keep the zeros that a model made for a checkpoint begins with.
void require_all_weights(const Model& model, const std::vector<checkpoint::HeldTensor>& held) {
  std::set<std::string_view> names;
  for (const checkpoint::HeldTensor& tensor : held) names.insert(tensor.name);
  for (const ParameterPtr& parameter : model.parameters())
    require(names.contains(parameter->name), "resume", "no weights of the checkpoint are loaded into {}",
            parameter->name);
  for (const BufferPtr& buffer : model.buffers())
    require(names.contains(buffer->name), "resume", "nothing of the checkpoint is loaded into {}", buffer->name);
}

/// A parameter that the run has trained, and that is now frozen, would lose its state.
void require_same_frozen(const Checkpoint& saved, const Model& model, const optim::Optimizer& optimizer) {
  for (const ParameterPtr& parameter : model.parameters()) {
    if (parameter->requires_grad()) continue;
    for (const std::string& moment : optimizer.moment_names())
      if (saved.manifest().tensors.contains(fmt::format("optimizer.{}.{}", moment, parameter->name)))
        fail(
            ExitCode::usage, "resume",
            "{} was trained in the run of {}, and is frozen now; expected the same --freeze; change it, or begin a new "
            "run with --init-from",
            parameter->name, saved.path().string());
  }
}

/// Each rank loads its part of the checkpoint.
Resumed load_on_all(ProcessGroup& world, const fs::path& path, Model& model, optim::Optimizer& optimizer,
                    const RunIdentity& run) {
  const std::vector<checkpoint::HeldTensor> held = all_held(model, optimizer);
  require_all_weights(model, held);
  Checkpoint saved = open_on_all(world, path);
  Resumed resumed{.path = path, .progress = {}};
  fail_together(world, [&] {
    require_same_run(saved, model, run);
    require_same_optimizer(saved, optimizer);
    require_same_frozen(saved, model, optimizer);
    resumed.dropped = dropped_state(saved, optimizer);
    resumed.progress = read_progress(saved);
    const RunTexts& texts = saved.manifest().run;
    if (const auto found = texts.find(configuration_entry); found != texts.end()) resumed.configuration = found->second;
    saved.read(held, "it was saved with another --optimizer, --momentum or --freeze");
    optimizer.set_steps(resumed.progress.steps);
  });
  return resumed;
}

/// Rank 0 chooses: other ranks may see different checkpoints, because one may just be saved or removed.
fs::path chosen_by_first(ProcessGroup& world, const fs::path& path) {
  std::string chosen;
  fail_together(world, [&] {
    if (world.rank() == 0) chosen = find_saved_run(path).string();
  });
  return broadcast_text(world, chosen);
}

/// The checkpoints of the run in the order to try them, as rank 0 finds them: newest first, but checkpoints from which
/// runs failed to resume come last, and `tell` is called about them. Collective.
std::vector<fs::path> agreed_candidates(ProcessGroup& world, const fs::path& out,
                                        const std::function<void(const std::string&)>& tell) {
  std::string paths, last;  // separated by zero bytes, which paths do not contain
  std::string failing;
  fail_together(world, [&] {
    if (world.rank() != 0) return;
    const checkpoint::ResumeAttempts attempts(out / checkpoints_name);
    bool another = false;
    for (const Candidate& candidate : checkpoint::candidates(out / checkpoints_name)) {
      const bool fails = attempts.of(candidate.path) >= checkpoint::ResumeAttempts::most;
      another = another || (!fails && candidate.step >= 0);
      (fails ? last : paths) += candidate.path.string() + '\0';
      if (fails) failing += fmt::format("{}{}", failing.empty() ? "" : ", ", candidate.path.filename().string());
    }
    if (!another) failing.clear();  // there is no other one to resume from
  });
  paths = broadcast_text(world, paths + last);
  failing = broadcast_text(world, failing);
  if (!failing.empty())
    tell(fmt::format("stepped over {}: {} runs that resumed from there died before they had made a step", failing,
                     checkpoint::ResumeAttempts::most));
  std::vector<fs::path> result;
  for (std::size_t begin = 0; begin < paths.size();) {
    const std::size_t end = paths.find('\0', begin);
    result.emplace_back(paths.substr(begin, end - begin));
    begin = end + 1;
  }
  return result;
}

[[noreturn]] void fail_damaged(const fs::path& path, const std::string& problem) {
  fail(ExitCode::data, "checkpoint",
       "{}: {}; give the path of another checkpoint (train_gpt --resume auto takes the newest that is whole)",
       path.string(), problem);
}

/// "run1/" names what "run1" names, but has no file name.
fs::path without_slash(const fs::path& path) { return path.has_filename() ? path : path.parent_path(); }

/// `folder` is a run's folder, or that of its checkpoints.
fs::path checkpoints_of(const fs::path& folder) {
  const fs::path within = folder / checkpoints_name;
  if (!is_there(within)) return folder;
  std::error_code unknown;
  if (!fs::is_directory(within, unknown))
    fail(ExitCode::io, "checkpoint",
         "{} is not a folder; expected the checkpoints of a run; bring them back, or remove it", within.string());
  return within;
}

/// If `given` is not a checkpoint, it may be a folder of checkpoints. Throws if it is a file, or if its name is that of
/// a checkpoint.
void require_folder_of_checkpoints(const fs::path& given) {
  const fs::path path = without_slash(given);
  std::error_code unknown;
  if (fs::is_regular_file(path, unknown))
    fail(ExitCode::usage, "checkpoint",
         "{} is a file; expected a folder: the --out of train_gpt, its checkpoints, or one of them; change the path",
         path.string());
  if (fs::exists(path, unknown) && !fs::is_directory(path, unknown))
    fail(ExitCode::usage, "checkpoint",
         "{} is a device, a pipe or a socket; expected a folder: the --out of train_gpt, its checkpoints, or one of "
         "them; change the path",
         path.string());
  if (!checkpoint::has_checkpoint_name(path) || fs::is_directory(path / checkpoints_name, unknown)) return;
  if (is_there(path)) fail_damaged(path, "no manifest: its saving was interrupted");
  fail(ExitCode::usage, "checkpoint",
       "{} is not there; expected a checkpoint; a run with --keep may have removed it: take a newer one",
       path.string());
}

/// The best checkpoint of the run in `folder`, which is the run's folder or that of its checkpoints.
fs::path find_best(const fs::path& folder) {
  const fs::path checkpoints = checkpoints_of(folder);
  const fs::path file = checkpoints / checkpoint::Best::file_name;
  if (!is_there(file))
    fail(ExitCode::usage, "checkpoint",
         "{} does not say which checkpoint is the best: the run has computed no validation loss after a step, or had "
         "--keep-best off; expected the path of a checkpoint, or of the run for its newest; change the path",
         checkpoints.empty() ? "." : checkpoints.string());
  constexpr const char* remedy =
      "give the path of a checkpoint, or remove the file: a run that resumes writes it again";
  checkpoint::Best best;
  try {
    best = checkpoint::Best::parsed(file);
  } catch (const Error& error) {
    throw Error(error.code(), "checkpoint", fmt::format("{}; {}", error.reason(), remedy));
  }
  fs::path chosen = checkpoints / checkpoint::folder_name(best.step);
  if (!checkpoint::is_checkpoint(chosen))
    fail(ExitCode::data, "checkpoint", "{} names the checkpoint {}, which is not there; expected one that is; {}",
         file.string(), chosen.string(), remedy);
  return chosen;
}

}  // namespace

RunSaver::RunSaver(const fs::path& out, const Model& model, optim::Optimizer& optimizer, const RunIdentity& run,
                   std::string configuration, std::optional<std::int64_t> keep)
    : model_(model),
      optimizer_(optimizer),
      run_(run),
      configuration_(std::move(configuration)),
      saver_(out / checkpoints_name, model.mesh(), keep) {}

void RunSaver::begin(const Progress& progress, std::optional<checkpoint::ValidationLoss> validation_loss) {
  saver_.begin(progress.steps, all_held(model_, optimizer_),
               describe_run(model_, progress, run_, optimizer_.name(), configuration_), validation_loss);
}

Saved saved_event(const checkpoint::Saved& saved, bool best) {
  return {.step = saved.step,
          .path = saved.path.string(),
          .bytes = static_cast<std::int64_t>(saved.bytes),
          .seconds = saved.seconds,
          .stall_seconds = saved.stall_seconds,
          .best = best,
          .warning = saved.warning};
}

namespace {

[[noreturn]] void fail_unsaved(const fs::path& out, const checkpoint::Saved& saved) {
  std::error_code ignored;
  fs::remove(out / checkpoints_name, ignored);  // if it is empty, so that the command can be repeated
  fail(ExitCode::io, "checkpoint", "{}", saved.error);
}

}  // namespace

std::string save_run(const fs::path& out, const Model& model, optim::Optimizer& optimizer, const Progress& progress,
                     const RunIdentity& run) {
  fail_together(model.mesh().world(), [&] { make_directories(out); });
  RunSaver saver(out, model, optimizer, run);
  saver.begin(progress);
  const checkpoint::Saved saved = saver.finish().value();
  if (!saved.error.empty()) fail_unsaved(out, saved);
  return saved_line(saved_event(saved));
}

std::string save_weights_of_run(const fs::path& out, const Model& model, const RunIdentity& run) {
  fail_together(model.mesh().world(), [&] { make_directories(out); });
  checkpoint::Saver saver(out / checkpoints_name, model.mesh(), std::nullopt);
  saver.begin(0, checkpoint::held_tensors(whole_weights(model.parameters()), model.buffers(), model.mesh()),
              describe_run(model, {}, run));
  const checkpoint::Saved saved = saver.finish().value();
  if (!saved.error.empty()) fail_unsaved(out, saved);
  return saved_line(saved_event(saved));
}

fs::path find_saved_run(const fs::path& given) {
  const fs::path path = without_slash(given);
  if (checkpoint::is_checkpoint(path)) return path;
  if (path.filename() == best_name && !is_there(path)) return find_best(path.parent_path());
  require_folder_of_checkpoints(path);
  for (const Candidate& newest : checkpoint::candidates(checkpoints_of(path))) {
    if (newest.unfinished) continue;
    if (newest.step >= 0) return newest.path;
    if (newest.unread)
      fail(ExitCode::io, "checkpoint",
           "{}; it may be whole: repair access to it, or give the path of another checkpoint", newest.problem);
    fail_damaged(newest.path, newest.problem);
  }
  fail(ExitCode::usage, "checkpoint",
       "{} {}; expected the --out folder of train_gpt, with {}/step_*/{}; change the path",
       path.empty() ? "''" : path.string(), is_there(path) ? "holds no saved run" : "does not exist", checkpoints_name,
       checkpoint::manifest_name);
}

std::optional<fs::path> resumed_checkpoint(const std::string& resume, const fs::path& out) {
  if (resume == "none" || resume.empty()) return std::nullopt;
  if (resume != "auto") return find_saved_run(resume);
  if (out.empty() || out == "auto" || out == "none") return std::nullopt;
  for (const Candidate& candidate : checkpoint::candidates(out / checkpoints_name))
    if (candidate.step >= 0) return candidate.path;
  return std::nullopt;
}

Checkpoint open_saved_run(ProcessGroup& world, const fs::path& path) {
  return open_on_all(world, chosen_by_first(world, path));
}

Resumed load_run(const fs::path& path, Model& model, optim::Optimizer& optimizer, const RunIdentity& run) {
  ProcessGroup& world = model.mesh().world();
  return load_on_all(world, chosen_by_first(world, path), model, optimizer, run);
}

std::optional<Resumed> load_newest_run(const fs::path& out, Model& model, optim::Optimizer& optimizer,
                                       const RunIdentity& run, const std::function<void(const std::string&)>& tell) {
  ProcessGroup& world = model.mesh().world();
  bool damaged = false;
  for (const fs::path& path : agreed_candidates(world, out, tell)) {
    try {
      return load_on_all(world, path, model, optimizer, run);
    } catch (const Error& error) {
      if (error.code() == ExitCode::io)
        fail(ExitCode::io, "resume",
             "{}; {} is not passed over, as it may be whole: repair access to it, then the same command goes on from "
             "there",
             error.reason(), path.string());
      if (error.code() != ExitCode::data) throw;
      tell(fmt::format("skipped {}: {}", path.filename().string(), error.reason()));
      damaged = damaged || !checkpoint::is_unfinished(path);
    }
  }
  if (damaged)
    fail(ExitCode::data, "resume",
         "{} has no checkpoint that is whole; expected one; repair one of those skipped, or choose another --out to "
         "begin again there",
         (out / checkpoints_name).string());
  return std::nullopt;
}

void load_weights(Checkpoint& saved, Model& model, bool adapters) {
  ProcessGroup& world = model.mesh().world();
  require_same_content(world, saved);
  ParameterList parameters = model.parameters();
  if (!adapters) std::erase_if(parameters, [](const ParameterPtr& p) { return nn::is_adapter(p->name); });
  auto held = checkpoint::held_tensors(whole_weights(parameters), model.buffers(), model.mesh());
  std::vector<std::pair<Tensor, Tensor>> converted;  // from the run's dtype to the model's
  const auto& all_stored = saved.manifest().tensors;
  for (checkpoint::HeldTensor& tensor : held) {
    const auto stored = all_stored.find(tensor.name);
    if (stored == all_stored.end() || stored->second.dtype == tensor.value.dtype()) continue;
    if (std::string master = "optimizer.master." + tensor.name;
        tensor.value.dtype() == DType::f32 && all_stored.contains(master)) {
      tensor.name = std::move(master);  // a 16-bit weight is this one rounded
      continue;
    }
    const Tensor read = Tensor::empty(tensor.value.shape(), stored->second.dtype, tensor.value.device());
    converted.emplace_back(read, std::exchange(tensor.value, read));
  }
  fail_together(world, [&] { saved.read(held, "it was saved by another version of the program"); });
  for (auto& [from, to] : converted) copy(from, to);
}

void load_average(Checkpoint& saved, Model& model) {
  ProcessGroup& world = model.mesh().world();
  require_same_content(world, saved);
  std::vector<StateTensor> averages;
  for (const ParameterPtr& p : model.parameters())
    averages.push_back({"ema", p.get(), clone(cast(p->local, DType::f32)), nullptr});  // padded rows stay
  const auto held = checkpoint::held_tensors(averages, model.buffers(), model.mesh());
  fail_together(world, [&] { saved.read(held, "its run kept no average of the weights: --ema-decay"); });
  for (std::size_t i = 0; i < averages.size(); ++i) {
    Tensor weights = model.parameters()[i]->local.detach();
    copy(averages[i].value, weights);
  }
}

}  // namespace trireme
