#include "train/runs/new_folder.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "core/io.h"
#include "parallel/comm/texts.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

constexpr const char* folder_of_runs = "runs";

/// `config` with another value of --out, laid out as Flags::config_text() does.
std::string with_out(const std::string& config, const std::string& out) {
  auto object = nlohmann::ordered_json::parse(config);
  object["out"] = out;
  return object.dump(2) + "\n";
}

}  // namespace

fs::path free_run_folder(const std::string& name, std::time_t now) {
  std::tm local{};
  ::localtime_r(&now, &local);
  const fs::path first = fs::path(folder_of_runs) / fmt::format("{}-{:%Y%m%d-%H%M%S}", name, local);
  fs::path path = first;
  for (int number = 2; is_there(path); ++number) path = fmt::format("{}-{}", first.string(), number);
  return path;
}

void create_run_folder(ProcessGroup& world, RunOptions& run, const std::string& name, bool processes) {
  std::string created;
  fail_together(world, [&] {
    if (world.rank() != 0) return;
    for (created = run.out; !make_new_folder(created);) created = free_run_folder(name, std::time(nullptr)).string();
  });
  // All ranks are here now. None reads `out` before the broadcast ends, which comes after rank 0 has written it.
  const auto set = [&] {
    run.out = created;
    run.config = with_out(run.config, created);
  };
  if (world.rank() == 0) set();
  created = broadcast_text(world, created);
  if (world.rank() != 0 && processes) set();
}

}  // namespace trireme
