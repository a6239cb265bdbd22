// Renders a parsed chat template. Every step and every byte that is made counts as work, and the sum is limited, so a
// template cannot run forever or fill the memory.
// Read next: data/chat/chat_template.h; data/chat/template_filters.h for filters, tests and methods.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "data/chat/template_tree.h"

namespace trireme::chat {

/// The most work of one rendering: steps, and 64 bytes of text each. So at most 256 MB of text are made, and
/// template_most_output are given back.
inline constexpr std::int64_t template_most_work = 4 << 20;
inline constexpr std::size_t template_most_output = std::size_t{64} << 20;

/// Counts work.
class Work {
 public:
  explicit Work(std::string_view path) : path_(path) {}
  void add(std::size_t bytes = 0);     ///< a step that makes `bytes`; throws ExitCode::data beyond the limit
  void at(int line) { line_ = line; }  ///< the line that messages name
  [[noreturn]] void refuse(const std::string& what) const;  ///< throws ExitCode::data, with the line

 private:
  std::string_view path_;
  std::int64_t done_ = 0;
  int line_ = 1;
};

/// A part of a text that {% generation %} surrounds: the bytes from `begin` up to `end`.
struct Mark {
  std::size_t begin = 0, end = 0;
};

/// The text that `block` makes with the variables. `marks`, if it is not null, gets what is within {% generation %}, in
/// order and without empty parts; marks in a macro or in the text of a {% set %} are then refused. Throws
/// ExitCode::data, with the line, for what is undefined and used, for values that an operation cannot take, and for
/// what the template refuses with raise_exception().
std::string render_template(const Block& block, std::string_view path, const Dict& variables,
                            std::vector<Mark>* marks = nullptr);

}  // namespace trireme::chat
