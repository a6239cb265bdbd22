#include "parallel/comm/common/mailbox.h"

#include <sched.h>

#include "parallel/comm/common/records.h"
#include "parallel/comm/rank_order.h"
#include "parallel/comm/times.h"

namespace trireme::comm {
namespace {

constexpr int yields_before_sleep = 8;  // a sleep costs more than this many yields

class Receiving : public Work::State {
 public:
  Receiving(std::shared_ptr<ProcessGroup> group, Mailbox& box, Tensor y, int from, int tag,
            std::function<void(WaitResult)> explain)
      : group_(std::move(group)),
        box_(box),
        y_(std::move(y)),
        from_(from),
        tag_(tag),
        number_(box.post(from, tag)),
        explain_(std::move(explain)) {}
  ~Receiving() override {
    if (std::uncaught_exceptions() > exceptions_) return;
    try {
      wait();
    } catch (...) {  // `explain` has reported it to the world
    }
  }
  Receiving(const Receiving&) = delete;
  Receiving& operator=(const Receiving&) = delete;

  void wait() override {
    if (error_) std::rethrow_exception(error_);
    if (!y_.defined()) return;
    const CommunicationClock::Scope time(CommunicationClock::Scope::Event::wait);
    const watch::Blocked blocked;
    try {
      take();
    } catch (...) {
      error_ = std::current_exception();
      throw;
    }
    y_ = Tensor();
  }
  bool done() override {
    if (y_.defined() && !error_ && box_.arrived(from_, tag_, number_)) wait();
    return !y_.defined() || error_;
  }

 private:
  void take() {
    Tensor message;
    const ProfileScope event([this] { return message_event("recv", *group_, y_, from_, tag_); });
    const watch::Recording record(message_record(watch::Record::What::recv, *group_, y_, from_, tag_));
    const auto missing = [this] {
      return box_.arrived(from_, tag_, number_) ? std::vector<int>() : std::vector{group_->world_rank(from_)};
    };
    watch::Wait wait(record, missing);
    const WaitResult result = box_.take(from_, tag_, number_, wait, message);
    if (result != WaitResult::done) explain_(result);
    if (message.count() != y_.count() || message.dtype() != y_.dtype()) {
      fail(ExitCode::desync, "recv",
           "group '{}', tag {}: rank {} sent {} {}, rank {} expected {} {}; make both sides agree", group_->name(),
           tag_, from_, message.count(), name(message.dtype()), group_->rank(), y_.count(), name(y_.dtype()));
    }
    copy_bytes(static_cast<std::byte*>(y_.raw()), static_cast<const std::byte*>(message.raw()),
               static_cast<std::size_t>(y_.bytes()));
  }

  std::shared_ptr<ProcessGroup> group_;
  Mailbox& box_;
  Tensor y_;  // undefined once received
  int from_, tag_;
  std::uint64_t number_;
  std::function<void(WaitResult)> explain_;
  std::exception_ptr error_;
  int exceptions_ = std::uncaught_exceptions();
};

}  // namespace

void Mailbox::put(int from, int tag, const Tensor& x) {
  const MemoryScope scope(MemoryCategory::communication);
  const CommunicationClock::Scope time(CommunicationClock::Scope::Event::wait);
  Tensor message = Tensor::empty(x.shape(), x.dtype());
  copy_bytes(static_cast<std::byte*>(message.raw()), static_cast<const std::byte*>(x.raw()),
             static_cast<std::size_t>(x.bytes()));
  put_final(from, tag, std::move(message));
}

void Mailbox::put_final(int from, int tag, Tensor message) {
  {
    const std::scoped_lock lock(mutex_);
    Stream& stream = streams_[{from, tag}];
    stream.messages.emplace(stream.sent++, std::move(message));
  }
  delivered_.notify_all();
}

std::uint64_t Mailbox::post(int from, int tag) {
  const std::scoped_lock lock(mutex_);
  return streams_[{from, tag}].posted++;
}

bool Mailbox::arrived(int from, int tag, std::uint64_t number) {
  const std::scoped_lock lock(mutex_);
  return streams_[{from, tag}].messages.contains(number);
}

WaitResult Mailbox::take(int from, int tag, std::uint64_t number, watch::Wait& wait, Tensor& message) {
  for (int i = 0; i < yields_before_sleep && !arrived(from, tag, number); ++i) sched_yield();
  if (!arrived(from, tag, number)) wait.lasts();
  std::unique_lock lock(mutex_);
  auto& messages = streams_[{from, tag}].messages;
  delivered_.wait(lock, [&] { return messages.contains(number) || failed_ || left_.contains(from); });
  const auto found = messages.find(number);
  if (found == messages.end()) return failed_ ? WaitResult::failed : WaitResult::peer_left;
  message = std::move(found->second);
  messages.erase(found);
  return WaitResult::done;
}

void Mailbox::leave(int from) {
  {
    const std::scoped_lock lock(mutex_);
    left_.insert(from);
  }
  delivered_.notify_all();
}

void Mailbox::wake() {
  { const std::scoped_lock lock(mutex_); }
  delivered_.notify_all();
}

Work receive(std::shared_ptr<ProcessGroup> group, Mailbox& box, Tensor y, int from, int tag,
             std::function<void(WaitResult)> explain) {
  return Work(std::make_shared<Receiving>(std::move(group), box, std::move(y), from, tag, std::move(explain)));
}

}  // namespace trireme::comm
