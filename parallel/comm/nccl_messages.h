// send and recv of tensors on GPUs, over NCCL, for one group.
//
// A message of this framework has a tag, is sent whether or not its recv was called, and overtakes messages with other
// tags. NCCL's have no tags and meet in the order of the calls on both sides; one that waits holds up all that is
// queued behind it. What makes the one of the other:
//
//   - Each direction between two ranks has a communicator and a stream of its own (NcclWire), made at its first message.
//     Its order is that of the sends. A send keeps its tensor, and nothing but later sends waits for it.
//   - Each send announces itself through the host: tag, type, length. The receiver takes announcements in their order,
//     when it is in send or recv and the next is of a message that it expects, and in wait() and done() up to that of the
//     message asked for; for each it queues the receive: into the tensor of the recv with that tag or, where there is none
//     yet, into memory of its own, from where a later recv copies.
//
// So the host waits in a recv's wait() for the sender to have called send, never for a GPU. Nor do GPUs wait in a
// circle by what is queued in them: a receive waits for kernels that its rank launched before, and for the sender's
// kernels before the send; in the order in which receives are queued, all these come earlier. (A recv's tensor may wait
// for kernels up to the recv's call, and those only for receives that were queued by then.) What waits for all of a
// GPU, as an allocation by cudaMalloc or the loading of a kernel may, waits for sends too: see nccl_library.cpp.
//
// NCCL takes a call when it has queued the last, and connects two ranks at the first message between them, which takes
// both. What it does not take yet waits in its lane; whoever comes by goes on with it, the watch at the latest.
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
    NcclEvent ready;         // the kernels before it are over
    Tensor source;           // defined: of a copy within this rank
    bool announced = false;  // a recv's: it waits in its lane, or is in the stream
    bool started = false;    // NCCL was called
    bool queued = false;     // and has put it in the stream: `done` is recorded
  };
  using MessagePtr = std::shared_ptr<Message>;

  /// Messages in one direction.
  struct Lane {
    enum class End : std::uint8_t { sender, receiver };
    End end = End::sender;
    NcclApi::Id id{};
    bool connected = false;                  // a message has been queued: NCCL waits for the other rank no more
    std::deque<MessagePtr> waiting, queued;  // not yet queued; not known to be over
    std::unique_ptr<NcclWire> wire;          // null: to itself. Ends before its messages
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

  Lane& outgoing(int to);
  Incoming& incoming(int from);
  void open(Lane& lane, Lane::End end, const NcclApi::Id& id, int from, int to);
  MessagePtr make_message(const Tensor& x, int tag);
  void announce(const Header& header, int to);
  void listen(Incoming& in, int from);
  void queue_send(Lane& lane, const MessagePtr& message);
  void flush(Lane& lane);
  void start(const Lane& lane, Message& message);
  void progress(Take which);
  void await(const Message& message, int from);
  void take(Incoming& in, int from);
  void add(Lane& lane, const MessagePtr& message);
  void agree(const Message& message, std::int64_t count, DType dtype, int from);
  bool is_queued(const Message& message);
  void await_queued(Lane& lane, const Message& message);
  void drain();
  std::optional<std::string> unfinished();
  template <class Body>
  void or_lose(const Body& body);
  std::string described(const Message& message, const char* direction, int peer) const;

  std::shared_ptr<ProcessGroup> host_;  // carries the announcements
  const std::string name_;              // of the group
  std::shared_ptr<NcclWorld> world_;
  NcclApi& api_;

  std::mutex mutex_;  // guards the lanes; held briefly. The rest is the rank's own thread's
  std::map<int, Lane> outgoing_;
  std::map<int, Incoming> incoming_;
  std::deque<Tensor> to_myself_;
};

}  // namespace trireme::comm
