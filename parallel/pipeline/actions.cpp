#include "parallel/pipeline/actions.h"

#include "core/error.h"

namespace trireme::pipeline {

std::string_view name(ActionKind kind) {
  switch (kind) {
    case ActionKind::forward:
      return "forward";
    case ActionKind::backward:
      return "backward";
    case ActionKind::backward_input:
      return "backward_input";
    case ActionKind::backward_weight:
      return "backward_weight";
    case ActionKind::send_activation:
      return "send_activation";
    case ActionKind::recv_activation:
      return "recv_activation";
    case ActionKind::send_gradient:
      return "send_gradient";
    case ActionKind::recv_gradient:
      return "recv_gradient";
  }
  fail(ExitCode::internal, "pipeline", "unknown action kind {}", static_cast<int>(kind));
}

std::string to_string(const Action& action) {
  return fmt::format("{} of micro-batch {} on stage {}", name(action.kind), action.microbatch, action.stage);
}

Action counterpart(const Action& message) {
  switch (message.kind) {
    case ActionKind::send_activation:
      return {ActionKind::recv_activation, message.stage + 1, message.microbatch};
    case ActionKind::recv_activation:
      return {ActionKind::send_activation, message.stage - 1, message.microbatch};
    case ActionKind::send_gradient:
      return {ActionKind::recv_gradient, message.stage - 1, message.microbatch};
    case ActionKind::recv_gradient:
      return {ActionKind::send_gradient, message.stage + 1, message.microbatch};
    default:
      fail(ExitCode::internal, "pipeline", "{} is not a message", to_string(message));
  }
}

}  // namespace trireme::pipeline
