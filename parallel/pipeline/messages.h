// Puts the messages between the computations of a schedule.
#pragma once

#include "parallel/pipeline/actions.h"

namespace trireme::pipeline {

/// `schedule` lists computations only. Adds a send right after each computation that makes a message, and a receive for
/// each input. Receives are placed so that there is no deadlock even if sends complete only once their receive is
/// posted (rendezvous). Adds nothing between stages of one rank. Throws ExitCode::internal when the computations
/// themselves form a cycle.
void add_messages(Schedule& schedule);

}  // namespace trireme::pipeline
