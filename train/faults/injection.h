// Injects faults, so that a run's reaction to them can be seen and tested:
//
//   TRIREME_FAULT="kill@rank=1,step=5" build/bin/train_gpt --allow-fault-injection ...
//
// Several faults are separated by ';'. Each is KIND@KEY=VALUE,... with these keys:
//   rank=R    world rank, or all; default 0 (spike, noise: all)
//   step=S    the optimizer step, counted from 1; or a range S-T; required
//   point=P   the point in the step; each kind has a default, below
//   times=N   at most N passes through these steps; default: the number of steps in the range. So a step that is
//             repeated, after a rollback or because it was skipped, succeeds
//   start=N   the N-th start of the job, 0 for the first; or any; default 0. A supervisor sets TRIREME_RESTARTS to the
//             number of earlier starts, so by default a fault happens once per job, also if the step is made again.
// In one pass, slow and spike happen at every matching point, the other kinds only at the first. Without
// --allow-fault-injection, a variable that is set is an error, so that a forgotten variable is noticed.
//
//   kind    point      what happens
//   kill    backward   SIGKILL to the rank's process (ranks that are threads: to all of them)
//   stop    backward   SIGSTOP to the rank's process; a rank that is a thread blocks for good
//   slow    backward   sleeps ms= milliseconds at each such point
//   throw   backward   throws an error with the exit code of a bug (70)
//   oom     forward    asks the memory pool for 4 PiB
//   desync  backward   calls an all-reduce that no other rank calls
//   nan     backward   one element of the gradient becomes NaN before the sums; forward: the loss
//   spike   forward    multiplies the loss, and so the gradient, by factor= (default 1000)
//   flip    optimizer  one bit of a weight or of optimizer state, right before the update
//   noise   step       multiplies every weight by 1 + factor= (default 1e-6) x a random number of seed=
//                      (train/faults/disturb.h)
//
// nan and flip take tensor=NAME (flip: as in a checkpoint, also optimizer.m.NAME; default: the first matrix, or its
// master copy) and element=I. flip takes bit=B (default 20; the top bit of types with fewer bits). With pp > 1, nan in
// forward and spike act only on ranks with the last stage. TRIREME_IO_FAULT injects failures of the file system
// (core/io_faults.h). Read next: train/faults/environment.cpp, train/faults/injection.cpp, train/step/trainer.cpp (the
// points).
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

inline constexpr const char* fault_variable = "TRIREME_FAULT";

enum class Kind : std::uint8_t { kill, stop, slow, throws, oom, desync, nan, spike, flip, noise };
/// step: at its beginning; data: before a batch is requested; forward, backward: before that pass of a micro-batch;
/// optimizer: before the update; save: after the background write of a checkpoint has begun.
enum class Point : std::uint8_t { step, data, forward, backward, optimizer, save };
std::string_view name(Kind kind);
std::string_view name(Point point);

struct Fault {
  static constexpr int all_ranks = -1;

  Kind kind = Kind::kill;
  Point point = Point::backward;
  int rank = 0;
  std::int64_t first_step = 0, last_step = 0;
  std::int64_t times = 0;                 ///< passes through these steps; set by parse()
  std::optional<std::int64_t> start = 0;  ///< number of earlier starts of the job; not set: any
  std::int64_t ms = 0;                    ///< slow
  double factor = 0;                      ///< spike, noise; set by parse()
  std::int64_t seed = 0;                  ///< noise
  std::string tensor;                     ///< nan, flip; empty: the default tensor
  std::int64_t element = 0;               ///< nan, flip: row-major index in this rank's part of the tensor
  int bit = 20;                           ///< flip
};

/// Throws ExitCode::usage, with the grammar, if `text` is not a list of faults.
std::vector<Fault> parse(std::string_view text);

/// The value of TRIREME_FAULT; empty if it is not set. Throws ExitCode::usage if it is set and not `allowed`.
std::string from_environment(bool allowed);
/// Arms the fault of TRIREME_IO_FAULT (core/io_faults.h) in this process, if it is set. Throws like from_environment().
void arm_io(bool allowed);
/// How often a supervisor has restarted the job: TRIREME_RESTARTS, or 0. Throws ExitCode::usage if it is not a number.
std::int64_t restarts();
/// Throws ExitCode::usage for faults on ranks that the mesh does not have, or after the last step. After resolve().
void require_possible(const TrainOptions& options);

/// While it exists, the faults of the options happen to the calling thread's rank at the points below. Without a Scope,
/// or without faults, a point costs one check of a thread-local pointer.
class Scope {
 public:
  Scope(const TrainOptions& options, const Rank& rank);  ///< `rank` must outlive this object; it knows the step
  ~Scope();
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;
};

/// The point for kill, stop, slow, throw, oom and desync. `mesh`: desync uses its data group, or its pp or tp group if
/// data has only one rank; null: the world group.
void point(Point point, const DeviceMesh* mesh = nullptr);
/// The factor for the loss before this backward: 1, or the value of spike or nan.
double loss_factor();
/// The point for nan in gradients: before the first backward of a step adds to them.
void poison(const ParameterList& parameters);
/// The point for flip.
void flip(optim::Optimizer& optimizer);
/// The point for noise, at the beginning of a step. Returns true if it happened; it is then collective.
bool noise(optim::Optimizer& optimizer);

}  // namespace trireme::fault
