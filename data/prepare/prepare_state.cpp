#include "data/prepare/prepare_state.h"

#include <charconv>

#include "core/error.h"
#include "data/json.h"

namespace trireme {

namespace {

using nlohmann::json;

constexpr std::string_view kFormat = "trireme prepare_data 1";

/// The members of the state by name, for reading and writing: f(name, number) for each.
template <class State, class F>
void for_each_number(State& s, const F& f) {
  f("file", s.input.file);
  f("line", s.input.line);
  f("complete-shards", s.shards.shards);
  f("first-token", s.shards.first_token);
  f("tokens", s.shards.tokens);
  f("document-starts", s.shards.documents);
  f("seen", s.seen);
  f("documents", s.counts.documents);
  f("bytes", s.counts.bytes);
  f("duplicates", s.counts.duplicates);
  f("too-short", s.counts.left_out.too_short);
  f("too-long", s.counts.left_out.too_long);
  f("non-letters", s.counts.left_out.non_letters);
}

template <class State, class F>
void for_each_switch(State& s, const F& f) {
  f("inside", s.input.inside);
  f("pending", s.shards.pending);
  f("complete", s.complete);
}

std::string remedy(const std::filesystem::path& path) {
  return fmt::format("remove the folder {} to begin anew", path.parent_path().string());
}

[[noreturn]] void refuse(const std::filesystem::path& path, const std::string& what) {
  fail(ExitCode::data, "prepare", "{}: {}; expected what prepare_data writes; {}", path.string(), what, remedy(path));
}

}  // namespace

std::string to_text(const PrepareState& state) {
  json text = {{"format", kFormat}, {"job", state.job}};
  for_each_number(state, [&](const char* name, std::int64_t number) { text[name] = number; });
  for_each_switch(state, [&](const char* name, bool on) { text[name] = on; });
  text["offset"] = state.input.offset;
  text["hash"] = fmt::format("{:016x}", state.input.hash);  // not every reader of JSON has numbers of 64 bits
  return text.dump(1, ' ', false, json::error_handler_t::replace) + "\n";
}

PrepareState parse_prepare_state(std::string_view text, const std::filesystem::path& path) {
  json all;
  try {
    all = parse_json(text, path);
  } catch (const Error& error) {
    throw Error(error.code(), error.where(), fmt::format("{}; {}", error.reason(), remedy(path)));
  }
  if (!all.is_object() || !all.contains("format") || all["format"] != kFormat) refuse(path, "another format");
  PrepareState state;
  for_each_number(state, [&](const char* name, std::int64_t& number) { number = json_count(all, name, path); });
  for_each_switch(state, [&](const char* name, bool& on) {
    if (!all.contains(name) || !all[name].is_boolean()) refuse(path, fmt::format("'{}' is not true or false", name));
    on = all[name].get<bool>();
  });
  state.input.offset = static_cast<std::uint64_t>(json_count(all, "offset", path));
  if (!all.contains("hash") || !all["hash"].is_string()) refuse(path, "there is no hash");
  const auto& hash = all["hash"].get_ref<const std::string&>();
  const auto [end, error] = std::from_chars(hash.data(), hash.data() + hash.size(), state.input.hash, 16);
  if (error != std::errc{} || end != hash.data() + hash.size()) refuse(path, "the hash is not a hexadecimal number");
  if (!all.contains("job") || !all["job"].is_object()) refuse(path, "there is no job");
  for (const auto& [flag, value] : all["job"].items()) {
    if (!value.is_string()) refuse(path, fmt::format("the job's {} is not a text", shown(json(flag))));
    state.job[flag] = value.get<std::string>();
  }
  if (all.size() != 2 + 13 + 3 + 2) refuse(path, "there are other keys");
  return state;
}

}  // namespace trireme
