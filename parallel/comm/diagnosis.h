// What a process group says when its ranks do not come together: the same words, whatever moves the elements.
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

/// Two ranks gave different operations the same number. With the call sites of both, where their flight records are to
/// be seen from here.
std::string out_of_step(const ProcessGroup& group, std::uint64_t sequence, int rank, const Signature& signature,
                        int other, const Signature& others);

}  // namespace trireme::comm
