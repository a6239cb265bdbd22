#include "parallel/comm/nccl/messages.h"

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

#include "parallel/comm/common/diagnosis.h"
#include "parallel/comm/common/records.h"

namespace trireme::comm {
namespace {

std::string counted(std::int64_t count, DType dtype) { return fmt::format("{} {}", count, trireme::name(dtype)); }

}  // namespace

/// The content of an announcement, as i64 [3 + 16].
struct NcclMessages::Header {
  std::int64_t tag = 0, dtype = 0, count = 0;
  NcclApi::Id id{};  ///< of the sender's wire

  static Header of(const Tensor& text) {
    Header header;
    std::memcpy(&header, text.raw(), sizeof header);
    return header;
  }
};
constexpr std::int64_t header_words = 3 + sizeof(NcclApi::Id) / sizeof(std::int64_t);

// What the Work of a recv holds.
class NcclMessages::Receiving : public Work::State {
 public:
  Receiving(std::shared_ptr<NcclMessages> messages, MessagePtr message, int from)
      : messages_(std::move(messages)), message_(std::move(message)), from_(from) {}
  ~Receiving() override {
    if (std::uncaught_exceptions() > exceptions_) return;
    try {
      wait();
    } catch (...) {  // the world, or the host's group, keeps the error
    }
  }
  Receiving(const Receiving&) = delete;
  Receiving& operator=(const Receiving&) = delete;

  void wait() override {
    messages_->world_->throw_failure();
    if (joined_) return;
    messages_->wait_until_receive_queued(*message_, from_);
    messages_->api_.make_wait(messages_->api_.compute_stream(), message_->done.get());
    messages_->world_->throw_failure();
    joined_ = true;
  }

  bool done() override {
    if (messages_->world_->failed()) return true;
    messages_->queue_announced(Take::all);
    return messages_->is_queued(*message_) && messages_->api_.happened(message_->done.get());
  }

 private:
  std::shared_ptr<NcclMessages> messages_;
  MessagePtr message_;
  int from_;
  bool joined_ = false;
  int exceptions_ = std::uncaught_exceptions();
};

NcclMessages::NcclMessages(ProcessGroup& host, std::shared_ptr<NcclWorld> world)
    : host_(host.subgroup(host.members(), fmt::format("announcements of {}", host.name()))),
      name_(host.name()),
      world_(std::move(world)),
      api_(world_->api()) {
  world_->watch(*this);
}

NcclMessages::~NcclMessages() {
  world_->forget(*this);
  if (std::uncaught_exceptions() == 0) wait_until_all_received();
  if (std::uncaught_exceptions() > 0 || world_->failed()) abort();  // otherwise the wires' destructors end them
}

std::string NcclMessages::described(const Message& message, const char* direction, int peer) const {
  return fmt::format("message of {} with tag {} {} {} of group '{}'",
                     counted(message.tensor.count(), message.tensor.dtype()), message.tag, direction,
                     list_ranks(*host_, {peer}), name_);
}

template <class Body>
void NcclMessages::end_all_ranks_on_error(const Body& body) {
  std::string problem;
  ExitCode code = ExitCode::retryable;
  try {
    return body();
  } catch (const Error& error) {
    if (world_->failed()) throw;
    code = error.code();
    problem = error.what();
  } catch (const std::exception& error) { problem = error.what(); }
  world_->lose(code, "nccl", fmt::format("messages of group '{}': {}", name_, problem));
}

// ---- lanes ----

NcclMessages::MessagePtr NcclMessages::make_message(const Tensor& x, int tag) {
  auto message = std::make_shared<Message>(api_, x, tag);
  api_.record(message->ready.get(), api_.compute_stream());
  return message;
}

void NcclMessages::connect(Lane& lane, Lane::End end, const NcclApi::Id& id, int from, int to) {
  const std::string name = fmt::format("{} -> {} of group '{}'", from, to, name_);
  auto wire = std::make_unique<NcclWire>(api_, id, end == Lane::End::sender ? 0 : 1, name);
  const std::scoped_lock lock(mutex_);
  lane.end = end;
  lane.id = id;
  lane.wire = std::move(wire);
}

void NcclMessages::add(Lane& lane, const MessagePtr& message) {
  const std::scoped_lock lock(mutex_);
  lane.waiting.push_back(message);
  queue_waiting(lane);
}

void NcclMessages::queue_waiting(Lane& lane) {
  while (!lane.waiting.empty() && (lane.wire == nullptr || lane.wire->ready())) {
    const MessagePtr message = lane.waiting.front();
    if (!message->started) {
      call_nccl(lane, *message);
      message->started = true;
      continue;
    }
    api_.record(message->done.get(), lane.wire != nullptr ? lane.wire->stream() : api_.compute_stream());
    message->queued = lane.connected = true;
    lane.waiting.pop_front();
    lane.queued.push_back(message);
  }
}

void NcclMessages::call_nccl(const Lane& lane, Message& message) {
  auto* const stream = lane.wire != nullptr ? lane.wire->stream() : api_.compute_stream();
  api_.make_wait(stream, message.ready.get());
  api_.record(message.begun.get(), stream);
  const auto bytes = static_cast<std::size_t>(message.tensor.bytes());
  if (bytes == 0) return;
  std::byte* const data = device_bytes(message.tensor);
  if (message.source.defined())
    api_.copy(data, device_bytes(message.source), bytes, stream);
  else if (lane.end == Lane::End::sender)
    api_.send(data, bytes, 1, lane.wire->comm(), stream);
  else
    api_.receive(data, bytes, 0, lane.wire->comm(), stream);
}

bool NcclMessages::is_queued(const Message& message) {
  const std::scoped_lock lock(mutex_);
  return message.queued;
}

void NcclMessages::wait_until_queued(Lane& lane, const Message& message) {
  const auto start = Clock::now();
  const auto deadline = world_->options().connect_deadline;
  while (true) {
    world_->throw_failure();
    {
      const std::scoped_lock lock(mutex_);
      queue_waiting(lane);
      if (message.queued) return;
    }
    if (Clock::now() - start > deadline)
      fail(ExitCode::retryable, "nccl", "{}",
           too_late("the messages " + lane.wire->name(), *host_, deadline, "NCCL does not connect the two ranks"));
    std::this_thread::sleep_for(nccl_poll_interval);
  }
}

// ---- sending ----

NcclMessages::Lane& NcclMessages::outgoing(int to) {
  Lane& lane = [&]() -> Lane& {
    const std::scoped_lock lock(mutex_);
    return outgoing_[to];
  }();
  if (lane.wire == nullptr && to != host_->rank()) connect(lane, Lane::End::sender, api_.make_id(), host_->rank(), to);
  return lane;
}

void NcclMessages::send(const Tensor& x, int to, int tag) {
  world_->throw_failure();
  const watch::Recording record(message_record(watch::Record::What::send, *host_, x, to, tag));
  Header header{.tag = tag, .dtype = static_cast<std::int64_t>(x.dtype()), .count = x.count()};
  end_all_ranks_on_error([&] {
    Lane& lane = outgoing(to);
    header.id = lane.id;
    if (x.bytes() == 0) return;
    if (to == host_->rank())
      to_myself_.push_back(x.detach());
    else
      queue_send(lane, make_message(x, tag));
  });
  announce(header, to);
  queue_announced(Take::expected);
}

void NcclMessages::queue_send(Lane& lane, const MessagePtr& message) {
  add(lane, message);
  const bool connected = [&] {
    const std::scoped_lock lock(mutex_);
    return lane.connected;
  }();
  if (connected) wait_until_queued(lane, *message);
}

void NcclMessages::announce(const Header& header, int to) {
  const Tensor text = Tensor::empty({header_words}, DType::i64);
  std::memcpy(text.raw(), &header, sizeof header);
  host_->send_final(text, to, 0).wait();
}

// ---- receiving ----

NcclMessages::Incoming& NcclMessages::incoming(int from) {
  const std::scoped_lock lock(mutex_);
  return incoming_[from];
}

Work NcclMessages::recv(const Tensor& y, int from, int tag) {
  world_->throw_failure();
  Incoming& in = incoming(from);
  const MessagePtr message = make_message(y, tag);
  const auto early = std::find_if(in.early.begin(), in.early.end(), [tag](const auto& m) { return m->tag == tag; });
  if (early != in.early.end()) {
    require_same(*message, (*early)->tensor.count(), (*early)->tensor.dtype(), from);
    message->source = (*early)->tensor;
    message->announced = true;
    in.early.erase(early);
    end_all_ranks_on_error([&] { add(in.lane, message); });
  } else {
    in.posted.push_back(message);
    receive_announcements(in, from);
  }
  queue_announced(Take::expected);
  return Work(std::make_shared<Receiving>(shared_from_this(), message, from));
}

void NcclMessages::receive_announcements(Incoming& in, int from) {
  while (in.announcements.size() < in.posted.size()) {
    const Tensor text = Tensor::empty({header_words}, DType::i64);
    in.announcements.push_back({text, host_->recv(text, from, 0)});
  }
}

void NcclMessages::queue_announced(Take which) {
  for (auto& [from, in] : incoming_) {
    while (!in.announcements.empty() && in.announcements.front().arrival.done()) {
      in.announcements.front().arrival.wait();  // throws its error, if any
      const std::int64_t tag = Header::of(in.announcements.front().text).tag;
      const bool expected =
          std::any_of(in.posted.begin(), in.posted.end(), [tag](const auto& m) { return m->tag == tag; });
      if (!expected && which == Take::expected) break;
      queue_next_announced(in, from);
    }
    const std::scoped_lock lock(mutex_);
    queue_waiting(in.lane);
  }
}

void NcclMessages::wait_until_receive_queued(const Message& message, int from) {
  if (is_queued(message)) return;
  const watch::Recording record(message_record(watch::Record::What::recv, *host_, message.tensor, from, message.tag));
  Incoming& in = incoming(from);
  while (!message.announced) queue_next_announced(in, from);
  end_all_ranks_on_error([&] { wait_until_queued(in.lane, message); });
}

void NcclMessages::queue_next_announced(Incoming& in, int from) {
  in.announcements.front().arrival.wait();
  const Header header = Header::of(in.announcements.front().text);
  in.announcements.pop_front();
  const auto dtype = static_cast<DType>(header.dtype);
  const auto place =
      std::find_if(in.posted.begin(), in.posted.end(), [&header](const auto& m) { return m->tag == header.tag; });
  MessagePtr message;
  if (place != in.posted.end()) {
    message = *place;
    in.posted.erase(place);
    require_same(*message, header.count, dtype, from);
  } else {
    const MemoryScope scope(MemoryCategory::communication);
    message = make_message(Tensor::empty({header.count}, dtype, Device::cuda), static_cast<int>(header.tag));
    in.early.push_back(message);
  }
  receive_announcements(in, from);
  message->announced = true;
  end_all_ranks_on_error([&] {
    if (from == host_->rank() && message->tensor.bytes() > 0) {
      message->source = to_myself_.front();
      to_myself_.pop_front();
    } else if (from != host_->rank() && in.lane.wire == nullptr) {
      connect(in.lane, Lane::End::receiver, header.id, from, host_->rank());
    }
    add(in.lane, message);
  });
}

void NcclMessages::require_same(const Message& message, std::int64_t count, DType dtype, int from) {
  if (message.tensor.count() == count && message.tensor.dtype() == dtype) return;
  world_->lose(
      ExitCode::desync, "recv",
      fmt::format("group '{}', tag {}: rank {} sent {}, rank {} expected {}; make both sides agree", name_, message.tag,
                  from, counted(count, dtype), host_->rank(), counted(message.tensor.count(), message.tensor.dtype())));
}

// ---- watching ----

void NcclMessages::look() {
  const std::scoped_lock lock(mutex_);
  for (auto& [to, lane] : outgoing_) {
    queue_waiting(lane);
    while (!lane.queued.empty() && api_.happened(lane.queued.front()->done.get())) lane.queued.pop_front();
    if (lane.wire != nullptr) lane.wire->ready();  // throws NCCL's error, if any
  }
  for (auto& [from, in] : incoming_) {
    queue_waiting(in.lane);
    if (in.lane.wire != nullptr) in.lane.wire->ready();
    while (!in.lane.queued.empty()) {
      Message& first = *in.lane.queued.front();
      const bool done = api_.happened(first.done.get()), begun = done || api_.happened(first.begun.get());
      const auto stage = first.advance(begun, done, Clock::now(), world_->options().deadline);
      if (stage == NcclProgress::Stage::late)
        fail(ExitCode::retryable, "recv", "{}",
             too_late(described(first, "from", from), *host_, world_->options().deadline,
                      "it was sent, and has not left the sender's GPU"));
      if (stage != NcclProgress::Stage::over) break;
      in.lane.queued.pop_front();
    }
  }
}

void NcclMessages::abort() noexcept {
  const std::scoped_lock lock(mutex_);
  for (auto& [to, lane] : outgoing_)
    if (lane.wire != nullptr) lane.wire->abort();
  for (auto& [from, in] : incoming_)
    if (in.lane.wire != nullptr) in.lane.wire->abort();
}

std::optional<std::string> NcclMessages::unfinished() {
  const std::scoped_lock lock(mutex_);
  const auto first = [this](const Lane& lane, const char* direction, int peer) -> std::optional<std::string> {
    const auto& messages = lane.queued.empty() ? lane.waiting : lane.queued;
    if (messages.empty()) return std::nullopt;
    return described(*messages.front(), direction, peer);
  };
  for (const auto& [to, lane] : outgoing_)
    if (auto message = first(lane, "to", to)) return message;
  for (const auto& [from, in] : incoming_)
    if (auto message = first(in.lane, "from", from)) return message;
  return std::nullopt;
}

void NcclMessages::wait_until_all_received() {
  const auto start = Clock::now();
  const auto deadline = world_->options().deadline;
  try {
    while (!world_->failed()) {
      look();
      const auto message = unfinished();
      if (!message) return;
      if (Clock::now() - start > deadline)
        fail(ExitCode::retryable, "send", "{}",
             too_late(*message, *host_, deadline, "it has not been received when the group ends"));
      std::this_thread::sleep_for(nccl_poll_interval);
    }
  } catch (...) { world_->fail(std::current_exception()); }
}

}  // namespace trireme::comm
