#include "parallel/comm/diagnosis.h"

namespace trireme::comm {

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
      "operation #{} of group '{}' differs between ranks: {} called {}, {} called {}; every rank must call the same "
      "operations in the same order",
      sequence, group.name(), list_ranks(group, {rank}), to_string(signature), list_ranks(group, {other}),
      to_string(others));
}

}  // namespace trireme::comm
