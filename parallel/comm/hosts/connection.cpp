#include "parallel/comm/hosts/connection.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

namespace trireme::hosts {
namespace {

constexpr std::size_t most_output = 1 << 16;  // of a peer that reads nothing

void set_options(int socket) {
  const int on = 1;
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

}  // namespace

Descriptor::~Descriptor() {
  if (fd_ >= 0) ::close(fd_);
}

Descriptor::Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

std::vector<std::string> own_addresses() {
  std::vector<std::string> found;
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) return found;
  for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || (one->ifa_flags & IFF_UP) == 0 || (one->ifa_flags & IFF_LOOPBACK) != 0) continue;
    std::array<char, INET6_ADDRSTRLEN> text{};
    const void* address = nullptr;
    if (one->ifa_addr->sa_family == AF_INET) {
      address = &reinterpret_cast<const sockaddr_in*>(one->ifa_addr)->sin_addr;
    } else if (one->ifa_addr->sa_family == AF_INET6) {
      const in6_addr& six = reinterpret_cast<const sockaddr_in6*>(one->ifa_addr)->sin6_addr;
      if (IN6_IS_ADDR_LINKLOCAL(&six)) continue;  // would need the name of the caller's interface
      address = &six;
    }
    if (address != nullptr && ::inet_ntop(one->ifa_addr->sa_family, address, text.data(), text.size()) != nullptr)
      found.emplace_back(text.data());
  }
  ::freeifaddrs(all);
  return found;
}

Listener listen_anywhere() {
  // One socket for both versions of IP; where a system has no IPv6, one for IPv4.
  for (const int family : {AF_INET6, AF_INET}) {
    Descriptor socket(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!socket) continue;
    sockaddr_storage address{};
    socklen_t size = family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
    address.ss_family = static_cast<sa_family_t>(family);
    const int off = 0;
    if (family == AF_INET6) ::setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0) continue;
    if (::listen(socket.get(), SOMAXCONN) != 0) continue;
    if (::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0) continue;
    const std::uint16_t port = family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                                                  : reinterpret_cast<const sockaddr_in&>(address).sin_port;
    return {std::move(socket), ntohs(port)};
  }
  return {Descriptor(), 0};
}

Descriptor accept_from(const Listener& listener) {
  Descriptor socket(::accept4(listener.socket.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (socket) set_options(socket.get());
  return socket;
}

Descriptor begin_connecting(const std::string& address, std::uint16_t port) {
  sockaddr_in four{};
  sockaddr_in6 six{};
  four.sin_family = AF_INET;
  six.sin6_family = AF_INET6;
  four.sin_port = six.sin6_port = htons(port);
  const bool is_four = ::inet_pton(AF_INET, address.c_str(), &four.sin_addr) == 1;
  if (!is_four && ::inet_pton(AF_INET6, address.c_str(), &six.sin6_addr) != 1) return Descriptor();
  Descriptor socket(::socket(is_four ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket) return socket;
  set_options(socket.get());
  const auto* to = is_four ? reinterpret_cast<const sockaddr*>(&four) : reinterpret_cast<const sockaddr*>(&six);
  const int result = ::connect(socket.get(), to, is_four ? sizeof four : sizeof six);
  return result == 0 || errno == EINPROGRESS ? std::move(socket) : Descriptor();
}

bool is_connected(const Descriptor& socket) {
  int error = 0;
  socklen_t size = sizeof error;
  return ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error == 0;
}

Connection::Connection(Descriptor socket) : socket_(std::move(socket)) {}

void Connection::close() {
  socket_ = Descriptor();
  input_.clear();
  output_.clear();
}

void Connection::send(std::uint64_t number, std::string_view bytes) {
  if (!open() || output_.size() > most_output) return;
  const Header header{number, bytes.size()};
  output_.append(reinterpret_cast<const char*>(&header), sizeof header);
  output_.append(bytes);
  write_out();
}

void Connection::write_out() {
  while (open() && !output_.empty()) {
    const ssize_t sent = ::send(socket_.get(), output_.data(), output_.size(), MSG_NOSIGNAL);
    if (sent > 0)
      output_.erase(0, static_cast<std::size_t>(sent));
    else if (sent < 0 && errno == EINTR)
      continue;
    else if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
      return;
    else
      return close();
  }
}

void Connection::progress(const Take& take) {
  write_out();
  std::array<char, 1 << 14> buffer{};
  bool ended = false;
  while (open() && !ended) {
    const ssize_t size = ::recv(socket_.get(), buffer.data(), buffer.size(), 0);
    if (size > 0)
      input_.append(buffer.data(), static_cast<std::size_t>(size));
    else if (size < 0 && errno == EINTR)
      continue;
    else if (size < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
      break;
    else
      ended = true;
    if (input_.size() > longest + sizeof(Header)) break;
  }
  Header header;
  while (open() && input_.size() >= sizeof header) {
    std::memcpy(&header, input_.data(), sizeof header);
    if (header.bytes > longest) return close();
    if (input_.size() < sizeof header + header.bytes) break;
    const std::string message = input_.substr(sizeof header, header.bytes);
    input_.erase(0, sizeof header + header.bytes);
    take(header.number, message);  // may close this connection
  }
  if (ended) close();
}

std::optional<double> Connection::since_acknowledged() const {
  tcp_info info{};
  socklen_t size = sizeof info;
  if (!open() || ::getsockopt(socket_.get(), IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return std::nullopt;
  return 1e-3 * info.tcpi_last_ack_recv;
}

}  // namespace trireme::hosts
