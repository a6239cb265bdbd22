// send and recv among processes, and how a subgroup forms.
#include <atomic>
#include <functional>
#include <map>

#include "parallel/comm/common/records.h"
#include "parallel/comm/mpi/group.h"
#include "parallel/comm/rank_order.h"
#include "parallel/comm/times.h"

namespace trireme::comm::mpi {
namespace {

// What a Work of a recv holds. MPI matches messages to recvs in the order both were posted, per sender and tag.
class Receiving : public Work::State {
 public:
  Receiving(std::shared_ptr<MpiGroup> group, Tensor y, int from, int tag, MPI_Request request)
      : group_(std::move(group)), y_(std::move(y)), from_(from), tag_(tag), request_(request) {}
  ~Receiving() override {
    const bool unwinding = std::uncaught_exceptions() > exceptions_;
    try {
      if (!unwinding) wait();
    } catch (...) {  // the runtime keeps the error and throws it at the next wait
    }
    if (!finished_) Runtime::get().keep(y_);
  }
  Receiving(const Receiving&) = delete;
  Receiving& operator=(const Receiving&) = delete;

  void wait() override {
    if (error_) std::rethrow_exception(error_);
    if (finished_) return;
    const CommunicationClock::Scope time(CommunicationClock::Scope::Event::wait);
    const watch::Blocked blocked;
    const ProfileScope event([this] { return message_event("recv", *group_, y_, from_, tag_); });
    const watch::Recording record(message_record(watch::Record::What::recv, *group_, y_, from_, tag_));
    const auto missing = [this] { return std::vector<int>{group_->world_rank(from_)}; };
    watch::Wait wait(record, missing);
    try {
      Runtime::get().poll(
          wait, [this] { return test(); }, false);
    } catch (...) {
      remember_error();
      throw;
    }
  }

  bool done() override {
    if (finished_ || error_) return true;
    try {
      const std::scoped_lock lock(Runtime::get().lock());
      return test();
    } catch (...) {  // wait() throws it
      remember_error();
      return true;
    }
  }

 private:
  void remember_error() {  // while it is being handled
    error_ = std::current_exception();
    Runtime::get().fail(error_);
  }
  bool test() {  // with the lock held
    int over = 0;
    MPI_Status status;
    const int code = MPI_Test(&request_, &over, &status);
    if (code != MPI_SUCCESS) finished_ = true;
    check_code(code, "recv");
    if (over == 0) return false;
    finished_ = true;
    MPI_Count count = 0;
    check_code(MPI_Get_elements_x(&status, bits_of(y_.dtype()), &count), "recv");
    if (count != y_.count()) {
      fail(ExitCode::desync, "recv",
           "group '{}', tag {}: rank {} sent {} elements, rank {} expected {} {}; make both sides agree",
           group_->name(), tag_, from_, count == MPI_UNDEFINED ? "other" : std::to_string(count), group_->rank(),
           y_.count(), name(y_.dtype()));
    }
    return true;
  }

  std::shared_ptr<MpiGroup> group_;
  Tensor y_;
  int from_, tag_;
  MPI_Request request_;
  bool finished_ = false;
  std::exception_ptr error_;
  int exceptions_ = std::uncaught_exceptions();
};

/// A message's count and type for one MPI call. Construct and destroy it with the runtime's lock held.
class MessageType {
 public:
  MessageType(const Tensor& x, std::int64_t most, const char* where) : type_(bits_of(x.dtype())) {
    if (x.count() <= most) {
      count_ = static_cast<int>(x.count());
      return;
    }
    std::vector<int> counts;
    std::vector<MPI_Aint> starts;  // bytes
    for (const Piece& piece : pieces(x.count(), most)) {
      counts.push_back(static_cast<int>(piece.count));
      starts.push_back(static_cast<MPI_Aint>(piece.first) * static_cast<MPI_Aint>(size_of(x.dtype())));
    }
    check_code(MPI_Type_create_hindexed(static_cast<int>(counts.size()), counts.data(), starts.data(),
                                        bits_of(x.dtype()), &type_),
               where);
    made_ = true;
    check_code(MPI_Type_commit(&type_), where);
  }
  ~MessageType() {
    if (made_) static_cast<void>(MPI_Type_free(&type_));  // MPI keeps it alive for messages under way
  }
  MessageType(const MessageType&) = delete;
  MessageType& operator=(const MessageType&) = delete;
  int count() const { return count_; }
  MPI_Datatype type() const { return type_; }

 private:
  MPI_Datatype type_;
  int count_ = 1;
  bool made_ = false;
};

// A number that distinguishes this group from all others of its members. It is the same on all, because all make their
// groups in the same order.
std::uint64_t instance_number(const std::vector<int>& members, const std::string& name) {
  static std::mutex mutex;
  static std::map<std::pair<std::vector<int>, std::string>, int> formed;
  const std::scoped_lock lock(mutex);
  std::string text = fmt::format("{}#{}", name, formed[{members, name}]++);
  for (const int rank : members) text += fmt::format(",{}", rank);
  return std::hash<std::string>()(text) | 1U;  // odd, so never 0, which stands for no group
}

}  // namespace

Work MpiGroup::send(Tensor x, int to, int tag) {
  check_message("send", x, to, tag, *this);
  const CommunicationClock::Scope time(CommunicationClock::Scope::Event::wait);
  const MemoryScope scope(MemoryCategory::communication);
  return send_final(clone(x), to, tag);
}

Work MpiGroup::send_final(Tensor x, int to, int tag) {
  check_message("send", x, to, tag, *this);
  const Tensor message = x.detach();
  const ProfileScope event([&] { return message_event("send", *this, x, to, tag); });
  const watch::Recording record(message_record(watch::Record::What::send, *this, x, to, tag));
  const std::scoped_lock lock(runtime_.lock());
  MPI_Request request = MPI_REQUEST_NULL;
  const MessageType type(x, call_options_.most, "send");
  check_code(MPI_Isend(message.raw(), type.count(), type.type(), to, tag, communicator_, &request), "send");
  runtime_.finish_later(request, message);
  return {};
}

Work MpiGroup::recv(Tensor y, int from, int tag) {
  check_message("recv", y, from, tag, *this);
  MPI_Request request = MPI_REQUEST_NULL;
  {
    const std::scoped_lock lock(runtime_.lock());
    const MessageType type(y, call_options_.most, "recv");
    check_code(MPI_Irecv(y.raw(), type.count(), type.type(), from, tag, communicator_, &request), "recv");
  }
  return Work(std::make_shared<Receiving>(shared_from_this(), std::move(y), from, tag, request));
}

// Every member sends every other an empty token, and waits for theirs under the watchdog. MPI_Comm_create_group blocks
// until all members have called it. It is called only after all tokens have arrived, when every member is about to call
// it, so this wait is short.
std::shared_ptr<ProcessGroup> MpiGroup::subgroup(const std::vector<int>& world_ranks, const std::string& name) {
  const int place = place_in_subgroup(world_ranks, name, *this);
  if (world_ranks.size() == 1) return lone_group(name, world_ranks.front());
  const std::uint64_t instance = instance_number(world_ranks, name);
  const int tag = static_cast<int>(instance >> 34);  // 30 bits, within MPI_TAG_UB of Open MPI
  std::vector<MPI_Request> requests(2 * world_ranks.size(), MPI_REQUEST_NULL);
  std::vector<std::atomic<bool>> arrived(world_ranks.size());
  const auto start = [&] {
    const std::scoped_lock lock(runtime_.lock());
    for (std::size_t i = 0; i < world_ranks.size(); ++i) {
      if (static_cast<int>(i) == place) continue;
      check_code(MPI_Irecv(nullptr, 0, MPI_BYTE, world_ranks[i], tag, runtime_.control(), &requests[2 * i]),
                 "subgroup");
      check_code(MPI_Isend(nullptr, 0, MPI_BYTE, world_ranks[i], tag, runtime_.control(), &requests[2 * i + 1]),
                 "subgroup");
    }
  };
  const auto all_here = [&] {
    bool all = true;
    for (std::size_t i = 0; i < requests.size(); ++i) {
      int over = 0;
      check_code(MPI_Test(&requests[i], &over, MPI_STATUS_IGNORE), "subgroup");
      if (i % 2 == 0) arrived[i / 2] = over != 0;
      all = all && over != 0;
    }
    return all;
  };
  // The members that have not come; or, if all have, all others: one may be stopped before it lets the rest go on.
  const auto missing = [&] {
    std::vector<int> late, others;
    for (std::size_t i = 0; i < world_ranks.size(); ++i) {
      if (static_cast<int>(i) == place) continue;
      others.push_back(world_ranks[i]);
      if (!arrived[i]) late.push_back(world_ranks[i]);
    }
    return late.empty() ? others : late;
  };
  const watch::Blocked blocked;
  const watch::Recording record(subgroup_record(name));
  watch::Wait wait(record, missing);
  start();
  runtime_.poll(wait, all_here, false);
  wait.lasts();
  MPI_Comm communicator = MPI_COMM_NULL;
  {
    const std::scoped_lock lock(runtime_.lock());
    MPI_Group world_group = MPI_GROUP_NULL, group = MPI_GROUP_NULL;
    check_code(MPI_Comm_group(runtime_.control(), &world_group), "subgroup");
    check_code(MPI_Group_incl(world_group, static_cast<int>(world_ranks.size()), world_ranks.data(), &group),
               "subgroup");
    check_code(MPI_Comm_create_group(runtime_.control(), group, tag, &communicator), "subgroup");
    check_code(MPI_Group_free(&group), "subgroup");
    check_code(MPI_Group_free(&world_group), "subgroup");
  }
  return std::make_shared<MpiGroup>(communicator, name, place, world_ranks, instance, call_options_);
}

}  // namespace trireme::comm::mpi
