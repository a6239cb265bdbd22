#include "parallel/comm/common/records.h"

#include "parallel/comm/call_site.h"

namespace trireme::comm {

watch::Record collective_record(const ProcessGroup& group, const Collective& c, const Signature& signature,
                                std::uint64_t sequence) {
  watch::Record record;
  record.sequence = sequence;
  record.signature = signature;
  record.group = watch::FixedText<40>(group.name());
  record.site.bytes = c.site;
  return record;
}

watch::Record message_record(watch::Record::What what, const ProcessGroup& group, const Tensor& x, int peer, int tag) {
  watch::Record record;
  record.what = what;
  record.signature.dtype = x.dtype();
  record.signature.count = x.count();
  record.peer = group.world_rank(peer);
  record.tag = tag;
  record.group = watch::FixedText<40>(group.name());
  record.site = watch::FixedText<40>(CallSite::current());
  return record;
}

watch::Record subgroup_record(const std::string& name) {
  watch::Record record;
  record.what = watch::Record::What::subgroup;
  record.group = watch::FixedText<40>(name);
  record.site = watch::FixedText<40>(CallSite::current());
  return record;
}

ProfileEvent collective_event(const ProcessGroup& group, const Collective& c, std::uint64_t sequence) {
  const Signature signature = c.signature(group.size());
  return {.category = "collective",
          .name = to_string(signature) + " of " + group.name(),
          .detail = {},
          .transfer = ProfileTransfer{.group = group.name(),
                                      .site = std::string(CallSite::current()),
                                      .bytes = signature.count * static_cast<std::int64_t>(size_of(signature.dtype)),
                                      .number = sequence}};
}

ProfileEvent message_event(const char* what, const ProcessGroup& group, const Tensor& x, int peer, int tag) {
  return {.category = "message",
          .name = what,
          .detail = {},
          .transfer = ProfileTransfer{.group = group.name(),
                                      .site = std::string(CallSite::current()),
                                      .bytes = x.bytes(),
                                      .peer = group.world_rank(peer),
                                      .tag = tag}};
}

}  // namespace trireme::comm
