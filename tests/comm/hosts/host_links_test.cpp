// Links between hosts that are really one: their threads and sockets, over the loopback interface.
#include "parallel/comm/hosts/host_links.h"

#include <doctest/doctest.h>

#include <sys/socket.h>

#include <mutex>

#include "parallel/comm/watch/beacon.h"

using namespace trireme;
using namespace trireme::hosts;

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
  bool waits_for_loss(double seconds) {
    for (int i = 0; i < static_cast<int>(100 * seconds) && count() == 0; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    return count() > 0;
  }
};

/// Two hosts with one rank each. Each sees only its own rank.
struct Scene {
  static constexpr double timeout = 0.8;
  std::vector<Host> hosts = {{"h1", {0}}, {"h2", {1}}};
  watch::RankPage pages[2];
  std::shared_ptr<watch::Board> first =
      std::make_shared<watch::Board>(std::vector<watch::RankPage*>{&pages[0], nullptr});
  std::shared_ptr<watch::Board> second =
      std::make_shared<watch::Board>(std::vector<watch::RankPage*>{nullptr, &pages[1]});
  watch::Beacon here{first, 0}, there{second, 1};
  Listener listener = listen_anywhere();
  Invitation invitation = make_invitation(listener);
  Heard at_first, at_second;

  Scene() { invitation.addresses = {"127.0.0.1"}; }
  std::unique_ptr<HostLinks> start_first() {
    return std::make_unique<HostLinks>(hosts, first, timeout, std::move(listener), invitation, at_first.callbacks());
  }
  std::unique_ptr<HostLinks> start_second() {
    return std::make_unique<HostLinks>(hosts, 1, second, timeout, invitation, at_second.callbacks());
  }
};

void sleep(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

}  // namespace

TEST_CASE("hosts that are there lose nobody; a process that ends is named, with what it said of its rank") {
  Scene scene;
  REQUIRE(scene.listener.port != 0);
  scene.there.set_place("rank 1 (dp=1)", 0);
  scene.there.begin_step(7);
  const auto first = scene.start_first();
  auto second = scene.start_second();
  const auto began = std::chrono::steady_clock::now();
  first->wait_for_all(10);
  CHECK(std::chrono::steady_clock::now() - began < std::chrono::seconds(5));
  sleep(6 * Scene::timeout);
  CHECK(scene.at_first.count() == 0);
  CHECK(scene.at_second.count() == 0);
  CHECK(scene.at_first.notices.empty());
  second.reset();
  REQUIRE(scene.at_first.waits_for_loss(10));
  CHECK(scene.at_first.lost.front().starts_with(
      "rank 1 (dp=1) step 7: trireme: [watch] host h2 is there, but its process of rank 1 has not answered for "));
  CHECK(scene.at_first.lost.size() == 1);
}

TEST_CASE("a host that nobody asks any more ends itself") {
  Scene scene;
  auto first = scene.start_first();
  const auto second = scene.start_second();
  sleep(2 * Scene::timeout);
  first.reset();
  REQUIRE(scene.at_second.waits_for_loss(10));
  CHECK(scene.at_second.lost.front().starts_with(
      "rank 0: trireme: [watch] host h1 of rank 0 has not asked host h2 for "));
}

TEST_CASE("who does not know the question is not let in, and a host without a link is told of once, not lost") {
  Scene scene;
  const std::uint16_t port = scene.listener.port;
  const auto first = scene.start_first();
  Connection stranger(begin_connecting("127.0.0.1", port));
  sleep(0.1);
  stranger.send(0, std::string(20, 'x'));
  for (int i = 0; i < 100 && stranger.open(); ++i) {
    sleep(0.02);
    stranger.progress([](std::uint64_t, std::string_view) { FAIL("a stranger was answered"); });
  }
  CHECK(!stranger.open());
  sleep(3 * Scene::timeout);
  CHECK(scene.at_first.count() == 0);
  const std::scoped_lock lock(scene.at_first.mutex);
  REQUIRE(scene.at_first.notices.size() == 1);
  CHECK(scene.at_first.notices.front().starts_with(fmt::format("hosts: h2 has no connection to port {} of h1", port)));
}

TEST_CASE("a message of more bytes than allowed ends the connection, before they are stored") {
  const Listener listener = listen_anywhere();
  Connection sender(begin_connecting("127.0.0.1", listener.port));
  sleep(0.05);
  Connection receiver(accept_from(listener));
  REQUIRE(receiver.open());
  sender.send(7, "words");
  const std::uint64_t header[2] = {8, Connection::longest + 1};
  sender.send(9, std::string(reinterpret_cast<const char*>(header), sizeof header));
  std::vector<std::string> heard;
  const auto take = [&](std::uint64_t number, std::string_view bytes) {
    heard.push_back(fmt::format("{} {}", number, bytes.size()));
  };
  for (int i = 0; i < 50 && heard.size() < 2; ++i, sleep(0.01)) receiver.progress(take);
  CHECK(heard == std::vector<std::string>{"7 5", "9 16"});
  CHECK(receiver.open());
  CHECK(receiver.since_acknowledged().has_value());

  Connection raw(begin_connecting("127.0.0.1", listener.port));
  sleep(0.05);
  const Descriptor other = accept_from(listener);
  REQUIRE(static_cast<bool>(other));
  REQUIRE(::send(other.get(), header, sizeof header, 0) == static_cast<ssize_t>(sizeof header));
  for (int i = 0; i < 50 && raw.open(); ++i, sleep(0.01)) raw.progress(take);
  CHECK(!raw.open());
  CHECK(heard.size() == 2);
}
