// Flags by themselves: values, ranges, precedence, the configuration file, nearest names.
#include "train/options/flags.h"

#include <doctest/doctest.h>

#include "core/io.h"
#include "core/nearest.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"

using namespace trireme;
using namespace trireme::testing;

namespace flags_test {
namespace {

enum class Colour : std::uint8_t { red, green };

/// One flag of each kind.
struct Sample {
  std::int64_t count = 3;
  double rate = 0.5;
  std::string name = "none";
  std::optional<std::int64_t> parts;
  std::optional<double> least;
  bool fast = true, quiet = false;
  Colour colour = Colour::red;
  std::string shape = "round";
  Flags flags{"sample", "A sample."};

  Sample() {
    flags.group("numbers");
    flags.add("count", "N", count, "how many", Range::at_least(1));
    flags.add("rate", "F", rate, "how fast, in metres per second", Range::half_open(0, 1));
    flags.add("parts", "N", parts, "auto", "pieces");
    flags.add("least", "F", least, "auto", "lower bound");
    flags.group("others");
    flags.add("name", "TEXT", name, "what it is called");
    flags.add_switch("fast", fast, "whether it hurries");
    flags.add_switch("quiet", quiet, "whether it keeps silent", true);
    flags.add_choice("colour", colour, {{"red", Colour::red}, {"green", Colour::green}}, "its colour");
    flags.add_choice("shape", shape, {"round", "square"}, "its shape");
    flags.follow_up([this] {
      if (shape == "square") count = 4;
    });
  }
};

std::string refusal(const std::vector<std::string>& arguments) {
  Sample sample;
  return failure([&] { sample.flags.parse(arguments); });
}

std::string config_refusal(const std::string& text) {
  Sample sample;
  return failure([&] { sample.flags.read_config(text, "c.json"); });
}

}  // namespace

TEST_CASE("a changed flag is refused where another one leaves it without effect") {
  const auto refused = [](const std::vector<std::string>& arguments) {
    std::string size = "auto";
    std::optional<double> limit;
    std::int64_t parts = 2;
    Flags flags("sample", "");
    flags.add("size", "auto|N", size, "");
    flags.add("limit", "F", limit, "none", "");
    flags.add("parts", "N", parts, "");
    flags.only_with("size", "auto", [&size] { return size == "auto"; });
    flags.only_with("limit", "above 1", [&limit] { return limit && *limit > 1; });
    flags.parse(arguments);
    return failure([&] { flags.refuse_unused(); });
  };
  CHECK(refused({}) == "nothing");
  CHECK(refused({"--size", "7", "--parts", "2"}) == "nothing");  // the default
  CHECK(refused({"--limit", "1.5", "--parts", "3"}) == "nothing");
  CHECK(refused({"--limit", "1.5", "--size", "7", "--parts", "3"}) ==
        "64 trireme: [size] --parts has no effect with --size 7; expected --size auto; drop --parts or change --size");
  CHECK(refused({"--parts", "3"}) ==
        "64 trireme: [limit] --parts has no effect with --limit none; expected --limit above 1; drop --parts or change "
        "--limit");
}

TEST_CASE("edit distance counts insertions, deletions, substitutions and swaps") {
  CHECK(edit_distance("", "") == 0);
  CHECK(edit_distance("", "abc") == 3);
  CHECK(edit_distance("abc", "") == 3);
  CHECK(edit_distance("kitten", "sitting") == 3);
  CHECK(edit_distance("stpes", "steps") == 1);
  CHECK(edit_distance("ca", "abc") == 3);  // a swapped pair is not edited again
  CHECK(nearest("stpes", {"seed", "steps", "lr"}) == "steps");
  CHECK(nearest("x", {}) == "");
}

TEST_CASE("flags take values of their type, with a blank or an equals sign") {
  Sample s;
  CHECK(s.flags.parse({"--count", "7", "--rate=0.25", "--name", "a b", "--parts", "2", "--least=-1.5e-3", "--fast",
                       "off", "--quiet", "--colour", "green"}) == Flags::Asked::run);
  CHECK(s.count == 7);
  CHECK(s.rate == 0.25);
  CHECK(s.name == "a b");
  CHECK(s.parts == 2);
  CHECK(s.least == -1.5e-3);
  CHECK_FALSE(s.fast);
  CHECK(s.quiet);
  CHECK(s.colour == Colour::green);
  s.flags.parse({"--parts", "auto", "--least", "-2", "--count=1", "--count=9"});
  CHECK_FALSE(s.parts.has_value());
  CHECK(s.least == -2);
  CHECK(s.count == 9);  // the last one counts
}

TEST_CASE("a value that does not fit is refused with flag, value and what is expected") {
  CHECK(refusal({"--count", "abc"}) ==
        "64 trireme: [flags] --count: expected an integer of at least 1; got \"abc\"; change --count");
  CHECK(contains(refusal({"--count", "0"}), "expected an integer of at least 1; got \"0\""));
  CHECK(contains(refusal({"--count", "1.5"}), "expected an integer"));
  CHECK(contains(refusal({"--count", "99999999999999999999"}), "an integer of at least 1 that 64 bits hold; got"));
  CHECK(contains(refusal({"--count", ""}), "got \"\""));
  CHECK(contains(refusal({"--rate", "1"}), "--rate: expected a number in [0, 1); got \"1\""));
  CHECK(contains(refusal({"--rate", "nan"}), "expected a number in [0, 1)"));
  CHECK(contains(refusal({"--rate", "inf"}), "expected a number in [0, 1)"));
  for (const char* beyond : {"1e-40", "1e39", "1e400", "1e-400"})
    CHECK(contains(refusal({"--least", beyond}), "that f32 holds, of 1.2e-38 to 3.4e38 or 0"));
  CHECK(contains(config_refusal("{\"least\": 1e-300}"), "that f32 holds, of 1.2e-38 to 3.4e38 or 0; got 1e-300"));
  CHECK(refusal({"--least=-3e38"}) == "nothing");
  CHECK(contains(refusal({"--rate", "0.1x"}), "expected a number in [0, 1)"));
  CHECK(contains(refusal({"--parts", "some"}), "expected an integer, or auto; got \"some\""));
  CHECK(contains(refusal({"--fast", "maybe"}), "expected on or off; got \"maybe\""));
  CHECK(contains(refusal({"--colour", "blue"}), "expected one of red, green; got \"blue\""));
  CHECK(refusal({"--count"}) ==
        "64 trireme: [flags] --count has no value; expected an integer of at least 1; write --count value or "
        "--count=value");
  CHECK(contains(refusal({"--count", "--rate", "0.5"}), "--count has no value"));
  CHECK(contains(refusal({"--name", "--quiet"}), "--name has no value; expected text"));
  CHECK(contains(refusal({"--config"}), "--config has no value"));
  CHECK(contains(refusal({"--quiet=perhaps"}), "64 trireme: [flags] --quiet"));
}

TEST_CASE("a value that only other builds have is refused, with the reason") {
  Sample s;
  s.flags.choices_of_other_builds(
      {{"octagonal", "this build is without corners; or use --shape round"}});  // of --shape
  CHECK(failure([&] {
          s.flags.parse({"--shape", "octagonal"});
        }) == "64 trireme: [flags] --shape octagonal: this build is without corners; or use --shape round");
  CHECK(contains(failure([&] { s.flags.parse({"--shape", "oval"}); }), "expected one of round, square; got \"oval\""));
  CHECK_FALSE(contains(s.flags.help_text(), "octagonal"));
}

TEST_CASE("an unknown flag is refused naming the nearest") {
  CHECK(contains(refusal({"--cuont", "3"}), "64 trireme: [flags] unknown flag --cuont; the nearest is --count"));
  CHECK(contains(refusal({"--rte=0.5"}), "unknown flag --rte; the nearest is --rate"));
  CHECK(contains(refusal({"-count", "3"}), "unknown flag -count; the nearest is --count"));
  CHECK(contains(refusal({"--foo"}), "unknown flag --foo; --help lists"));
  CHECK(contains(refusal({"--"}), "unknown flag --;"));
  CHECK(contains(refusal({"-x"}), "unknown flag -x;"));
  CHECK(contains(config_refusal(R"({"config": "other.json"})"), "unknown key \"config\""));
  CHECK(contains(refusal({"--helpp"}), "the nearest is --help"));
  CHECK(contains(refusal({"book.txt"}), "unexpected argument \"book.txt\""));
  CHECK(contains(refusal({"--quiet", "on"}),
                 "unexpected argument \"on\" after --quiet; expected --quiet alone, or "
                 "--quiet=VALUE"));
}

TEST_CASE("a name that other programs use is answered with ours") {
  const auto refused = [](const std::vector<std::string>& flags, const std::string& written) {
    std::vector<std::string> values(flags.size());
    Flags parser("sample", "");
    for (std::size_t i = 0; i < flags.size(); ++i) parser.add(flags[i], "N", values[i], "");
    return failure([&] { parser.parse({written, "1"}); });
  };
  const std::vector<std::string> ours = {"lr",     "bias-update", "global-batch", "micro-batch", "steps",    "clip",
                                         "layers", "width",       "context",      "mesh",        "log-every"};
  CHECK(refused(ours, "--learning-rate") ==
        "64 trireme: [flags] unknown flag --learning-rate: did you mean --lr? --help lists all flags");
  CHECK(contains(refused(ours, "--learning_rate=3"), "did you mean --lr?"));
  CHECK(contains(refused(ours, "--batch-size"), "did you mean --global-batch or --micro-batch?"));
  CHECK(contains(refused(ours, "--epochs"), "did you mean --steps?"));
  CHECK(contains(refused(ours, "--grad-clip"), "did you mean --clip?"));
  CHECK(contains(refused(ours, "--num-layers"), "did you mean --layers?"));
  CHECK(contains(refused(ours, "--hidden-size"), "did you mean --width?"));
  CHECK(contains(refused(ours, "--seq-len"), "did you mean --context?"));
  CHECK(contains(refused(ours, "--tensor-parallel-size"), "did you mean --mesh?"));
  // A program without that flag has nothing near.
  CHECK(refused({"length", "top-k"}, "--learning-rate") ==
        "64 trireme: [flags] unknown flag --learning-rate; --help lists all flags");
  Sample sample;
  double lr = 1;
  sample.flags.add("lr", "F", lr, "");
  CHECK(contains(failure([&] { sample.flags.read_config(R"({"learning_rate": 5})", "c.json"); }),
                 "unknown key \"learning_rate\" in c.json: did you mean \"lr\"?"));
}

TEST_CASE("several configuration files: a key of a later one counts, and the others stay") {
  const TempFolder folder;
  const std::string first = (folder / "1.json").string(), second = (folder / "2.json").string();
  write_file(first, R"({"count": 5, "rate": 0.125, "shape": "square"})");
  write_file(second, R"({"rate": 0.25, "name": "x"})");
  Sample s;
  s.flags.parse({"--config", first, "--config=" + second});
  CHECK(s.rate == 0.25);
  CHECK(s.name == "x");
  CHECK(s.shape == "square");
  Sample again;
  again.flags.parse({"--config", second, "--config", first, "--name", "y"});
  CHECK(again.rate == 0.125);
  CHECK(again.name == "y");
  write_file(second, R"({"rate": 2})");
  CHECK(contains(failure([&] {
                   Sample().flags.parse({"--config", first, "--config", second});
                 }),
                 "\"rate\" in " + second));
  CHECK(contains(refusal({"--config", first, "--config", ""}), "64 trireme: [config] '' is not a file"));
}

TEST_CASE("the shell's completion has every flag, and the values of those that have some") {
  const Sample s;
  const std::string bash = s.flags.answer(Flags::Asked::completions);
  CHECK(contains(bash, "complete -o bashdefault -o default -F _sample sample"));
  for (const char* name : {"--count", "--rate", "--colour", "--quiet", "--config", "--help", "--version"})
    CHECK_MESSAGE(contains(bash, name), name);
  CHECK(contains(bash, "--colour)\n      COMPREPLY=($(compgen -W 'red green'"));
  CHECK(contains(bash, "--parts)\n      COMPREPLY=($(compgen -W 'auto'"));
  CHECK(contains(bash, "--config)\n      COMPREPLY=($(compgen -f"));
  CHECK_FALSE(contains(bash, "--quiet)"));
  Sample zsh;
  CHECK(zsh.flags.parse({"--completions", "zsh"}) == Flags::Asked::completions);
  CHECK(contains(zsh.flags.answer(Flags::Asked::completions), "bashcompinit\n_sample() {"));
  CHECK(contains(refusal({"--completions", "fish"}), "expected one of bash, zsh"));
}

TEST_CASE("a configuration file sets flags by name, with JSON's own types") {
  Sample s;
  s.flags.read_config(
      R"({"count": 5, "rate": 0, "parts": "auto", "fast": false, "quiet": "on", "colour": "green", "name": "x"})",
      "c.json");
  CHECK(s.count == 5);
  CHECK(s.rate == 0);
  CHECK_FALSE(s.fast);
  CHECK(s.quiet);
  CHECK(s.colour == Colour::green);
  CHECK(config_refusal(R"({"coutn": 5})") ==
        "64 trireme: [config] unknown key \"coutn\" in c.json; the nearest is \"count\"; --help lists all");
  CHECK(contains(config_refusal(R"({"count": "5"})"),
                 "\"count\" in c.json: expected an integer of at least 1; got \"5\""));
  CHECK(contains(config_refusal(R"({"count": 5.0})"), "expected an integer of at least 1; got 5.0"));
  CHECK(contains(config_refusal(R"({"count": 18446744073709551615})"), "expected an integer"));
  CHECK(contains(config_refusal(R"({"rate": null})"), "expected a number in [0, 1); got null"));
  CHECK(contains(config_refusal(R"({"name": true})"), "\"name\" in c.json: expected text in UTF-8 (TEXT); got true"));
  CHECK(contains(config_refusal(R"({"name": [5]})"), "got [5]"));
  CHECK(contains(config_refusal(R"({"shape": 5})"), "\"shape\" in c.json: expected one of round, square; got 5"));
  CHECK(contains(config_refusal(R"({"fast": 1})"), "expected on or off; got 1"));
}

TEST_CASE("in a configuration file, a number is as good as the text that spells it") {
  Sample s;
  std::int64_t level = 0;
  std::optional<std::int64_t> window = 7;
  s.flags.add_choice("level", level, {{"0", 0}, {"1", 1}}, "how much");
  s.flags.add("window", "N", window, "100", "how many");
  s.flags.read_config(R"({"name": 1024, "level": 1, "window": 100})", "c.json");
  CHECK(s.name == "1024");
  CHECK(level == 1);
  CHECK_FALSE(window.has_value());  // the word for "not set", written as a number
  CHECK(contains(s.flags.config_text(), "\"window\": 100"));
  s.flags.read_config(R"({"name": -0.5, "window": "100"})", "c.json");
  CHECK(s.name == "-0.5");
  CHECK_FALSE(window.has_value());
  s.flags.parse({"--window", "99"});
  CHECK(window == 99);
  s.flags.parse({"--window", "100"});
  CHECK_FALSE(window.has_value());
  CHECK(contains(failure([&] { s.flags.read_config(R"({"level": 2})", "c.json"); }),
                 "\"level\" in c.json: expected one of 0, 1; got 2"));
}

TEST_CASE("a malformed configuration file is bad data") {
  CHECK(contains(config_refusal("{\"count\": }"), "65 trireme: [json] c.json byte 10: not valid JSON"));
  CHECK(contains(config_refusal("{\"count\": 1, \"count\": 2}"),
                 "65 trireme: [json] c.json byte 13: the key \"count\" occurs twice"));
  CHECK(contains(config_refusal("{\"rate\": NaN}"), "65 "));
  CHECK(contains(config_refusal("[1]"), "65 trireme: [config] c.json: expected one object"));
  Sample s;
  CHECK(contains(failure([&] {
                   s.flags.parse({"--config", "/nonexistent/c.json"});
                 }),
                 "64 trireme: [config] /nonexistent/c.json is not a file"));
  for (const char* text : {"{\"count\": }", "{\"rate\": NaN}", "{", "", "{\"count\": 1e999}", "{\"name\": \"\xff\"}"})
    CHECK_FALSE(contains(config_refusal(text), "json.exception"));
}

TEST_CASE("defaults give way to the file, and the file to the command line") {
  const TempFolder folder;
  const std::string path = (folder / "c.json").string();
  write_file(path, R"({"count": 5, "rate": 0.125})");
  Sample s;
  s.flags.parse({"--rate", "0.75", "--config", path});
  CHECK(s.count == 5);
  CHECK(s.rate == 0.75);
  CHECK(s.name == "none");
}

TEST_CASE("within one source, flags take effect in the order of their declaration") {
  Sample s;
  s.flags.parse({"--shape", "square", "--count", "7"});
  CHECK(s.count == 4);  // shape is declared after count, and its follow-up sets it
}

TEST_CASE("what the command line overrides may be anything in the file") {
  const TempFolder folder;
  const std::string path = (folder / "c.json").string();
  write_file(path, R"({"count": "none of this build's", "rate": 0.125})");
  Sample s;
  CHECK(contains(failure([&] { s.flags.parse({"--config", path}); }), "count"));
  CHECK(failure([&] { s.flags.parse({"--config", path, "--count", "5"}); }) == "nothing");
  CHECK(s.count == 5);
  CHECK(s.rate == 0.125);
}

TEST_CASE("notes stand beside the values of a configuration, and are passed over") {
  Sample s;
  s.flags.parse({"--count", "7"});
  const std::string text = s.flags.config_text({{"count", "of what"}});
  CHECK(contains(text, "\"//count\": \"of what\""));
  Sample again;
  again.flags.read_config(text, "printed");
  CHECK(again.flags.config_text() == s.flags.config_text());
}

TEST_CASE("what is printed as configuration is accepted as configuration") {
  Sample s;
  s.flags.parse({"--count", "7", "--rate", "0.1", "--least", "1e-30", "--quiet", "--colour", "green", "--name",
                 "quote \" and é"});
  const std::string text = s.flags.config_text();
  Sample again;
  again.flags.read_config(text, "printed");
  CHECK(again.flags.config_text() == text);
  CHECK(again.rate == 0.1);
  CHECK(again.least == 1e-30);
  CHECK(again.name == s.name);
  CHECK_FALSE(again.parts.has_value());
  Sample initial;
  CHECK(initial.flags.config_text() != text);
}

TEST_CASE("help and print-config are told apart from a run") {
  Sample s;
  CHECK(s.flags.parse({"--help", "--count", "abc"}) == Flags::Asked::help);
  CHECK(s.flags.parse({"-h"}) == Flags::Asked::help);
  CHECK(s.flags.parse({"--version"}) == Flags::Asked::version);
  CHECK(contains(s.flags.answer(Flags::Asked::version), "sample of Trireme "));
  CHECK(s.flags.parse({"--print-config", "--count", "2"}) == Flags::Asked::print_config);
  CHECK(s.count == 2);
}

TEST_CASE("help groups flags by subject, with defaults") {
  const Sample s;
  const std::string help = s.flags.help_text();
  CHECK(contains(help, "usage:   sample --flag value"));
  CHECK_FALSE(contains(help, "example:"));
  CHECK(contains(help, "\nnumbers\n  --count N"));
  CHECK(contains(help, "how many [3]\n"));
  CHECK(contains(help, "pieces [auto]\n"));
  CHECK(contains(help, "\nothers\n  --name TEXT"));
  CHECK(contains(help, "--colour red|green"));
  CHECK(contains(help, "its colour [red]\n"));
  CHECK(contains(help, "--fast on|off"));
  CHECK(contains(help, "whether it hurries [on]\n"));
  for (const int columns : {40, 80, 100}) {
    std::istringstream lines(s.flags.help_text(columns));
    for (std::string line; std::getline(lines, line);) CHECK(static_cast<int>(line.size()) <= columns);
  }
}

TEST_CASE("a follow-up sees what a later flag is given, on the command line and in a configuration") {
  Flags flags("program", "");
  std::string first, later, seen;
  flags.add("first", "TEXT", first, "");
  flags.follow_up([&] { seen = flags.given("later").value_or("nothing"); });
  flags.add("later", "TEXT", later, "");
  flags.parse({"--later", "b", "--first", "a"});
  CHECK(seen == "b");
  flags.parse({"--first", "a"});
  CHECK(seen == "nothing");
  flags.read_config(R"({"first": "a", "later": 3})", "c.json");
  CHECK(seen == "3");
}

}  // namespace flags_test
