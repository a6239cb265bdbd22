// Failures of the file system on purpose. Every call of core/io_calls.h in this process is an operation, counted from
// 1, whichever thread makes it. Armed with a fault, the operations it chooses do not do what they should:
//
//   kill           the process ends (SIGKILL) instead of the operation; of a write, half has been done
//   drop_unsynced  as kill; together with journal= what a power loss leaves can be worked out afterwards, as the
//                  journal says what was synced before (tests/faults/disk_model.h)
//   eio, enospc    the operation fails with that error and has no effect (close: it closes)
//   short          a read or write is of half the bytes; other operations are not affected
//   count          nothing: the number of operations is printed as the process ends
//
// As text, for TRIREME_IO_FAULT: kind=K[,op=N|N-M|N-][,call=NAME][,path=TEXT][,journal=FILE][,rank=R][,start=N|any],
// where call and path limit which operations are counted at all: those of that name (open, read, pread, write, fsync,
// close, ftruncate, truncate, rename, unlink, mkdir, rmdir), those on a path with TEXT in it.
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
  std::optional<int> rank;                ///< of a launcher, whose process it is for; not set: each
  std::optional<std::int64_t> start = 0;  ///< of the job, as in train/fault_injection.h; not set: any
};

/// Throws ExitCode::usage, with the grammar, for anything else.
IoFault parse_io_fault(std::string_view text);

/// From now on, for the whole process and for good. Throws ExitCode::usage when the journal cannot be made.
void arm_io_faults(const IoFault& fault);

/// Operations counted since then.
std::int64_t io_operations();

}  // namespace trireme
