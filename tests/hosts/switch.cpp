// A network switch for the three-host test: one TAP device for each host, and frames that pass between them with a
// delay. Kernels without netem (containers, small virtual machines) cannot delay packets themselves.
//
//   host_switch h1 h2 h3        makes the devices h1, h2, h3 and prints "ready"; moves frames until its input ends
//
// Commands on standard input, one a line:
//
//   delay HOST MS               a frame to or from that host takes MS milliseconds longer; a round trip 2 x MS
//   down HOST                   its cable is cut: its frames disappear, and nobody is told
//   up HOST
//
// Read next: tests/hosts/common.sh, which makes the hosts.
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
using Address = std::array<unsigned char, 6>;

struct Port {
  std::string name;
  int device = -1;
  Clock::duration delay{};
  bool up = true;
};

struct Frame {
  std::size_t to = 0;
  std::vector<char> bytes;
};

[[noreturn]] void die(const std::string& what) {
  std::fprintf(stderr, "host_switch: %s: %s\n", what.c_str(), std::strerror(errno));
  std::_Exit(70);
}

int open_tap(const std::string& name) {
  const int device = ::open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
  if (device < 0) die("/dev/net/tun cannot be opened");
  ifreq request{};
  request.ifr_flags = IFF_TAP | IFF_NO_PI;
  std::snprintf(request.ifr_name, sizeof request.ifr_name, "%s", name.c_str());
  if (::ioctl(device, TUNSETIFF, &request) < 0) die("the device " + name + " cannot be made");
  return device;
}

class Switch {
 public:
  explicit Switch(const std::vector<std::string>& names) {
    for (const std::string& name : names) ports_.push_back({.name = name, .device = open_tap(name)});
  }

  void run() {
    std::vector<pollfd> watched = {{STDIN_FILENO, POLLIN, 0}};
    for (const Port& port : ports_) watched.push_back({port.device, POLLIN, 0});
    while (true) {
      const auto now = Clock::now();
      deliver(now);
      timespec wait{1, 0};
      if (!waiting_.empty()) {
        const auto left = std::chrono::nanoseconds(waiting_.begin()->first - now).count();
        wait = {left / 1'000'000'000, left % 1'000'000'000};
      }
      ::ppoll(watched.data(), watched.size(), &wait, nullptr);
      if (watched[0].revents != 0 && !obey()) return;
      for (std::size_t port = 0; port < ports_.size(); ++port)
        if (watched[port + 1].revents != 0) take(port);
    }
  }

 private:
  void deliver(Clock::time_point now) {
    while (!waiting_.empty() && waiting_.begin()->first <= now) {
      const Frame& frame = waiting_.begin()->second;
      // A device that is full or not up loses the frame, as a switch would.
      if (ports_[frame.to].up)
        static_cast<void>(!::write(ports_[frame.to].device, frame.bytes.data(), frame.bytes.size()));
      waiting_.erase(waiting_.begin());
    }
  }

  // Reads what has arrived at a port, and learns which host has which address.
  void take(std::size_t from) {
    std::array<char, 1 << 16> buffer{};
    for (int most = 64; most > 0; --most) {
      const ssize_t size = ::read(ports_[from].device, buffer.data(), buffer.size());
      if (size < 14) return;
      if (!ports_[from].up) continue;
      Address destination{}, source{};
      std::memcpy(destination.data(), buffer.data(), 6);
      std::memcpy(source.data(), buffer.data() + 6, 6);
      learned_[source] = from;
      const auto known = learned_.find(destination);
      for (std::size_t to = 0; to < ports_.size(); ++to) {
        if (to == from || (known != learned_.end() && known->second != to)) continue;
        // A multimap keeps the order of equal keys, and the keys of one pair of hosts only grow.
        waiting_.emplace(Clock::now() + ports_[from].delay + ports_[to].delay,
                         Frame{to, {buffer.data(), buffer.data() + size}});
      }
    }
  }

  bool obey() {
    std::array<char, 4096> buffer{};
    const ssize_t size = ::read(STDIN_FILENO, buffer.data(), buffer.size());
    if (size <= 0) return false;
    input_.append(buffer.data(), static_cast<std::size_t>(size));
    for (std::size_t end = 0; (end = input_.find('\n')) != std::string::npos; input_.erase(0, end + 1))
      obey(input_.substr(0, end));
    return true;
  }

  void obey(const std::string& line) {
    std::istringstream words(line);
    std::string command, host;
    double milliseconds = 0;
    words >> command >> host >> milliseconds;
    bool known = false;
    for (Port& port : ports_) {
      if (port.name != host) continue;
      known = command == "delay" || command == "up" || command == "down";
      if (command == "delay")
        port.delay =
            std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double, std::milli>(milliseconds));
      if (command == "up" || command == "down") port.up = command == "up";
    }
    if (!known)
      std::fprintf(stderr, "host_switch: unknown command '%s'; expected delay HOST MS, down HOST, up HOST\n",
                   line.c_str());
  }

  std::vector<Port> ports_;
  std::multimap<Clock::time_point, Frame> waiting_;
  std::map<Address, std::size_t> learned_;
  std::string input_;
};

}  // namespace

int main(int count, char** words) {
  if (count < 3) {
    std::fprintf(stderr, "usage: host_switch HOST HOST...\n");
    return 64;
  }
  Switch the_switch({words + 1, words + count});
  std::printf("ready\n");
  std::fflush(stdout);
  the_switch.run();
  return 0;
}
