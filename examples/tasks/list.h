// The tasks that `train` and `parity` know by name. Read next: train/loop/task.h, examples/tasks/vit.cpp.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "train/loop/task.h"

namespace trireme {

std::vector<std::string> task_names();  ///< "gpt" first

/// The task that `--task NAME` among the arguments of a program names, or `initial`; the flag must be declared all the
/// same, with declare_task_choice(). Throws ExitCode::usage for a name that is not in the list.
std::unique_ptr<Task> chosen_task(int argc, const char* const* argv, const std::string& initial);
/// Declares --task, whose value `chosen` is.
void declare_task_choice(Flags& flags, std::string& chosen);

}  // namespace trireme
