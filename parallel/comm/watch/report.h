// The messages when ranks are lost: one line that names them, and the flight record, all ranks' pages merged into one
// text. docs/hangs.md explains an example.
#pragma once

#include <string>

#include "core/error.h"
#include "parallel/comm/watch/observer.h"

namespace trireme::watch {

/// A rank is lost, or ranks wait for one another. place() is that of the rank at fault, not of the one that noticed.
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
  FaultyRanks faulty;
  int waiter = -1;      ///< the rank whose wait it ends; -1: none
  double timeout = 30;  ///< seconds
};

/// The error of a finding: ExitCode::desync for ranks that wait for one another, else ExitCode::retryable.
LostRank lost_rank(const Finding& finding, const RankPages& pages, const Observer& observer);

/// "in forward at blocks.2.mlp; its last operation is all_reduce(sum of 64 f32) #119 of group 'dp', ended 0.1 s ago".
std::string doing(const RankPages& pages, int rank);

/// A line for each rank, with `lost` ranks marked, and the last operations of each group, the ranks side by
/// side.
std::string flight_record(const RankPages& pages, const std::vector<int>& lost = {});

}  // namespace trireme::watch
