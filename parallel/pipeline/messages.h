// Puts the messages between the computations of a schedule.
#pragma once

#include "parallel/pipeline/schedule.h"

namespace trireme::pipeline {

/// `schedule` lists computations only; afterwards every rank also sends what it makes, right after it, and receives
/// what it needs, where sends that complete only once their receive is posted (rendezvous) cannot make ranks wait in a
/// circle. Nothing is added between stages of one rank. Throws ExitCode::internal when the computations themselves wait
/// in a circle.
void add_messages(Schedule& schedule);

/// The action at the other end of a message.
Action counterpart(const Action& message);

}  // namespace trireme::pipeline
