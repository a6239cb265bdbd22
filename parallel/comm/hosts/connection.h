// A TCP connection that carries short messages, a number and some bytes each, and never blocks its caller. It serves
// the links between hosts, host_links.h. Both ends are the same program on machines of one kind, as MPI requires too,
// so numbers are sent as they lie in memory. Linux only.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::hosts {

/// A file descriptor that closes itself.
class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  ~Descriptor();
  Descriptor(Descriptor&& other) noexcept;
  Descriptor& operator=(Descriptor&& other) noexcept;
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_;
};

/// The numeric addresses under which other hosts may reach this one: of all interfaces that are up, but loopback.
std::vector<std::string> own_addresses();

/// A socket that listens on all interfaces, at a port that the system chooses; empty if the system refuses.
struct Listener {
  Descriptor socket;
  std::uint16_t port = 0;
};
Listener listen_anywhere();
/// The next caller; empty if there is none at the moment.
Descriptor accept_from(const Listener& listener);
/// Begins to connect; empty if that fails at once. The connection is made when the socket becomes writable.
Descriptor begin_connecting(const std::string& address, std::uint16_t port);
bool is_connected(const Descriptor& socket);

class Connection {
 public:
  static constexpr std::size_t longest = 1 << 20;  ///< bytes of a message; a peer that sends more is disconnected
  using Take = std::function<void(std::uint64_t number, std::string_view bytes)>;

  explicit Connection(Descriptor socket);

  int fd() const { return socket_.get(); }
  bool open() const { return static_cast<bool>(socket_); }
  bool has_output() const { return !output_.empty(); }
  void close();

  /// Sends what the system takes now and keeps the rest for progress(). If a peer reads nothing, drops the message.
  void send(std::uint64_t number, std::string_view bytes);
  /// Sends and receives what is possible without waiting. `take` gets every message that is complete.
  void progress(const Take& take);
  /// Seconds since the peer's system acknowledged anything; nothing if the system does not say.
  std::optional<double> since_acknowledged() const;

 private:
  struct Header {
    std::uint64_t number = 0, bytes = 0;
  };
  void write_out();

  Descriptor socket_;
  std::string input_, output_;
};

}  // namespace trireme::hosts
