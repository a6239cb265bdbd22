// Standard output, checked: what cannot be written is an error at once, with the system's reason.
// Read next: train/program/program.h, which checks what is written in other ways when the program ends.
#pragma once

#include <string_view>

namespace trireme {

/// Whether standard output was a terminal at the first call: after it is closed, the system no longer tells.
bool output_is_terminal();

/// Writes to standard output what another program may want to read, and flushes it: in a pipe as it is, on a terminal
/// made safe (safe_text() in data/utf8.h). Adds no line end. Not while the Screen has a live line. Throws ExitCode::io
/// if it cannot be written (a full disk), unless standard output is a terminal: that one was closed, and SIGHUP tells
/// the program.
void write_out(std::string_view text);

/// The same in bold, where the terminal has colour.
void write_out_bold(std::string_view text);

/// Call at the start of the process, if there was no standard output then.
void note_output_closed();

/// Throws ExitCode::io if there was no standard output at the start. For programs whose result is what they print:
/// write_out() calls it, others call it before they compute. A program whose result is in files may go on without.
void require_output();

/// Throws as write_out() if an earlier write to standard output, by whatever function, has failed.
void require_written();

}  // namespace trireme
