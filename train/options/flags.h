// Flags: one declaration per flag, bound to a variable. From these declarations come the parsing of the command line,
// reading and writing of configuration files, and the text of --help.
//
//   Flags flags("train_gpt", "Trains a GPT on text.");
//   flags.group("schedule");
//   flags.add("steps", "N", options.steps, "optimizer steps", Range::at_least(1));
//   switch (flags.parse(argc, argv)) { ... }
//
// Precedence: the variable's value before parsing < --config FILE.json < the command line. Of several --config, a key
// in a later file overrides the same key in an earlier one. Within one source, flags take effect in the order of their
// declaration, not in the order they are written. A flag with a follow-up (a preset that sets other flags) is therefore
// declared before the flags it sets, and these override it. If a flag is given twice, the last value counts. Read next:
// train/options/options.cpp, the flags of the training programs.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.h"

namespace trireme {

/// The numbers that a flag accepts.
struct Range {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool low_open = false;   ///< `low` itself is not allowed
  bool high_open = false;  ///< `high` itself is not allowed

  static Range any() { return {}; }                                          ///< every number
  static Range at_least(double low) { return {.low = low}; }                 ///< x >= low
  static Range above(double low) { return {.low = low, .low_open = true}; }  ///< x > low
  /// For counts: the upper bound keeps products of two counts within 64 bits.
  static Range count(double low = 1) { return {.low = low, .high = 1 << 30}; }
  static Range inside(double low, double high) { return {low, high, true, true}; }      ///< (low, high)
  static Range half_open(double low, double high) { return {low, high, false, true}; }  ///< [low, high)
  bool holds(double value) const;                                                       ///< whether `value` is accepted
};

class Flags {
 public:
  /// What the user asked for. If it is not `run`, the caller prints answer() and exits.
  enum class Asked : std::uint8_t { run, help, version, completions, print_config };
  /// The type of a flag's value.
  enum class Kind : std::uint8_t { integer, number, text, on_off };
  /// What a flag accepts, for a program that generates command lines (check/explore/space.h).
  struct Declared {
    std::string name;   ///< without dashes
    std::string value;  ///< the argument's name in --help: "N", "PATH", "none|full|every:K"
    std::string group;
    Kind kind;
    bool bare;                         ///< may be written without a value, which means on
    std::string word;                  ///< "auto", "all": stands for "not set"; empty: there is no such word
    std::vector<std::string> choices;  ///< for text: the allowed values; empty: any text
    Range range;
    std::string initial;  ///< the default as written on the command line; empty if there is none
  };

  Flags(std::string program, std::string summary);

  /// A command for the top of --help: "train_gpt --data text.txt --out run1".
  void example(std::string command);

  /// Sets the subject of the flags declared after this call; it is a heading in --help.
  void group(std::string subject);

  // `value` names the argument in --help ("N", "PATH"); `help` says what the flag is and its unit. The variables must
  // outlive this object; their current values are the defaults. For an optional, `word` stands for "not set": "auto",
  // "all", or the number that is then the default.
  void add(std::string name, std::string value, std::int64_t& target, std::string help, Range range = Range::any());
  void add(std::string name, std::string value, double& target, std::string help, Range range = Range::any());
  void add(std::string name, std::string value, std::string& target, std::string help);
  void add(std::string name, std::string value, std::optional<std::int64_t>& target, std::string word, std::string help,
           Range range = Range::any());
  void add(std::string name, std::string value, std::optional<double>& target, std::string word, std::string help,
           Range range = Range::any());
  /// Takes on or off. A `bare` switch may be written without a value, which means on: --dry-run.
  void add_switch(std::string name, bool& target, std::string help, bool bare = false);
  /// Takes one of `choices`.
  void add_choice(std::string name, std::string& target, const std::vector<std::string>& choices, std::string help);
  /// Takes one of the names, and sets the value paired with it.
  template <class E>
  void add_choice(std::string name, E& target, const std::vector<std::pair<std::string, E>>& choices, std::string help);
  /// Choices of the last declared flag that exist only in other builds, each with the error text for a user who asks
  /// for it here.
  void choices_of_other_builds(std::vector<std::pair<std::string, std::string>> choices);
  /// The last declared flag, a text, must not be empty on the command line. This catches --out "$UNSET".
  void not_empty();
  /// The last declared flag has an effect only while `active()` holds, which depends on the flag `depends_on`.
  /// `values`: those of `depends_on` for which it holds, for the message: "sgd", "above 0". With several calls, all
  /// must hold.
  void only_with(std::string depends_on, std::string values, std::function<bool()> active);
  /// `action` runs each time the last declared flag is set.
  void follow_up(std::function<void()> action);
  /// What the command line, or else --config, gives a flag, also before it is set: for follow-ups that depend on a
  /// later flag. Nothing: it keeps its default.
  std::optional<std::string> given(const std::string& name) const;

  /// Throws ExitCode::usage for an unknown flag or key (and names the nearest known one) and for a value that the flag
  /// does not accept; ExitCode::data for a configuration file that is not valid JSON.
  Asked parse(int argc, const char* const* argv);
  Asked parse(const std::vector<std::string>& arguments);  ///< without the program's name
  /// The text to print for what was asked: help_text(), the version, completions for a shell, or config_text().
  std::string answer(Asked asked) const;
  /// Parses, and prints the answer if the user did not ask for a run (under a launcher only on rank 0). Returns true if
  /// the program should run.
  bool parse_or_print(const std::vector<std::string>& arguments);
  bool parse_or_print(int argc, const char* const* argv);

  /// Throws ExitCode::usage if a flag differs from its default, and has no effect.
  void refuse_unused() const;

  /// All values except --help, --config and other flags of this class, in the form that --config reads. Notes for a
  /// human reader follow, each with "//" before its key.
  std::string config_text(const std::vector<std::pair<std::string, std::string>>& notes = {}) const;
  /// Sets the flags named in `text`, the content of the configuration file `path`. Flags in `overridden` are skipped
  /// and their values not checked: the command line sets them. Notes are ignored. A flag that takes text also accepts a
  /// number, and reads it as text: "zero": 1.
  void read_config(std::string_view text, const std::string& path, const std::set<std::string>& overridden = {});
  /// Lines of at most `columns`.
  std::string help_text(int columns = 80) const;
  /// The flags in order of declaration, without --help, --config and other flags of this class.
  std::vector<Declared> declared() const;

 private:
  struct Flag;
  struct Configured;
  using Setter = std::function<void(const nlohmann::json&)>;
  using Getter = std::function<nlohmann::json()>;

  Flag& declare(std::string name, std::string value, std::string help, Kind kind, Setter set, Getter get);
  void add_choice(std::string name, const std::vector<std::string>& choices, std::string help,
                  std::function<void(std::size_t)> set, std::function<std::size_t()> get);
  static const Flag* find(const std::vector<Flag>& flags, std::string_view name);
  static std::vector<std::string> names(const std::vector<Flag>& flags);
  /// Adds the keys in `text` to `values`, in the place of equal ones of earlier files.
  void read_config(std::string_view text, const std::string& path, Configured& values) const;
  void set_configured(const Configured& values, const std::set<std::string>& overridden);
  static Declared declaration(const Flag& flag);
  /// The flag that `--name` (or -h) refers to.
  const Flag& named_by(const std::string& argument) const;
  /// A command-line value as JSON: a number or boolean if it can be read as one and the kind asks for it, otherwise a
  /// string.
  static nlohmann::json from_argument(Kind kind, const std::string& text);
  /// Checks and sets. For messages: `source` names the flag, `got` is the value as written.
  static void assign(const Flag& flag, const nlohmann::json& value, const std::string& source, const std::string& got);
  static std::string expectation(const Flag& flag);
  static std::string text_of(const Flag& flag, const nlohmann::json& value);  ///< as written on the command line

  std::string program_, summary_, example_, group_;
  std::vector<Flag> flags_;
  std::vector<Flag> own_;  // --config, --print-config, --completions, --version, --help
  std::string config_, shell_ = "bash";
  bool print_config_ = false, version_ = false, help_ = false;
  std::map<std::string, std::string> given_;

 public:
  ~Flags();
  Flags(const Flags&) = delete;
  Flags& operator=(const Flags&) = delete;
};

template <class E>
void Flags::add_choice(std::string name, E& target, const std::vector<std::pair<std::string, E>>& choices,
                       std::string help) {
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
