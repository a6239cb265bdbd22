// What `view` draws: some steps of a run, rank by rank. It is read from a trace of --profile (trace_file.h, steps.h), or
// predicted (ops/plan/page.h). Times are in seconds since the first rank began the step.
// Read next: ops/view/steps.h, ops/view/findings.h, ops/view/page.h.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "core/memory.h"
#include "core/profile.h"
#include "parallel/mesh/mesh.h"

namespace trireme::run_view {

/// What a rank does for a while.
struct Span {
  double begin = 0, end = 0;
  std::string name;
  double seconds() const { return end - begin; }
};

/// A computation of the pipeline's schedule, or the update.
struct Part : Span {
  std::string kind;  ///< "forward", "backward", "backward_input", "backward_weight" or "update"
  int stage = -1, micro_batch = -1;
};

/// Communication: the rank waits for it, or it runs in the background.
struct Exchange : Span {
  std::string group, site;  ///< "tp[pp=0,data=1]"; where it was called: "blocks.0.attn"
  std::int64_t bytes = 0;
  int last = -1;     ///< the other rank that came last, if this one waited for a rank
  double ready = 0;  ///< when that rank came; `begin` without such a rank
  double late() const { return last < 0 ? 0 : ready - begin; }
  std::string axis() const { return group.substr(0, group.find('[')); }
};

struct Module : Span {
  int depth = 0;
};

struct Message {
  int from = 0, to = 0;
  double sent = 0, arrived = 0;
  std::int64_t bytes = 0;
};

/// A rank in a step. All lists are in order of time.
struct RankStep {
  double begin = 0, end = 0;
  std::vector<Part> parts;
  std::vector<Exchange> waits, background;
  std::vector<Module> modules;
  std::vector<Span> kernels;
  std::vector<MemorySample> memory;

  double waiting() const;  ///< seconds
  double working() const { return end - begin - waiting(); }
  double waiting_within(const Span& span) const;  ///< seconds
};

/// A piece of the chain of work that determines how long the step takes: each rank was the last that another waited for.
struct PathPiece {
  int rank = 0;
  double begin = 0, end = 0;
};

struct Step {
  std::string name;  ///< "step 4"
  double seconds = 0;
  std::vector<RankStep> ranks;
  std::vector<Message> messages;
};

/// From the beginning of the step to its end.
std::vector<PathPiece> critical_path(const Step& step);

/// A weight: its whole shape, and its placements, "S(0)", "R" or "I".
struct Weight {
  std::string name;
  int pp = 0;
  std::vector<std::int64_t> shape;
  std::string tp, ep, edp;
};

/// A line of a block's forward: a module, a kernel, a collective, or a move between placements.
struct ForwardLine {
  std::string kind, name, detail;
  int depth = 0;
};

struct Profile {
  bool predicted = false;
  MeshShape mesh;
  std::string pipeline = "1f1b", device = "cpu";
  std::string configuration;  ///< the hash of the run's options; empty: not known
  int micro_batches = 1, zero = 0, threads = 1, cores = 0;
  bool sequence_parallel = false;
  std::vector<std::string> hosts;  ///< by rank; may be empty
  std::vector<Step> steps;
  std::vector<Weight> weights;
  std::vector<ForwardLine> forward;  ///< of one block on rank 0

  int ranks() const { return mesh.ranks(); }
};

/// A rank's place along all axes.
struct Place {
  int pp = 0, dp = 0, cp = 0, tp = 0, ep = 0, edp = 0;
};
Place place_of(int rank, const MeshShape& mesh);
std::string where(int rank, const Profile& profile);  ///< "Rank 5 (dp=0,tp=1,pp=1) on h2"

}  // namespace trireme::run_view
