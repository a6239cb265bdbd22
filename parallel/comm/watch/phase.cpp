#include "parallel/comm/watch/phase.h"

namespace trireme {

std::string_view name(Phase phase) {
  constexpr std::array<std::string_view, phases> names = {
      "data", "forward", "backward", "waiting for communication", "optimizer", "evaluation", "sampling", "saving"};
  return names[static_cast<std::size_t>(phase)];
}

}  // namespace trireme
