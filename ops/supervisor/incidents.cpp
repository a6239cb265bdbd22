#include "ops/supervisor/incidents.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <ctime>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/error.h"
#include "core/io.h"

namespace trireme::supervisor {
namespace {

/// The first number after `before` in `text`.
std::optional<std::int64_t> number_after(std::string_view text, std::string_view before) {
  const std::size_t at = text.find(before);
  if (at == std::string_view::npos) return std::nullopt;
  std::int64_t value = 0;
  const char* begin = text.data() + at + before.size();
  if (std::from_chars(begin, text.data() + text.size(), value).ec != std::errc()) return std::nullopt;
  return value;
}

std::string step_text(const std::optional<std::int64_t>& step) {
  if (!step) return "-";
  return *step < 0 ? "the beginning" : std::to_string(*step);
}

std::string seconds_text(const std::optional<double>& seconds) {
  return seconds ? fmt::format("{:.1f}", *seconds) : "-";
}

}  // namespace

std::string cause_of(std::string_view message) {
  constexpr const char* memory = "out of memory";
  constexpr const char* flipped = "a bit changed in memory";
  constexpr const char* lost = "a rank was lost or late";
  constexpr const char* gpu = "a GPU failed";
  // The first match counts, so the order matters.
  constexpr std::array<std::pair<std::string_view, const char*>, 14> causes = {{
      {"[memory] ", memory},
      {"[pinned memory] ", memory},
      {"cudaErrorMemoryAllocation", memory},
      {"[replicas] ", flipped},
      {"[shard-hash] ", flipped},
      {"[threads] a thread could not", "a thread could not start"},
      {"[threads] ", lost},
      {"[watch] ", lost},
      {"MPI says", "MPI failed"},
      {"[mpi] ", lost},
      {"NCCL says", "NCCL failed"},
      {"[nccl] ", "NCCL failed"},
      {"(cudaError", gpu},
      {"[cu", gpu},
  }};
  for (const auto& [sign, cause] : causes)
    if (message.find(sign) != std::string_view::npos) return cause;
  const std::size_t begin = message.find('['), end = message.find("] ", begin);
  return end == std::string_view::npos ? "it failed"
                                       : fmt::format("it failed in {}", message.substr(begin + 1, end - begin - 1));
}

std::string utc(Time time) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(time);
  std::tm parts{};
  ::gmtime_r(&seconds, &parts);
  std::array<char, 32> text{};
  return {text.data(), std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts)};
}

std::string to_json_line(const Incident& i) {
  nlohmann::ordered_json line = {{"when", utc(i.when)}, {"restart", i.restart}, {"what", i.what}};
  if (i.ending.signal != 0)
    line["signal"] = i.ending.signal;
  else
    line["exit"] = i.ending.code;
  if (i.rank) line["rank"] = *i.rank;
  if (!i.message.empty()) line["message"] = i.message;
  if (i.logged_step >= 0) line["logged_step"] = i.logged_step;
  line["resumed_step"] = nullptr;
  if (i.resumed_step) line["resumed_step"] = std::max<std::int64_t>(*i.resumed_step, 0);
  if (i.ranks > 0) line["ranks"] = i.ranks;
  if (i.lost) line["seconds_lost"] = *i.lost;
  return line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string incident_table(const std::vector<Incident>& incidents) {
  constexpr const char* row = "{:<20}  {:<24}  {:<12}  {:>4}  {:>13}  {:>12}\n";
  std::string text = fmt::format(row, "when", "what", "ended by", "rank", "resumed step", "seconds lost");
  double sum = 0;
  for (const Incident& i : incidents) {
    const std::string by =
        i.ending.signal != 0 ? fmt::format("signal {}", i.ending.signal) : fmt::format("exit {}", i.ending.code);
    text += fmt::format(row, utc(i.when), i.what, by, i.rank ? std::to_string(*i.rank) : "-", step_text(i.resumed_step),
                        seconds_text(i.lost));
    sum += i.lost.value_or(0);
  }
  const bool all =
      std::all_of(incidents.begin(), incidents.end(), [](const Incident& i) { return i.lost.has_value(); });
  return text + fmt::format("{} incident{}, {:.1f} s lost{}\n", incidents.size(), incidents.size() == 1 ? "" : "s", sum,
                            all ? "" : " in those that ended");
}

// "trireme: FATAL[75] rank 5 (dp=0,tp=1,pp=1) step 120: ..." is our own message and takes precedence. mpirun prints
// "... process rank 1 with PID 0 on node vm exited on signal 9 (Killed)".
void FailureMessage::add_line(std::string_view line) {
  constexpr std::string_view fatal = "trireme: FATAL[";
  const std::size_t at = line.find(fatal);
  if (at != std::string_view::npos) {
    const std::size_t end = line.find("] ", at);
    if (end == std::string_view::npos) return;
    message_ = line.substr(end + 2);
    if (const auto code = number_after(line, fatal)) code_ = static_cast<int>(*code);
    if (const auto rank = message_.starts_with("rank ") ? number_after(message_, "rank ") : std::nullopt)
      rank_ = static_cast<int>(*rank);
  } else if (message_.empty() && line.find("exited on signal") != std::string_view::npos) {
    if (const auto rank = number_after(line, "process rank ")) rank_ = static_cast<int>(*rank);
  }
}

std::int64_t last_logged_step(const std::filesystem::path& metrics) {
  constexpr std::uint64_t most = 1 << 14;  // a line is a few hundred bytes
  std::error_code absent;
  if (!std::filesystem::exists(metrics, absent)) return -1;
  std::string text;
  try {
    const InputFile file(metrics);
    text.resize(static_cast<std::size_t>(std::min(file.size(), most)));
    file.read_at(file.size() - text.size(), std::as_writable_bytes(std::span(text)));
  } catch (const Error&) { return -1; }  // it was just replaced or truncated: the next call succeeds
  const std::size_t last_end = text.rfind('\n');
  if (last_end == std::string::npos) return -1;
  const std::size_t begin = last_end == 0 ? std::string::npos : text.rfind('\n', last_end - 1);
  const std::string_view line = std::string_view(text).substr(begin == std::string::npos ? 0 : begin + 1);
  return number_after(line, "{\"step\":").value_or(-1);
}

}  // namespace trireme::supervisor
