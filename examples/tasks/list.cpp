#include "examples/tasks/list.h"

#include <algorithm>
#include <string_view>

#include "train/loop/gpt_task.h"

namespace trireme {

// One line here and one in the table for each task; the rest of a task is in its own file.
std::unique_ptr<Task> make_vit_task();
std::unique_ptr<Task> make_sort_task();

namespace {

struct Entry {
  const char* name;
  std::unique_ptr<Task> (*make)();
};

std::unique_ptr<Task> make_gpt_task() { return std::make_unique<GptTask>(); }

constexpr Entry tasks[] = {
    {"gpt", make_gpt_task},
    {"vit", make_vit_task},
    {"sort", make_sort_task},
};

}  // namespace

std::vector<std::string> task_names() {
  std::vector<std::string> names;
  for (const Entry& entry : tasks) names.emplace_back(entry.name);
  return names;
}

std::unique_ptr<Task> chosen_task(int argc, const char* const* argv, const std::string& initial) {
  std::string name = initial;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word.starts_with("--task=")) name = word.substr(7);
    if (word == "--task" && i + 1 < argc) name = argv[i + 1];
  }
  for (const Entry& entry : tasks)
    if (entry.name == name) return entry.make();
  return std::find_if(std::begin(tasks), std::end(tasks), [&](const Entry& e) { return e.name == initial; })->make();
}

void declare_task_choice(Flags& flags, std::string& chosen) {
  flags.group("task");
  flags.add_choice("task", chosen, task_names(), "the model and its data; the flags of model and data are its own");
}

}  // namespace trireme
