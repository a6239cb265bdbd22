#include "ops/view/run_files.h"

#include <algorithm>

#include "core/error.h"
#include "core/hash.h"
#include "core/io.h"
#include "data/json.h"

namespace trireme::run_view {
namespace {

namespace fs = std::filesystem;

// As train/runs/run_folder.h names them.
constexpr const char *config_name = "config.json", *metrics_name = "metrics.jsonl";

MetricsRecord parse_record(std::string_view line, const std::string& where) {
  const nlohmann::json json = parse_json(line, where);
  const auto step = json.is_object() ? json.find("step") : json.end();
  constexpr double most = 1e15;
  if (step == json.end() || !step->is_number() || !(step->get<double>() >= 0) || step->get<double>() > most)
    fail(ExitCode::data, "view", "{}: no step; expected a step's record as train_gpt writes it", where);
  MetricsRecord record{.step = static_cast<std::int64_t>(step->get<double>()), .values = {}};
  for (const auto& [key, value] : json.items()) {
    if (key == "loss") record.has_loss = true;
    if (value.is_number()) record.values.emplace(key, value.get<double>());
  }
  return record;
}

}  // namespace

std::string RunFiles::option(std::string_view key) const {
  const auto found = std::ranges::find(options, key, &std::pair<std::string, std::string>::first);
  return found == options.end() ? "" : found->second;
}

std::vector<MetricsRecord> parse_metrics(std::string_view lines, const fs::path& file) {
  std::vector<MetricsRecord> records;
  int number = 0;
  for (std::size_t begin = 0, end = 0; (end = lines.find('\n', begin)) != std::string_view::npos; begin = end + 1)
    records.push_back(parse_record(lines.substr(begin, end - begin), fmt::format("{}:{}", file.string(), ++number)));
  std::ranges::stable_sort(records, {}, &MetricsRecord::step);
  return records;
}

RunFiles read_run(const fs::path& folder) {
  const fs::path config = folder / config_name, metrics = folder / metrics_name;
  if (!is_there(config) && !is_there(metrics))
    fail(ExitCode::usage, "view",
         "{} has no {} and no {}; expected the --out folder of a run, or a trace of --profile; "
         "change the path",
         folder.string(), config_name, metrics_name);
  RunFiles run;
  const fs::path whole = fs::weakly_canonical(fs::absolute(folder));
  run.name = (whole.has_filename() ? whole : whole.parent_path()).filename().string();
  if (is_there(config)) {
    const std::string text = read_file(config, read_limits::configuration);
    run.configuration = fmt::format("{:016x}", hash_bytes(text));
    const nlohmann::json options = parse_json(text, config);
    if (!options.is_object())
      fail(ExitCode::data, "view", "{} is not an object; expected a run's options", config.string());
    for (const auto& [key, value] : options.items())
      run.options.emplace_back(key, value.is_string() ? value.get<std::string>() : value.dump());
  }
  if (is_there(metrics)) run.metrics = parse_metrics(read_file(metrics, read_limits::metrics), metrics);
  return run;
}

std::optional<fs::path> find_trace(const fs::path& folder, const RunFiles& run) {
  const fs::path named = run.option("profile");
  std::error_code unknown;
  if (named.empty()) return std::nullopt;
  if (fs::is_regular_file(named, unknown)) return named;
  if (named.is_absolute()) return std::nullopt;
  fs::path above = fs::weakly_canonical(fs::absolute(folder)).parent_path();
  for (; above.has_relative_path(); above = above.parent_path())
    if (fs::is_regular_file(above / named, unknown)) return above / named;
  return std::nullopt;
}

}  // namespace trireme::run_view
