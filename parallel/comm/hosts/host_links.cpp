#include "parallel/comm/hosts/host_links.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "core/cores.h"

namespace trireme::hosts {
namespace {

constexpr double call_seconds = 2;        // for one address
constexpr std::size_t most_callers = 64;  // that have not said who they are

/// Seconds between two questions: less than an observer counts at once, or it would count silence too slowly.
double interval_for(double timeout) { return std::clamp(timeout / 20, 0.02, 0.8 * watch::Observer::longest_gap); }

double seconds_between(std::chrono::steady_clock::time_point from, std::chrono::steady_clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

std::string_view view(const std::array<char, 16>& token) { return {token.data(), token.size()}; }

}  // namespace

Invitation make_invitation(const Listener& listener) {
  Invitation invitation;
  std::random_device random;
  for (auto* token : {&invitation.question, &invitation.answer})
    for (char& one : *token) one = static_cast<char>(random());
  if (!listener.socket) return invitation;
  invitation.port = listener.port;
  invitation.addresses = own_addresses();
  return invitation;
}

HostLinks::HostLinks(std::vector<Host> hosts, std::shared_ptr<const watch::RankPages> pages, double timeout,
                     Listener listener, const Invitation& invitation, Callbacks callbacks, Now now)
    : hosts_(std::move(hosts)),
      self_(0),
      pages_(std::move(pages)),
      timeout_(timeout),
      interval_(interval_for(timeout)),
      listener_(std::move(listener)),
      invitation_(invitation),
      callbacks_(std::move(callbacks)),
      now_(std::move(now)),
      observer_(pages_),
      last_(now_()),
      signs_(hosts_.size()),
      peers_(hosts_.size()),
      slow_(hosts_.size()),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      thread_([this] {
        use_all_cores();
        watch_others();
      }) {}

HostLinks::HostLinks(std::vector<Host> hosts, int self, std::shared_ptr<const watch::RankPages> pages, double timeout,
                     const Invitation& invitation, Callbacks callbacks, Now now)
    : hosts_(std::move(hosts)),
      self_(self),
      pages_(std::move(pages)),
      timeout_(timeout),
      interval_(interval_for(timeout)),
      invitation_(invitation),
      callbacks_(std::move(callbacks)),
      now_(std::move(now)),
      observer_(pages_),
      last_(now_()),
      slow_(0),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      thread_([this] {
        use_all_cores();
        answer();
      }) {}

HostLinks::~HostLinks() {
  stop_ = true;
  const std::uint64_t one = 1;
  static_cast<void>(!::write(wake_.get(), &one, sizeof one));
  thread_.join();
}

void HostLinks::wait_for_all(double seconds) {
  const auto until = Clock::now() + std::chrono::duration<double>(seconds);
  while (linked_ < static_cast<int>(hosts_.size()) - 1 && Clock::now() < until)
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
}

double HostLinks::elapsed() {
  const auto now = now_();
  return std::clamp(seconds_between(std::exchange(last_, now), now), 0.0, watch::Observer::longest_gap);
}

bool HostLinks::pause(const std::vector<Connection*>& links, double seconds) {
  std::vector<pollfd> watched = {{wake_.get(), POLLIN, 0}};
  if (listener_.socket) watched.push_back({listener_.socket.get(), POLLIN, 0});
  for (const Connection* link : links)
    if (link->open())
      watched.push_back({link->fd(), static_cast<short>(POLLIN | (link->has_output() ? POLLOUT : 0)), 0});
  ::poll(watched.data(), watched.size(), std::max(0, static_cast<int>(1e3 * seconds) + 1));
  return stop_;
}

// The first host.

void HostLinks::watch_others() {
  auto next = Clock::now();
  double watched = 0;
  bool complained = false;
  while (true) {
    std::vector<Connection*> links;
    for (const Peer& peer : peers_)
      if (peer.link) links.push_back(peer.link.get());
    for (const auto& caller : callers_) links.push_back(caller.get());
    if (pause(links, std::min(interval_, seconds_between(Clock::now(), next)))) return;
    accept_callers();
    for (std::size_t host = 1; host < peers_.size(); ++host)
      if (peers_[host].link)
        peers_[host].link->progress(
            [&](std::uint64_t number, std::string_view bytes) { take_answer(host, number, bytes); });
    const auto now = Clock::now();
    if (now < next) continue;
    next = now + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(interval_));
    for (Peer& peer : peers_)
      if (peer.link) ask(peer);
    const double seconds = elapsed();
    if (find_lost(seconds)) return;
    watched += seconds;
    if (complained || watched < timeout_) continue;
    complained = true;
    for (std::size_t host = 1; host < hosts_.size() && callbacks_.on_notice; ++host)
      if (!signs_[host].linked)
        callbacks_.on_notice(
            fmt::format("hosts: {} has no connection to port {} of {}, over which it would show signs of life; if it "
                        "vanishes, this is "
                        "noticed only after {:g} x --timeout; let the hosts connect to each other on all ports",
                        hosts_[host].name, listener_.port, hosts_.front().name, watch::patience_with_unseen));
  }
}

/// Takes new callers, and hears those that have not said who they are.
void HostLinks::accept_callers() {
  while (listener_.socket) {
    Descriptor socket = accept_from(listener_);
    if (!socket) break;
    if (callers_.size() < most_callers) callers_.push_back(std::make_unique<Connection>(std::move(socket)));
  }
  for (auto& caller : callers_) {
    std::string words;
    caller->progress([&](std::uint64_t, std::string_view bytes) { words = bytes; });
    if (!words.empty()) admit(std::move(caller), words);
  }
  std::erase_if(callers_, [](const auto& caller) { return !caller || !caller->open(); });
}

/// Its words must be the invitation's question and the number of its host.
void HostLinks::admit(std::unique_ptr<Connection> caller, std::string_view words) {
  std::int32_t host = 0;
  if (words.size() != invitation_.question.size() + sizeof host || !words.starts_with(view(invitation_.question)))
    return;
  std::memcpy(&host, words.data() + invitation_.question.size(), sizeof host);
  if (host < 1 || host >= static_cast<std::int32_t>(hosts_.size())) return;
  caller->send(0, view(invitation_.answer));
  Peer& peer = peers_[static_cast<std::size_t>(host)];
  peer.link = std::move(caller);
  ask(peer);
}

void HostLinks::ask(Peer& peer) {
  ++peer.number;
  peer.asked[peer.number % peer.asked.size()] = Clock::now();
  peer.link->send(peer.number, "");
}

void HostLinks::take_answer(std::size_t host, std::uint64_t number, std::string_view bytes) {
  Peer& peer = peers_[host];
  if (number <= peer.answered || number > peer.number || bytes.size() % sizeof(RankNews) != 0) return;
  peer.answered = number;
  if (!std::exchange(signs_[host].linked, true)) ++linked_;
  signs_[host].since_answer = 0;
  if (peer.number - number < peer.asked.size())
    slow_.add(static_cast<int>(host), seconds_between(peer.asked[number % peer.asked.size()], Clock::now()));
  const std::vector<int>& ranks = hosts_[host].ranks;
  for (std::size_t at = 0; at < bytes.size(); at += sizeof(RankNews)) {
    RankNews news;
    std::memcpy(&news, bytes.data() + at, sizeof news);
    if (std::binary_search(ranks.begin(), ranks.end(), news.rank)) signs_[host].ranks[news.rank] = news;
  }
}

bool HostLinks::find_lost(double seconds) {
  observer_.look(seconds);
  for (std::size_t host = 1; host < peers_.size(); ++host) {
    signs_[host].since_answer += seconds;
    const std::unique_ptr<Connection>& link = peers_[host].link;
    signs_[host].since_network = link ? link->since_acknowledged().value_or(0) : 0;
  }
  for (const SlowLinks::Slow& slow : slow_.look())
    if (callbacks_.on_notice) callbacks_.on_notice("slow link: " + to_string(slow, hosts_, signs_));
  const auto waits = [&](const watch::RankSigns& rank) {
    return rank.visible && rank.blocked && !rank.ended && rank.since_sign_of_life >= timeout_;
  };
  const bool waiting = std::any_of(observer_.signs().begin(), observer_.signs().end(), waits);
  const auto finding = find_lost_host(hosts_, signs_, timeout_, waiting);
  if (!finding) return false;
  callbacks_.on_lost(
      std::make_exception_ptr(lost_on_host(*finding, hosts_, signs_, timeout_, watch::flight_record(*pages_))));
  return true;
}

// The other hosts.

/// Connects, and answers until told to end. If the connection breaks, it is made again.
void HostLinks::answer() {
  bool linked = false;
  double silence = 0;
  // Hosts report one after the other: the first ends the job, so its message is the only one.
  const double patience = stopped_after * timeout_ + std::min(0.5 * self_, 10.0);
  std::unique_ptr<Connection> link;
  std::size_t next_address = 0;
  while (true) {
    if (!link || !link->open()) {
      link = invitation_.addresses.empty() ? nullptr
                                           : call(invitation_.addresses[next_address++ % invitation_.addresses.size()]);
    }
    const bool stop = pause(link ? std::vector{link.get()} : std::vector<Connection*>(), link ? interval_ : 0.25);
    if (stop) return;
    const double seconds = elapsed();
    observer_.look(seconds);
    silence += seconds;
    if (link) {
      link->progress([&](std::uint64_t number, std::string_view) {
        silence = 0;
        linked = true;
        link->send(number, news());
      });
    }
    if (!linked || silence < patience) continue;
    return callbacks_.on_lost(std::make_exception_ptr(lost_first_host(hosts_, self_, silence, timeout_)));
  }
}

/// Connects to the host of rank 0; null if what listens at the address does not give the invitation's answer.
std::unique_ptr<Connection> HostLinks::call(const std::string& address) {
  Descriptor socket = begin_connecting(address, invitation_.port);
  if (!socket) return nullptr;
  const auto until = Clock::now() + std::chrono::duration<double>(call_seconds);
  std::array<pollfd, 2> watched = {{{wake_.get(), POLLIN, 0}, {socket.get(), POLLOUT, 0}}};
  ::poll(watched.data(), watched.size(), static_cast<int>(1e3 * call_seconds));
  if (stop_ || watched[1].revents == 0 || !is_connected(socket)) return nullptr;
  auto link = std::make_unique<Connection>(std::move(socket));
  const std::int32_t self = self_;
  link->send(0,
             std::string(view(invitation_.question)) + std::string(reinterpret_cast<const char*>(&self), sizeof self));
  bool right = false;
  while (!stop_ && link->open() && !right && Clock::now() < until) {
    pause({link.get()}, 0.1);
    link->progress([&](std::uint64_t number, std::string_view bytes) {
      if (right) link->send(number, news());  // the first question comes with the answer
      right = right || bytes == view(invitation_.answer);
    });
  }
  return right ? std::move(link) : nullptr;
}

std::string HostLinks::news() const {
  std::string text;
  for (const int rank : hosts_[static_cast<std::size_t>(self_)].ranks) {
    if (!pages_->visible(rank)) continue;
    const watch::RankSigns& signs = observer_.signs()[static_cast<std::size_t>(rank)];
    RankNews news;
    news.rank = rank;
    news.step = static_cast<std::int32_t>(pages_->page(rank).step.load());
    news.silence = static_cast<float>(std::max(signs.since_sign_of_life, signs.since_ran));
    news.waits = signs.blocked || signs.ended || signs.failed ? 1 : 0;
    news.place = watch::FixedText<64>(pages_->place(rank));
    news.doing = watch::FixedText<240>(watch::doing(*pages_, rank));
    text.append(reinterpret_cast<const char*>(&news), sizeof news);
  }
  return text;
}

}  // namespace trireme::hosts
