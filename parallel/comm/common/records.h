// What the process groups write into the flight recorder.
// Read next: parallel/comm/watch/beacon.h.
#pragma once

#include <string>

#include "parallel/comm/watch/beacon.h"

namespace trireme::comm {

watch::Record collective_record(const ProcessGroup& group, const Collective& c, const Signature& signature,
                                std::uint64_t sequence);
/// `peer`: a rank of the group.
watch::Record message_record(watch::Record::What what, const ProcessGroup& group, const Tensor& x, int peer, int tag);
watch::Record subgroup_record(const std::string& name);

}  // namespace trireme::comm
