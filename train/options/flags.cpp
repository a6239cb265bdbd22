// Values are checked in their JSON form, from the command line and from files alike, so both obey the same rules.
#include "train/options/flags.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "core/io.h"
#include "core/nearest.h"
#include "data/json.h"
#include "data/utf8.h"
#include "train/options/completions.h"
#include "train/options/other_names.h"
#include "train/program/launcher.h"
#include "train/program/output.h"
#include "train/program/screen.h"
#include "train/program/version.h"

namespace trireme {

using nlohmann::json;

struct Flags::Flag {
  std::string name, value, group, help;
  Kind kind = Kind::text;
  bool bare = false, not_empty = false;
  std::string word;                  ///< stands for null: "not set"
  std::vector<std::string> choices;  ///< of a text; empty: any text
  std::vector<std::pair<std::string, std::string>> of_other_builds;
  Range range;
  Setter set;
  Getter get;
  std::function<void()> action;
  json initial;
  struct Condition {
    std::string depends_on, values;
    std::function<bool()> active;
  };
  std::vector<Condition> conditions;
};

/// The values of configuration files, by key.
struct Flags::Configured {
  struct Value {
    json value;
    std::string path;  ///< of the file it stands in
  };
  std::map<std::string, Value> values;
};

namespace {

constexpr std::size_t longest_name = 64;  // longer mistyped names are cut before the search for the nearest name

std::string join(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

/// The range in words, to be appended to "an integer" or "a number".
std::string describe(const Range& range) {
  if (std::isfinite(range.low) && std::isfinite(range.high))
    return fmt::format(" in {}{}, {}{}", range.low_open ? '(' : '[', range.low, range.high,
                       range.high_open ? ')' : ']');
  if (std::isfinite(range.low)) return fmt::format(" {} {}", range.low_open ? "above" : "of at least", range.low);
  return "";
}

/// Parses the whole of `text` as a number. Returns nothing if that fails.
template <class T>
std::optional<T> parse_number(std::string_view text) {
  T number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return number;
}

/// Learning rates and the like are f32 in kernels: what is too large or too small there would be infinite or 0.
bool f32_holds(double x) {
  const double size = std::abs(x);
  return x == 0 || (size >= std::numeric_limits<float>::min() && size <= std::numeric_limits<float>::max());
}

/// What a message adds if `got`, which may be in quotes, is a number beyond the limits of its type.
std::string limits_of(Flags::Kind kind, const std::string& got) {
  const std::string_view text = got.starts_with('"') ? std::string_view(got).substr(1, got.size() - 2) : got;
  const auto out_of_range = [text]<class T>(T number) {
    return std::from_chars(text.data(), text.data() + text.size(), number).ec == std::errc::result_out_of_range;
  };
  if (kind == Flags::Kind::integer && out_of_range(std::int64_t{})) return " that 64 bits hold";
  if (kind == Flags::Kind::number && (out_of_range(double{}) || !f32_holds(parse_number<double>(text).value_or(0))))
    return " that f32 holds, of 1.2e-38 to 3.4e38 or 0";
  return "";
}

/// Configurations are JSON, which can only hold UTF-8; text that is not UTF-8 could not be saved and read again.
bool is_utf8(std::string_view text) { return valid_utf8_prefix(text) == text.size() && text.find('\0') == text.npos; }

/// A flag as it was written, for a message. Quoted and escaped if it contains special characters.
std::string as_written(std::string_view flag) {
  const std::string safe = in_quotes(flag);
  return safe.size() == flag.size() + 2 ? std::string(flag) : safe;
}

/// Breaks `text` at a blank, or behind another character `at`, into lines of at most `width` columns, and indents all
/// lines but the first by `indent` spaces.
std::string wrap(std::string_view text, std::size_t indent, std::size_t width, char at) {
  std::string result;
  const std::size_t kept = at == ' ' ? 0 : 1;  // of the character at the end of a line
  while (!text.empty()) {
    std::size_t end = text.size(), next = text.size();
    if (indent + end > width) {
      std::size_t found = text.rfind(at, width - indent - kept);
      if (found == std::string_view::npos) found = text.find(at);  // a long word
      if (found != std::string_view::npos) end = found + kept, next = found + 1;
    }
    result += (result.empty() ? "" : "\n" + std::string(indent, ' ')) + std::string(text.substr(0, end));
    text.remove_prefix(next);
  }
  return result;
}

/// A command, with a backslash where a line ends.
std::string example_lines(const std::string& command, std::size_t width) {
  constexpr std::size_t indent = 11;
  std::string text = wrap(command, indent, width - 2, ' ');
  for (std::size_t at = text.find('\n'); at != std::string::npos; at = text.find('\n', at + 3)) text.insert(at, " \\");
  return text;
}

/// What the user may have meant by `name`, which is no flag: "; the nearest is --steps;", ": did you mean --lr?", or
/// ";" if nothing is near.
/// `mark`: what stands before a flag's name; a quote also stands behind it.
std::string suggestion(std::string_view name, const std::vector<std::string>& known, const std::string& mark) {
  const std::string end = mark == "\"" ? mark : "";
  std::string ours;
  for (const std::string& flag : flags_called(name, known))
    ours += fmt::format("{}{}{}{}", ours.empty() ? "" : " or ", mark, flag, end);
  if (!ours.empty()) return fmt::format(": did you mean {}?", ours);
  const std::string near = nearest(name, known);
  const int most = std::max(1, static_cast<int>(std::min(name.size(), near.size()) / 3));  // as many letters may differ
  if (near.empty() || edit_distance(name, near) > most) return ";";
  return fmt::format("; the nearest is {}{}{};", mark, near, end);
}

}  // namespace

bool Range::holds(double value) const {
  return std::isfinite(value) && (low_open ? value > low : value >= low) && (high_open ? value < high : value <= high);
}

// ---- declarations -------------------------------------------------------------------------------------------------

Flags::Flags(std::string program, std::string summary) : program_(std::move(program)), summary_(std::move(summary)) {
  group("configuration");
  add("config", "FILE.json", config_,
      "values by flag name without dashes; flags on the command line override them, and a later file an earlier one");
  add_switch("print-config", print_config_, "print all values as --config takes them, and exit", true);
  add_choice("completions", shell_, {"bash", "zsh"},
             "print a script that completes flags and values in that shell, and exit");
  add_switch("version", version_, "print version, commit and build, and exit", true);
  add_switch("help", help_, "print this, and exit; what stands in [brackets] is the default", true);
  own_.swap(flags_);
}
Flags::~Flags() = default;

void Flags::example(std::string command) { example_ = std::move(command); }

void Flags::group(std::string subject) { group_ = std::move(subject); }

Flags::Flag& Flags::declare(std::string name, std::string value, std::string help, Kind kind, Setter set, Getter get) {
  require(find(flags_, name) == nullptr, "flags", "--{} is declared twice", name);
  Flag flag;
  flag.initial = get();
  flag.name = std::move(name);
  flag.value = std::move(value);
  flag.group = group_;
  flag.help = std::move(help);
  flag.kind = kind;
  flag.set = std::move(set);
  flag.get = std::move(get);
  return flags_.emplace_back(std::move(flag));
}

void Flags::add(std::string name, std::string value, std::int64_t& target, std::string help, Range range) {
  declare(
      std::move(name), std::move(value), std::move(help), Kind::integer,
      [&target](const json& v) { target = v.get<std::int64_t>(); }, [&target] { return json(target); })
      .range = range;
}

void Flags::add(std::string name, std::string value, double& target, std::string help, Range range) {
  declare(
      std::move(name), std::move(value), std::move(help), Kind::number,
      [&target](const json& v) { target = v.get<double>(); }, [&target] { return json(target); })
      .range = range;
}

void Flags::add(std::string name, std::string value, std::string& target, std::string help) {
  declare(
      std::move(name), std::move(value), std::move(help), Kind::text,
      [&target](const json& v) { target = v.get<std::string>(); }, [&target] { return json(target); });
}

void Flags::add(std::string name, std::string value, std::optional<std::int64_t>& target, std::string word,
                std::string help, Range range) {
  Flag& flag = declare(
      std::move(name), std::move(value), std::move(help), Kind::integer,
      [&target](const json& v) { target = v.is_null() ? std::nullopt : std::optional(v.get<std::int64_t>()); },
      [&target] { return target ? json(*target) : json(); });
  flag.word = std::move(word);
  flag.range = range;
}

void Flags::add(std::string name, std::string value, std::optional<double>& target, std::string word, std::string help,
                Range range) {
  Flag& flag = declare(
      std::move(name), std::move(value), std::move(help), Kind::number,
      [&target](const json& v) { target = v.is_null() ? std::nullopt : std::optional(v.get<double>()); },
      [&target] { return target ? json(*target) : json(); });
  flag.word = std::move(word);
  flag.range = range;
}

void Flags::add_switch(std::string name, bool& target, std::string help, bool bare) {
  declare(
      std::move(name), bare ? "" : "on|off", std::move(help), Kind::on_off,
      [&target](const json& v) { target = v.get<bool>(); }, [&target] { return json(target); })
      .bare = bare;
}

void Flags::add_choice(std::string name, const std::vector<std::string>& choices, std::string help,
                       std::function<void(std::size_t)> set, std::function<std::size_t()> get) {
  std::string value;
  for (const std::string& choice : choices) value += (value.empty() ? "" : "|") + choice;
  const auto index_of = [choices](const json& v) {
    const auto found = std::find(choices.begin(), choices.end(), v.get<std::string>());
    return static_cast<std::size_t>(found - choices.begin());
  };
  declare(
      std::move(name), std::move(value), std::move(help), Kind::text,
      [set = std::move(set), index_of](const json& v) { set(index_of(v)); },
      [get = std::move(get), choices] { return json(choices[get()]); })
      .choices = choices;
}

void Flags::add_choice(std::string name, std::string& target, const std::vector<std::string>& choices,
                       std::string help) {
  std::vector<std::pair<std::string, std::string>> pairs;
  pairs.reserve(choices.size());
  for (const std::string& choice : choices) pairs.emplace_back(choice, choice);
  add_choice<std::string>(std::move(name), target, pairs, std::move(help));
}

void Flags::choices_of_other_builds(std::vector<std::pair<std::string, std::string>> choices) {
  flags_.back().of_other_builds = std::move(choices);
}

void Flags::not_empty() { flags_.back().not_empty = true; }

void Flags::only_with(std::string depends_on, std::string values, std::function<bool()> active) {
  flags_.back().conditions.push_back({std::move(depends_on), std::move(values), std::move(active)});
}

void Flags::follow_up(std::function<void()> action) { flags_.back().action = std::move(action); }

// ---- values -------------------------------------------------------------------------------------------------------

std::string Flags::expectation(const Flag& flag) {
  std::string text;
  switch (flag.kind) {
    case Kind::integer:
      text = "an integer" + describe(flag.range);
      break;
    case Kind::number:
      text = "a number" + describe(flag.range);
      break;
    case Kind::text:
      text = flag.choices.empty() ? fmt::format("text in UTF-8 ({})", flag.value) : "one of " + join(flag.choices);
      break;
    case Kind::on_off:
      text = "on or off";
      break;
  }
  const bool value_of_its_own = !flag.word.empty() && from_argument(flag.kind, flag.word).is_string();
  // A word that is a number is the default, and lies in the range.
  return value_of_its_own ? text + ", or " + flag.word : text;
}

void Flags::assign(const Flag& flag, const json& value, const std::string& source, const std::string& got) {
  const bool word = !flag.word.empty() && (value == json(flag.word) || value == from_argument(flag.kind, flag.word));
  bool fits = word;
  if (!word) switch (flag.kind) {
      case Kind::integer:
        fits = value.is_number_integer() && !(value.is_number_unsigned() && value.get<std::uint64_t>() > INT64_MAX) &&
               flag.range.holds(value.get<double>());
        break;
      case Kind::number:
        fits = value.is_number() && flag.range.holds(value.get<double>()) && f32_holds(value.get<double>());
        break;
      case Kind::text: {
        const auto& choices = flag.choices;
        fits =
            value.is_string() && is_utf8(value.get_ref<const std::string&>()) &&
            (choices.empty() || std::find(choices.begin(), choices.end(), value.get<std::string>()) != choices.end());
        break;
      }
      case Kind::on_off:
        fits = value.is_boolean();
        break;
    }
  for (const auto& [choice, why] : flag.of_other_builds)
    if (!fits && value == json(choice)) fail(ExitCode::usage, "flags", "{} {}: {}", source, choice, why);
  if (!fits)
    fail(ExitCode::usage, "flags", "{}: expected {}{}; got {}; change {}", source, expectation(flag),
         limits_of(flag.kind, got), got, source);
  flag.set(word ? json() : value);
  if (flag.action) flag.action();
}

json Flags::from_argument(Kind kind, const std::string& text) {
  if (kind == Kind::integer)
    if (const auto parsed = parse_number<std::int64_t>(text)) return *parsed;
  if (kind == Kind::number)
    if (const auto parsed = parse_number<double>(text)) return *parsed;
  if (kind == Kind::on_off && (text == "on" || text == "true")) return true;
  if (kind == Kind::on_off && (text == "off" || text == "false")) return false;
  return text;
}

// ---- command line and file ----------------------------------------------------------------------------------------

const Flags::Flag* Flags::find(const std::vector<Flag>& flags, std::string_view name) {
  const auto found = std::find_if(flags.begin(), flags.end(), [&](const Flag& flag) { return flag.name == name; });
  return found == flags.end() ? nullptr : &*found;
}

std::vector<std::string> Flags::names(const std::vector<Flag>& flags) {
  std::vector<std::string> names;
  names.reserve(flags.size());
  for (const Flag& flag : flags) names.push_back(flag.name);
  return names;
}

void Flags::read_config(std::string_view text, const std::string& path, Configured& values) const {
  const json object = parse_json(text, path);
  if (!object.is_object())
    fail(ExitCode::data, "config", "{}: expected one object of \"flag\": value; got {}; change --config", path,
         object.type_name());
  for (const auto& [key, value] : object.items()) {
    if (key.starts_with("//")) continue;  // a note
    if (find(flags_, key) == nullptr)
      fail(ExitCode::usage, "config", "unknown key {} in {}{} --help lists all", in_quotes(key), path,
           suggestion(std::string_view(key).substr(0, longest_name), names(flags_), "\""));
    values.values[key] = {value, path};
  }
}

std::optional<std::string> Flags::given(const std::string& name) const {
  const auto found = given_.find(name);
  return found == given_.end() ? std::nullopt : std::optional(found->second);
}

void Flags::set_configured(const Configured& configured, const std::set<std::string>& overridden) {
  for (const auto& [name, value] : configured.values)
    if (!overridden.contains(name))
      given_[name] = value.value.is_string() ? value.value.get<std::string>() : value.value.dump();
  for (const Flag& flag : flags_) {
    const auto found = configured.values.find(flag.name);
    if (found == configured.values.end() || overridden.contains(flag.name)) continue;
    const auto& [given, path] = found->second;
    // As on the command line, a switch may be "on" or "off", and a number may stand for the text that spells it.
    json value = given;
    if (flag.kind == Kind::on_off && value.is_string()) value = from_argument(flag.kind, given);
    if (flag.kind == Kind::text && value.is_number()) value = value.dump();
    assign(flag, value, fmt::format("\"{}\" in {}", flag.name, path), shown(given));
  }
}

void Flags::read_config(std::string_view text, const std::string& path, const std::set<std::string>& overridden) {
  Configured values;
  read_config(text, path, values);
  set_configured(values, overridden);
}

Flags::Asked Flags::parse(int argc, const char* const* argv) {
  return parse(std::vector<std::string>(argv + std::min(argc, 1), argv + argc));
}

bool Flags::parse_or_print(int argc, const char* const* argv) {
  return parse_or_print(std::vector<std::string>(argv + std::min(argc, 1), argv + argc));
}

bool Flags::parse_or_print(const std::vector<std::string>& arguments) {
  const Asked asked = parse(arguments);
  if (asked != Asked::run && launcher_rank() == 0) write_out(answer(asked));
  return asked == Asked::run;
}

std::string Flags::answer(Asked asked) const {
  switch (asked) {
    case Asked::run:
      return "";
    case Asked::help:
      return help_text(Screen::of_process().text_columns());
    case Asked::version:
      return version_text(program_);
    case Asked::completions: {
      std::vector<Declared> all = declared();
      std::transform(own_.begin(), own_.end(), std::back_inserter(all), declaration);
      return completions(shell_, program_, all);
    }
    case Asked::print_config:
      break;
  }
  return config_text();
}

const Flags::Flag& Flags::named_by(const std::string& argument) const {
  const std::string name = argument == "-h" ? "help" : argument.substr(std::min<std::size_t>(2, argument.size()));
  const bool dashed = argument.starts_with("--") || argument == "-h";
  if (const Flag* flag = find(flags_, name); flag != nullptr && dashed) return *flag;
  if (const Flag* flag = find(own_, name); flag != nullptr && dashed) return *flag;
  std::vector<std::string> known = names(flags_), own = names(own_);
  known.insert(known.end(), own.begin(), own.end());
  const std::size_t letter = std::min(argument.find_first_not_of('-'), argument.size());
  fail(ExitCode::usage, "flags", "unknown flag {}{} --help lists all flags", as_written(argument),
       suggestion(std::string_view(argument).substr(letter, longest_name), known, "--"));
}

Flags::Asked Flags::parse(const std::vector<std::string>& arguments) {
  std::map<const Flag*, std::string> written;  // the last value of each flag
  std::vector<std::string> configurations;
  std::string bare;  // the flag before, if it was written without a value and needs none
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (!argument.starts_with('-') && !bare.empty())
      fail(ExitCode::usage, "flags", "unexpected argument {0} after {1}; expected {1} alone, or {1}=VALUE",
           in_quotes(argument), bare);
    bare.clear();
    if (!argument.starts_with('-'))
      fail(ExitCode::usage, "flags",
           "unexpected argument {}; expected --flag value or --flag=value; --help lists all flags",
           in_quotes(argument));
    const std::size_t equals = argument.find('=');
    const std::string head = argument.substr(0, equals);
    const Flag& flag = named_by(head);
    if (equals != std::string::npos)
      written[&flag] = argument.substr(equals + 1);
    else if (flag.bare)
      written[&flag] = "on", bare = head;
    else if (i + 1 < arguments.size() && !arguments[i + 1].starts_with("--"))
      written[&flag] = arguments[++i];
    else
      fail(ExitCode::usage, "flags", "{} has no value; expected {}; write {} value or {}=value", head,
           expectation(flag), head, head);
    if (&flag == find(own_, "config")) configurations.push_back(written[&flag]);
  }
  given_.clear();
  for (const auto& [flag, value] : written) given_[flag->name] = value;
  const auto apply = [&written](const std::vector<Flag>& flags) {
    for (const Flag& flag : flags) {
      const auto found = written.find(&flag);
      if (found == written.end()) continue;
      if (flag.not_empty && found->second.empty())
        fail(ExitCode::usage, "flags", "--{} is empty; expected {}; give one, or drop --{}", flag.name, flag.value,
             flag.name);
      assign(flag, from_argument(flag.kind, found->second), "--" + flag.name, in_quotes(found->second));
    }
  };
  help_ = version_ = print_config_ = false;
  apply(own_);
  if (help_) return Asked::help;
  if (version_) return Asked::version;
  if (written.contains(find(own_, "completions"))) return Asked::completions;
  std::set<std::string> overridden;
  for (const auto& [flag, value] : written) overridden.insert(flag->name);
  Configured configured;
  for (const std::string& path : configurations) {
    if (!std::filesystem::is_regular_file(path))
      fail(ExitCode::usage, "config", "{} is not a file; expected one written by --print-config; change --config",
           path.empty() ? "''" : path);
    read_config(read_file(path, read_limits::configuration), path, configured);
  }
  set_configured(configured, overridden);
  apply(flags_);
  return print_config_ ? Asked::print_config : Asked::run;
}

std::string Flags::config_text(const std::vector<std::pair<std::string, std::string>>& notes) const {
  nlohmann::ordered_json object = nlohmann::ordered_json::object();
  for (const Flag& flag : flags_) {
    const json value = flag.get();
    object[flag.name] = value.is_null() ? from_argument(flag.kind, flag.word) : value;
  }
  for (const auto& [key, text] : notes) object["//" + key] = text;
  return object.dump(2) + "\n";
}

std::string Flags::text_of(const Flag& flag, const json& value) {
  if (value.is_null()) return flag.word;
  if (value.is_string()) return value.get<std::string>();
  if (flag.kind == Kind::on_off) return value.get<bool>() ? "on" : "off";
  return flag.kind == Kind::number ? fmt::format("{}", value.get<double>()) : value.dump();
}

void Flags::refuse_unused() const {
  for (const Flag& flag : flags_) {
    if (flag.conditions.empty() || flag.get() == flag.initial) continue;
    for (const auto& [depends_on, values, active] : flag.conditions) {
      if (active()) continue;
      const Flag* const by = find(flags_, depends_on);
      require(by != nullptr, "flags", "--{} depends on --{}, which is not declared", flag.name, depends_on);
      constexpr std::string_view none = "none";
      const std::string expected = values.starts_with(none)
                                       ? fmt::format("no --{}{}", depends_on, values.substr(none.size()))
                                       : fmt::format("--{} {}", depends_on, values);
      const std::string given = text_of(*by, by->get());
      if (given.empty())
        fail(ExitCode::usage, depends_on, "--{0} has no effect without {1}; give {1}, or drop --{0}", flag.name,
             expected);
      fail(ExitCode::usage, depends_on, "--{} has no effect with --{} {}; expected {}; drop --{} or change --{}",
           flag.name, depends_on, given, expected, flag.name, depends_on);
    }
  }
}

Flags::Declared Flags::declaration(const Flag& flag) {
  return {flag.name,    flag.value, flag.group,
          flag.kind,    flag.bare,  flag.word,
          flag.choices, flag.range, text_of(flag, flag.initial)};
}

std::vector<Flags::Declared> Flags::declared() const {
  std::vector<Declared> all;
  std::transform(flags_.begin(), flags_.end(), std::back_inserter(all), declaration);
  return all;
}

std::string Flags::help_text(int columns) const {
  constexpr std::size_t narrowest = 20, narrow = 60;
  const std::size_t width = std::max(static_cast<std::size_t>(std::max(columns, 0)), narrowest);
  const std::size_t column = width < narrow ? 6 : 26;  // of the texts
  std::string text = fmt::format("{}\n\nusage:   {}\n", wrap(summary_, 0, width, ' '),
                                 wrap(program_ + " --flag value --flag=value ...", 9, width, ' '));
  if (!example_.empty()) text += fmt::format("example: {}\n", example_lines(example_, width));
  const auto line = [&](const std::string& flag, const std::string& help) {
    const std::string head = "  " + wrap(flag, 6, width, '|');
    const bool fits = head.size() + 1 < column;
    text += head + (fits ? std::string(column - head.size(), ' ') : "\n" + std::string(column, ' ')) +
            wrap(help, column, width, ' ') + "\n";
  };
  std::string group;
  const auto describe_flag = [&](const Flag& flag) {
    if (flag.group != group) text += "\n" + (group = flag.group) + "\n";
    std::string initial = text_of(flag, flag.initial);
    if (!initial.empty() && !flag.bare) initial = " [" + initial + "]";
    line(fmt::format("--{}{}{}", flag.name, flag.value.empty() ? "" : " ", flag.value),
         flag.help + (flag.bare ? "" : initial));
  };
  std::for_each(flags_.begin(), flags_.end(), describe_flag);
  std::for_each(own_.begin(), own_.end(), describe_flag);
  return text;
}

}  // namespace trireme
