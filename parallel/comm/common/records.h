// What the process groups write into the flight recorder, and into a profile.
// Read next: parallel/comm/watch/beacon.h.
#pragma once

#include <string>

#include "core/profile.h"
#include "parallel/comm/collective.h"
#include "parallel/comm/watch/beacon.h"

namespace trireme::comm {

watch::Record collective_record(const ProcessGroup& group, const Collective& c, const Signature& signature,
                                std::uint64_t sequence);
/// `peer`: a rank of the group.
watch::Record message_record(watch::Record::What what, const ProcessGroup& group, const Tensor& x, int peer, int tag);
watch::Record subgroup_record(const std::string& name);

ProfileEvent collective_event(const ProcessGroup& group, const Collective& c, std::uint64_t sequence);
/// `what`: "send" or "recv"; `peer`: a rank of the group.
ProfileEvent message_event(const char* what, const ProcessGroup& group, const Tensor& x, int peer, int tag);

}  // namespace trireme::comm
