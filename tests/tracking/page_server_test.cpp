// The server of --prometheus: its answers, and clients that are slow, hostile or many.
#include "ops/tracking/page_server.h"

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <fmt/core.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <thread>
#include <vector>

#include "tests/support/errors.h"
#include "tests/support/text.h"

using namespace trireme;
using namespace trireme::testing;

namespace page_server_test {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::minutes patience{30};  // only a test that hangs waits so long

class Client {
 public:
  explicit Client(const std::string& url) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(std::stoi(url.substr(url.rfind(':') + 1))));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const timeval limit{std::chrono::seconds(patience).count(), 0};
    int connected = -1;
    do {  // again, if the server's thread has got no processor for minutes
      if (fd_ >= 0) ::close(fd_);
      fd_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
      ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
      connected = ::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address);
    } while (connected != 0 && errno == ETIMEDOUT);
    REQUIRE(connected == 0);
  }
  ~Client() { ::close(fd_); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  /// Returns false if the server has closed the connection.
  bool send(std::string_view bytes) { return ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL) >= 0; }
  /// What comes until the server closes the connection.
  std::string receive() {
    std::string all;
    std::array<char, 4096> chunk{};
    for (ssize_t count = 0; (count = ::recv(fd_, chunk.data(), chunk.size(), 0)) > 0;)
      all.append(chunk.data(), static_cast<std::size_t>(count));
    return all;
  }
  std::string ask(std::string_view request) {
    send(request);
    return receive();
  }

 private:
  int fd_ = -1;
};

const std::string get = "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n";

std::string status_of(const std::string& answer) { return answer.substr(0, answer.find("\r\n")); }

/// Its thread has the normal priority, and its limit of time ends no connection beside busy processes.
struct Server : PageServer {
  explicit Server(
      std::function<std::string()> page = [] { return std::string("a 1\n"); }, int nice = 0,
      std::chrono::seconds limit = patience)
      : PageServer({"127.0.0.1", "0"}, "--prometheus", std::move(page), nice, limit) {}
  std::string base() const { return url().substr(0, url().rfind('/')); }
  bool answers() const { return status_of(Client(base()).ask(get)) == "HTTP/1.1 200 OK"; }
};

template <class Test>
bool eventually(const Test& test) {
  const auto end = Clock::now() + patience;
  while (!test()) {
    if (Clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return true;
}

}  // namespace page_server_test

using namespace page_server_test;

TEST_CASE("an address") {
  const auto parse = [](std::string_view text) {
    const Address a = Address::parse(text, "--prometheus");
    return a.host + " " + a.port;
  };
  CHECK(parse("localhost:9400") == "localhost 9400");
  CHECK(parse("[::1]:9400") == "::1 9400");
  CHECK(parse("0.0.0.0:0") == "0.0.0.0 0");
  CHECK(parse(":9400") == "127.0.0.1 9400");
  CHECK(parse("9400") == "127.0.0.1 9400");
  for (const char* wrong : {"", ":", "localhost", "localhost:", "a:b", "a:-1", "a:65536", "a:1x", "::1:9400",
                            "[::1]9400", "http://a:80", "a: 80"})
    CHECK_MESSAGE(contains(failure([&] { parse(wrong); }), "64 trireme: [--prometheus]"), wrong);
}

TEST_CASE("the page, and what is not a request for it") {
  const Server server;
  const auto ask = [&](const std::string& request) { return Client(server.base()).ask(request); };
  const std::string page = ask(get);
  CHECK(contains(page, "HTTP/1.1 200 OK\r\n"));
  CHECK(contains(page, "Content-Type: text/plain; version=0.0.4"));
  CHECK(contains(page, "Content-Length: 4\r\n"));
  CHECK(page.ends_with("\r\n\r\na 1\n"));
  CHECK(status_of(ask("GET /metrics?x=1 HTTP/1.0\r\n\r\n")) == "HTTP/1.1 200 OK");
  CHECK(ask("HEAD /metrics HTTP/1.1\r\n\r\n").ends_with("\r\n\r\n"));
  CHECK(status_of(ask("GET / HTTP/1.1\r\n\r\n")) == "HTTP/1.1 404 Not Found");
  CHECK(status_of(ask("POST /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc")) == "HTTP/1.1 405 Method Not Allowed");
  for (const std::string garbage : {"\r\n\r\n", "GET\r\n\r\n", "GET /metrics\r\n\r\n", "\x16\x03\x01\x02 x\r\n\r\n",
                                    "GET  HTTP/1.1\r\n\r\n", "GET /metrics FTP/1.1\r\n\r\n"})
    CHECK(contains(status_of(ask(garbage)), "HTTP/1.1 4"));
  CHECK(contains(status_of(ask(std::string(4, '\0') + "\r\n\r\n")), "HTTP/1.1 400"));
  CHECK(contains(status_of(ask("GET /" + std::string(PageServer::most_request_bytes, 'a'))), "HTTP/1.1 431"));
  CHECK(server.answers());
}

TEST_CASE("the server's thread has the lowest priority, and only this thread") {
  std::atomic<int> nice{0};
  const int before = ::getpriority(PRIO_PROCESS, 0);
  const Server server(
      [&] {
        nice = ::getpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()));
        return std::string();
      },
      PageServer::lowest_priority);
  CHECK(server.answers());
  CHECK(nice == PageServer::lowest_priority);
  CHECK(::getpriority(PRIO_PROCESS, 0) == before);
}

TEST_CASE("a port in use, and addresses that are not this machine's, are refused") {
  const Server server;
  const std::string base = server.base(), port = base.substr(base.rfind(':') + 1);
  const std::string refused = failure([&] { PageServer({"127.0.0.1", port}, "--prometheus", [] { return ""; }); });
  CHECK(contains(refused, "64 trireme: [--prometheus]"));
  CHECK(contains(refused, "another program"));
  CHECK(contains(failure([&] {
                   PageServer({"192.0.2.1", "0"}, "--prometheus", [] { return ""; });
                 }),
                 "64 trireme: [--prometheus]"));
}

TEST_CASE("100 connections that say nothing leave room for one that asks") {
  const Server server;
  std::vector<std::unique_ptr<Client>> silent;
  for (int i = 0; i < 100; ++i) {
    silent.push_back(std::make_unique<Client>(server.base()));
    silent.back()->send(i % 2 == 0 ? "" : "GET /met");
  }
  CHECK(server.answers());
  for (const auto& client : silent) client->send("rics HTTP/1.1\r\n\r\n");
  CHECK(server.answers());
}

TEST_CASE("a client that sends without end loses its connection") {
  const Server server;
  Client talkative(server.base());
  const std::string much(1 << 16, 'y');
  while (talkative.send(much)) {}
  CHECK(server.answers());
}

TEST_CASE("clients that never read, or are slow, lose their connection when their time is over") {
  const std::string large(std::size_t{32} << 20, 'x');  // does not fit into the buffers of a connection
  constexpr std::chrono::seconds limit{2};
  std::atomic<int> pages{0};
  const Server server(
      [&] {
        ++pages;
        return large;
      },
      0, limit);
  const auto begin = Clock::now();
  Client deaf(server.base()), slow(server.base());
  deaf.send(get);
  CHECK(eventually([&] { return !slow.send("z"); }));
  CHECK(Clock::now() - begin >= limit - std::chrono::seconds(1));  // its clock is coarse
  if (pages > 0) CHECK(deaf.receive().size() < large.size());
}

TEST_CASE("a client that goes away raises no signal") {
  static std::atomic<int> signals{0};
  signals = 0;
  void (*before)(int) = std::signal(SIGPIPE, [](int) { ++signals; });
  {
    constexpr int clients = 20;
    const std::string large(std::size_t{8} << 20, 'x');  // does not fit into the buffers of a connection
    std::atomic<bool> is_large{true};
    std::atomic<int> pages{0};
    const Server server([&] {
      ++pages;
      return is_large ? large : std::string("a 1\n");
    });
    for (int i = 0; i < clients; ++i) {
      Client client(server.base());
      client.send(get);
    }
    CHECK(eventually([&] { return pages > 0; }));
    is_large = false;  // a sanitizer makes many copies of the large page slow
    CHECK(contains(Client(server.base()).ask(get), "200 OK"));
  }
  std::signal(SIGPIPE, before);
  CHECK(signals == 0);
}

TEST_CASE("a page that cannot be made costs one connection") {
  std::atomic<bool> fails{true};
  const Server server([&]() -> std::string {
    if (fails) throw std::bad_alloc();
    return "a 1\n";
  });
  CHECK(Client(server.base()).ask(get).empty());
  fails = false;
  CHECK(server.answers());
}
