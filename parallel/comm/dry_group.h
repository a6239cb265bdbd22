// One rank of a world that is not there, for a dry run (core/dry_run.h): the rank's program makes its collectives, and
// nothing is sent.
//
// What programs look at, whole numbers and small tensors, becomes what it would be if every rank had what this one has:
// a sum is `size` times this rank's number, and an all-to-all gives the rank its own counts back. Other tensors are
// left as they are. DryFacts lets ranks that run one after the other know more: a sum or a broadcast uses what another
// rank had in its own dry run, as the first stage of a pipeline learns that the last one has a copy of its weight.
// Read next: parallel/comm/trace.h, train/step/rank_memory.h.
#pragma once

#include <memory>

#include "parallel/comm/process_group.h"

namespace trireme {

class Trace;

/// Small tensors that ranks brought to collectives, in their dry runs. Thread-safe.
class DryFacts;
std::shared_ptr<DryFacts> make_dry_facts();

/// The world of `ranks` ranks, as rank `rank` sees it. `trace`, which must outlive it, gets what the rank communicates.
/// `facts`: may be shared with the dry runs of other ranks.
std::shared_ptr<ProcessGroup> dry_world(int ranks, int rank, Trace* trace = nullptr,
                                        std::shared_ptr<DryFacts> facts = nullptr);

}  // namespace trireme
