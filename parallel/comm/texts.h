// Short texts between ranks: descriptions, names, one rank's error told to all; and a yes of any rank.
// Read next: parallel/comm/texts.cpp, parallel/comm/values.h.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "parallel/comm/process_group.h"

namespace trireme {

/// All ranks' texts by rank, on rank 0 of the group; empty elsewhere. Collective.
std::vector<std::string> gather_texts(ProcessGroup& group, const std::string& text);
/// The same on every rank. Collective.
std::vector<std::string> all_gather_texts(ProcessGroup& group, const std::string& text);
/// The text of rank `root`, on every rank. Collective.
std::string broadcast_text(ProcessGroup& group, const std::string& text, int root = 0);

/// The first text that is not empty, on every rank: tells all ranks why one failed. Collective.
std::string first_text(ProcessGroup& group, const std::string& text);

/// On every rank: whether `mine` is true on any of them. Collective.
bool any_rank(ProcessGroup& group, bool mine);

/// Runs `f` on every rank; it must not make collective calls. If it throws an Error on any rank, all ranks throw the
/// first one. Collective.
void fail_together(ProcessGroup& group, const std::function<void()>& f);

}  // namespace trireme
