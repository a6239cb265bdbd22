#include "check/explore/program_runner.h"

#include <fmt/format.h>
#include <unistd.h>

#include <sstream>

#include "check/explore/sizes.h"
#include "core/error.h"
#include "core/io.h"

namespace trireme::explore {
namespace {

namespace fs = std::filesystem;

std::map<std::int64_t, nlohmann::json> read_records(const fs::path& path) {
  std::map<std::int64_t, nlohmann::json> records;
  if (!is_there(path)) return records;
  std::istringstream lines(read_file(path));
  for (std::string line; std::getline(lines, line);) {
    nlohmann::json record = nlohmann::json::parse(line);
    for (const char* key : {"tokens_per_s", "step_ms", "forward_ms", "backward_ms", "optimizer_ms", "data_ms",
                            "comm_ms", "comm_exposed_ms", "peak_bytes", "mfu"})
      record.erase(key);
    const auto step = record["step"].get<std::int64_t>();
    records[step] = std::move(record);
  }
  return records;
}

std::map<std::int64_t, std::string> read_samples(const std::string& output) {
  constexpr std::string_view head = "--- sample at step ", tail = " ---\n", end = "\n---";
  std::map<std::int64_t, std::string> samples;
  for (std::size_t at = output.find(head); at != std::string::npos; at = output.find(head, at)) {
    at += head.size();
    const std::size_t text = output.find(tail, at) + tail.size(), stop = output.find(end, text);
    samples[std::atoll(output.c_str() + at)] = output.substr(text, stop - text);
  }
  return samples;
}

/// The synthetic text for --data=text-K, written on first use. It is kept, so that a user can repeat the printed
/// commands.
fs::path text_file(const std::string& data) {
  constexpr std::string_view name = "text-";
  constexpr int most = 75;  // printable characters from '0' on
  const int kinds = data.starts_with(name) ? std::atoi(data.c_str() + name.size()) : 0;
  if (kinds < 1 || kinds > most)
    fail(ExitCode::usage, "explore",
         "--data={} is not a text of the explorer; expected text-K, with K distinct characters, 1 to {}; change it",
         data, most);
  const fs::path folder = fs::temp_directory_path() / fmt::format("trireme_explore_texts.{}", ::getuid()),
                 path = folder / (data + ".txt");
  make_directories(folder);
  if (!is_there(path)) write_file(path, made_up_text(kinds));
  return path;
}

/// The value to add for --sample-length, or empty. The default of 200 tokens would take most of a tiny run's time.
std::string sample_length(const Arguments& flags) {
  constexpr int beyond = 5;  // tokens past the context
  if (!flags.contains("sample-every") || flags.at("sample-every") == "0") return {};
  if (flags.contains("sample-length") || !flags.contains("context")) return {};
  return std::to_string(std::atoi(flags.at("context").c_str()) + beyond);
}

}  // namespace

std::string TrainingResult::last_line() const {
  const std::size_t end = output.find_last_not_of('\n');
  if (end == std::string::npos) return "";
  const std::size_t begin = output.rfind('\n', end);
  return output.substr(begin == std::string::npos ? 0 : begin + 1, end - (begin == std::string::npos ? -1 : begin));
}

ProgramRunner::ProgramRunner(fs::path programs, fs::path folder, double seconds)
    : programs_(std::move(programs)), folder_(std::move(folder)), seconds_(seconds) {
  fs::remove_all(folder_);
  make_directories(folder_);
}

ProgramRunner::~ProgramRunner() {
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

std::vector<std::string> ProgramRunner::command(const std::string& program, const Arguments& flags) const {
  const auto is = [&](const char* flag, const char* value) { return flags.contains(flag) && flags.at(flag) == value; };
  std::vector<std::string> words;
  if (is("ranks", "mpi"))
    words = {"mpirun", "--oversubscribe", "--bind-to", "none", "-n", std::to_string(ranks_of(flags))};
  words.push_back((programs_ / (program + (is("device", "cuda") ? "_emulated" : ""))).string());
  Arguments all = flags;
  if (!all.contains("threads")) all["threads"] = "1";
  for (const std::string& word : to_words(all)) words.push_back(word);
  return words;
}

ProcessResult ProgramRunner::parity(const Arguments& flags) {
  const std::vector<std::string> words = command("parity", flags);
  commands_.push_back(fmt::format("{}", fmt::join(words, " ")));
  return run_process(words, {"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"}, seconds_);
}

TrainingResult ProgramRunner::train(const std::string& name, const Arguments& flags) {
  TrainingResult result;
  result.out = folder(name);
  fs::remove_all(result.out);
  Arguments all = flags;
  std::vector<std::string> environment = {"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"};
  if (all.contains("fault")) {
    environment.push_back("TRIREME_FAULT=" + all["fault"]);
    all.erase("fault");
    all["allow-fault-injection"] = "on";
  }
  all["data"] = text_file(all.contains("data") ? all["data"] : "text-17").string();
  all["out"] = result.out.string();
  if (all.contains("profile")) all["profile"] = folder(all["profile"]).string();
  if (!all.contains("log-every")) all["log-every"] = "1";
  if (!all.contains("pin")) all["pin"] = "off";
  if (const std::string length = sample_length(all); !length.empty()) all["sample-length"] = length;
  const std::vector<std::string> words = command("train_gpt", all);
  commands_.push_back(fmt::format("{}{}", environment.size() > 2 ? "TRIREME_FAULT='" + flags.at("fault") + "' " : "",
                                  fmt::join(words, " ")));
  ProcessResult ended = run_process(words, environment, seconds_);
  result.code = ended.code;
  result.output = std::move(ended.output);
  result.records = read_records(result.out / "metrics.jsonl");
  result.samples = read_samples(result.output);
  return result;
}

}  // namespace trireme::explore
