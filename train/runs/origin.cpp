#include "train/runs/origin.h"

#include "core/io.h"
#include "data/json.h"
#include "parallel/checkpoint/folder.h"
#include "train/runs/run_folder.h"
#include "train/runs/run_texts.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

bool is_path(const std::string& resume) { return resume != "none" && resume != "auto"; }

/// Empty if the path cannot be examined, for example because a name is too long.
fs::path resolved(const fs::path& path) {
  std::error_code unknown;
  return fs::weakly_canonical(path, unknown);
}

/// True if the texts are equal, or both refer to the same place from here.
bool same_path(const std::string& a, const std::string& b) {
  return a == b || (!resolved(a).empty() && resolved(a) == resolved(b));
}

/// Empty if the newest checkpoint has no origin, or if there is no checkpoint.
std::string saved_origin(const fs::path& out) {
  for (const checkpoint::Candidate& newest : checkpoint::candidates(out / "checkpoints")) {
    if (newest.step < 0) continue;
    const std::map<std::string, std::string> run = checkpoint::read_manifest(newest.path).run;
    const auto found = run.find(origin_entry);
    return found == run.end() ? std::string() : found->second;
  }
  return {};
}

/// The --resume of the last start; empty if config.json does not say.
std::string configured_resume(const fs::path& out) {
  const fs::path file = out / RunFolder::config_name;
  std::error_code absent;
  if (!fs::is_regular_file(file, absent)) return {};
  try {
    const nlohmann::json config = parse_json(read_file(file, read_limits::configuration), file);
    const auto found = config.find("resume");
    return found != config.end() && found->is_string() ? found->get<std::string>() : std::string();
  } catch (const Error&) { return {}; }
}

}  // namespace

bool lies_in(const fs::path& path, const fs::path& folder) {
  const fs::path relative = resolved(path).lexically_relative(resolved(folder));
  return !relative.empty() && *relative.begin() != "..";
}

bool begins_elsewhere(const std::string& resume, const fs::path& out) {
  return is_path(resume) && (out.empty() || !lies_in(resume, out));
}

bool was_begun_from(const fs::path& out, const std::string& resume) {
  // With a checkpoint of the run itself, the saved origin does not matter; only config.json has the last --resume.
  const std::string saved = begins_elsewhere(resume, out) ? saved_origin(out) : std::string();
  const std::string told = saved.empty() ? configured_resume(out) : saved;
  return !told.empty() && is_path(told) && same_path(told, resume);
}

}  // namespace trireme
