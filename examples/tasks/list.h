// The tasks that `train` and `parity` know by name. Read next: train/loop/task.h, examples/tasks/vit.cpp.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "train/loop/task.h"

namespace trireme {

std::vector<std::string> task_names();  ///< "gpt" first

/// The task that --task, or else the file of --config, names; by default and for an unknown name "gpt". Declare the
/// flag all the same, with declare_task_choice(): Flags::parse() then refuses an unknown name.
std::unique_ptr<Task> chosen_task(int argc, const char* const* argv);
/// Declares --task; `chosen` gets its value.
void declare_task_choice(Flags& flags, std::string& chosen);

}  // namespace trireme
