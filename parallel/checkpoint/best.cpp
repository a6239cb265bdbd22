#include "parallel/checkpoint/best.h"

#include <fmt/format.h>

#include "core/error.h"
#include "core/io.h"
#include "data/json.h"
#include "parallel/checkpoint/folder.h"

namespace trireme::checkpoint {

namespace fs = std::filesystem;

std::optional<Best> Best::read(const fs::path& checkpoints) {
  const fs::path file = checkpoints / file_name;
  std::error_code unknown;
  if (!fs::is_regular_file(file, unknown)) return std::nullopt;
  try {
    const nlohmann::json json = parse_json(read_file(file), file);
    const Best best{.step = json_count(json, "step", file), .loss = json.value("val_loss", 0.0)};
    if (!is_checkpoint(checkpoints / folder_name(best.step))) return std::nullopt;
    return best;
  } catch (const std::exception&) { return std::nullopt; }  // the next evaluated checkpoint becomes the best one
}

void Best::update(const fs::path& checkpoints, std::int64_t step, double loss) {
  const std::optional<Best> before = read(checkpoints);
  if (before && before->loss <= loss) return;
  write_file(checkpoints / file_name, fmt::format("{{\"step\":{},\"val_loss\":{}}}\n", step, loss));
}

}  // namespace trireme::checkpoint
