// The tasks that `train` and `parity` know by name. Read next: train/loop/task.h, examples/tasks/vit.cpp.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "train/loop/task.h"

namespace trireme {

std::vector<std::string> task_names();  ///< "gpt" first

/// The task named by --task, or else by the file of --config. The default is "gpt", also for an unknown name. Call
/// declare_task_choice() too, so that Flags::parse() refuses an unknown name.
std::unique_ptr<Task> chosen_task(int argc, const char* const* argv);
/// Declares --task; `chosen` receives its value.
void declare_task_choice(Flags& flags, std::string& chosen);

}  // namespace trireme
