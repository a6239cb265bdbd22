// What a supervisor says to its user, on standard error: "run: ...".
#pragma once

#include <fmt/core.h>

#include "train/program/launcher.h"
#include "train/program/screen.h"

namespace trireme::supervisor {

template <class... Args>
void say(fmt::format_string<Args...> text, Args&&... args) {
  erase_foreign_live_line();
  Screen::of_process().warn("run: " + fmt::format(text, std::forward<Args>(args)...));
}

}  // namespace trireme::supervisor
