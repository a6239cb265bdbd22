// Events as JSON, one line each: what --json prints. docs/training.md lists their keys; a program that reads them must
// ignore events and keys that it does not know.
#pragma once

#include <string>

#include "train/events/event.h"

namespace trireme {

/// One JSON object without a newline, in ASCII. Empty for a StepMade, as there is one for every step and StepLogged has
/// what matters, and for an Activity.
std::string to_json_line(const Event& event);

}  // namespace trireme
