#include "parallel/checkpoint/folder.h"

#include <algorithm>
#include <charconv>
#include <random>

#include "core/io.h"
#include "parallel/checkpoint/resume_attempts.h"

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr const char* prefix = "step_";
constexpr const char* writing = ".tmp.";
constexpr const char* removing = ".del.";
constexpr std::size_t nonce_digits = 16;

bool all_of(std::string_view text, std::string_view allowed) {
  return text.find_first_not_of(allowed) == std::string_view::npos;
}

/// A parsed name in the folder. Only names that this program itself writes are its checkpoints. All others, such as a
/// copy under another name, belong to somebody else.
struct OwnName {
  std::int64_t step = -1;
  std::string_view state;  // writing, removing, or empty for the final name

  static std::optional<OwnName> of(std::string_view name) {
    if (!name.starts_with(prefix)) return std::nullopt;
    const std::string_view rest = name.substr(std::string_view(prefix).size());
    const std::string_view digits = rest.substr(0, rest.find('.'));
    OwnName own;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), own.step);
    const bool number = error == std::errc{} && end == digits.data() + digits.size() && own.step >= 0;
    if (!number || !name.starts_with(folder_name(own.step))) return std::nullopt;
    const std::string_view suffix = rest.substr(digits.size());
    if (suffix.empty()) return own;
    for (const std::string_view state : {writing, removing}) {
      const std::string_view nonce = suffix.substr(std::min(state.size(), suffix.size()));
      own.state = state;
      if (suffix.starts_with(state) && nonce.size() == nonce_digits && all_of(nonce, "0123456789abcdef")) return own;
    }
    return std::nullopt;
  }
};

std::optional<OwnName> own_name(const fs::path& path) { return OwnName::of(path.filename().native()); }

/// True for a temporary file of ResumeAttempts or Best that a killed run left behind (core/io.h).
bool is_unfinished_note(std::string_view name) {
  for (const std::string note : {ResumeAttempts::file_name, Best::file_name}) {
    const std::string begin = note + writing;
    if (name.starts_with(begin) && all_of(name.substr(begin.size()), "0123456789.")) return true;
  }
  return false;
}

Candidate examine(const fs::path& path) {
  Candidate candidate{.path = path, .problem = {}, .unfinished = is_unfinished(path)};
  try {
    if (!is_checkpoint(path))
      candidate.problem = "no manifest: its saving was interrupted";
    else if (candidate.unfinished)
      candidate.problem = "its saving was interrupted right before its end";
    else if (const Manifest manifest = read_manifest(path);
             (candidate.problem = name_problem(path, manifest.step)).empty()) {
      candidate.step = manifest.step;
      candidate.validation_loss = ValidationLoss::of(manifest.run);
    }
  } catch (const Error& error) {
    candidate.problem = error.reason();
    candidate.unread = error.code() == ExitCode::io;
  }
  return candidate;
}

/// The step from the manifest, or else from the name.
std::int64_t likely_step(const Candidate& candidate) {
  return candidate.step >= 0 ? candidate.step : own_name(candidate.path).value_or(OwnName()).step;
}

void take_away(const fs::path& path) {
  const fs::path unnamed = fs::path(path) += removing + make_nonce();
  move_folder(path, unnamed);
  remove_folder(unnamed);
}

}  // namespace

std::string folder_name(std::int64_t step) { return fmt::format("{}{:08}", prefix, step); }

std::string temporary_name(std::int64_t step, const std::string& nonce) { return folder_name(step) + writing + nonce; }

std::string make_nonce() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}", random(), random());
}

bool has_checkpoint_name(const fs::path& folder) { return own_name(folder).has_value(); }

std::string name_problem(const fs::path& folder, std::int64_t step) {
  const std::optional<OwnName> own = own_name(folder.has_filename() ? folder : folder.parent_path());
  if (!own || own->step == step) return "";
  return fmt::format(
      "{}: its step is {}, and the name of its folder is that of step {}: it was renamed; expected {}; rename the "
      "folder",
      (folder / manifest_name).string(), step, own->step, folder_name(step));
}

bool is_unfinished(const fs::path& folder) {
  const std::optional<OwnName> own = own_name(folder);
  return own && !own->state.empty();
}

bool is_checkpoint(const fs::path& folder) { return is_there(folder / manifest_name); }

Manifest read_manifest(const fs::path& folder) {
  const InputFile file(folder / manifest_name);
  if (file.size() > manifest_most_bytes)
    fail(ExitCode::data, "checkpoint", "{} has {} bytes; expected at most {}; it is damaged", file.path().string(),
         file.size(), manifest_most_bytes);
  std::string text(static_cast<std::size_t>(file.size()), '\0');
  file.read_at(0, std::as_writable_bytes(std::span(text)));
  return parse_manifest(text, file.path());
}

std::vector<Candidate> candidates(const fs::path& checkpoints) {
  std::vector<Candidate> found;
  for (const std::string& name : list_folder(checkpoints)) {
    const std::optional<OwnName> own = OwnName::of(name);
    if (own && own->state != removing) found.push_back(examine(checkpoints / name));  // others were being removed
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const Candidate& a, const Candidate& b) { return likely_step(a) > likely_step(b); });
  return found;
}

void remove_leftovers(const fs::path& checkpoints) {
  for (const std::string& name : list_folder(checkpoints)) {
    if (is_unfinished(name)) remove_folder(checkpoints / name);
    if (is_unfinished_note(name)) remove_file(checkpoints / name);
  }
}

void publish(const fs::path& temporary, const fs::path& final_path) {
  std::error_code unknown;
  if (fs::exists(final_path, unknown)) take_away(final_path);  // damaged: otherwise the run had resumed from it
  move_folder(temporary, final_path);
}

void prune(const fs::path& checkpoints, std::optional<std::int64_t> keep, const fs::path& fresh) {
  const std::vector<Candidate> all = candidates(checkpoints);
  const auto found = std::find_if(all.begin(), all.end(), [&](const Candidate& c) { return c.path == fresh; });
  if (found == all.end() || found->step < 0)
    fail(ExitCode::data, "checkpoint", "{} was saved, but cannot be read: {}; older checkpoints were kept",
         fresh.string(), found == all.end() ? "it is gone" : found->problem);
  const std::optional<Best> best = Best::read(checkpoints);
  const auto only_best = [](const Candidate& c) { return c.validation_loss && c.validation_loss->only_best; };
  std::int64_t kept = only_best(*found) ? 0 : 1;
  for (const Candidate& candidate : all) {
    if (candidate.step < 0 || candidate.path == fresh) continue;
    if (best && candidate.path == checkpoints / folder_name(best->step)) continue;
    if (only_best(candidate) || (keep && ++kept > *keep)) take_away(candidate.path);
  }
}

}  // namespace trireme::checkpoint
