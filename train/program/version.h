// What this program is: version, commit, build. For --version, and for bug reports. The commit is compiled into an
// object of its own, which only programs link (cmake/version.cmake). So after a commit one small source is compiled
// again, and tests are not even linked again. Read next: train/program/version.cpp.
#pragma once

#include <string>
#include <string_view>

namespace trireme {

/// "0.1.0, commit 0123456789".
std::string version_line();

/// Several lines for --version of `program`: version, commit, compiler, instructions, MPI, CUDA, the processor's unit
/// for bf16.
std::string version_text(std::string_view program);

/// Called before main() by the object with the commit. `commit`: "a3ee6a7", "a3ee6a7 with changes", or empty: unknown.
/// Returns true, so that it can initialise a variable.
bool note_commit(std::string_view commit);

}  // namespace trireme
