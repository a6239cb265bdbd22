#include "parallel/comm/nccl_messages.h"

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

#include "parallel/comm/diagnosis.h"
#include "parallel/comm/records.h"

namespace trireme::comm {
namespace {

constexpr auto pause = std::chrono::microseconds(50);

std::byte* bytes_of(const Tensor& x) { return static_cast<std::byte*>(x.device_address()); }

std::string counted(std::int64_t count, DType dtype) { return fmt::format("{} {}", count, trireme::name(dtype)); }

}  // namespace

/// What an announcement says, as i64 [3 + 16].
struct NcclMessages::Header {
  std::int64_t tag = 0, dtype = 0, count = 0;
  NcclApi::Id id{};  ///< of the wire

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
    messages_->await(*message_, from_);
    messages_->api_.make_wait(messages_->api_.compute_stream(), message_->done.get());
    messages_->world_->throw_failure();
    joined_ = true;
  }

  bool done() override {
    if (messages_->world_->failed()) return true;
    messages_->progress();
    return message_->queued && messages_->api_.happened(message_->done.get());
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
  if (std::uncaught_exceptions() == 0) drain();
  abort();
}

std::string NcclMessages::described(const Message& message, const char* direction, int peer) const {
  return fmt::format("message of {} with tag {} {} {} of group '{}'",
                     counted(message.tensor.count(), message.tensor.dtype()), message.tag, direction,
                     list_ranks(*host_, {peer}), name_);
}

/// An error of a library is the end of all ranks: what was queued before it is not known.
template <class Body>
void NcclMessages::or_lose(const Body& body) {
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

// ---- sending ----

NcclMessages::Outgoing& NcclMessages::outgoing(int to) {
  const std::scoped_lock lock(mutex_);
  Outgoing& out = outgoing_[to];
  if (out.wire == nullptr && to != host_->rank()) {
    out.id = api_.make_id();
    const std::string name = fmt::format("{} -> {} of group '{}'", host_->rank(), to, name_);
    out.wire = std::make_unique<NcclWire>(api_, out.id, 0, name);
  }
  return out;
}

NcclMessages::MessagePtr NcclMessages::make_message(const Tensor& x, int tag) {
  auto message = std::make_shared<Message>(api_, x, tag);
  api_.record(message->ready.get(), api_.compute_stream());
  return message;
}

void NcclMessages::send(const Tensor& x, int to, int tag) {
  world_->throw_failure();
  const watch::Recording record(message_record(watch::Record::What::send, *host_, x, to, tag));
  Outgoing* out = nullptr;
  or_lose([&] {
    out = &outgoing(to);
    if (x.bytes() > 0) queue_send(*out, make_message(x, tag));
  });
  announce({.tag = tag, .dtype = static_cast<std::int64_t>(x.dtype()), .count = x.count(), .id = out->id}, to);
  progress();
}

// Once the wire is connected it is in the stream when this returns. The first message is left to the watch: NCCL takes it
// when the receiver has come.
void NcclMessages::queue_send(Outgoing& out, const MessagePtr& message) {
  for (bool first = true;; first = false) {
    {
      const std::scoped_lock lock(mutex_);
      if (first) out.waiting.push_back(message);
      flush(out);
      if (message->queued || !out.connected) return;
    }
    settle(*out.wire);
  }
}

void NcclMessages::announce(const Header& header, int to) {
  const Tensor text = Tensor::empty({header_words}, DType::i64);
  std::memcpy(text.raw(), &header, sizeof header);
  host_->send_final(text, to, 0).wait();
}

// As far as NCCL takes calls. With the lock held.
void NcclMessages::flush(Outgoing& out) {
  while (out.wire != nullptr && !out.waiting.empty() && out.wire->ready()) {
    const MessagePtr message = out.waiting.front();
    if (!message->started) {
      api_.make_wait(out.wire->stream(), message->ready.get());
      api_.send(bytes_of(message->tensor), static_cast<std::size_t>(message->tensor.bytes()), 1, out.wire->comm(),
                out.wire->stream());
      message->started = true;
      continue;
    }
    api_.record(message->done.get(), out.wire->stream());
    message->queued = true;
    out.connected = true;
    out.waiting.pop_front();
    out.queued.push_back(message);
  }
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
    agree(*message, (*early)->tensor.count(), (*early)->tensor.dtype(), from);
    or_lose([&] { queue_copy(in, message, (*early)->tensor); });
    in.early.erase(early);
  } else {
    in.posted.push_back(message);
    if (in.announcements.size() < in.posted.size()) listen(in, from);
  }
  progress();
  return Work(std::make_shared<Receiving>(shared_from_this(), message, from));
}

void NcclMessages::listen(Incoming& in, int from) {
  const Tensor text = Tensor::empty({header_words}, DType::i64);
  in.announcements.push_back({text, host_->recv(text, from, 0)});
}

// Queues what has been announced and is expected. Does not wait.
void NcclMessages::progress() {
  for (auto& [from, in] : incoming_) {
    while (!in.announcements.empty() && in.announcements.front().arrival.done()) {
      in.announcements.front().arrival.wait();  // for its error
      const std::int64_t tag = Header::of(in.announcements.front().text).tag;
      if (std::none_of(in.posted.begin(), in.posted.end(), [tag](const auto& m) { return m->tag == tag; })) break;
      take(in, from);
    }
  }
}

void NcclMessages::await(const Message& message, int from) {
  if (message.queued) return;
  const watch::Recording record(message_record(watch::Record::What::recv, *host_, message.tensor, from, message.tag));
  Incoming& in = incoming(from);
  while (!message.queued) {
    if (in.announcements.empty()) listen(in, from);  // those taken so far were of messages without recv
    take(in, from);
  }
}

// The next announced message: to the recv that it is for or, when there is none yet, to memory of its own.
void NcclMessages::take(Incoming& in, int from) {
  in.announcements.front().arrival.wait();
  const Header header = Header::of(in.announcements.front().text);
  in.announcements.pop_front();
  const auto dtype = static_cast<DType>(header.dtype);
  const auto place =
      std::find_if(in.posted.begin(), in.posted.end(), [&header](const auto& m) { return m->tag == header.tag; });
  if (place == in.posted.end()) {
    const MemoryScope scope(MemoryCategory::communication);
    const Tensor buffer = Tensor::empty({header.count}, dtype, Device::cuda);
    in.early.push_back(make_message(buffer, static_cast<int>(header.tag)));
    return or_lose([&] { queue_receive(in, from, header.id, in.early.back()); });
  }
  const MessagePtr message = *place;
  in.posted.erase(place);
  agree(*message, header.count, dtype, from);
  or_lose([&] { queue_receive(in, from, header.id, message); });
}

void NcclMessages::agree(const Message& message, std::int64_t count, DType dtype, int from) {
  if (message.tensor.count() == count && message.tensor.dtype() == dtype) return;
  world_->lose(
      ExitCode::desync, "recv",
      fmt::format("group '{}', tag {}: rank {} sent {}, rank {} expected {}; make both sides agree", name_, message.tag,
                  from, counted(count, dtype), host_->rank(), counted(message.tensor.count(), message.tensor.dtype())));
}

void NcclMessages::queue_receive(Incoming& in, int from, const NcclApi::Id& id, const MessagePtr& message) {
  if (message->tensor.bytes() == 0) return queue_copy(in, message, message->tensor);
  if (from == host_->rank()) {
    Outgoing& out = outgoing(from);
    queue_copy(in, message, out.waiting.front()->tensor);
    return out.waiting.pop_front();
  }
  if (in.wire == nullptr) {
    const std::string name = fmt::format("{} -> {} of group '{}'", from, host_->rank(), name_);
    auto wire = std::make_unique<NcclWire>(api_, id, 1, name);
    const std::scoped_lock lock(mutex_);
    in.wire = std::move(wire);
  }
  settle(*in.wire);
  {
    const std::scoped_lock lock(mutex_);
    if (in.wire->comm() == nullptr) world_->throw_failure();
    api_.make_wait(in.wire->stream(), message->ready.get());
    api_.record(message->begun.get(), in.wire->stream());
    api_.receive(bytes_of(message->tensor), static_cast<std::size_t>(message->tensor.bytes()), 0, in.wire->comm(),
                 in.wire->stream());
  }
  settle(*in.wire);
  const std::scoped_lock lock(mutex_);
  api_.record(message->done.get(), in.wire->stream());
  message->queued = true;
  in.queued.push_back(message);
}

// Within this rank, where the kernels follow: `source` is there by then.
void NcclMessages::queue_copy(Incoming& in, const MessagePtr& message, const Tensor& source) {
  const std::scoped_lock lock(mutex_);
  const NcclApi::Stream stream = in.wire != nullptr ? in.wire->stream() : api_.compute_stream();
  api_.make_wait(stream, message->ready.get());
  api_.record(message->begun.get(), stream);
  const auto bytes = static_cast<std::size_t>(source.bytes());
  if (bytes > 0) api_.copy(bytes_of(message->tensor), bytes_of(source), bytes, stream);
  api_.record(message->done.get(), stream);
  message->source = source;
  message->queued = true;
  in.queued.push_back(message);
}

// Until NCCL takes the next call: soon, and after joining or at the first message when the other rank has done the same.
void NcclMessages::settle(const NcclWire& wire) {
  const auto start = Clock::now();
  const auto deadline = world_->options().connect_deadline;
  while (true) {
    world_->throw_failure();
    {
      const std::scoped_lock lock(mutex_);
      if (wire.ready()) return;
    }
    if (Clock::now() - start > deadline)
      fail(ExitCode::retryable, "nccl", "{}",
           too_late("the messages " + wire.name(), *host_, deadline, "NCCL does not connect the two ranks"));
    std::this_thread::sleep_for(pause);
  }
}

// ---- watching ----

void NcclMessages::look() {
  const std::scoped_lock lock(mutex_);
  for (auto& [to, out] : outgoing_) {
    flush(out);
    while (!out.queued.empty() && api_.happened(out.queued.front()->done.get())) out.queued.pop_front();
    if (out.wire != nullptr) out.wire->ready();  // throws what NCCL reports
  }
  for (auto& [from, in] : incoming_) {
    if (in.wire != nullptr) in.wire->ready();
    while (!in.queued.empty()) {
      Message& first = *in.queued.front();
      const bool done = api_.happened(first.done.get()), begun = done || api_.happened(first.begun.get());
      const auto stage = first.advance(begun, done, Clock::now(), world_->options().deadline);
      if (stage == NcclTurn::Stage::late)
        fail(ExitCode::retryable, "recv", "{}",
             too_late(described(first, "from", from), *host_, world_->options().deadline,
                      "it was sent, and has not left the sender's GPU"));
      if (stage != NcclTurn::Stage::over) break;
      in.queued.pop_front();
    }
  }
}

void NcclMessages::abort() noexcept {
  const std::scoped_lock lock(mutex_);
  for (auto& [to, out] : outgoing_)
    if (out.wire != nullptr) out.wire->abort();
  for (auto& [from, in] : incoming_)
    if (in.wire != nullptr) in.wire->abort();
}

// A message that is under way in either direction, if any.
std::optional<std::string> NcclMessages::unfinished() {
  const std::scoped_lock lock(mutex_);
  for (const auto& [to, out] : outgoing_) {
    const auto& messages = out.queued.empty() ? out.waiting : out.queued;
    if (out.wire != nullptr && !messages.empty()) return described(*messages.front(), "to", to);
  }
  for (const auto& [from, in] : incoming_)
    if (!in.queued.empty()) return described(*in.queued.front(), "from", from);
  return std::nullopt;
}

void NcclMessages::drain() {
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
      std::this_thread::sleep_for(pause);
    }
  } catch (...) { world_->fail(std::current_exception()); }
}

}  // namespace trireme::comm
