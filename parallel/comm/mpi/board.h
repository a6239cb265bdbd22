// Memory that the ranks of one node share. For each of its groups, a rank writes there which operation it has begun and
// ended, which costs four stores an operation. A waiting rank reads which ranks have not come or have called something
// else. The ranks' pages for the watchdog are in the same memory. Ranks of other nodes are not visible.
// Read next: parallel/comm/watch/page.h.
#pragma once

#include <mpi.h>

#include <optional>
#include <vector>

#include "parallel/comm/collective.h"
#include "parallel/comm/watch/page.h"

namespace trireme::comm::mpi {

class NodeBoard {
 public:
  struct Entry {
    std::uint64_t sequence = 0;
    Signature signature;  ///< of that operation
    bool ended = false;   ///< it has left that operation
  };

  /// Collective over all ranks of `world` (part of initialisation, before our own code can fail).
  explicit NodeBoard(MPI_Comm world);

  int ranks_here() const { return ranks_here_; }

  /// A line for a group; -1 when this rank's lines are all taken: its progress in that group is then not shown.
  int open(std::uint64_t group);
  void close(int line);
  void write(int line, const Entry& entry);
  void end(int line);  ///< this rank has left the operation it wrote last
  /// What a world rank shows for that group; nothing when it is on another node or is writing at this moment. `line`
  /// remembers from call to call where to look first.
  std::optional<Entry> read(int world_rank, std::uint64_t group, int& line) const;
  bool visible(int world_rank) const { return ranks_[static_cast<std::size_t>(world_rank)] != nullptr; }

  /// All ranks' pages. They stay for as long as the process does.
  std::shared_ptr<watch::RankPages> pages() const;

 private:
  struct Line {
    std::uint64_t group, sequence, signature, ended;
  };
  static constexpr int lines = 128;
  struct Page {
    watch::RankPage watch;
    Line lines[NodeBoard::lines];
  };

  int ranks_here_ = 0;
  Page* mine_ = nullptr;
  std::vector<Page*> ranks_;  // by world rank; null for those on other nodes
};

}  // namespace trireme::comm::mpi
