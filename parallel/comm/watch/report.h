// What is said when ranks are lost: one line that names them, and the flight record: all ranks' pages merged into one
// text. docs/hangs.md reads one.
#pragma once

#include <string>

#include "core/error.h"
#include "parallel/comm/watch/observer.h"

namespace trireme::watch {

/// A rank is lost, or the ranks wait for one another. Its place is that of the rank at fault, not of who noticed.
class LostRank : public Error {
 public:
  LostRank(ExitCode code, std::string_view what, std::string place, const std::string& record)
      : Error(code, "watch", what), place_(std::move(place)), record_(std::make_shared<const std::string>(record)) {}
  const std::string& place() const { return place_; }     ///< "rank 5 (dp=0,tp=1,pp=1) step 120"
  const std::string& record() const { return *record_; }  ///< flight_record() of that moment

 private:
  std::string place_;
  std::shared_ptr<const std::string> record_;
};

struct Finding {
  Verdict verdict;
  int waiter = -1;      ///< whose wait it ends; -1: nobody's
  double timeout = 30;  ///< seconds
};

/// The error of a finding: ExitCode::desync for ranks that wait for one another, else ExitCode::retryable.
LostRank lost_rank(const Finding& finding, const Board& board, const Observer& observer);

/// A line for each rank, those that are `lost` marked, and the last operations of each group side by side by their
/// number.
std::string flight_record(const Board& board, const std::vector<int>& lost = {});

}  // namespace trireme::watch
