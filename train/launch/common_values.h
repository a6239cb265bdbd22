// Values that must be equal on all ranks of a job. They are compared before any rank begins. Ranks that are threads
// share one process, so their values are equal. Processes under a launcher each read their own flags and files and
// inspect their own processor. Two processes with different texts would exchange wrong gradients, and nothing else
// would reveal it.
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

/// A value that must be equal on all ranks.
struct CommonValue {
  std::string what;                 ///< "--lr", "the text of --data": the beginning of a message
  std::string value;                ///< on this rank; a hash if it is long
  std::string remedy;               ///< "expected one configuration; start every rank with the same flags"
  ExitCode code = ExitCode::usage;  ///< of the error if it differs
};
using CommonValues = std::vector<CommonValue>;  ///< in any order

/// Of a flag.
CommonValue common_flag(const std::string& name, const std::string& value);
/// This program's executable, the flags, and the processor's unit if it affects results. The number of threads does not
/// affect results.
CommonValues common_setup(const TrainOptions& options);
/// The tokens for training and validation, and the tokenizer.
CommonValues common_corpus(const Corpus& corpus);

/// The first value that differs between ranks, as a message with the value of each rank; nothing if there is none. A
/// value that is missing on some rank is not compared: that rank failed before reading it, and reports so itself.
struct CommonDifference {
  std::string message;
  ExitCode code = ExitCode::usage;
};
/// See CommonDifference.
std::optional<CommonDifference> first_difference(const std::vector<CommonValues>& by_rank);

/// Throws the error of first_difference() on every rank. Exchanges eight bytes per rank, and the values only if these
/// differ. Collective.
void require_common(ProcessGroup& group, const CommonValues& mine);

}  // namespace trireme
