// Collectives among processes. MPI moves the elements; sums are made here, in rank order (rank_order.h). MPI's own
// reductions promise neither an order nor f32 accumulation for 16-bit types. So results have the same bits as under
// threads. Only sums in any order (SumOrder) are made by MPI, if it has the type: it has neither bf16 nor f16.
//
// An all-reduce in rank order is an all-to-all that brings chunk r of every rank's tensor to rank r, the sum there, and
// an all-gather of the summed chunks. Each rank sends and receives 2 (n-1)/n of the tensor, the minimum. Long tensors
// are processed in pieces, so that the buffer stays small and in cache. Every operation is cut into pieces if MPI could
// not count its elements (mpi/pieces.h).
// Read next: parallel/comm/mpi/messages.cpp.
#include "parallel/comm/mpi/group.h"

#include <algorithm>

#include "parallel/comm/common/diagnosis.h"
#include "parallel/comm/common/records.h"
#include "parallel/comm/rank_order.h"

namespace trireme::comm::mpi {
namespace {

constexpr std::size_t small_bytes = 8 * 1024;     // up to here one all-gather and the whole sum everywhere are faster
constexpr std::size_t chunk_bytes = 1024 * 1024;  // of a piece, per rank

std::byte* bytes_of(const Tensor& x) { return x.defined() ? static_cast<std::byte*>(x.raw()) : nullptr; }

}  // namespace

struct MpiGroup::Call {
  const Collective& c;
  Signature s;
  std::uint64_t sequence;
  const watch::Recording& record;
  Tensor buffer;

  std::size_t element() const { return size_of(s.dtype); }
  MPI_Datatype type() const { return bits_of(s.dtype); }
};

MpiGroup::MpiGroup(MPI_Comm communicator, const std::string& name, int rank, std::vector<int> members,
                   std::uint64_t instance, const MpiCallOptions& call_options)
    : CollectiveGroup(name, rank, std::move(members)),
      runtime_(Runtime::get()),
      communicator_(communicator),
      instance_(instance),
      call_options_(call_options),
      line_(runtime_.board().open(instance)),
      peers_lines_(static_cast<std::size_t>(size())),
      queue_([this](const Collective& c, std::uint64_t sequence) { run(c, sequence); }, [this] { abandon(); }) {}

void MpiGroup::abandon() { runtime_.fail(nullptr); }

// Does not free the communicator, which MPI_Finalize does: MPI_Comm_free may wait for ranks that never drop their
// group.
MpiGroup::~MpiGroup() { runtime_.board().close(line_); }

Work MpiGroup::submit(Collective collective, Launch launch) {
  return queue_.push(shared_from_this(), std::move(collective), launch);
}

void MpiGroup::run(const Collective& c, std::uint64_t sequence) {
  const Signature signature = c.signature(size());
  const watch::Recording record(collective_record(*this, c, signature, sequence));
  Call call{c, signature, sequence, record, {}};
  runtime_.board().write(line_, {sequence, call.s});
  try {
    // Check before MPI gets the call: with different counts it may write beyond a tensor. Of two ranks that diverge, at
    // least the one that looks last finds the other's line. It does not begin its operation, so the other one waits.
    look_for_desync(call);
    carry_out(call);
    runtime_.board().end(line_);
    look_for_desync(call);  // MPI pairs different operations silently if their sizes fit
  } catch (...) {
    runtime_.board().end(line_);
    for (const Tensor& x : {c.x, c.y, call.buffer}) runtime_.keep(x);
    runtime_.fail(std::current_exception());
    throw;
  }
}

void MpiGroup::carry_out(Call& call) {
  const std::size_t bytes = contribution_bytes(call.s, size());
  switch (call.c.kind) {
    case CollectiveKind::all_reduce:
      if (mpi_adds(call)) return all_reduce_by_mpi(call);
      return bytes <= small_bytes && fits_one_call(call.s.count, size(), call_options_.most) ? all_reduce_small(call)
                                                                                             : reduce_in_pieces(call);
    case CollectiveKind::reduce:
      return reduce_in_pieces(call);
    case CollectiveKind::reduce_scatter:
      return mpi_adds(call) ? reduce_scatter_by_mpi(call) : reduce_scatter_in_pieces(call);
    case CollectiveKind::broadcast:
      return broadcast_in_pieces(call);
    default:
      return move(call);
  }
}

// A reduce-scatter cannot be cut into pieces: MPI adds only dense arrays, and the pieces of all rows are not one.
bool MpiGroup::mpi_adds(const Call& call) const {
  if (call.s.order == SumOrder::ranks || number_of(call.s.dtype) == MPI_DATATYPE_NULL) return false;
  return call.s.kind == CollectiveKind::all_reduce || fits_one_call(call.s.count, size(), call_options_.most);
}

// All ranks get the same bits: MPI adds each element on one rank and copies the sum, or on all ranks by one tree of
// additions a + b, which are commutative.
void MpiGroup::all_reduce_by_mpi(Call& call) {
  for (const Piece& piece : pieces(call.s.count, call_options_.most)) {
    std::byte* const x = bytes_of(call.c.x) + static_cast<std::size_t>(piece.first) * call.element();
    finish(call, [&](MPI_Request* request) {
      return MPI_Iallreduce(MPI_IN_PLACE, x, static_cast<int>(piece.count), number_of(call.s.dtype), MPI_SUM,
                            communicator_, request);
    });
  }
}

void MpiGroup::reduce_scatter_by_mpi(Call& call) {
  finish(call, [&](MPI_Request* request) {
    return MPI_Ireduce_scatter_block(bytes_of(call.c.x), bytes_of(call.c.y), static_cast<int>(call.s.count),
                                     number_of(call.s.dtype), MPI_SUM, communicator_, request);
  });
}

void MpiGroup::sum_buffer(const Call& call, std::int64_t row, std::byte* to) {
  std::vector<const std::byte*> sources;
  for (int r = 0; r < size(); ++r)
    sources.push_back(bytes_of(call.buffer) + static_cast<std::size_t>(r * row) * call.element());
  combine(call.s.dtype, call.s.op, sources, {&to, 1}, 0, row);
}

void MpiGroup::all_reduce_small(Call& call) {
  call.buffer = Tensor::empty({size(), call.s.count}, call.s.dtype);
  const auto count = static_cast<int>(call.s.count);
  finish(call, [&](MPI_Request* request) {
    return MPI_Iallgather(call.c.x.raw(), count, call.type(), call.buffer.raw(), count, call.type(), communicator_,
                          request);
  });
  sum_buffer(call, call.s.count, bytes_of(call.c.x));
}

void MpiGroup::reduce_in_pieces(Call& call) {
  const auto ranks = static_cast<std::size_t>(size());
  const std::int64_t longest_chunk =
      std::min({(call.s.count + size() - 1) / size(), static_cast<std::int64_t>(chunk_bytes / call.element()),
                longest_share(size(), call_options_.most)});
  call.buffer = Tensor::empty({size(), longest_chunk}, call.s.dtype);
  const std::int64_t longest_piece = std::max<std::int64_t>(1, longest_chunk * size());
  for (std::int64_t first = 0; first < call.s.count || first == 0; first += longest_piece) {
    const std::int64_t piece = std::min(longest_piece, call.s.count - first);
    const std::int64_t chunk = (piece + size() - 1) / size();
    std::vector<int> counts(ranks), starts(ranks), mine(ranks), rows(ranks);
    for (std::size_t r = 0; r < ranks; ++r) {
      const std::int64_t start = std::min(piece, static_cast<std::int64_t>(r) * chunk);
      starts[r] = static_cast<int>(start);
      counts[r] = static_cast<int>(std::min(chunk, piece - start));
    }
    const int row = counts[static_cast<std::size_t>(rank())];
    for (std::size_t r = 0; r < ranks; ++r) {
      mine[r] = row;
      rows[r] = static_cast<int>(r) * row;
    }
    std::byte* const x = bytes_of(call.c.x) + static_cast<std::size_t>(first) * call.element();
    std::byte* const buffer = bytes_of(call.buffer);
    MPI_Datatype type = call.type();
    finish(call, [&](MPI_Request* request) {
      return MPI_Ialltoallv(x, counts.data(), starts.data(), type, buffer, mine.data(), rows.data(), type,
                            communicator_, request);
    });
    sum_buffer(call, row, buffer);
    finish(call, [&](MPI_Request* request) {
      return call.c.kind == CollectiveKind::all_reduce
                 ? MPI_Iallgatherv(buffer, row, type, x, counts.data(), starts.data(), type, communicator_, request)
                 : MPI_Igatherv(buffer, row, type, x, counts.data(), starts.data(), type, call.c.root, communicator_,
                                request);
    });
  }
}

void MpiGroup::reduce_scatter_in_pieces(Call& call) {
  const auto ranks = static_cast<std::size_t>(size());
  const std::int64_t longest = std::clamp<std::int64_t>(
      call.s.count, 1,
      std::min(static_cast<std::int64_t>(chunk_bytes / call.element()), longest_share(size(), call_options_.most)));
  call.buffer = Tensor::empty({size(), longest}, call.s.dtype);
  for (std::int64_t first = 0; first < call.s.count || first == 0; first += longest) {
    const std::int64_t chunk = std::min(longest, call.s.count - first);
    if (fits_one_call(call.s.count, size(), call_options_.most)) {
      std::vector<int> counts(ranks, static_cast<int>(chunk)), starts(ranks), rows(ranks);
      for (std::size_t r = 0; r < ranks; ++r) {
        starts[r] = static_cast<int>(static_cast<std::int64_t>(r) * call.s.count + first);
        rows[r] = static_cast<int>(static_cast<std::int64_t>(r) * chunk);
      }
      finish(call, [&](MPI_Request* request) {
        return MPI_Ialltoallv(call.c.x.raw(), counts.data(), starts.data(), call.type(), call.buffer.raw(),
                              counts.data(), rows.data(), call.type(), communicator_, request);
      });
    } else {
      with_part_of_rows(call, chunk, [&](MPI_Datatype part) {
        const std::byte* const x = bytes_of(call.c.x) + static_cast<std::size_t>(first) * call.element();
        finish(call, [&](MPI_Request* request) {
          return MPI_Ialltoall(x, 1, part, call.buffer.raw(), static_cast<int>(chunk), call.type(), communicator_,
                               request);
        });
      });
    }
    sum_buffer(call, chunk, bytes_of(call.c.y) + static_cast<std::size_t>(first) * call.element());
  }
}

// The operations that only move elements.
void MpiGroup::move(Call& call) {
  if (fits_one_call(call.s.count, size(), call_options_.most))
    return move_piece(call, {0, call.s.count}, static_cast<int>(call.s.count), call.type());
  for (const Piece& piece : pieces(call.s.count, longest_share(size(), call_options_.most)))
    with_part_of_rows(call, piece.count, [&](MPI_Datatype part) { move_piece(call, piece, 1, part); });
}

// In the tensor with the shares of all ranks, each share is `shares` elements of type `share`. If a share already lies
// at its destination, MPI is told so (MPI_IN_PLACE).
void MpiGroup::move_piece(Call& call, const Piece& piece, int shares, MPI_Datatype share) {
  const std::size_t first = static_cast<std::size_t>(piece.first) * call.element();
  const auto begin = [first](const Tensor& t) { return t.defined() ? bytes_of(t) + first : nullptr; };
  std::byte *const x = begin(call.c.x), *const y = begin(call.c.y);
  const int n = static_cast<int>(piece.count), root = call.c.root;
  MPI_Datatype type = call.type();
  const std::size_t offset = static_cast<std::size_t>(rank()) * static_cast<std::size_t>(call.s.count) * call.element();
  const bool in_place = x != nullptr && y != nullptr && (is_split(call.c.kind) ? x + offset == y : y + offset == x);
  const void* const from = in_place && call.c.kind != CollectiveKind::scatter ? MPI_IN_PLACE : x;
  void* const to = in_place && call.c.kind == CollectiveKind::scatter ? MPI_IN_PLACE : y;
  finish(call, [&](MPI_Request* request) {
    switch (call.c.kind) {
      case CollectiveKind::all_gather:
        return MPI_Iallgather(from, n, type, y, shares, share, communicator_, request);
      case CollectiveKind::all_to_all:
        return MPI_Ialltoall(x, shares, share, y, shares, share, communicator_, request);
      case CollectiveKind::gather:
        return MPI_Igather(from, n, type, y, shares, share, root, communicator_, request);
      case CollectiveKind::scatter:
        return MPI_Iscatter(x, shares, share, to, n, type, root, communicator_, request);
      default:
        return MPI_Ibarrier(communicator_, request);
    }
  });
}

void MpiGroup::broadcast_in_pieces(Call& call) {
  for (const Piece& piece : pieces(call.s.count, call_options_.most)) {
    std::byte* const x = bytes_of(call.c.x) + static_cast<std::size_t>(piece.first) * call.element();
    finish(call, [&](MPI_Request* request) {
      return MPI_Ibcast(x, static_cast<int>(piece.count), call.type(), call.c.root, communicator_, request);
    });
  }
}

// Calls use(type) with a type for `part` elements of each rank's share, where the shares lie one after the other. After
// a failure the type is not freed, as MPI may still be using it.
template <class Use>
void MpiGroup::with_part_of_rows(const Call& call, std::int64_t part, const Use& use) {
  const char* const where = comm::name(call.c.kind);
  MPI_Datatype elements = MPI_DATATYPE_NULL, type = MPI_DATATYPE_NULL;
  {
    const std::scoped_lock lock(runtime_.lock());
    check_code(MPI_Type_contiguous(static_cast<int>(part), call.type(), &elements), where);
    const auto row = static_cast<MPI_Aint>(call.s.count) * static_cast<MPI_Aint>(call.element());  // bytes
    check_code(MPI_Type_create_resized(elements, 0, row, &type), where);
    check_code(MPI_Type_commit(&type), where);
    check_code(MPI_Type_free(&elements), where);
  }
  use(type);
  const std::scoped_lock lock(runtime_.lock());
  check_code(MPI_Type_free(&type), where);
}

template <class Start>
void MpiGroup::finish(const Call& call, const Start& start) {
  MPI_Request request = MPI_REQUEST_NULL;
  const char* const where = comm::name(call.c.kind);
  {
    const std::scoped_lock lock(runtime_.lock());
    check_code(start(&request), where);
  }
  const auto over = [&] {
    int flag = 0;
    check_code(MPI_Test(&request, &flag, MPI_STATUS_IGNORE), where);
    return flag != 0;
  };
  try {
    const auto late = [&] { return missing(call); };
    watch::Wait wait(call.record, late);
    runtime_.poll(wait, over, on_communication_thread(), [&] { look_for_desync(call); });
  } catch (const Error& error) {
    if (error.code() == ExitCode::desync) look_for_desync(call);  // MPI only sees a wrong length; the board knows why
    throw;
  }
}

// Peers that show another operation under the same number will never join this one.
void MpiGroup::look_for_desync(const Call& call) {
  for (int r = 0; r < size(); ++r) {
    const auto other = shown(r, peers_lines_[static_cast<std::size_t>(r)]);
    if (!other || other->sequence != call.sequence || other->signature == call.s) continue;
    lose(ExitCode::desync, comm::name(call.c.kind),
         out_of_step(*this, call.sequence, rank(), call.s, r, other->signature));
  }
}

std::optional<NodeBoard::Entry> MpiGroup::shown(int group_rank, int& line) const {
  return runtime_.board().read(world_rank(group_rank), instance_, line);
}

// For the watchdog, on its thread. The ranks that have not come; or, if all of this node have, those that are still
// inside, one of which may be stopped there. Ranks of other nodes count as not come.
std::vector<int> MpiGroup::missing(const Call& call) const {
  std::vector<int> late, inside;
  for (int r = 0; r < size(); ++r) {
    int line = line_ < 0 ? 0 : line_;
    const bool visible = runtime_.board().visible(world_rank(r));
    const auto other = shown(r, line);
    if (!visible || (other && other->sequence < call.sequence))
      late.push_back(world_rank(r));
    else if (r != rank() && !(other && other->sequence == call.sequence && other->ended))
      inside.push_back(world_rank(r));
  }
  return late.empty() ? inside : late;
}

void MpiGroup::lose(ExitCode code, const char* where, const std::string& what) {
  try {
    throw Error(code, where, what);
  } catch (...) {
    runtime_.fail(std::current_exception());
    throw;
  }
}

}  // namespace trireme::comm::mpi
