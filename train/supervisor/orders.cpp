#include "train/supervisor/orders.h"

#include <csignal>
#include <utility>

namespace trireme::supervisor {

std::optional<int> Orders::due(Clock::time_point now, bool listens) {
  if (leave_) {  // also saves
    if (heard_leave_ || (!listens && told_leave_ && now - *told_leave_ < again)) return std::nullopt;
    told_leave_ = now;
    heard_leave_ = listens;
    return SIGUSR2;  // not SIGTERM: mpirun would kill its ranks two seconds later
  }
  if (!listens || !std::exchange(save_, false)) return std::nullopt;
  told_save_ = true;
  return SIGUSR1;
}

bool Orders::ended(bool saved) {
  const bool lost = std::exchange(told_save_, false) && !saved;
  save_ = save_ || lost;
  return lost;
}

}  // namespace trireme::supervisor
