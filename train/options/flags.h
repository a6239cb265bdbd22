// Flags: one declaration per flag, bound to a variable. The command line, the configuration file in both directions and
// --help are all made from these declarations.
//
//   Flags flags("train_gpt", "Trains a GPT on text.");
//   flags.group("schedule");
//   flags.add("steps", "N", options.steps, "optimizer steps", Range::at_least(1));
//   switch (flags.parse(argc, argv)) { ... }
//
// Precedence: the variable's value before parsing < --config FILE.json < the command line. Within one of these, flags
// take effect in the order of declaration, wherever they stand: a flag with a follow-up (a preset that sets others)
// is therefore declared before those it sets, and they override it. Given twice, the last one counts.
// Read next: train/options/options.cpp, the flags of the training programs.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.h"

namespace trireme {

/// Which numbers a flag takes.
struct Range {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool low_open = false;   ///< `low` itself is refused
  bool high_open = false;  ///< `high` itself is refused

  static Range any() { return {}; }
  static Range at_least(double low) { return {.low = low}; }
  static Range above(double low) { return {.low = low, .low_open = true}; }
  /// Of things: small enough that products of a few counts fit in 64 bits.
  static Range count(double low = 1) { return {.low = low, .high = 1 << 30}; }
  static Range inside(double low, double high) { return {low, high, true, true}; }      ///< (low, high)
  static Range half_open(double low, double high) { return {low, high, false, true}; }  ///< [low, high)
  bool holds(double value) const;
};

class Flags {
 public:
  /// What the user asked for. The caller prints help_text() or config_text() and ends the program for the last two.
  enum class Asked : std::uint8_t { run, help, print_config };
  enum class Kind : std::uint8_t { integer, number, text, on_off };
  /// What a flag takes, for a program that makes up command lines (train/explore/space.h).
  struct Declared {
    std::string name;   ///< without dashes
    std::string value;  ///< the argument's name in --help: "N", "PATH", "none|full|every:K"
    std::string group;
    Kind kind;
    bool bare;                         ///< may stand alone, for on
    std::string word;                  ///< "auto", "all": not set; empty: there is no such word
    std::vector<std::string> choices;  ///< of a text; empty: any text
    Range range;
    std::string initial;  ///< the default as it would be written; empty where there is none
  };

  Flags(std::string program, std::string summary);

  /// The subject of the flags declared from here on, a heading in --help.
  void group(std::string subject);

  // `value` names the argument in --help ("N", "PATH"); `help` says what it is and its unit. The variables must
  // outlive this object; what they hold now is the default. In an optional, `word` ("auto", "all", or a number, which
  // is the default then) stands for "not set".
  void add(std::string name, std::string value, std::int64_t& target, std::string help, Range range = Range::any());
  void add(std::string name, std::string value, double& target, std::string help, Range range = Range::any());
  void add(std::string name, std::string value, std::string& target, std::string help);
  void add(std::string name, std::string value, std::optional<std::int64_t>& target, std::string word, std::string help,
           Range range = Range::any());
  void add(std::string name, std::string value, std::optional<double>& target, std::string word, std::string help,
           Range range = Range::any());
  /// Takes on or off; a `bare` one may stand alone for on, as in --dry-run.
  void add_switch(std::string name, bool& target, std::string help, bool bare = false);
  /// Takes one of `choices`.
  void add_choice(std::string name, std::string& target, const std::vector<std::string>& choices, std::string help);
  /// Takes one of the names, and sets the value beside it.
  template <class E>
  void add_choice(std::string name, E& target, std::vector<std::pair<std::string, E>> choices, std::string help);
  /// Choices that the flag declared last has in other builds, each with why it is not one here: what they are told who
  /// ask for it.
  void elsewhere(std::vector<std::pair<std::string, std::string>> choices);
  /// The flag declared last, a text, must not be empty where it is written on the command line: --out "$UNSET".
  void not_empty();
  /// `action` runs each time the flag declared last is set.
  void follow_up(std::function<void()> action);

  /// Throws ExitCode::usage for an unknown flag or key (naming the nearest), and for a value that is not what the
  /// flag takes; ExitCode::data for a configuration file that is not JSON.
  Asked parse(int argc, const char* const* argv);
  Asked parse(const std::vector<std::string>& arguments);  ///< without the program's name
  /// Parses, and prints the help or the configuration when that was asked for: on one process under a launcher. Returns
  /// whether the program is to run.
  bool parse_or_print(const std::vector<std::string>& arguments);
  bool parse_or_print(int argc, const char* const* argv);

  /// All values but those of --help, --config and --print-config, as --config takes them. Notes follow, each with "//"
  /// before its key: what a reader may want to know beside the values.
  std::string config_text(const std::vector<std::pair<std::string, std::string>>& notes = {}) const;
  /// Sets the flags named in `text`, the content of the configuration file `path`, but those `overridden` on the
  /// command line, whose values there may be anything; notes are passed over. Where a flag takes a text, a number is
  /// read as the text that spells it: "zero": 1.
  void read_config(std::string_view text, const std::string& path, const std::set<std::string>& overridden = {});
  std::string help_text() const;
  /// The flags in the order of their declaration, without --help, --config and --print-config.
  std::vector<Declared> declared() const;

 private:
  struct Flag;
  using Setter = std::function<void(const nlohmann::json&)>;
  using Getter = std::function<nlohmann::json()>;

  Flag& declare(std::string name, std::string value, std::string help, Kind kind, Setter set, Getter get);
  void add_choice(std::string name, const std::vector<std::string>& choices, std::string help,
                  std::function<void(std::size_t)> set, std::function<std::size_t()> get);
  static const Flag* find(const std::vector<Flag>& flags, std::string_view name);
  static std::vector<std::string> names(const std::vector<Flag>& flags);
  /// The flag that `--name` (or -h) asks for.
  const Flag& named_by(const std::string& argument) const;
  /// The JSON form of a value on the command line: a number where it spells one, a string otherwise.
  static nlohmann::json from_argument(Kind kind, const std::string& text);
  /// Checks and sets; `source` names the flag in messages, `got` the value as it was written.
  static void assign(const Flag& flag, const nlohmann::json& value, const std::string& source, const std::string& got);
  static std::string expectation(const Flag& flag);
  static std::string initial_text(const Flag& flag);

  std::string program_, summary_, group_;
  std::vector<Flag> flags_;
  std::vector<Flag> own_;  // --config, --print-config, --help
  std::string config_;
  bool print_config_ = false, help_ = false;

 public:
  ~Flags();
  Flags(const Flags&) = delete;
  Flags& operator=(const Flags&) = delete;
};

template <class E>
void Flags::add_choice(std::string name, E& target, std::vector<std::pair<std::string, E>> choices, std::string help) {
  std::vector<std::string> names;
  names.reserve(choices.size());
  for (const auto& choice : choices) names.push_back(choice.first);
  const auto set = [&target, choices](std::size_t index) { target = choices[index].second; };
  const auto get = [&target, choices]() -> std::size_t {
    for (std::size_t i = 0; i < choices.size(); ++i)
      if (choices[i].second == target) return i;
    fail(ExitCode::internal, "flags", "a default is not among its flag's choices");
  };
  add_choice(std::move(name), names, std::move(help), set, get);
}

}  // namespace trireme
