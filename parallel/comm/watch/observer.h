// Observer: looks at all ranks' pages periodically, and tracks for each rank how long it has shown no sign of life.
//
// It counts the time between two looks, but at most `longest_gap`. So no rank is blamed for silence while the observer
// itself did not run: on a very busy machine, or when the whole job was stopped (Ctrl-Z, a laptop's lid). For a rank
// without heartbeats it asks the system: a rank is alive if it runs, waits for a processor or a disk, or has had
// processor time since the previous look.
// Read next: parallel/comm/watch/faulty_ranks.h.
#pragma once

#include <functional>
#include <memory>

#include "parallel/comm/watch/faulty_ranks.h"
#include "parallel/comm/watch/page.h"
#include "parallel/comm/watch/vital_signs.h"

namespace trireme::watch {

class Observer {
 public:
  static constexpr double longest_gap = 0.25;  ///< seconds of silence that one look can count
  static constexpr double ask_after = 0.2;     ///< seconds of silence after which the system is asked
  using Ask = std::function<VitalSigns(const ThreadId&)>;

  explicit Observer(std::shared_ptr<const RankPages> pages, Ask ask = vital_signs);

  /// `seconds`: since the previous look.
  void look(double seconds);
  const std::vector<RankSigns>& signs() const { return signs_; }
  /// What the system last said of a rank; '?' when it was not asked.
  const VitalSigns& vitals(int rank) const { return seen_[static_cast<std::size_t>(rank)].vitals; }

 private:
  struct Seen {
    std::uint64_t beats = 0, watchdog_ticks = 0;
    VitalSigns vitals;
    bool asked = false;
    int refreshed = 0;  // how often its process has looked since its last sign of life
  };
  void look_at(const RankPage& page, Seen& seen, RankSigns& signs, double seconds) const;
  bool lives(const RankPage& page, Seen& seen, RankSigns& signs) const;

  std::shared_ptr<const RankPages> pages_;
  Ask ask_;
  std::vector<Seen> seen_;
  std::vector<RankSigns> signs_;
};

}  // namespace trireme::watch
