// What a whole training takes on a machine: days, energy, money, and what failures cost.
// Read next: ops/plan/operation.cpp, ops/plan/cluster.h (the file of a machine).
#pragma once

namespace trireme::plan {

/// Figures of running a machine; 0: not known.
struct Operation {
  double dollars_per_device_hour = 0;
  double watts_per_device = 0;          ///< with its share of its node
  double failures_per_device_year = 0;  ///< that end a training run
  double save_gb_per_s_per_node = 0;    ///< at which a node writes checkpoints
  double restart_minutes = 10;          ///< from a failure until the run goes on from its checkpoint
};

/// A training run.
struct Job {
  double steps = 0, seconds_per_step = 0;
  int devices = 1, nodes = 1;
  double checkpoint_bytes = 0;  ///< of all ranks together
};

struct Outlook {
  double undisturbed_seconds = 0;
  double seconds = 0;        ///< with saves, failures, restarts and steps made again
  double interruptions = 0;  ///< expected
  double save_seconds = 0;   ///< of one
  double save_every = 0;     ///< seconds of training between two saves that cost least in all; 0: failures not known
  double device_hours = 0;
  double dollars = 0, joules = 0;  ///< 0: not known
};

/// Failures come at random, at a constant rate, and cost the work since the last save. The interval between saves is
/// that of Young (1974, "A first order approximation to the optimum checkpoint interval") with the higher terms of Daly
/// (2006, "A higher order estimate of the optimum checkpoint interval for restart dumps", equation 37), the time
/// Daly's equation 20. Saves in the background are not considered: a save stops all ranks.
Outlook outlook(const Job& job, const Operation& operation);

}  // namespace trireme::plan
