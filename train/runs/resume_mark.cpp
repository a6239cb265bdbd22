#include "train/runs/resume_mark.h"

#include "parallel/checkpoint/folder.h"
#include "parallel/checkpoint/resume_attempts.h"
#include "parallel/comm/texts.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;
using checkpoint::ResumeAttempts;

ResumeAttempts attempts_beside(const fs::path& checkpoint) { return ResumeAttempts(checkpoint.parent_path()); }

}  // namespace

ResumeMark::ResumeMark(const TrainOptions& options, const std::optional<Resumed>& resumed, Rank& rank,
                       EventStream& events)
    : rank_(rank),
      events_(events),
      checkpoint_(resumed ? resumed->path : fs::path()),
      state_(resumed && options.run.resume == "auto" ? State::due : State::done) {}

// A full disk may have no room for the note and still enough for the rest, so training continues without it.
void ResumeMark::begin_step() {
  if (state_ != State::due) return;
  state_ = State::made;
  int before = 0;
  try {
    if (rank_.first()) before = attempts_beside(checkpoint_).begin(checkpoint_);
  } catch (const Error& error) { events_.warn(fmt::format("{}; training goes on without that note", error.reason())); }
  // From here on, any rank may fail first and the launcher may then end rank 0. So every rank can remove the note.
  before = std::stoi(broadcast_text(*rank_.world, std::to_string(before)));
  rank_.failed = [checkpoint = checkpoint_, before] { attempts_beside(checkpoint).take_back(checkpoint, before); };
}

void ResumeMark::step_made() {
  if (std::exchange(state_, State::done) != State::made) return;
  rank_.failed = nullptr;
  try {
    if (rank_.first()) attempts_beside(checkpoint_).succeeded(checkpoint_);
  } catch (const Error& error) { events_.warn(fmt::format("{}; training goes on", error.reason())); }
}

}  // namespace trireme
