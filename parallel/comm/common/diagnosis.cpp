#include "parallel/comm/common/diagnosis.h"

#include "parallel/comm/watch/beacon.h"

namespace trireme::comm {
namespace {

/// " in blocks.2.mlp": where that rank began the operation, from its flight record; empty when that is not visible.
std::string site_of(const ProcessGroup& group, std::uint64_t sequence, int rank, const Signature& signature) {
  const std::shared_ptr<watch::Beacon>& self = watch::Beacon::current();
  const int world_rank = group.world_rank(rank);
  if (!self || !self->pages()->visible(world_rank)) return "";
  const watch::FixedText<40> name(group.name());
  for (const watch::Record& r : self->pages()->page(world_rank).history())
    if (r.what == watch::Record::What::collective && r.sequence == sequence && r.signature == signature &&
        r.group.view() == name.view())
      return fmt::format(" in {}", r.site.view());
  return "";
}

}  // namespace

std::string numbered(const Signature& signature, std::uint64_t sequence, const ProcessGroup& group) {
  return fmt::format("{} #{} of group '{}'", to_string(signature), sequence, group.name());
}

std::string who_waited(const ProcessGroup& group, ProcessGroup::Deadline deadline) {
  return fmt::format("{} waited {:.1f} s", list_ranks(group, {group.rank()}), deadline.count());
}

std::string too_late(const std::string& operation, const ProcessGroup& group, ProcessGroup::Deadline deadline,
                     const std::string& why) {
  return fmt::format("{}: {}; {}; find what keeps them, or raise the deadline", operation, who_waited(group, deadline),
                     why);
}

std::string out_of_step(const ProcessGroup& group, std::uint64_t sequence, int rank, const Signature& signature,
                        int other, const Signature& others) {
  return fmt::format(
      "operation #{} of group '{}' differs between ranks: {} called {}{}, {} called {}{}; every rank must call the "
      "same operations in the same order",
      sequence, group.name(), list_ranks(group, {rank}), to_string(signature),
      site_of(group, sequence, rank, signature), list_ranks(group, {other}), to_string(others),
      site_of(group, sequence, other, others));
}

}  // namespace trireme::comm
