#include "ops/supervisor/supervisor.h"

#include <poll.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>

#include "core/error.h"
#include "ops/supervisor/overdue_processes.h"
#include "ops/supervisor/say.h"
#include "train/program/launcher.h"
#include "train/program/screen.h"
#include "train/runs/origin.h"
#include "train/runs/run_folder.h"

namespace trireme::supervisor {
namespace {

namespace fs = std::filesystem;
using std::chrono::duration;

std::string what_happened(const Ending& ending, EndKind kind, const std::string& message) {
  if (kind == EndKind::launcher_failed) return "the launcher failed";
  if (ending.signal != 0) return "a process was killed";
  if (ending.code != static_cast<int>(ExitCode::retryable)) return "it failed";
  return message.empty() ? "told to leave" : cause_of(message);
}

/// The modification time of a file or folder, on the clock of its file system, so only a change of it tells something;
/// nothing if there is no file.
std::optional<fs::file_time_type> written(const fs::path& file) {
  std::error_code absent;
  const auto when = fs::last_write_time(file, absent);
  return absent ? std::nullopt : std::optional(when);
}

fs::path out_of(const Command& command) {
  const std::string out = setting(command, "out").value_or("");
  if (out.empty() || out == "auto" || out == "none")
    fail(
        ExitCode::usage, "run",
        "the command has no --out that names a folder, so no start could go on where the last one ended; add --out DIR "
        "and --checkpoint-every N");
  return out;
}

}  // namespace

Supervisor::Supervisor(const Options& options, const Command& command)
    : options_(options),
      command_(command),
      out_(out_of(command)),
      checkpoints_(out_, resumed_path(command)),
      incidents_(out_),
      budget_(options.limits, checkpoints_.newest()) {
  if (std::find(command.begin(), command.end(), ":") != command.end())
    fail(ExitCode::usage, "run", "the command starts several programs (':'); expected one; give all ranks one program");
  if (options_.least_ranks) {
    elastic_ = require_elastic(command_);
    ranks_ = elastic_->ranks;
    if (*options_.least_ranks > elastic_->ranks)
      fail(ExitCode::usage, "run", "--min-ranks {} is more than the {} ranks of the command; expected at most those",
           *options_.least_ranks, elastic_->ranks);
  } else if (!options_.world_command.empty()) {
    fail(ExitCode::usage, "run", "--world-command without --min-ranks has no effect; add --min-ranks M");
  }
}

int Supervisor::run() {
  const auto conclude = [this] {
    incidents_.finish();
    erase_foreign_live_line();
    if (!incidents_.all().empty()) Screen::of_process().warn("\n" + incident_table(incidents_.all()));
  };
  try {
    const int code = run_jobs();
    conclude();
    return code;
  } catch (...) {
    conclude();
    throw;
  }
}

int Supervisor::run_jobs() {
  while (true) {
    const std::optional<Command> command = command_to_start();
    if (requests_.leaving()) return left_without_job();
    if (world_failures_ > options_.limits.restarts) {
      say("gave up: --world-command has failed {} times in a row; see what it said, or raise --restarts",
          world_failures_);
      return gave_up;
    }
    if (!command && !options_.world_command.empty()) {  // waiting for ranks is not a restart, and has no limit
      if (!pause(pause_after(++waits_, options_.limits))) return left_without_job();
      continue;
    }
    waits_ = 0;
    if (command) {
      if (const std::optional<int> code = code_after(run_job(*command))) return *code;
    }
    if (launcher_failed_ && fewer_ranks() > 0) {  // the search for fewer ranks is finite and is not a restart
      say("the launcher failed to start {} ranks: trying fewer", ranks_);
      ++restarts_;
      if (!pause(0)) return left_without_job();
      continue;
    }
    const std::int64_t newest = checkpoints_.newest();
    const std::optional<double> seconds = budget_.restart(newest);
    if (!seconds) {
      say("gave up: {} restarts without a newer checkpoint than {}; see what the job said, or raise --restarts",
          budget_.without_progress(), newest < 0 ? "none" : fmt::format("step {}", newest));
      return gave_up;
    }
    say("starting again in {:.1f} s from {} (restart {}; try {} of {} for a newer checkpoint)", *seconds,
        checkpoints_.next_start(), restarts_ + 1, budget_.without_progress(), options_.limits.restarts);
    if (!pause(*seconds)) return left_without_job();
    ++restarts_;
  }
}

std::optional<int> Supervisor::code_after(const Ending& ending) {
  const EndKind kind = classify(ending, has_launcher(command_));
  launcher_failed_ = kind == EndKind::launcher_failed;
  if (kind == EndKind::done) return 0;
  // Exit code "locked" means that another run owns the folder, and so the incidents in it.
  if (ending.code != static_cast<int>(ExitCode::locked)) note_incident(ending, kind);
  const bool retryable = ending == Ending{.code = static_cast<int>(ExitCode::retryable)};
  const std::string how = to_string(ending, retryable ? what_happened(ending, kind, failure_message_.message()) : "");
  if (kind == EndKind::final) {
    say("the job ended with {}: a restart would end the same way, so it is not restarted", how);
    if (save_lost_) say("it was asked to save, and did not");
    return ending.as_exit_code();
  }
  if (requests_.leaving()) {  // also if the request killed the job: the same command resumes from what it has saved
    say("the job has left with {}; run the same command to continue", how);
    return killed_ ? ending.as_exit_code() : static_cast<int>(ExitCode::retryable);
  }
  say("the job ended with {}{}", how,
      failure_message_.rank() ? fmt::format(", rank {}", *failure_message_.rank()) : "");
  if (save_lost_) say("it was asked to save, and did not: the next job is asked");
  return std::nullopt;
}

Command Supervisor::first_command_to_start(std::string& note) const {
  const std::string path = resumed_path(command_);
  if (!path.empty() && was_begun_from(out_, path)) {
    note = checkpoints_.has_own()
               ? fmt::format("{} holds step {} of this run: it goes on from there, and not from {} again",
                             out_.string(), checkpoints_.newest(), path)
               : fmt::format("{} holds nothing saved of this run yet: it begins from {} again", out_.string(), path);
    return next_command(command_, checkpoints_.has_own());
  }
  bool added = false;
  Command command = first_command(command_, added);
  if (added) note = "the command has no --resume; --resume auto is added";
  return command;
}

std::optional<Command> Supervisor::command_to_start() {
  std::string note;
  Command command =
      checkpoints_.begun() ? next_command(command_, checkpoints_.has_own()) : first_command_to_start(note);
  if (elastic_) {
    const int before = ranks_, least = static_cast<int>(*options_.least_ranks);
    const std::optional<int> answer = available_ranks();
    if (!answer) return std::nullopt;
    const int available = *answer;
    launcher_failed_ = false;
    ranks_ = ranks_to_start(elastic_->ranks, elastic_->model_ranks, least, available);
    if (ranks_ == 0) {
      say("{} ranks can be started; expected at least {} of {}, in steps of {}", available, least, elastic_->ranks,
          elastic_->model_ranks);
      ranks_ = elastic_->ranks;
      return std::nullopt;
    }
    if (ranks_ != before)
      say("starting {} of {} ranks: dp={}", ranks_, elastic_->ranks, ranks_ / elastic_->model_ranks);
    incidents_.set_ranks(ranks_);
    command = with_launcher_ranks(std::move(command), ranks_);
  }
  command = with_exported(std::move(command), restarts_variable);
  if (restarts_ > 0) return command;
  if (!note.empty()) say("{}", note);
  say("{}", to_string(command));
  return command;
}

int Supervisor::fewer_ranks() const {
  if (!elastic_ || !options_.world_command.empty()) return 0;
  return ranks_to_start(elastic_->ranks, elastic_->model_ranks, static_cast<int>(*options_.least_ranks), ranks_ - 1);
}

/// The answer of --world-command. Without one: all ranks, or one fewer than the launcher just failed to start, if fewer
/// are allowed. A --world-command that fails the first time is taken as a wrong command; later failures may pass, and
/// it is asked again after a pause.
std::optional<int> Supervisor::available_ranks() {
  if (options_.world_command.empty()) return launcher_failed_ && fewer_ranks() > 0 ? ranks_ - 1 : elastic_->ranks;
  const WorldAnswer answer = ask_world(options_.world_command, signals_);
  const bool first = !std::exchange(world_asked_, true);
  if (answer.leave) requests_.leave();
  if (answer.save) take_save(false);
  world_failures_ = answer.ranks || answer.leave ? 0 : world_failures_ + 1;
  if (world_failures_ > 0 && first)
    fail(ExitCode::usage, "run",
         "--world-command '{}' {}; expected a shell command that prints how many ranks can be started; change "
         "--world-command",
         options_.world_command, answer.problem);
  if (world_failures_ > 0)
    say("--world-command {}; expected a number of ranks; it is asked again ({} of {} failures in a row, after which "
        "run gives up)",
        answer.problem, world_failures_, options_.limits.restarts + 1);
  return answer.ranks;
}

Ending Supervisor::run_job(const Command& command) {
  ::setenv(restarts_variable, std::to_string(restarts_).c_str(), 1);
  started_ = Clock::now();
  training_since_.reset();
  resumed_step_ = checkpoints_.next_step();
  incidents_.set_resumed_step(resumed_step_);
  failure_message_ = {};
  configured_ = written(out_ / RunFolder::config_name);
  logged_ = written(out_ / RunFolder::metrics_name);
  saved_step_ = checkpoints_.newest();
  Job job(command, signals_, [this](std::string_view line) { failure_message_.add_line(line); });
  OverdueProcesses overdue(has_launcher(command), options_.grace);
  while (!job.over()) {
    job.wait(0.2);
    while (const std::optional<int> signal = signals_.next()) take(*signal, job);
    if (const std::optional<int> due = requests_.due(Clock::now(), listens())) {
      if (*due == SIGUSR1) told_save_at_ = checkpoints_.newest();
      job.send(*due);
    }
    if (listens()) checkpoints_.set_begun();
    watch_training();
    overdue.kill(job, failure_message_.code());
  }
  watch_training();  // what it did since the last look
  if (const std::size_t left = job.remove_leftovers(); left > 0)
    say("removed {} files and folders that a killed launcher had left in shared memory and temporary folders", left);
  if (listens()) checkpoints_.set_begun();
  save_lost_ = requests_.ended(checkpoints_.newest() > told_save_at_);
  return overdue.ending_of(job);
}

void Supervisor::take(int signal, const Job& job) {
  if (signal == SIGTSTP) {  // Ctrl-Z: the job has a session of its own, so the terminal does not stop it
    job.send_all(SIGSTOP);
    std::raise(SIGSTOP);  // until somebody continues this process
    job.send_all(SIGCONT);
  } else if (signal == SIGUSR1) {
    take_save(listens());
  } else if (!requests_.leaving()) {
    say("the job is told to save and leave");
    requests_.leave();
  } else if (signal == SIGTERM || signal == SIGINT) {  // a closing terminal may send SIGHUP more than once
    say("told to leave again: the job is killed");
    killed_ = true;
    job.kill_all();
  }
}

void Supervisor::take_save(bool now) {
  say("the job is told to save{}", now ? "" : " as soon as it has started");
  requests_.save();
}

// The first rank writes config.json when all ranks have passed the start of train_gpt, which installs the signal
// handlers first.
bool Supervisor::listens() const {
  const auto now = written(out_ / RunFolder::config_name);
  return now && now != configured_;
}

void Supervisor::watch_saves() {
  const auto now = written(out_ / "checkpoints");
  if (now == saves_) return;
  saves_ = now;
  const std::int64_t newest = checkpoints_.newest();
  if (newest > saved_step_) saved_at_ = Clock::now();
  saved_step_ = newest;
}

void Supervisor::watch_training() {
  watch_saves();
  if (training_since_) return;
  const fs::path metrics = out_ / RunFolder::metrics_name;
  // Until the job writes to it, the file is that of the previous job, which may have come further.
  if (written(metrics) == logged_) return;
  const std::int64_t step = last_logged_step(metrics);
  if (step < 0 || step <= resumed_step_) return;
  training_since_ = Clock::now();
  if (!incidents_.open()) return;
  say("training again; step {} is made, {:.1f} s were lost", step, incidents_.close(*training_since_));
}

void Supervisor::note_incident(const Ending& ending, EndKind kind) {
  const Moment now = Clock::now();
  Moment good_until = restarts_ == 0 ? started_ : now;
  if (training_since_) good_until = std::max(*training_since_, saved_at_);
  incidents_.add({.when = std::chrono::system_clock::now(),
                  .restart = restarts_,
                  .what = what_happened(ending, kind, failure_message_.message()),
                  .ending = ending,
                  .rank = failure_message_.rank(),
                  .message = failure_message_.message(),
                  .logged_step = last_logged_step(out_ / RunFolder::metrics_name),
                  .resumed_step = {},
                  .ranks = 0,
                  .lost = {}},
                 now, good_until);
}

bool Supervisor::pause(double seconds) {
  const Clock::time_point end = Clock::now() + std::chrono::duration_cast<Clock::duration>(duration<double>(seconds));
  while (true) {
    while (const std::optional<int> signal = signals_.next()) {
      if (*signal == SIGTSTP) {
        std::raise(SIGSTOP);
      } else if (*signal == SIGUSR1) {
        take_save(false);
      } else {
        requests_.leave();
        return false;
      }
    }
    const double left = duration<double>(end - Clock::now()).count();
    if (left <= 0) return true;
    pollfd woken = {signals_.fd(), POLLIN, 0};
    ::poll(&woken, 1, static_cast<int>(left * 1e3) + 1);
  }
}

int Supervisor::left_without_job() {
  say("told to leave while no job runs; run the same command to continue");
  return static_cast<int>(ExitCode::retryable);
}

}  // namespace trireme::supervisor
