#include "ops/supervisor/command.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/io.h"
#include "parallel/mesh/mesh.h"

namespace trireme::supervisor {
namespace {

constexpr const char* where = "run";  // the program's name in errors
constexpr std::array launcher_names = {"mpirun", "mpiexec", "orterun", "prterun", "srun"};

/// Where a flag's value is: in word number `word`, after `prefix` characters.
struct ValuePosition {
  std::size_t word, prefix;
};

std::optional<ValuePosition> find_flag(const Command& words, const std::string& flag) {
  for (std::size_t i = words.size(); i-- > 0;) {
    if (words[i].starts_with(flag + "=")) return ValuePosition{i, flag.size() + 1};
    if (words[i] != flag) continue;
    if (i + 1 == words.size())
      fail(ExitCode::usage, where, "{} at the end of the command has no value; give it one", flag);
    return ValuePosition{i + 1, 0};
  }
  return std::nullopt;
}

std::string value_at(const Command& words, const ValuePosition& position) {
  return words[position.word].substr(position.prefix);
}

std::optional<std::string> flag_value(const Command& words, const std::string& flag) {
  const std::optional<ValuePosition> position = find_flag(words, flag);
  return position ? std::optional(value_at(words, *position)) : std::nullopt;
}

/// The values of a flag that may be given several times, in order.
Command all_values(const Command& words, const std::string& flag) {
  Command values;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i].starts_with(flag + "=")) values.push_back(words[i].substr(flag.size() + 1));
    if (words[i] == flag && i + 1 < words.size()) values.push_back(words[++i]);
  }
  return values;
}

bool is_launcher(const std::string& word) {
  const std::string name = word.substr(word.find_last_of('/') + 1);
  return std::any_of(launcher_names.begin(), launcher_names.end(),
                     [&](const char* known) { return name == known || name.starts_with(std::string(known) + "."); });
}

std::size_t launcher_at(const Command& words) {
  return static_cast<std::size_t>(std::find_if(words.begin(), words.end(), is_launcher) - words.begin());
}

/// Where the number of ranks is: the first of these flags after the launcher. The launcher's own flags come before
/// those of the program.
std::optional<ValuePosition> ranks_position(const Command& words) {
  constexpr std::array apart = {"-n", "-np", "--np", "--ntasks"};
  for (std::size_t i = launcher_at(words) + 1; i < words.size(); ++i) {
    if (words[i].starts_with("--ntasks=")) return ValuePosition{i, sizeof "--ntasks=" - 1};
    if (std::find(apart.begin(), apart.end(), words[i]) != apart.end() && i + 1 < words.size())
      return ValuePosition{i + 1, 0};
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> setting(const Command& command, const std::string& name) {
  if (auto value = flag_value(command, "--" + name)) return value;
  std::optional<std::string> value;
  for (const std::string& file : all_values(command, "--config")) {  // a later file overrides an earlier one
    if (!std::filesystem::is_regular_file(file))                     // train_gpt refuses it in the same way
      fail(ExitCode::usage, where, "--config {} is not a file; expected one written by --print-config; change --config",
           file);
    const auto config = nlohmann::json::parse(read_file(file, read_limits::configuration), nullptr, false);
    if (!config.is_object())
      fail(ExitCode::usage, where, "--config {} is not a JSON object; expected what --print-config prints", file);
    if (const auto found = config.find(name); found != config.end())
      value = found->is_string() ? found->get<std::string>() : found->dump();
  }
  return value;
}

Command with_flag(Command command, const std::string& name, const std::string& value) {
  if (const auto position = find_flag(command, "--" + name)) {
    command[position->word].replace(position->prefix, std::string::npos, value);
  } else {
    command.push_back("--" + name);
    command.push_back(value);
  }
  return command;
}

bool has_launcher(const Command& command) { return launcher_at(command) < command.size(); }

std::optional<int> launcher_ranks(const Command& command) {
  const std::optional<ValuePosition> position = ranks_position(command);
  if (!position) return std::nullopt;
  const std::string text = value_at(command, *position);
  int ranks = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), ranks);
  if (error != std::errc() || end != text.data() + text.size() || ranks < 1)
    fail(ExitCode::usage, where, "the launcher is asked to start '{}' ranks; expected a number of at least 1", text);
  return ranks;
}

Command with_launcher_ranks(Command command, int ranks) {
  const ValuePosition position = ranks_position(command).value();
  command[position.word].replace(position.prefix, std::string::npos, std::to_string(ranks));
  return command;
}

Command with_exported(Command command, const std::string& variable) {
  const std::size_t launcher = launcher_at(command);
  if (launcher == command.size() || command[launcher].ends_with("srun")) return command;  // srun exports everything
  const auto after = command.begin() + static_cast<std::ptrdiff_t>(launcher) + 1;
  command.insert(after, {"-x", variable});
  return command;
}

Elastic require_elastic(const Command& command) {
  const std::optional<int> ranks = launcher_ranks(command);
  if (!ranks)
    fail(ExitCode::usage, where,
         "--min-ranks: the command has no launcher that is told how many ranks to start; expected mpirun -n N");
  const std::string mesh = setting(command, "mesh").value_or("");
  if (mesh.find("dp=auto") == std::string::npos)
    fail(ExitCode::usage, where,
         "--min-ranks: the mesh '{}' has a fixed number of ranks; expected --mesh dp=auto,..., whose dp follows the "
         "number of ranks",
         mesh);
  const std::string batch = setting(command, "global-batch").value_or("auto");
  if (batch == "auto")
    fail(ExitCode::usage, where,
         "--min-ranks: without --global-batch, fewer ranks would train with smaller batches; expected a number; add "
         "--global-batch N");
  const MeshShape shape = parse_mesh(mesh, *ranks);
  return {*ranks, *ranks / shape.size(Axis::dp)};
}

Command first_command(const Command& command, bool& added) {
  // A file made by --print-config contains every flag, so "resume": "none" there means that the user did not set it.
  added = !find_flag(command, "--resume") && setting(command, "resume").value_or("none") == "none";
  return added ? with_flag(command, "resume", "auto") : command;
}

std::string resumed_path(const Command& command) {
  const std::string resume = setting(command, "resume").value_or("none");
  return resume == "none" || resume == "auto" ? "" : resume;
}

Command next_command(const Command& command, bool saved) {
  return saved || resumed_path(command).empty() ? with_flag(command, "resume", "auto") : command;
}

std::string to_string(const Command& command) {
  std::string line;
  for (const std::string& word : command) {
    const bool plain = !word.empty() && word.find_first_of(" \t\n'\"\\$`;&|<>()*?[]#~!") == std::string::npos;
    std::string quoted = word;
    for (std::size_t at = quoted.find('\''); at != std::string::npos; at = quoted.find('\'', at + 4))
      quoted.replace(at, 1, "'\\''");
    line += (line.empty() ? "" : " ") + (plain ? word : "'" + quoted + "'");
  }
  return line;
}

}  // namespace trireme::supervisor
