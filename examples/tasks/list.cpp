// The table of tasks, and the choice of one. A task declares flags of its own, and Flags::parse() refuses flags that
// were not declared. So the task must be known before the command line is parsed: chosen_task() looks for --task and
// --config only, and leaves all errors to Flags::parse().
#include "examples/tasks/list.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/io.h"
#include "data/json.h"
#include "train/gpt/gpt_task.h"

namespace trireme {

// A task needs a declaration here and a row in the table. docs/contributing.md lists the other places.
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

/// The values of a flag on the command line, the last first: that one counts.
std::vector<std::string> values_of(const std::string& flag, int argc, const char* const* argv) {
  std::vector<std::string> values;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word.starts_with("--" + flag + "=")) values.insert(values.begin(), word.substr(flag.size() + 3));
    if (word == "--" + flag && i + 1 < argc) values.insert(values.begin(), argv[i + 1]);
  }
  return values;
}

/// The task named in a configuration file; empty if the file cannot be read: Flags::parse() reports that.
std::string task_of_config(const std::string& path) {
  try {
    const nlohmann::json config = parse_json(read_file(path, read_limits::configuration), path);
    return config.is_object() ? config.value("task", "") : "";
  } catch (const std::exception&) { return ""; }
}

}  // namespace

std::vector<std::string> task_names() {
  std::vector<std::string> names;
  for (const Entry& entry : tasks) names.emplace_back(entry.name);
  return names;
}

std::unique_ptr<Task> chosen_task(int argc, const char* const* argv) {
  const std::vector<std::string> given = values_of("task", argc, argv);
  std::string name = given.empty() ? "" : given.front();
  for (const std::string& config : values_of("config", argc, argv))
    if (name.empty()) name = task_of_config(config);
  const auto found = std::find_if(std::begin(tasks), std::end(tasks), [&](const Entry& e) { return e.name == name; });
  return found == std::end(tasks) ? make_gpt_task() : found->make();
}

void declare_task_choice(Flags& flags, std::string& chosen) {
  flags.group("task");
  flags.add_choice("task", chosen, task_names(), "the model and its data; the flags of model and data are its own");
}

}  // namespace trireme
