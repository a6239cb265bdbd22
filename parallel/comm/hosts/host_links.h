// HostLinks: the thread that knows whether the other hosts of a job are alive. The host of rank 0 asks one process of
// each other host at least twenty times per timeout, over a TCP connection of its own; the answer says how that host's
// ranks are. Nothing here calls MPI, so nothing can block it.
//
//   host of rank 0: names a host that does not answer, or a rank that its host calls silent; notices slow links
//   other hosts:    answer; end themselves when nobody asks any more, so that a host that was cut off does not go on
//
// Read next: parallel/comm/hosts/host_signs.h, which decides; parallel/comm/mpi/hosts.cpp, which starts this.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

#include "parallel/comm/hosts/connection.h"
#include "parallel/comm/hosts/host_signs.h"
#include "parallel/comm/watch/observer.h"

namespace trireme::hosts {

/// Where to connect, and the two tokens by which both ends of a connection know that they belong to one job: the caller
/// sends the question and gets the answer.
struct Invitation {
  std::array<char, 16> question{}, answer{};
  std::uint16_t port = 0;  ///< 0: the host of rank 0 cannot listen
  std::vector<std::string> addresses;
};
Invitation make_invitation(const Listener& listener);

struct Callbacks {
  /// Called at most once, on this thread, with a LostRank.
  std::function<void(const std::exception_ptr&)> on_lost;
  /// A slow link, or a host without a link: training goes on. May be empty.
  std::function<void(const std::string&)> on_notice;
};

class HostLinks {
 public:
  using Clock = std::chrono::steady_clock;
  /// The time in which silence is counted. Tests have one of their own.
  using Now = std::function<Clock::time_point()>;

  /// On the first host; `listener` is the one that the invitation names.
  HostLinks(std::vector<Host> hosts, std::shared_ptr<const watch::RankPages> pages, double timeout, Listener listener,
            const Invitation& invitation, Callbacks callbacks, Now now = Clock::now);
  /// On host number `self`.
  HostLinks(std::vector<Host> hosts, int self, std::shared_ptr<const watch::RankPages> pages, double timeout,
            const Invitation& invitation, Callbacks callbacks, Now now = Clock::now);
  ~HostLinks();
  /// On the first host: returns when all hosts have answered, or after `seconds`. From then on none can vanish unseen.
  void wait_for_all(double seconds);
  HostLinks(const HostLinks&) = delete;
  HostLinks& operator=(const HostLinks&) = delete;

 private:
  /// Another host, on the first.
  struct Peer {
    std::unique_ptr<Connection> link;
    std::array<Clock::time_point, 64> asked{};  // when, by the number of the question
    std::uint64_t number = 0, answered = 0;     // of the last question and the last answer
  };

  double elapsed();  // seconds since the last call, as far as this thread has run
  bool pause(const std::vector<Connection*>& links, double seconds);  // true: time to end

  void watch_others();
  void ask(Peer& peer);
  void accept_callers();
  void admit(std::unique_ptr<Connection> caller, std::string_view words);
  void take_answer(std::size_t host, std::uint64_t number, std::string_view bytes);
  bool find_lost(double seconds);

  void answer();
  std::unique_ptr<Connection> call(const std::string& address);
  std::string news() const;

  const std::vector<Host> hosts_;
  const int self_;
  const std::shared_ptr<const watch::RankPages> pages_;
  const double timeout_, interval_;
  Listener listener_;
  const Invitation invitation_;
  const Callbacks callbacks_;
  const Now now_;
  watch::Observer observer_;
  Clock::time_point last_;
  std::vector<HostSigns> signs_;
  std::vector<Peer> peers_;
  std::vector<std::unique_ptr<Connection>> callers_;  // that have not said who they are
  SlowLinks slow_;
  Descriptor wake_;
  std::atomic<bool> stop_{false};
  std::atomic<int> linked_{0};  // hosts that have answered
  std::thread thread_;          // last: it uses all of the above
};

}  // namespace trireme::hosts
