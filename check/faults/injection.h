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
//   stop    backward   SIGSTOP to the rank's process; a rank that is a thread blocks forever
//   slow    backward   sleeps ms= milliseconds at each such point
//   throw   backward   throws an error with the exit code of a bug (70)
//   oom     forward    asks the memory pool for 4 PiB
//   desync  backward   calls an all-reduce that no other rank calls
//   nan     backward   one element of the gradient becomes NaN before the sums; forward: the loss
//   spike   forward    multiplies the loss, and so the gradient, by factor= (default 1000)
//   flip    optimizer  one bit of a weight or of optimizer state, right before the update
//   noise   step       multiplies every weight by 1 + factor= (default 1e-6) x a random number of seed=
//                      (check/faults/disturb.h)
//
// nan and flip take tensor=NAME (flip: as in a checkpoint, also optimizer.m.NAME; default: the first matrix, or its
// master copy) and element=I. flip takes bit=B (default 20; the top bit of types with fewer bits). With pp > 1, nan in
// forward and spike act only on ranks with the last stage. TRIREME_IO_FAULT injects failures of the file system
// (core/io_faults.h). Read next: check/faults/environment.cpp, check/faults/injection.cpp,
// train/step/step_observer.h (the points of a step).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "parallel/mesh/mesh.h"
#include "train/step/step_observer.h"

namespace trireme {
struct Rank;
struct TrainOptions;
}  // namespace trireme

namespace trireme::fault {

inline constexpr const char* fault_variable = "TRIREME_FAULT";

enum class FaultKind : std::uint8_t { kill, stop, slow, throws, oom, desync, nan, spike, flip, noise };
/// step: at its beginning; data: before a batch is requested; forward, backward: before that pass of a micro-batch;
/// optimizer: before the update; save: after the background write of a checkpoint has begun.
enum class Point : std::uint8_t { step, data, forward, backward, optimizer, save };
std::string_view name(FaultKind kind);
std::string_view name(Point point);

struct Fault {
  static constexpr int all_ranks = -1;

  FaultKind kind = FaultKind::kill;
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
/// Throws ExitCode::usage if `faults`, the value of TRIREME_FAULT, has one on a rank that the mesh does not have, or
/// after the last step. `options`: after resolve().
void require_possible(std::string_view faults, const TrainOptions& options);

/// Makes the faults happen to one rank, at the points of its steps.
class Injector final : public StepObserver {
 public:
  /// `faults`: the value of TRIREME_FAULT. `processes`: whether each rank is a process. `rank`, which knows the step,
  /// and `mesh` must outlive this object.
  Injector(std::string_view faults, bool processes, const Rank& rank, const DeviceMesh& mesh);

  bool before_step(optim::Optimizer& optimizer) override;
  void before_batch() override { at(Point::data); }
  void before_forward() override { at(Point::forward); }
  void before_backward(const ParameterList& parameters) override;
  double loss_factor() override;
  void before_update(optim::Optimizer& optimizer) override;
  void save_begun() override { at(Point::save); }

 private:
  struct Planned {
    Fault fault;
    std::int64_t passes = 0, pass = 0;  // passes in which it happened: their number, and the last one
  };
  const Fault* due(Point point, std::initializer_list<FaultKind> kinds);
  void announce(const Fault& fault) const;
  void at(Point point);
  void inject(const Fault& fault);
  void poison(const ParameterList& parameters);
  void flip(optim::Optimizer& optimizer);

  std::vector<Planned> faults_;  // of this rank
  const Rank& rank_;
  const DeviceMesh& mesh_;
  std::int64_t pass_ = 0;  // counts passes through steps; a repeated step is another pass
  bool processes_;
};

}  // namespace trireme::fault
