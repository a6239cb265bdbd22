// Ranks for the labs: threads that share nothing but messages, and the record of what each rank did.
//
//   const Run run = run_ranks({.ranks = 4}, [](Rank& rank) {
//     rank.send(x, (rank.rank() + 1) % 4);
//     const Tensor y = rank.receive((rank.rank() + 3) % 4);
//   });
//
// Data really travels from thread to thread. Time does not pass: clock.h counts it afterwards, from the record, so that
// a lab takes milliseconds and gives the same figures on every machine.
// Read next: examples/labs/harness/cluster.cpp, then examples/labs/harness/clock.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/tensor.h"

namespace trireme::labs {

/// A rank, or another whole number, as an index.
template <class I>
constexpr std::size_t at(I i) {
  return static_cast<std::size_t>(i);
}

/// One thing that a rank did.
struct Event {
  enum class Kind : std::uint8_t {
    compute,  ///< `seconds`, for `what`
    send,     ///< `bytes` to `peer`
    receive,  ///< `bytes` of `peer`
    start,    ///< of the background task `task`
    wait,     ///< for the background task `task`
  };
  Kind kind;
  std::string what = {};
  double seconds = 0;
  int peer = -1;
  std::int64_t bytes = 0;
  std::int64_t message = -1;  ///< its number: a send and its receive have the same
  int task = -1;
};
using Events = std::vector<Event>;

/// What one rank did.
struct Record {
  Events main;
  std::vector<Events> tasks;  ///< in the background, by number

  std::int64_t bytes_sent() const;
  std::int64_t messages_sent() const;
  std::int64_t bytes_sent_to(int peer) const;
};

struct Mail;  // what the ranks share

/// A rank, as the code of a lab sees it: its number, messages, and a second line of work beside the first.
class Rank {
 public:
  Rank(Mail& mail, int rank, int size);
  ~Rank();
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;
  int rank() const { return rank_; }  ///< 0 to size() - 1
  int size() const { return size_; }

  /// Sends a copy of x, and does not wait for the receiver.
  void send(const Tensor& x, int to);
  /// The next message of rank `from`; waits for it. Messages between two ranks arrive in the order of their sends. Those
  /// of background tasks are apart: a task receives what the task of the same number has sent.
  Tensor receive(int from);

  /// Says that the rank computes for so many seconds.
  void compute(double seconds, std::string_view what);

  /// Work beside the rank's own: messages that travel while it computes. Tasks of a rank run one after the other, in the
  /// order of their starts. Between start() and wait(), what a task reads must not be written, and what it writes neither
  /// read nor written. Returns the task's number.
  int start(std::function<void()> task);
  void wait(int task);  ///< returns when it is done

  // Collectives of all ranks, as rings of messages. A lab in which they are to be written does not have them.
  void all_reduce(Tensor x);               ///< x becomes the sum of the ranks' x
  Tensor all_gather(const Tensor& x);      ///< [n, ...x], in the order of ranks
  Tensor reduce_scatter(const Tensor& x);  ///< x [n, ...y]: the sum over ranks of their x[rank()]
  Tensor all_to_all(const Tensor& x);      ///< x [n, ...]: y[i] = rank i's x[rank()]
  void broadcast(Tensor x, int root);      ///< x becomes root's x
  void all_reduce_max(Tensor x);           ///< x becomes the largest of the ranks' x, element by element

 private:
  friend struct Mail;
  struct Task;
  Events& events() { return running_ < 0 ? record_.main : record_.tasks[static_cast<std::size_t>(running_)]; }
  void note(Event event) { events().push_back(std::move(event)); }
  void check_peer(std::string_view what, int peer) const;
  void check_collective(std::string_view what, const Tensor& x) const;
  void let_run(int task);  // until it pauses, or ends
  int finish();            // of the tasks that nobody has waited for; how many there were

  Mail& mail_;
  int rank_, size_;
  Record record_;
  std::vector<std::unique_ptr<Task>> tasks_;
  int done_ = 0;      // tasks that have ended
  int running_ = -1;  // the task that runs now
};

struct Cluster {
  int ranks = 4;
  bool collectives = false;  ///< whether Rank's collectives may be used
};

/// What all ranks did, and what was left over.
struct Run {
  std::vector<Record> ranks;
  std::vector<std::string>
      left;  ///< a sentence for messages that were sent and not received, and for tasks not waited for
};

/// Runs `body` on every rank. Throws the first error of a rank, with its number; and if all ranks wait for messages, an
/// error that says who waits for whom.
Run run_ranks(const Cluster& cluster, const std::function<void(Rank&)>& body);

/// into += from, element by element.
void add_into(Tensor into, const Tensor& from);

}  // namespace trireme::labs
