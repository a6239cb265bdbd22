// Error messages for ranks that do not meet in an operation. All transports use the same words.
#pragma once

#include <string>

#include "parallel/comm/collective.h"

namespace trireme::comm {

/// "all_reduce(sum of 64 f32) #3 of group 'tp'".
std::string numbered(const Signature& signature, std::uint64_t sequence, const ProcessGroup& group);

/// "rank 1 (world rank 5) waited 30.0 s", of the calling rank.
std::string who_waited(const ProcessGroup& group, ProcessGroup::Deadline deadline);

/// "...; rank 1 (world rank 5) waited 30.0 s; not arrived: ...; find what keeps them, or raise the deadline".
std::string too_late(const std::string& operation, const ProcessGroup& group, ProcessGroup::Deadline deadline,
                     const std::string& why);

/// Message for two ranks that gave different operations the same number. Includes the call sites of both if their
/// flight records are visible from here.
std::string out_of_step(const ProcessGroup& group, std::uint64_t sequence, int rank, const Signature& signature,
                        int other, const Signature& others);

}  // namespace trireme::comm
