// send and recv of tensors on GPUs, over NCCL, for one group.
//
// A message of this framework has a tag, is sent whether or not its recv was called, and overtakes messages with other
// tags. NCCL's have no tags and meet in the order of the calls on both sides; one that waits holds up all that is queued
// behind it. What makes the one of the other:
//
//   - Each direction between two ranks has a communicator and a stream of its own (NcclWire), made at its first message.
//     Its order is that of the sends. A send is queued at its call and keeps its tensor; nothing else waits for it.
//   - Each send announces itself through the host: tag, type, length. The receiver takes announcements in their order,
//     when one comes while it is in send, recv or done(), and in wait() until that of the message waited for; for each it
//     queues the receive: into the tensor of the recv with that tag or, when wait() finds none, into memory of its own,
//     from where a later recv copies.
//
// So the host waits in a recv's wait() for the sender to have called send, never for a GPU. Nor can GPUs wait in a circle:
// a receive waits for kernels that its rank launched before, and for the sender's kernels before the send; in the order
// in which receives are queued, all these come earlier. (A recv's tensor may wait for kernels up to the recv's call, and
// those only for receives that were queued by then.)
//
// A rank's messages to itself are copies in the compute stream.
// Read next: parallel/comm/nccl_wire.h, parallel/comm/nccl_operation.h.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "parallel/comm/nccl_operation.h"
#include "parallel/comm/nccl_wire.h"
#include "parallel/comm/nccl_world.h"

namespace trireme::comm {

class NcclMessages final : public Watched, public std::enable_shared_from_this<NcclMessages> {
 public:
  /// Collective over `host`, the group whose ranks send each other messages.
  NcclMessages(ProcessGroup& host, std::shared_ptr<NcclWorld> world);
  /// Waits until what was sent has been received, unless an exception passes through.
  ~NcclMessages() override;
  NcclMessages(const NcclMessages&) = delete;
  NcclMessages& operator=(const NcclMessages&) = delete;

  /// As ProcessGroup::send_final and recv, of dense tensors on the device.
  void send(const Tensor& x, int to, int tag);
  Work recv(const Tensor& y, int from, int tag);

  // The watch's half. A send has no deadline: it is the receiver who waits for it.
  void look() override;
  void abort() noexcept override;

 private:
  class Receiving;
  struct Header;

  /// One end of a message.
  struct Message : NcclTurn {
    Message(NcclApi& api, const Tensor& x, int its_tag) : NcclTurn(api), tensor(x.detach()), tag(its_tag), ready(api) {}
    const Tensor tensor;  // what is sent, or where it arrives
    const int tag;
    NcclEvent ready;       // the kernels before it are over
    bool started = false;  // NCCL was called
    bool queued = false;   // and has put it in the stream: `done` is recorded
    Tensor source;         // of a copy within this rank
  };
  using MessagePtr = std::shared_ptr<Message>;

  struct Outgoing {
    NcclApi::Id id{};
    bool connected = false;                  // a message has been queued: NCCL waits for the receiver no more
    std::deque<MessagePtr> waiting, queued;  // not yet queued; not known to be over
    std::unique_ptr<NcclWire> wire;          // null: to itself. Ends before its messages
  };
  struct Announcement {
    Tensor text;  // a Header
    Work arrival;
  };
  struct Incoming {
    std::deque<Announcement> announcements;  // as many as `posted`, or more
    std::deque<MessagePtr> posted;           // recvs without announcement, in the order of the calls
    std::deque<MessagePtr> early;            // received without recv
    std::deque<MessagePtr> queued;           // not known to be over
    std::unique_ptr<NcclWire> wire;
  };

  Outgoing& outgoing(int to);
  Incoming& incoming(int from);
  MessagePtr make_message(const Tensor& x, int tag);
  void queue_send(Outgoing& out, const MessagePtr& message);
  void announce(const Header& header, int to);
  void listen(Incoming& in, int from);
  void flush(Outgoing& out);
  void progress();
  void await(const Message& message, int from);
  void take(Incoming& in, int from);
  void agree(const Message& message, std::int64_t count, DType dtype, int from);
  void queue_receive(Incoming& in, int from, const NcclApi::Id& id, const MessagePtr& message);
  void queue_copy(Incoming& in, const MessagePtr& message, const Tensor& source);
  void settle(const NcclWire& wire);
  void drain();
  std::optional<std::string> unfinished();
  template <class Body>
  void or_lose(const Body& body);
  std::string described(const Message& message, const char* direction, int peer) const;

  std::shared_ptr<ProcessGroup> host_;  // carries the announcements
  const std::string name_;              // of the group
  std::shared_ptr<NcclWorld> world_;
  NcclApi& api_;

  std::mutex mutex_;  // guards wires and what is waiting or queued; the rest is the rank's own thread's
  std::map<int, Outgoing> outgoing_;
  std::map<int, Incoming> incoming_;
};

}  // namespace trireme::comm
