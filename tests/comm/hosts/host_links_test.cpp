// Links between hosts that are really one: their threads and sockets, over the loopback interface.
#include "parallel/comm/hosts/host_links.h"

#include <doctest/doctest.h>

#include <sys/socket.h>

#include <array>
#include <mutex>

#include "parallel/comm/watch/beacon.h"
#include "tests/comm/patience.h"

using namespace trireme;
using namespace trireme::hosts;
using testing::eventually;

namespace {

/// The messages of one HostLinks.
struct Heard {
  std::mutex mutex;
  std::vector<std::string> lost, notices;

  Callbacks callbacks() {
    return {[this](const std::exception_ptr& error) {
              const std::scoped_lock lock(mutex);
              try {
                std::rethrow_exception(error);
              } catch (const watch::LostRank& rank) { lost.push_back(rank.place() + ": " + rank.what()); }
            },
            [this](const std::string& text) {
              const std::scoped_lock lock(mutex);
              notices.push_back(text);
            }};
  }
  std::size_t count() {
    const std::scoped_lock lock(mutex);
    return lost.size();
  }
  std::size_t count_notices() {
    const std::scoped_lock lock(mutex);
    return notices.size();
  }
  bool hears_of_loss() {
    return eventually([this] { return count() > 0; });
  }
};

/// The time in which the two hosts count silence. While both are there, it passes for one when the other has looked
/// twice, and so has read what was sent before: a host that gets no processor is not silent.
class TwoClocks {
 public:
  enum class Passes { never, together, alone };
  void set(Passes passes) {
    const std::scoped_lock lock(mutex_);
    passes_ = passes;
  }
  HostLinks::Now of(int host) {
    return [this, host] { return look(host); };
  }
  bool reaches(int host, double seconds) {
    return eventually([&] {
      const std::scoped_lock lock(mutex_);
      return sides_[host].seconds >= seconds;
    });
  }

 private:
  struct Side {
    double seconds = 0;
    int looks = 0, seen = 0;  // its own; of the other's, when its time passed last
  };
  HostLinks::Clock::time_point look(int host) {
    const std::scoped_lock lock(mutex_);
    Side &mine = sides_[host], &other = sides_[1 - host];
    ++mine.looks;
    if (passes_ == Passes::alone) mine.seconds += watch::Observer::longest_gap;
    if (passes_ == Passes::together && other.looks >= mine.seen + 2) {
      mine.seconds += 0.5 * watch::Observer::longest_gap;
      mine.seen = other.looks;
    }
    return HostLinks::Clock::time_point(
        std::chrono::duration_cast<HostLinks::Clock::duration>(std::chrono::duration<double>(mine.seconds)));
  }
  std::mutex mutex_;
  Passes passes_ = Passes::never;
  std::array<Side, 2> sides_;
};
using Passes = TwoClocks::Passes;

/// Two hosts with one rank each. Each sees only its own rank.
struct Scene {
  static constexpr double timeout = 0.8;
  std::vector<Host> hosts = {{"h1", {0}}, {"h2", {1}}};
  watch::RankPage pages[2];
  std::shared_ptr<watch::RankPages> first =
      std::make_shared<watch::RankPages>(std::vector<watch::RankPage*>{&pages[0], nullptr});
  std::shared_ptr<watch::RankPages> second =
      std::make_shared<watch::RankPages>(std::vector<watch::RankPage*>{nullptr, &pages[1]});
  watch::Beacon here{first, 0}, there{second, 1};
  Listener listener = listen_anywhere();
  Invitation invitation = make_invitation(listener);
  Heard at_first, at_second;
  TwoClocks time;

  Scene() { invitation.addresses = {"127.0.0.1"}; }
  std::unique_ptr<HostLinks> start_first() {
    return std::make_unique<HostLinks>(hosts, first, timeout, std::move(listener), invitation, at_first.callbacks(),
                                       time.of(0));
  }
  std::unique_ptr<HostLinks> start_second() {
    return std::make_unique<HostLinks>(hosts, 1, second, timeout, invitation, at_second.callbacks(), time.of(1));
  }
};

/// Until both are linked, no time passes.
void link(Scene& scene, HostLinks& first) {
  const auto began = std::chrono::steady_clock::now();
  first.wait_for_all(std::chrono::duration<double>(testing::patience).count());
  REQUIRE(std::chrono::steady_clock::now() - began < testing::patience);
  scene.time.set(Passes::together);
}

/// The next caller, which has begun to connect.
Descriptor accept_next(const Listener& listener) {
  Descriptor socket;
  CHECK(eventually([&] {
    socket = accept_from(listener);
    return static_cast<bool>(socket);
  }));
  return socket;
}

}  // namespace

TEST_CASE("hosts that are there lose nobody; a process that ends is named, with what it said of its rank") {
  Scene scene;
  REQUIRE(scene.listener.port != 0);
  scene.there.set_place("rank 1 (dp=1)", 0);
  scene.there.begin_step(7);
  const auto first = scene.start_first();
  auto second = scene.start_second();
  link(scene, *first);
  REQUIRE(scene.time.reaches(0, 6 * Scene::timeout));
  REQUIRE(scene.time.reaches(1, 6 * Scene::timeout));
  CHECK(scene.at_first.count() == 0);
  CHECK(scene.at_second.count() == 0);
  CHECK(scene.at_first.count_notices() == 0);
  second.reset();
  scene.time.set(Passes::alone);
  REQUIRE(scene.at_first.hears_of_loss());
  CHECK(scene.at_first.lost.front().starts_with(
      "rank 1 (dp=1) step 7: trireme: [watch] host h2 is there, but its process of rank 1 has not answered for "));
  CHECK(scene.at_first.lost.size() == 1);
}

TEST_CASE("a host that nobody asks any more ends itself") {
  Scene scene;
  auto first = scene.start_first();
  const auto second = scene.start_second();
  link(scene, *first);
  REQUIRE(scene.time.reaches(1, 2 * Scene::timeout));
  first.reset();
  scene.time.set(Passes::alone);
  REQUIRE(scene.at_second.hears_of_loss());
  CHECK(scene.at_second.lost.front().starts_with(
      "rank 0: trireme: [watch] host h1 of rank 0 has not asked host h2 for "));
}

TEST_CASE("who does not know the question is not let in, and a host without a link is told of once, not lost") {
  Scene scene;
  const std::uint16_t port = scene.listener.port;
  const auto first = scene.start_first();
  Connection stranger(begin_connecting("127.0.0.1", port));
  stranger.send(0, std::string(20, 'x'));
  CHECK(eventually([&] {
    stranger.progress([](std::uint64_t, std::string_view) { FAIL("a stranger was answered"); });
    return !stranger.open();
  }));
  scene.time.set(Passes::alone);
  REQUIRE(scene.time.reaches(0, 4 * Scene::timeout));
  CHECK(scene.at_first.count() == 0);
  const std::scoped_lock lock(scene.at_first.mutex);
  REQUIRE(scene.at_first.notices.size() == 1);
  CHECK(scene.at_first.notices.front().starts_with(fmt::format("hosts: h2 has no connection to port {} of h1", port)));
}

TEST_CASE("a message of more bytes than allowed ends the connection, before they are stored") {
  const Listener listener = listen_anywhere();
  Connection sender(begin_connecting("127.0.0.1", listener.port));
  Connection receiver(accept_next(listener));
  REQUIRE(receiver.open());
  sender.send(7, "words");
  const std::uint64_t header[2] = {8, Connection::longest + 1};
  sender.send(9, std::string(reinterpret_cast<const char*>(header), sizeof header));
  std::vector<std::string> heard;
  const auto take = [&](std::uint64_t number, std::string_view bytes) {
    heard.push_back(fmt::format("{} {}", number, bytes.size()));
  };
  CHECK(eventually([&] {
    sender.progress(take);  // sends what it could not send before it was connected
    receiver.progress(take);
    return heard.size() == 2;
  }));
  CHECK(heard == std::vector<std::string>{"7 5", "9 16"});
  CHECK(receiver.open());
  CHECK(receiver.since_acknowledged().has_value());

  Connection raw(begin_connecting("127.0.0.1", listener.port));
  const Descriptor other = accept_next(listener);
  REQUIRE(static_cast<bool>(other));
  REQUIRE(::send(other.get(), header, sizeof header, 0) == static_cast<ssize_t>(sizeof header));
  CHECK(eventually([&] {
    raw.progress(take);
    return !raw.open();
  }));
  CHECK(heard.size() == 2);
}
