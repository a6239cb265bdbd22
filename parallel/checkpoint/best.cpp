#include "parallel/checkpoint/best.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "core/error.h"
#include "core/io.h"
#include "data/json.h"
#include "parallel/checkpoint/folder.h"

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr const char *loss_entry = "val_loss", *reason_entry = "saved because", *best_reason = "lowest validation loss";

void write(const fs::path& checkpoints, const Best& best) {
  write_file(checkpoints / Best::file_name, fmt::format("{{\"step\":{},\"val_loss\":{}}}\n", best.step, best.loss));
}

}  // namespace

void ValidationLoss::describe(std::map<std::string, std::string>& run) const {
  run[loss_entry] = fmt::format("{}", loss);
  if (only_best) run[reason_entry] = best_reason;
}

std::optional<ValidationLoss> ValidationLoss::of(const std::map<std::string, std::string>& run) {
  const auto entry = run.find(loss_entry);
  if (entry == run.end()) return std::nullopt;
  ValidationLoss validation_loss;
  const char *begin = entry->second.data(), *end = begin + entry->second.size();
  const auto [stop, error] = std::from_chars(begin, end, validation_loss.loss);
  if (error != std::errc() || stop != end || !std::isfinite(validation_loss.loss)) return std::nullopt;
  const auto reason = run.find(reason_entry);
  validation_loss.only_best = reason != run.end() && reason->second == best_reason;
  return validation_loss;
}

Best Best::parsed(const fs::path& file) {
  const nlohmann::json json = parse_json(read_file(file, read_limits::note), file);
  const auto loss = json.is_object() ? json.find("val_loss") : json.end();
  if (loss == json.end() || !loss->is_number())
    fail(ExitCode::data, "checkpoint", "{}: no number val_loss; expected what train_gpt writes", file.string());
  return {.step = json_count(json, "step", file), .loss = loss->get<double>()};
}

std::optional<Best> Best::read(const fs::path& checkpoints) {
  const fs::path file = checkpoints / file_name;
  std::error_code unknown;
  if (!fs::is_regular_file(file, unknown)) return std::nullopt;
  try {
    const Best best = parsed(file);
    if (!is_checkpoint(checkpoints / folder_name(best.step))) return std::nullopt;
    return best;
  } catch (const std::exception&) { return std::nullopt; }  // the next evaluated checkpoint becomes the best one
}

void Best::update(const fs::path& checkpoints, std::int64_t step, double loss) {
  const std::optional<Best> before = read(checkpoints);
  if (!before || loss < before->loss) write(checkpoints, {.step = step, .loss = loss});
}

void Best::go_back(const fs::path& checkpoints, std::int64_t step) {
  if (const std::optional<Best> named = read(checkpoints); named && named->step <= step) return;
  std::optional<Best> best;
  for (const Candidate& candidate : candidates(checkpoints))  // highest step first; of equals, the first is the best
    if (candidate.step >= 0 && candidate.step <= step && candidate.validation_loss &&
        (!best || candidate.validation_loss->loss <= best->loss))
      best = {.step = candidate.step, .loss = candidate.validation_loss->loss};
  best ? write(checkpoints, *best) : remove_file(checkpoints / file_name);
}

}  // namespace trireme::checkpoint
