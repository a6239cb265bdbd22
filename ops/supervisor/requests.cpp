#include "ops/supervisor/requests.h"

#include <csignal>
#include <utility>

namespace trireme::supervisor {

std::optional<int> Requests::due(Clock::time_point now, bool listens) {
  if (leave_) {  // also saves
    if (leave_delivered_ || (!listens && leave_sent_ && now - *leave_sent_ < resend_interval)) return std::nullopt;
    leave_sent_ = now;
    leave_delivered_ = listens;
    return SIGUSR2;  // not SIGTERM: mpirun would kill its ranks two seconds later
  }
  if (!listens || !std::exchange(save_, false)) return std::nullopt;
  save_sent_ = true;
  return SIGUSR1;
}

bool Requests::ended(bool saved) {
  const bool lost = std::exchange(save_sent_, false) && !saved;
  save_ = save_ || lost;
  return lost;
}

}  // namespace trireme::supervisor
