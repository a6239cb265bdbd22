// Injects file system faults. Every call of core/io_calls.h in this process is an operation, counted from 1, whichever
// thread makes it. Once a fault is armed, the operations it selects behave as follows:
//
//   kill           the process ends (SIGKILL) instead of the operation; a write is half done first
//   drop_unsynced  as kill; with journal=, tests/faults/disk_model.h then computes what a power loss would leave,
//                  because the journal records what was synced
//   eio, enospc    the operation fails with that error and has no effect (close does close)
//   short          a read or write transfers half of the bytes; other operations are not affected
//   count          nothing fails; the number of operations is printed when the process ends
//
// As text, for TRIREME_IO_FAULT: kind=K[,op=N|N-M|N-][,call=NAME][,path=TEXT][,journal=FILE][,rank=R][,start=N|any].
// `call` and `path` limit which operations are counted: those of that name (open, read, pread, write, fsync, close,
// ftruncate, truncate, rename, unlink, mkdir, rmdir), those on a path that contains TEXT.
// Inert until arm_io_faults() is called, whatever the environment says. Read next: core/io_calls.cpp.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

namespace trireme {

struct IoFault {
  enum class Kind : std::uint8_t { kill, drop_unsynced, eio, enospc, shortened, count };
  static constexpr std::int64_t no_end = std::numeric_limits<std::int64_t>::max();

  Kind kind = Kind::count;
  std::int64_t first = 1, last = no_end;  ///< operations, of those counted
  std::string call, path;                 ///< which are counted; empty: all
  std::string journal;                    ///< a file that gets every operation with its data; empty: none
  std::optional<int> rank;                ///< the launcher's rank whose process it is for; not set: every one
  std::optional<std::int64_t> start = 0;  ///< which start of the job, as in check/faults/injection.h; not set: any
};

/// Parses the text form above. Throws ExitCode::usage, with the grammar, if it is malformed.
IoFault parse_io_fault(std::string_view text);

/// Takes effect for the whole process until it ends. Throws ExitCode::usage if the journal cannot be created.
void arm_io_faults(const IoFault& fault);

/// Operations counted since arm_io_faults().
std::int64_t io_operations();

}  // namespace trireme
