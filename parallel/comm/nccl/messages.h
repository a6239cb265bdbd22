// send and recv of tensors on GPUs, over NCCL, for one group.
//
// A message of this framework has a tag, is sent whether or not its recv was called, and overtakes messages with other
// tags. NCCL's messages have no tags and are matched in the order of the calls on both sides; one that waits blocks
// everything queued behind it in its stream. This class builds the former on the latter:
//
//   - Each direction between two ranks has its own communicator and stream (NcclWire), made at its first message.
//     Messages travel in the order of the sends. A send keeps its tensor alive; only later sends wait for it.
//   - Each send announces itself through the host: tag, type, length. The receiver handles announcements in order: in
//     send and recv, while the next one is for a posted recv; in wait(), up to its own message; in Work::done(), all
//     that have arrived. For each it queues the receive: into the tensor of the recv with that tag, or else into a
//     buffer, from which a later recv copies.
//
// So a recv's wait() blocks the host until the sender has called send, never until a GPU finishes. Queued work cannot
// deadlock the GPUs: a receive waits for kernels that its rank launched before it, and for the sender's kernels before
// the send. There is no cycle: these kernels were launched before the call of recv or send, and wait only for receives
// that were queued before it. Calls that wait for a whole GPU, as cudaMalloc or loading a kernel may, wait for sends
// too: see nccl/library.cpp.
//
// NCCL accepts a call only after it has queued the previous one. It connects two ranks at their first message, which
// needs both ranks. A call that it does not accept yet waits in its lane. Every later call here retries it, and so does
// the watch.
//
// A rank's messages to itself are copies in the compute stream.
// Read next: parallel/comm/nccl/wire.h, parallel/comm/nccl/operation.h.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "parallel/comm/nccl/operation.h"
#include "parallel/comm/nccl/wire.h"
#include "parallel/comm/nccl/world.h"

namespace trireme::comm {

class NcclMessages final : public Watched, public std::enable_shared_from_this<NcclMessages> {
 public:
  /// Collective over `host`, the group whose ranks send each other messages.
  NcclMessages(ProcessGroup& host, std::shared_ptr<NcclWorld> world);
  /// Waits until all sent messages have been received, except during stack unwinding.
  ~NcclMessages() override;
  NcclMessages(const NcclMessages&) = delete;
  NcclMessages& operator=(const NcclMessages&) = delete;

  /// As ProcessGroup::send_final and recv, of dense tensors on the device.
  void send(const Tensor& x, int to, int tag);
  Work recv(const Tensor& y, int from, int tag);

  // Called by the watch. A send has no deadline: the receiver's wait has one.
  void look() override;
  void abort() noexcept override;

 private:
  class Receiving;
  struct Header;

  /// One end of a message.
  struct Message : NcclProgress {
    Message(NcclApi& api, const Tensor& x, int its_tag)
        : NcclProgress(api), tensor(x.detach()), tag(its_tag), ready(api) {}
    const Tensor tensor;  // what is sent, or where it arrives
    const int tag;
    NcclEvent ready;         // the kernels before it are over
    Tensor source;           // defined: of a copy within this rank
    bool announced = false;  // of a recv: it is in its lane or its stream
    bool started = false;    // NCCL was called
    bool queued = false;     // NCCL has put it in the stream; `done` is recorded
  };
  using MessagePtr = std::shared_ptr<Message>;

  /// Messages in one direction.
  struct Lane {
    enum class End : std::uint8_t { sender, receiver };
    End end = End::sender;
    NcclApi::Id id{};
    bool connected = false;                  // a message was queued: NCCL no longer waits for the peer
    std::deque<MessagePtr> waiting, queued;  // not yet queued; not known to have ended
    std::unique_ptr<NcclWire> wire;          // null: to itself. Destroyed before its messages
  };
  struct Announcement {
    Tensor text;  // a Header
    Work arrival;
  };
  struct Incoming {
    Lane lane;
    std::deque<Announcement> announcements;  // under way: as many as `posted`, or more
    std::deque<MessagePtr> posted;           // recvs without announcement, in the order of the calls
    std::deque<MessagePtr> early;            // announced without recv
  };
  enum class Take : std::uint8_t { expected, all };

  // Lanes. They are made when they are first asked for.
  Lane& outgoing(int to);
  Incoming& incoming(int from);
  void connect(Lane& lane, Lane::End end, const NcclApi::Id& id, int from, int to);
  MessagePtr make_message(const Tensor& x, int tag);
  void add(Lane& lane, const MessagePtr& message);
  /// Queues the lane's waiting messages in its stream, for as long as NCCL accepts calls. Call with the lock held.
  void queue_waiting(Lane& lane);
  void call_nccl(const Lane& lane, Message& message);
  bool is_queued(const Message& message);
  /// Waits until NCCL has queued it: soon, or, for a first message, when the other rank has come to it too.
  void wait_until_queued(Lane& lane, const Message& message);

  // Sending.
  /// If the lane is connected, the message is in the stream when this returns. The first message waits in the lane for
  /// the receiver, which may come much later.
  void queue_send(Lane& lane, const MessagePtr& message);
  void announce(const Header& header, int to);

  // Receiving.
  /// Keeps as many receives of announcements under way as there are posted recvs.
  void receive_announcements(Incoming& in, int from);
  /// Queues receives for announced messages: for all of them, or up to the first that no recv expects yet. Does not
  /// wait.
  void queue_announced(Take which);
  /// Waits for the next announcement, and queues the receive of its message: into the tensor of its recv, or, if there
  /// is none yet, into a new buffer.
  void queue_next_announced(Incoming& in, int from);
  void wait_until_receive_queued(const Message& message, int from);
  /// Ends all ranks if the sender's tensor has another size or type than the receiver's.
  void require_same(const Message& message, std::int64_t count, DType dtype, int from);

  // The end.
  void wait_until_all_received();
  /// A message that is under way in either direction, if any.
  std::optional<std::string> unfinished();
  /// Runs body. An error of a library ends all ranks, because it is unknown what was queued before it.
  template <class Body>
  void end_all_ranks_on_error(const Body& body);
  std::string described(const Message& message, const char* direction, int peer) const;

  std::shared_ptr<ProcessGroup> host_;  // carries the announcements
  const std::string name_;              // of the group
  std::shared_ptr<NcclWorld> world_;
  NcclApi& api_;

  std::mutex mutex_;  // guards the lanes; held briefly. Only the rank's own thread uses the rest
  std::map<int, Lane> outgoing_;
  std::map<int, Incoming> incoming_;
  std::deque<Tensor> to_myself_;
};

}  // namespace trireme::comm
