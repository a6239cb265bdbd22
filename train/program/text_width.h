// Text in the columns of a terminal: how wide UTF-8 text is, cut to a width, and wrapped at words. Wide characters,
// such as those of Chinese, take two columns; combining marks take none. Read next: train/program/screen.h.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace trireme {

/// The columns of one line of text without control characters.
int columns_of(std::string_view text);

/// The longest beginning of the line that fits into `columns`.
std::string_view cut_to_columns(std::string_view line, int columns);

/// The line, or its beginning and "..." if it is longer than `columns`.
std::string shortened_to_columns(std::string_view line, int columns);

/// The line with spaces added up to `columns`.
std::string padded_to_columns(std::string_view line, int columns);

/// Lines of at most `columns` each, broken at spaces. A word that is longer is broken anywhere. Line ends in `text`
/// stay.
std::vector<std::string> wrapped_lines(std::string_view text, int columns);

/// Text in which no line is longer than `columns`: broken as by wrapped_lines(), the rest of a line indented.
std::string wrapped_text(std::string_view text, int columns);

}  // namespace trireme
