// What all ranks of a job must have in common, compared before the first of them begins. Ranks that are threads share
// one process, and so all of it. Processes under a launcher each read their own flags and files and look at their own
// processor: two that train on different texts would exchange gradients that look as good as any.
// Read next: train/launch/ranks.cpp, which compares; train/loop/task.h, which says what it has read.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/error.h"
#include "data/corpus.h"
#include "parallel/comm/process_group.h"
#include "train/options/options.h"

namespace trireme {

struct CommonValue {
  std::string what;                 ///< "--lr", "the text of --data": how a message begins
  std::string value;                ///< on this rank; a hash where it is long
  std::string remedy;               ///< "expected one configuration; start every rank with the same flags"
  ExitCode code = ExitCode::usage;  ///< of the error, where it differs
};
using CommonValues = std::vector<CommonValue>;

CommonValue common_flag(const std::string& name, const std::string& value);
/// This program's executable, the flags, and what the processor computes with where that changes results. The number of
/// threads changes none.
CommonValues common_setup(const TrainOptions& options);
/// The tokens for training and validation, and the tokenizer.
CommonValues common_corpus(const Corpus& corpus);

/// The first value that is not the same on all ranks, as a message with the value on each. A value that a rank lacks is
/// not compared: that rank failed before it had read it, and reports so itself. Null when there is no difference.
struct CommonDifference {
  std::string message;
  ExitCode code = ExitCode::usage;
};
std::optional<CommonDifference> first_difference(const std::vector<CommonValues>& by_rank);

/// Throws first_difference() on every rank. Eight bytes a rank are exchanged, and the values only when these differ.
/// Collective.
void require_common(ProcessGroup& group, const CommonValues& mine);

}  // namespace trireme
