// Simulated time, for coroutines that work, sleep and wait for one another:
//
//   Process rank(Clock& clock, Mailbox<int>& box) {
//     co_await clock.work(0.5, 1, 0);   // half a second of one core of node 0, longer if others want it
//     co_await clock.sleep(0.1);
//     while (box.empty()) co_await box.more();
//   }
//
// All that are ready run, in the order in which they became so; then time goes on to the next moment at which something
// ends. The threads that work on a node share its cores, and transfers share ports: if they are more, each advances more
// slowly.
// Read next: ops/plan/clock.cpp, ops/plan/simulate.cpp.
#pragma once

#include <algorithm>
#include <coroutine>
#include <deque>
#include <exception>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

namespace trireme::plan {

class Clock {
 public:
  /// `cores`: of each node; 0: as many as are wanted.
  explicit Clock(int cores) : cores_(cores) {}
  ~Clock();  ///< ends the coroutines that have not ended
  Clock(const Clock&) = delete;
  Clock& operator=(const Clock&) = delete;

  double now() const { return now_; }
  /// Until nothing is ready, works or sleeps. Throws what a coroutine threw.
  void run();
  void make_ready(std::coroutine_handle<> who) { ready_.push_back(who); }

  struct Working {
    Clock& clock;
    double seconds;
    int threads, node;
    bool await_ready() const { return seconds <= 0; }
    void await_suspend(std::coroutine_handle<> who) { clock.begin(node, {who, seconds, threads}); }
    void await_resume() const {}
  };
  /// `threads` of a node work for `seconds`, at full speed.
  Working work(double seconds, int threads, int node) { return {*this, seconds, threads, node}; }

  /// A transfer uses a port, from 0 on, for `seconds` if no other does; others share it equally.
  Working transmit(double seconds, int port) { return {*this, seconds, 1, -1 - port}; }

  struct Sleeping {
    Clock& clock;
    double until;
    bool await_ready() const { return until <= clock.now_; }
    void await_suspend(std::coroutine_handle<> who) { clock.sleeps_.emplace(until, who); }
    void await_resume() const {}
  };
  Sleeping sleep(double seconds) { return {*this, now_ + seconds}; }

 private:
  friend struct Process;
  struct Work {
    std::coroutine_handle<> who;
    double left;  // seconds at full speed
    int threads;
  };
  /// The cores of a node, or a port (-1 - its number): what works there shares it.
  struct Resource {
    int room = 0;  // threads that advance at full speed; 0: all
    std::vector<Work> works = {};
    int threads = 0;                 // of all works
    double since = 0;                // when `left` was true
    std::optional<double> end = {};  // when the first of the works ends

    double speed() const { return room == 0 ? 1 : std::min(1.0, static_cast<double>(room) / threads); }
  };

  void begin(int where, const Work& work);
  void advance(Resource& resource) const;
  void plan_end(int where, Resource& resource);
  bool go_on();

  int cores_;
  double now_ = 0;
  std::deque<std::coroutine_handle<>> ready_;
  std::map<int, Resource> resources_;
  std::set<std::pair<double, int>> ends_;                  // of resources that are in use
  std::multimap<double, std::coroutine_handle<>> sleeps_;  // by the time at which they end
  std::set<void*> alive_;                                  // coroutines
  std::exception_ptr error_;
};

/// A coroutine of a clock: of a function whose first parameter is the Clock, or of a member of a class with clock(). It
/// begins at once, and nobody waits for it.
struct Process {
  class promise_type {
   public:
    template <class... Args>
    explicit promise_type(Clock& clock, Args&&...) : clock_(clock) {
      clock_.alive_.insert(handle().address());
    }
    template <class Owner, class... Args>
    requires requires(Owner& owner) { owner.clock(); }
    explicit promise_type(Owner& owner, Args&&...) : promise_type(owner.clock()) {}
    ~promise_type() { clock_.alive_.erase(handle().address()); }
    promise_type(const promise_type&) = delete;
    promise_type& operator=(const promise_type&) = delete;

    Process get_return_object() const { return {}; }
    std::suspend_never initial_suspend() const noexcept { return {}; }
    std::suspend_never final_suspend() const noexcept { return {}; }
    void return_void() const {}
    void unhandled_exception() const { clock_.error_ = std::current_exception(); }

   private:
    std::coroutine_handle<promise_type> handle() { return std::coroutine_handle<promise_type>::from_promise(*this); }

    Clock& clock_;
  };
};

/// Something that happens once, which any number of coroutines may wait for.
class Signal {
 public:
  explicit Signal(Clock& clock) : clock_(&clock) {}
  void give() {
    given_ = true;
    for (const std::coroutine_handle<> who : waiting_) clock_->make_ready(who);
    waiting_.clear();
  }

  struct Waiting {
    Signal* signal;
    bool await_ready() const { return signal->given_; }
    void await_suspend(std::coroutine_handle<> who) const { signal->waiting_.push_back(who); }
    void await_resume() const {}
  };
  Waiting operator co_await() { return {this}; }

 private:
  Clock* clock_;
  bool given_ = false;
  std::vector<std::coroutine_handle<>> waiting_;
};

/// A queue for one reader.
template <class T>
class Mailbox {
 public:
  explicit Mailbox(Clock& clock) : clock_(&clock), more_(clock) {}
  bool empty() const { return items_.empty(); }
  Signal::Waiting more() { return {&more_}; }  ///< until something is put in
  void put(T item) {
    items_.push_back(std::move(item));
    std::exchange(more_, Signal(*clock_)).give();
  }
  T take() {
    T item = std::move(items_.front());
    items_.pop_front();
    return item;
  }

 private:
  Clock* clock_;
  std::deque<T> items_;
  Signal more_;
};

}  // namespace trireme::plan
