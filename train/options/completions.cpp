#include "train/options/completions.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

namespace trireme {
namespace {

/// The values that a flag can have, as far as they are words.
std::vector<std::string> words_of(const Flags::Declared& flag) {
  std::vector<std::string> words = flag.choices;
  if (flag.kind == Flags::Kind::on_off) words = {"on", "off"};
  if (words.empty() && flag.kind == Flags::Kind::text) {  // "none|selective|full|every:K": those in lower case
    for (std::size_t begin = 0; begin <= flag.value.size() && flag.value.find('|') != std::string::npos;) {
      const std::size_t end = std::min(flag.value.find('|', begin), flag.value.size());
      const std::string word = flag.value.substr(begin, end - begin);
      if (std::none_of(word.begin(), word.end(), [](char c) { return c >= 'A' && c <= 'Z'; })) words.push_back(word);
      begin = end + 1;
    }
  }
  if (!flag.word.empty()) words.push_back(flag.word);
  return words;
}

bool takes_path(const Flags::Declared& flag) {
  for (const std::string_view name : {"PATH", "DIR", "FILE"})
    if (flag.value.find(name) != std::string::npos) return true;
  return false;
}

}  // namespace

std::string completions(const std::string& shell, const std::string& program,
                        const std::vector<Flags::Declared>& flags) {
  std::string names, values;
  for (const Flags::Declared& flag : flags) {
    names += (names.empty() ? "--" : " --") + flag.name;
    const std::vector<std::string> words = words_of(flag);
    if (flag.bare || (words.empty() && !takes_path(flag))) continue;
    values += fmt::format("    --{})\n      COMPREPLY=($(compgen {}-W '{}' -- \"$word\"))\n      return ;;\n",
                          flag.name, takes_path(flag) ? "-f " : "", fmt::join(words, " "));
  }
  const std::string script = fmt::format(
      "_{0}() {{\n"
      "  local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD - 1]}}\n"
      "  if [ \"$before\" = = ]; then before=${{COMP_WORDS[COMP_CWORD - 2]}}; fi\n"  // --flag=value is three words
      "  case $before in\n{1}  esac\n"
      "  COMPREPLY=($(compgen -W '{2}' -- \"$word\"))\n"
      "}}\n"
      "complete -o bashdefault -o default -F _{0} {0}\n",
      program, values, names);
  return shell == "zsh" ? "autoload -U +X compinit && compinit\nautoload -U +X bashcompinit && bashcompinit\n" + script
                        : script;
}

}  // namespace trireme
