// Predicts a training step on this machine, with ranks that are threads. Kernels are timed in dry runs that compute, with
// their tensors and in their order; each exchange between ranks is made and timed.
//
//   ThisMachine machine;
//   const std::vector<RankTime> ranks = machine.predict(options, program);
//
// A dry run that computes times a few calls of each kernel; in the simulation each call takes one of these times, chosen
// at random. So ranks that wait for each other wait for the slowest, as on a machine with jitter. The result is that of
// several simulations whose step time is the median. As many ranks are traced at a time as there are cores for, because
// they share caches and memory. With more ranks than cores, kernels are timed while all ranks compute: a rank finds its
// caches used by others after each time slice. Read next: ops/plan/simulate.h.
#pragma once

#include <memory>
#include <vector>

#include "ops/plan/predict.h"
#include "ops/plan/simulate.h"
#include "train/options/options.h"
#include "train/step/rank_memory.h"

namespace trireme::plan {

class ThisMachine {
 public:
  ThisMachine();
  ~ThisMachine();
  ThisMachine(const ThisMachine&) = delete;
  ThisMachine& operator=(const ThisMachine&) = delete;

  /// The times of all ranks of a run with these options, on the CPU. What is measured here is kept for the next call.
  /// `recording`: is filled in, of all ranks, unless it is null.
  std::vector<RankTime> predict(const TrainOptions& options, const DryProgram& program, Recording* recording = nullptr);

  /// The same by making it: seconds of a step, the slowest rank's, the median of as many as `seconds` allow, 3 to 100.
  static double measure(const TrainOptions& options, const DryProgram& program, double seconds);

 private:
  struct Setting;
  class Kernels;
  class Exchanges;
  class Model;

  std::unique_ptr<Kernels> kernels_;
  std::unique_ptr<Exchanges> exchanges_;
};

}  // namespace trireme::plan
