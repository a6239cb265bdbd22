// One thread and libevent's loop. A connection is read until the blank line that ends a request, answered, and closed.
#include "ops/tracking/page_server.h"

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <event2/listener.h>
#include <fmt/core.h>
#include <netdb.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <list>
#include <thread>

#include "core/cores.h"
#include "core/error.h"

namespace trireme {
namespace {

/// Owns a pointer that a C library returned.
template <auto release>
struct Release {
  template <class T>
  void operator()(T* pointer) const {
    release(pointer);
  }
};
template <class T, auto release>
using Owned = std::unique_ptr<T, Release<release>>;

using Addresses = Owned<addrinfo, ::freeaddrinfo>;

Addresses resolve_address(const Address& address, std::string_view flag) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(address.host.c_str(), address.port.c_str(), &hints, &found);
  if (error != 0)
    fail(ExitCode::usage, flag,
         "the host '{}' is not known: {}; expected a name or a number of this machine, as in 127.0.0.1:9400; change {}",
         address.host, ::gai_strerror(error), flag);
  return Addresses(found);
}

std::string response(std::string_view status, std::string_view body, bool with_body) {
  return fmt::format(
      "HTTP/1.1 {}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: {}\r\nConnection: "
      "close\r\n\r\n{}",
      status, body.size(), with_body ? body : "");
}

/// The answer to a request, of which `line` is the first line without its end.
std::string reply_to(std::string_view line, const std::function<std::string()>& page) {
  const std::size_t method_end = line.find(' '), path_end = line.find(' ', method_end + 1);
  if (path_end == std::string_view::npos || !line.substr(path_end + 1).starts_with("HTTP/1."))
    return response("400 Bad Request", "expected GET /metrics HTTP/1.1\n", true);
  const std::string_view method = line.substr(0, method_end);
  std::string_view path = line.substr(method_end + 1, path_end - method_end - 1);
  path = path.substr(0, path.find('?'));
  const bool get = method == "GET";
  if (!get && method != "HEAD") return response("405 Method Not Allowed", "expected GET\n", true);
  if (path != "/metrics") return response("404 Not Found", "the only page is /metrics\n", get);
  return response("200 OK", page(), get);
}

/// Readable when the loop should end.
struct Wake {
  int fd = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  Wake() = default;
  ~Wake() { ::close(fd); }
  Wake(const Wake&) = delete;
  Wake& operator=(const Wake&) = delete;
};

/// While it exists, threads that this one starts get no signals. A client that goes away raises SIGPIPE on the thread
/// that writes to it, which would end the whole run.
class WithoutSignals {
 public:
  WithoutSignals() {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~WithoutSignals() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  WithoutSignals(const WithoutSignals&) = delete;
  WithoutSignals& operator=(const WithoutSignals&) = delete;

 private:
  sigset_t before_{};
};

}  // namespace

Address Address::parse(std::string_view text, std::string_view flag) {
  const std::size_t colon = text.rfind(':');
  std::string_view host = colon == std::string_view::npos ? "" : text.substr(0, colon);
  const std::string_view port = colon == std::string_view::npos ? text : text.substr(colon + 1);
  const bool in_brackets = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (in_brackets) host = host.substr(1, host.size() - 2);
  std::uint16_t number = 0;
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), number);
  const bool valid = error == std::errc() && end == port.data() + port.size() &&
                     (in_brackets || host.find_first_of(":[]") == std::string_view::npos);
  if (!valid)
    fail(ExitCode::usage, flag,
         "'{}' is not an address; expected HOST:PORT with a port up to 65535, as in 127.0.0.1:9400, [::1]:9400, or "
         "9400 alone for this machine; change {}",
         text, flag);
  return {host.empty() ? "127.0.0.1" : std::string(host), std::to_string(number)};
}

class PageServer::Loop {
 public:
  Loop(const Address& address, std::string_view flag, std::function<std::string()> page, int nice,
       std::chrono::seconds limit)
      : page_(std::move(page)), limit_(limit), base_(event_base_new()) {
    require(base_ != nullptr && wake_.fd >= 0, flag, "the loop of the server could not be made");
    listen(address, flag);
    stopping_.reset(event_new(
        base_.get(), wake_.fd, EV_READ,
        [](evutil_socket_t, short, void* self) { event_base_loopbreak(static_cast<Loop*>(self)->base_.get()); }, this));
    event_add(stopping_.get(), nullptr);
    const WithoutSignals guard;
    thread_ = std::thread([this, nice] { run(nice); });
  }

  ~Loop() {
    const std::uint64_t one = 1;
    static_cast<void>(!::write(wake_.fd, &one, sizeof one));  // cannot fail: the counter is 0
    thread_.join();
  }
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  int port() const {
    sockaddr_storage bound{};
    socklen_t length = sizeof bound;
    std::array<char, 8> port{};
    if (::getsockname(evconnlistener_get_fd(listener_.get()), reinterpret_cast<sockaddr*>(&bound), &length) != 0 ||
        ::getnameinfo(reinterpret_cast<sockaddr*>(&bound), length, nullptr, 0, port.data(), port.size(),
                      NI_NUMERICSERV) != 0)
      return 0;
    return std::atoi(port.data());
  }

 private:
  struct Connection {
    Loop* loop = nullptr;
    std::list<Connection>::iterator self{};
    Owned<bufferevent, bufferevent_free> stream{};
    Owned<event, event_free> deadline{};
    bool answered = false;
    std::size_t ignored = 0;  // bytes that came after the request
  };

  void run(int nice) {
    use_all_cores();
    // Affects only this thread on Linux. If the system refuses, the thread works at normal priority.
    static_cast<void>(::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), nice));
    event_base_dispatch(base_.get());
  }

  void listen(const Address& address, std::string_view flag) {
    const Addresses found = resolve_address(address, flag);
    const auto accepted = [](evconnlistener*, evutil_socket_t socket, sockaddr*, int, void* self) {
      static_cast<Loop*>(self)->accept(socket);
    };
    constexpr unsigned how = LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC | LEV_OPT_REUSEABLE;
    for (const addrinfo* one = found.get(); one != nullptr && listener_ == nullptr; one = one->ai_next)
      listener_.reset(evconnlistener_new_bind(base_.get(), accepted, this, how, most_connections, one->ai_addr,
                                              static_cast<int>(one->ai_addrlen)));
    const int error = errno;
    if (listener_ != nullptr) return evconnlistener_set_error_cb(listener_.get(), pause);
    fail(ExitCode::usage, flag, "cannot listen on {}:{}: {}; {}; change {}", address.host, address.port,
         std::strerror(error),
         error == EADDRINUSE ? "another program, perhaps another run, has this port: expected a free one"
                             : "expected an address of this machine and a port that this user may open",
         flag);
  }

  /// No connection can be accepted, for instance because the process has too many open files. Tries again in a second.
  static void pause(evconnlistener* listener, void* self) {
    evconnlistener_disable(listener);
    const timeval second{1, 0};
    const auto again = [](evutil_socket_t, short, void* of) {
      evconnlistener_enable(static_cast<evconnlistener*>(of));
    };
    event_base_once(static_cast<Loop*>(self)->base_.get(), -1, EV_TIMEOUT, again, listener, &second);
  }

  void accept(evutil_socket_t socket) {
    if (connections_.size() >= most_connections) connections_.pop_front();
    Connection& c = connections_.emplace_back();
    c.loop = this;
    c.self = std::prev(connections_.end());
    c.stream.reset(bufferevent_socket_new(base_.get(), socket, BEV_OPT_CLOSE_ON_FREE));
    c.deadline.reset(event_new(
        base_.get(), -1, 0, [](evutil_socket_t, short, void* of) { close(of); }, &c));
    if (c.stream == nullptr || c.deadline == nullptr) {  // out of memory
      if (c.stream == nullptr) evutil_closesocket(socket);
      connections_.erase(c.self);
      return;
    }
    const timeval limit{limit_.count(), 0};
    event_add(c.deadline.get(), &limit);
    bufferevent_setcb(
        c.stream.get(), [](bufferevent*, void* of) { read(*static_cast<Connection*>(of)); },
        [](bufferevent*, void* of) { written(*static_cast<Connection*>(of)); },
        [](bufferevent*, short, void* of) { close(of); }, &c);
    bufferevent_setwatermark(c.stream.get(), EV_READ, 0, most_request_bytes);
    bufferevent_enable(c.stream.get(), EV_READ | EV_WRITE);
  }

  static void close(void* of) {
    const Connection& c = *static_cast<Connection*>(of);
    c.loop->connections_.erase(c.self);
  }

  static void read(Connection& c) {
    evbuffer* in = bufferevent_get_input(c.stream.get());
    if (c.answered) {
      c.ignored += evbuffer_get_length(in);
      evbuffer_drain(in, evbuffer_get_length(in));
      if (c.ignored > most_request_bytes) close(&c);
      return;
    }
    const evbuffer_ptr end = evbuffer_search(in, "\r\n\r\n", 4, nullptr);
    std::string reply;
    if (end.pos >= 0) {
      const Owned<char, ::free> line(evbuffer_readln(in, nullptr, EVBUFFER_EOL_CRLF));
      try {
        reply = reply_to(line == nullptr ? "" : line.get(), c.loop->page_);
      } catch (const std::exception&) { return close(&c); }  // out of memory
    } else if (evbuffer_get_length(in) >= most_request_bytes) {
      reply = response("431 Request Header Fields Too Large", "the request is too long\n", true);
    } else {
      return;
    }
    c.answered = true;
    evbuffer_drain(in, evbuffer_get_length(in));
    bufferevent_write(c.stream.get(), reply.data(), reply.size());
  }

  /// The answer is with the system. The connection is closed when the client has closed its side: otherwise, bytes that
  /// it still sends would reset the connection and take the answer from it.
  static void written(Connection& c) {
    if (c.answered) ::shutdown(bufferevent_getfd(c.stream.get()), SHUT_WR);
  }

  std::function<std::string()> page_;
  const std::chrono::seconds limit_;  // of a connection
  Owned<event_base, event_base_free> base_;
  Wake wake_;
  Owned<evconnlistener, evconnlistener_free> listener_;
  Owned<event, event_free> stopping_;
  std::list<Connection> connections_;  // the oldest first
  std::thread thread_;
};

PageServer::PageServer(const Address& address, std::string_view flag, std::function<std::string()> page, int nice,
                       std::chrono::seconds limit)
    : loop_(std::make_unique<Loop>(address, flag, std::move(page), nice, limit)) {
  const bool brackets = address.host.find(':') != std::string::npos;
  url_ = fmt::format("http://{}{}{}:{}/metrics", brackets ? "[" : "", address.host, brackets ? "]" : "", loop_->port());
}

PageServer::~PageServer() = default;

}  // namespace trireme
