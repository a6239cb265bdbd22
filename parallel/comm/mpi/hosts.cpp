// Finds out over MPI which ranks are on which host, and tells all hosts where the first one listens.
// Read next: parallel/comm/hosts/host_links.h.
#include <unistd.h>

#include <algorithm>
#include <map>

#include "parallel/comm/mpi/runtime.h"

namespace trireme::comm::mpi {
namespace {

struct RankHost {
  std::int32_t first_rank = 0;  ///< of the ranks that share memory: a number for the host
  watch::FixedText<64> name{};
};

/// A hosts::Invitation of fixed size, for MPI.
struct FixedInvitation {
  std::array<char, 16> question{}, answer{};
  std::uint16_t port = 0;
  std::array<watch::FixedText<48>, 16> addresses{};
};

/// In the order of their first ranks: rank 0 is on the first host.
std::vector<hosts::Host> find_hosts(MPI_Comm world, const watch::RankPages& pages) {
  RankHost mine;
  while (!pages.visible(mine.first_rank)) ++mine.first_rank;
  std::array<char, 64> name{};
  ::gethostname(name.data(), name.size() - 1);
  mine.name = watch::FixedText<64>(name.data());
  std::vector<RankHost> rank_hosts(static_cast<std::size_t>(pages.ranks()));
  check_code(MPI_Allgather(&mine, sizeof mine, MPI_BYTE, rank_hosts.data(), sizeof mine, MPI_BYTE, world), "mpi");
  std::map<int, hosts::Host> found;
  for (std::size_t rank = 0; rank < rank_hosts.size(); ++rank) {
    hosts::Host& host = found[rank_hosts[rank].first_rank];
    host.name = rank_hosts[rank].name.view();
    host.ranks.push_back(static_cast<int>(rank));
  }
  std::vector<hosts::Host> list;
  for (auto& [first, host] : found) list.push_back(std::move(host));
  return list;
}

FixedInvitation fixed_of(const hosts::Invitation& invitation) {
  FixedInvitation fixed{invitation.question, invitation.answer, invitation.port, {}};
  for (std::size_t i = 0; i < std::min(invitation.addresses.size(), fixed.addresses.size()); ++i)
    fixed.addresses[i] = watch::FixedText<48>(invitation.addresses[i]);
  return fixed;
}

hosts::Invitation invitation_of(const FixedInvitation& fixed) {
  hosts::Invitation invitation{fixed.question, fixed.answer, fixed.port, {}};
  for (const auto& address : fixed.addresses)
    if (!address.view().empty()) invitation.addresses.emplace_back(address.view());
  return invitation;
}

}  // namespace

HostPlace link_hosts(MPI_Comm world, const std::shared_ptr<const watch::RankPages>& pages, double timeout,
                     const hosts::Callbacks& callbacks) {
  std::vector<hosts::Host> list = find_hosts(world, *pages);
  if (list.size() == 1) return {};
  int rank = 0;
  check_code(MPI_Comm_rank(world, &rank), "mpi");
  hosts::Listener listener = rank == 0 ? hosts::listen_anywhere() : hosts::Listener();
  FixedInvitation fixed;
  if (rank == 0) fixed = fixed_of(hosts::make_invitation(listener));
  check_code(MPI_Bcast(&fixed, sizeof fixed, MPI_BYTE, 0, world), "mpi");
  const hosts::Invitation invitation = invitation_of(fixed);
  if (rank == 0) {
    auto links =
        std::make_unique<hosts::HostLinks>(std::move(list), pages, timeout, std::move(listener), invitation, callbacks);
    links->wait_for_all(std::min(timeout, 5.0));
    return {0, std::move(links)};
  }
  const auto own = std::find_if(list.begin(), list.end(), [&](const hosts::Host& host) {
    return std::binary_search(host.ranks.begin(), host.ranks.end(), rank);
  });
  const int self = static_cast<int>(own - list.begin());
  if (own->ranks.front() != rank || self == 0) return {self, nullptr};
  return {self, std::make_unique<hosts::HostLinks>(std::move(list), self, pages, timeout, invitation, callbacks)};
}

}  // namespace trireme::comm::mpi
