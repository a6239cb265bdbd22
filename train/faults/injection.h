// Faults on purpose, so that what a run does about them can be seen and tested:
//
//   TRIREME_FAULT="kill@rank=1,step=5" build/bin/train_gpt --allow-fault-injection ...
//
// Several are separated by ';'. Each is KIND@KEY=VALUE,... with the keys
//   rank=R    world rank, or all; default 0 (spike, noise: all)
//   step=S    the optimizer step, counted from 1; or S-T; needed
//   point=P   where in the step; each kind has a default, below
//   times=N   in how many passes through these steps at most; default as many as there are steps, so that a step that
//             is made again, after a rollback or because it was skipped, goes well
//   start=N   the N-th start of the job, 0 the first; or any; default 0. A supervisor tells restarted jobs their number
//             in TRIREME_RESTARTS, so by default a fault is met once per job, also when the same step is made again.
// slow and spike happen at every such point of a pass, the others at the first. Without --allow-fault-injection a set
// variable is refused: neither a fault nor the wish for one goes unnoticed.
//
//   kind    point      what happens
//   kill    backward   SIGKILL to the rank's process (ranks that are threads: to all of them)
//   stop    backward   SIGSTOP to the rank's process; a rank that is a thread blocks for good
//   slow    backward   sleeps ms= milliseconds at each such point
//   throw   backward   throws an error that is a bug by its exit code (70)
//   oom     forward    asks the memory pool for 4 PiB
//   desync  backward   takes part in a sum that no other rank knows of
//   nan     backward   one element of the gradient becomes NaN before the sums; forward: the loss
//   spike   forward    the loss, and with it the gradient, times factor= (default 1000)
//   flip    optimizer  one bit of a weight or of optimizer state, right before the update
//   noise   step       every weight times 1 + factor= (default 1e-6) x a random number of seed= (train/faults/disturb.h)
//
// nan and flip take tensor=NAME (flip: as in a checkpoint, also optimizer.m.NAME; default: the first matrix, or its
// master copy) and element=I; flip takes bit=B (default 20). Where pp > 1, nan in forward and spike show on ranks with
// the last stage only. Failures of the file system are told by TRIREME_IO_FAULT (core/io_faults.h). Read next:
// train/faults/environment.cpp, train/faults/injection.cpp, train/step/trainer.cpp (the points).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "optim/optimizer.h"
#include "parallel/mesh/mesh.h"

namespace trireme {
struct Rank;
struct TrainOptions;
}  // namespace trireme

namespace trireme::fault {

enum class Kind : std::uint8_t { kill, stop, slow, throws, oom, desync, nan, spike, flip, noise };
/// step: as it begins; data: before a batch is asked for; forward, backward: before that of a micro-batch; optimizer:
/// before the update; save: as the writing of a checkpoint has begun, in the background.
enum class Point : std::uint8_t { step, data, forward, backward, optimizer, save };
std::string_view name(Kind kind);
std::string_view name(Point point);

struct Fault {
  static constexpr int all_ranks = -1;

  Kind kind = Kind::kill;
  Point point = Point::backward;
  int rank = 0;
  std::int64_t first_step = 0, last_step = 0;
  std::int64_t times = 0;                 ///< passes through these steps; 0 until parse() has set it
  std::optional<std::int64_t> start = 0;  ///< of the job; not set: any
  std::int64_t ms = 0;                    ///< slow
  double factor = 0;                      ///< spike, noise; 0 until parse() has set it
  std::int64_t seed = 0;                  ///< noise
  std::string tensor;                     ///< nan, flip; empty: chosen
  std::int64_t element = 0;               ///< nan, flip: row-major, in what this rank holds of it
  int bit = 20;                           ///< flip
};

/// Throws ExitCode::usage, with the grammar, for anything that is no list of faults.
std::vector<Fault> parse(std::string_view text);

/// The value of TRIREME_FAULT; empty when it is not set. Throws ExitCode::usage when it is set and not `allowed`.
std::string from_environment(bool allowed);
/// Arms what TRIREME_IO_FAULT says (core/io_faults.h), if it is set, for this process. Throws as from_environment().
void arm_io(bool allowed);
/// How often a supervisor has started the job again: TRIREME_RESTARTS, or 0. Throws ExitCode::usage for what is no
/// number.
std::int64_t restarts();
/// Throws ExitCode::usage for faults on ranks that the mesh has not, or after the last step. After resolve().
void require_possible(const TrainOptions& options);

/// While it lives, the calling thread's rank meets the options' faults at the points below. Outside of one, or without
/// faults, a point costs a look at one variable.
class Scope {
 public:
  Scope(const TrainOptions& options, const Rank& rank);  ///< both must outlive this object; `rank` knows the step
  ~Scope();
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;
};

/// Where kill, stop, slow, throw, oom and desync happen. `mesh`: whose data group desync uses; null: the world's.
void point(Point point, const DeviceMesh* mesh = nullptr);
/// What the loss is to be multiplied by before this backward: 1, or as spike and nan say.
double loss_factor();
/// Where nan happens to gradients: before the first backward of a step has added to them.
void poison(const nn::ParameterList& parameters);
/// Where flip happens.
void flip(optim::Optimizer& optimizer);
/// Where noise happens, as a step begins: whether it did. Collective when it does.
bool noise(optim::Optimizer& optimizer);

}  // namespace trireme::fault
