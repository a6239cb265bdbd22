// Our own matrix product. 2 M N K FLOPs; reads A and B once per block, writes C once per block of K.
//
// The loops around the tile product (tile_product.h), outermost first, as in BLIS (Van Zee and van de Geijn, TOMS
// 2015):
//   the shared operand  the smaller one of A and B, packed by the team together, in blocks that stay in the last-level
//                       cache (or, if it is small and the other large, by each thread for itself: packs_apart());
//   K                   so that a panel of A and one of B together fit a second-level cache;
//   threads             each takes a rectangle of C;
//   the private operand (`own` in the code): the larger one, packed by the thread that uses it, in blocks that stay in
//                       its second-level cache and never cross to another core;
//   tiles               a panel of the shared operand against each panel of the private one.
// With few rows, as in a small batch, A is the smaller. The weights, which are the larger operand, then pass through a
// second-level cache only once. If the team packed them first, packing alone would take as long as copying them. Block
// extents depend on the shape alone, and an element of C adds its blocks of K in order, so every number of threads
// gives the same bits. If B is the private operand and its columns lie side by side, the first tile that multiplies a
// panel also packs it, so that waiting for memory overlaps with computing. alpha, beta, bias and the conversion to C's
// dtype are applied when a finished tile is stored from its buffer; a tile that needs no more than the bias goes from
// registers to C.
// Read next: gemm_units.h.
#include <algorithm>
#include <array>

#include "core/cpu/gemm_units.h"
#include "core/cpu/gemm_write.h"
#include "core/cpu/pack_gathered.h"
#include "core/cpu/pack_kernels.h"
#include "core/parallel_for.h"

namespace trireme::cpu {
namespace {

constexpr std::int64_t depth_block_bytes = 4096;               // of a row of A or a column of B, packed
constexpr std::int64_t own_block_bytes = 320 << 10;            // packed at once by one thread for itself
constexpr std::int64_t least_by_one = 1 << 16;                 // elements of C, if a thread packs panel by panel
constexpr std::int64_t shared_block_bytes = 4 << 20;           // packed at once by the team
constexpr std::int64_t most_at_once = 2, steps_at_once = 256;  // tiles that take turns, each for so many steps of K
constexpr std::int64_t packing_cost = 16;  // packing an element takes about as long as multiplying it by this many

/// Cuts an operand's rows (of A) or columns (of B) into pieces, one per panel.
struct Cut {
  std::int64_t total, max_piece;  // rows or columns
  bool even;                      // pieces differ by one at most; otherwise all are full but the last
  std::int64_t count() const { return divide_up(total, max_piece); }
  IndexRange piece(std::int64_t i) const {
    return even ? part_of(total, count(), i) : IndexRange{i * max_piece, std::min((i + 1) * max_piece, total)};
  }
};

/// How one product is cut up.
template <class Unit>
struct Plan {
  using Sum = typename Unit::Sum;
  using Element = typename Unit::Element;
  static_assert(sizeof(Sum) == sizeof(Element));  // they share a workspace
  static constexpr auto size = static_cast<std::int64_t>(sizeof(Sum));
  static constexpr std::int64_t tile = Unit::rows * Unit::columns;

  Cut a, b;
  std::int64_t depth, depth_blocks, most_depth;  // blocks of K, extent of the largest
  bool share_a;
  Cut shared, own;
  std::int64_t shared_blocks, most_shared;  // pieces in the largest block
  std::int64_t at_once;                     // tiles
  std::int64_t most_own;                    // pieces packed at once
  bool partial_sums;                        // blocks of K are summed outside C, which cannot hold them exactly

  explicit Plan(const Product& p)
      : a{p.c.rows, Unit::rows, true},
        b{p.c.columns, Unit::columns, false},
        depth(p.a.columns),
        depth_blocks(std::max<std::int64_t>(1, divide_up(depth, depth_block_bytes * Unit::steps / size))),
        most_depth(divide_up(depth, depth_blocks)),
        share_a(p.c.rows < p.c.columns),
        shared(share_a ? a : b),
        own(share_a ? b : a) {
    const std::int64_t shared_fit = std::max<std::int64_t>(1, shared_block_bytes / (shared_panel() * size));
    shared_blocks = divide_up(shared.count(), shared_fit);
    most_shared = divide_up(shared.count(), shared_blocks);
    // If the shared operand stays in a second-level cache, a thread packs one panel of the private operand and
    // multiplies it by all of the shared one, while the first-level cache holds it. If the panel is of A, the tiles of a
    // row of C follow one another.
    const bool one_by_one = shared_blocks == 1 && part_shared() * size <= own_block_bytes &&
                            p.c.rows * p.c.columns >= least_by_one && p.gathered_b == nullptr;
    at_once = Unit::whole && most_depth > steps_at_once ? most_at_once : 1;
    most_own = one_by_one ? std::min(at_once, own.count())
                          : std::clamp<std::int64_t>(own_block_bytes / (own_panel() * size), 1, own.count());
    partial_sums = depth_blocks > 1 && p.c.dtype != dtype_of<Sum>;
  }

  // Elements.
  std::int64_t shared_panel() const { return Unit::panel(shared.max_piece, most_depth); }
  std::int64_t own_panel() const { return Unit::panel(own.max_piece, most_depth); }
  std::int64_t part_shared() const { return round_up(most_shared * shared_panel()); }
  std::int64_t part_own() const { return round_up(most_own * own_panel()); }
  std::int64_t part_sums() const { return partial_sums ? round_up(most_shared * own.count() * tile) : 0; }
  std::size_t bytes(int team, bool apart) const {
    return static_cast<std::size_t>((part_shared() * (apart ? team : 1) + part_sums() + part_own() * team) * size);
  }
  /// Whether each member packs for itself what it reads of the shared operand. Then members do not wait for one
  /// another: if the system suspends one, others take its parts. Chosen where each element of the shared operand is
  /// multiplied so often that packing it once more for each further member costs at most a 32nd. Two threads beside two
  /// busy programs: a half to a third of the time for [768, 512] x [512, 128]; alone, the same.
  bool packs_apart(const Product& p, int team) const {
    constexpr std::int64_t worth = 32;
    return p.packed_b == nullptr && shared_blocks == 1 && part_shared() * size <= own_block_bytes &&
           own.total >= worth * packing_cost * (team - 1);
  }
  /// All of B in panels: [depth_blocks, b.count(), panel_of_b()], for any number of rows of A.
  std::int64_t panel_of_b() const { return round_up(Unit::panel(b.max_piece, most_depth)); }
  std::size_t packed_b_bytes() const {
    return static_cast<std::size_t>(depth_blocks * b.count() * panel_of_b() * size);
  }
  static std::int64_t round_up(std::int64_t count) { return divide_up(count, 64) * 64; }
};

int team_for(const Product& p, int team) { return useful_team(2 * p.c.rows * p.c.columns * p.a.columns, team); }

/// The team as a grid over the pieces of both operands.
struct Grid {
  std::int64_t shared_parts = 1, own_parts = 1;

  Grid(std::int64_t shared_pieces, std::int64_t shared_most, std::int64_t own_pieces, std::int64_t own_most, int team) {
    std::int64_t least = -1;
    for (std::int64_t parts = 1; parts <= team; ++parts) {
      if (team % parts != 0) continue;
      const std::int64_t cost = divide_up(own_pieces, parts) * own_most *
                                (divide_up(shared_pieces, team / parts) * shared_most + packing_cost);
      if (least < 0 || cost < least) {
        least = cost;
        own_parts = parts;
        shared_parts = team / parts;
      }
    }
  }
};

/// Brings a matrix into the second-level cache, a few lines at a time.
class Fetch {
 public:
  Fetch() = default;
  explicit Fetch(const MatrixView& x) : data_(static_cast<const std::byte*>(x.data)) {
    const auto size = static_cast<std::int64_t>(size_of(x.dtype));
    const bool by_row = x.column_stride == 1;
    if (!by_row && x.row_stride != 1) return;  // scattered: no line would be used whole
    runs_ = by_row ? x.rows : x.columns;
    stride_ = (by_row ? x.row_stride : x.column_stride) * size;
    lines_a_run_ = divide_up((by_row ? x.columns : x.rows) * size, line);
  }
  Fetch(const void* data, std::int64_t bytes)
      : data_(static_cast<const std::byte*>(data)), runs_(1), lines_a_run_(divide_up(bytes, line)) {}
  std::int64_t lines() const { return runs_ * lines_a_run_; }
  void some(std::int64_t count) {
    while (count > 0 && run_ < runs_) {
      const std::int64_t length = std::min(count, lines_a_run_ - at_);
      const std::byte* const from = data_ + run_ * stride_ + at_ * line;
      for (std::int64_t i = 0; i < length; ++i) __builtin_prefetch(from + i * line, 0, 2);
      count -= length;
      at_ += length;
      if (at_ < lines_a_run_) return;
      at_ = 0;
      ++run_;
    }
  }

 private:
  static constexpr std::int64_t line = 64;
  const std::byte* data_ = nullptr;
  std::int64_t runs_ = 0, stride_ = 0, lines_a_run_ = 0;  // runs of memory, bytes between them
  std::int64_t run_ = 0, at_ = 0;
};

/// One member's part of a product.
template <class Unit, class In, class Out>
class Multiplication {
  using T = typename Unit::Sum;
  using Element = typename Unit::Element;
  static constexpr int width = Unit::columns;

 public:
  Multiplication(const Product& product, const Plan<Unit>& plan, std::byte* workspace, int member, int team)
      : p_(product), plan_(plan), member_(member), team_(team), apart_(plan.packs_apart(product, team)) {
    if constexpr (std::same_as<In, Out>) finish_ = Finish<Out>(product);
    const auto at = [workspace](std::int64_t element) { return workspace + element * Plan<Unit>::size; };
    const std::int64_t shared = plan.part_shared(), all_shared = apart_ ? team * shared : shared;
    packed_shared_ = reinterpret_cast<Element*>(at(apart_ ? member * shared : 0));
    sums_ = reinterpret_cast<T*>(at(all_shared));
    packed_own_ = reinterpret_cast<Element*>(at(all_shared + plan.part_sums() + plan.part_own() * member));
    kept_b_ = reinterpret_cast<Element*>(product.packed_b);
  }

  void run() {
    if (kept_b_ != nullptr && !p_.packed_b_filled) fill_kept_b();
    for (std::int64_t block = 0; block < plan_.shared_blocks; ++block) {
      const IndexRange shared = part_of(plan_.shared.count(), plan_.shared_blocks, block);
      const Grid grid(shared.size(), plan_.shared.max_piece, plan_.own.count(), plan_.own.max_piece, team_);
      const IndexRange mine = part_of(shared.size(), grid.shared_parts, member_ % grid.shared_parts);
      const IndexRange own = part_of(plan_.own.count(), grid.own_parts, member_ / grid.shared_parts);
      for (std::int64_t k = 0; k < plan_.depth_blocks; ++k) {
        if (block + k > 0) wait();  // all have read the block that is now overwritten
        const IndexRange depth = part_of(plan_.depth, plan_.depth_blocks, k);
        if (!keeps_shared()) {
          const IndexRange packed = apart_ ? mine : part_of(shared.size(), team_, member_);
          for (std::int64_t i = packed.begin; i < packed.end; ++i)
            pack(plan_.share_a, shared.begin + i, depth, packed_shared_ + i * plan_.shared_panel());
          wait();
        }
        multiply_block(shared.begin, mine, own, k, depth);
      }
    }
  }

 private:
  /// For the other members, unless none of them reads what this one packs.
  void wait() const {
    if (!apart_) team::barrier(team_);
  }
  bool keeps_shared() const { return kept_b_ != nullptr && !plan_.share_a; }
  bool keeps_own() const { return kept_b_ != nullptr && plan_.share_a; }
  Element* kept_panel(std::int64_t piece, std::int64_t k) const {
    return kept_b_ + (k * plan_.b.count() + piece) * plan_.panel_of_b();
  }

  void fill_kept_b() {
    const IndexRange own = part_of(plan_.b.count(), team_, member_);
    for (std::int64_t k = 0; k < plan_.depth_blocks; ++k)
      for (std::int64_t i = own.begin; i < own.end; ++i)
        pack(false, i, part_of(plan_.depth, plan_.depth_blocks, k), kept_panel(i, k));
    team::barrier(team_);
  }

  Strip<In> strip_of_a(std::int64_t piece, IndexRange depth) const {
    const IndexRange rows = plan_.a.piece(piece);
    return {static_cast<const In*>(p_.a.at(rows.begin, depth.begin)), rows.size(), depth.size(), p_.a.row_stride,
            p_.a.column_stride};
  }
  /// Whether a piece of A is multiplied where it is.
  bool in_place(std::int64_t piece, IndexRange depth) const {
    if constexpr (Unit::whole) return p_.kernel_a == nullptr && Unit::takes_in_place(strip_of_a(piece, depth));
    return false;
  }

  /// A panel of A, unless it is multiplied in place, or of B.
  void pack(bool of_a, std::int64_t piece, IndexRange depth, Element* to) {
    if (of_a) {
      if (p_.kernel_a != nullptr) return pack_kernels<In>(unit_, *p_.kernel_a, plan_.a.piece(piece), depth, to);
      if (!in_place(piece, depth)) unit_.pack_a(strip_of_a(piece, depth), to);
    } else if (p_.gathered_b != nullptr) {
      pack_gathered<In>(unit_, *p_.gathered_b, depth, plan_.b.piece(piece), to);
    } else {
      const IndexRange columns = plan_.b.piece(piece);
      unit_.pack_b({static_cast<const In*>(p_.b.at(depth.begin, columns.begin)), columns.size(), depth.size(),
                    p_.b.column_stride, p_.b.row_stride},
                   to);
    }
  }

  /// Pieces `mine` of the packed block of the shared operand, which begins at piece `first`, against pieces `own`.
  void multiply_block(std::int64_t first, IndexRange mine, IndexRange own, std::int64_t k, IndexRange depth) {
    if (mine.size() == 0) return;  // a small product has fewer pieces than the grid has parts
    const std::int64_t rounds = divide_up(own.size(), plan_.most_own);
    for (std::int64_t round = 0; round < rounds; ++round) {
      const IndexRange part = part_of(own, rounds, round);
      for (std::int64_t i = part.begin; i < part.end; ++i) {
        if (!keeps_own() && !packs_b_while_multiplying(i))
          pack(!plan_.share_a, i, depth, packed_own_ + (i - part.begin) * plan_.own_panel());
      }
      Fetch fetch;  // what is packed, or multiplied, next
      if (round + 1 < rounds) {
        fetch = fetch_of(part_of(own, rounds, round + 1), k);
      } else if (k + 1 < plan_.depth_blocks) {
        fetch = fetch_of(part_of(own, rounds, 0), k + 1);
      }
      const std::int64_t lines_a_tile = divide_up(fetch.lines(), mine.size() * part.size());
      for (std::int64_t s = mine.begin; s < mine.end; ++s) {
        for (std::int64_t i = part.begin; i < part.end; i += plan_.at_once) {
          fetch.some(lines_a_tile * plan_.at_once);
          Element* const own_panel =
              keeps_own() ? kept_panel(i, k) : packed_own_ + (i - part.begin) * plan_.own_panel();
          if constexpr (Unit::whole) {
            multiply_whole_tiles(first + s, s, {i, std::min(i + plan_.at_once, part.end)}, own_panel, k);
          } else {
            multiply_tile(first + s, s, i, own_panel, k, s == mine.begin && packs_b_while_multiplying(i));
          }
        }
      }
    }
  }

  /// Whether piece i of the private operand is packed by the first tile that multiplies it: columns of B that lie side
  /// by side, as in a panel. Rows of A that lie side by side are packed beforehand: one step of them is 56 bytes, which
  /// crosses cache lines, and packing them in passing was slower when there were many steps.
  bool packs_b_while_multiplying(std::int64_t i) const {
    return Unit::packs_b_while_multiplying && !keeps_own() && plan_.share_a && p_.gathered_b == nullptr &&
           p_.b.column_stride == 1 && plan_.b.piece(i).size() == width;
  }

  /// Multiplies piece `s` of the shared operand, piece `local` of the packed block, by piece `i` of the private
  /// operand, whose panel is packed now if `packing`.
  void multiply_tile(std::int64_t s, std::int64_t local, std::int64_t i, Element* own_panel, std::int64_t k,
                     bool packing) {
    alignas(64) std::array<T, Plan<Unit>::tile> sum;
    Element* const shared_panel = keeps_shared() ? kept_panel(s, k) : packed_shared_ + local * plan_.shared_panel();
    const IndexRange rows = plan_.a.piece(plan_.share_a ? s : i), columns = plan_.b.piece(plan_.share_a ? i : s);
    const IndexRange depth = part_of(plan_.depth, plan_.depth_blocks, k);
    Element* const a = plan_.share_a ? shared_panel : own_panel;
    Element* const b = plan_.share_a ? own_panel : shared_panel;
    prefetch(rows, columns);
    if constexpr (Unit::packs_b_while_multiplying) {
      const TilePlace<T> place = place_of(rows, columns, k, sum.data());
      if (!packing && columns.size() <= lanes<T>) {
        tile_product_narrow(rows.size(), depth.size(), a, b, place);
      } else if (!packing) {
        tile_product(rows.size(), depth.size(), a, b, place);
      } else {
        tile_product_packing_b(rows.size(), depth.size(), a, static_cast<const T*>(p_.b.at(depth.begin, columns.begin)),
                               p_.b.row_stride, b, place);
      }
      if (place.data != sum.data()) return;
    } else {
      unit_.multiply(rows.size(), depth.size(), a, b, sum.data());
    }
    store_tile(rows, columns, sums_ + (local * plan_.own.count() + i) * Plan<Unit>::tile, k, sum.data());
  }

  /// multiply_tile() for one or two pieces `own` of the private operand, and a unit whose tiles are whole. Two take turns:
  /// each multiplies the same steps_at_once of the shared panel, which a first-level cache holds (docs/kernels.md). C is
  /// not prefetched: that would only delay the loads of panels.
  void multiply_whole_tiles(std::int64_t s, std::int64_t local, IndexRange own, Element* own_panel, std::int64_t k) {
    struct WholeTile {
      IndexRange rows, columns;
      RowTiles a;
      const Element* b;
      TilePlace<T> place;
    };
    alignas(64) std::array<std::array<T, Plan<Unit>::tile>, most_at_once> sums;
    std::array<WholeTile, most_at_once> tiles;
    const auto count = static_cast<std::size_t>(own.size());
    const IndexRange depth = part_of(plan_.depth, plan_.depth_blocks, k);
    Element* const shared_panel = keeps_shared() ? kept_panel(s, k) : packed_shared_ + local * plan_.shared_panel();
    for (std::size_t t = 0; t < count; ++t) {
      const std::int64_t i = own.begin + static_cast<std::int64_t>(t), piece_of_a = plan_.share_a ? s : i;
      Element* const panel = keeps_own() ? kept_panel(i, k) : own_panel + (i - own.begin) * plan_.own_panel();
      const IndexRange rows = plan_.a.piece(piece_of_a), columns = plan_.b.piece(plan_.share_a ? i : s);
      tiles[t] = {rows, columns,
                  in_place(piece_of_a, depth) ? Unit::in_place(strip_of_a(piece_of_a, depth))
                                              : packed_row_tiles(plan_.share_a ? shared_panel : panel),
                  plan_.share_a ? panel : shared_panel, place_of(rows, columns, k, sums[t].data())};
    }
    for (std::size_t t = 0; t < count; ++t)
      unit_.multiply_rows(tiles[t].a, std::min(steps_at_once, depth.size()), tiles[t].b, tiles[t].place.data,
                          tiles[t].place.stride);
    for (std::int64_t step = steps_at_once; step < depth.size(); step += steps_at_once) {
      for (std::size_t t = 0; t < count; ++t) {
        Unit::advance(steps_at_once, tiles[t].a, tiles[t].b);
        unit_.multiply_add_rows(tiles[t].a, std::min(steps_at_once, depth.size() - step), tiles[t].b,
                                tiles[t].place.data, tiles[t].place.stride);
      }
    }
    for (std::size_t t = 0; t < count; ++t) {
      const std::int64_t i = own.begin + static_cast<std::int64_t>(t);
      if (tiles[t].place.data == sums[t].data())
        store_tile(tiles[t].rows, tiles[t].columns, sums_ + (local * plan_.own.count() + i) * Plan<Unit>::tile, k,
                   sums[t].data());
    }
  }

  std::int64_t column_of_c(std::int64_t column) const {
    return p_.c_columns == nullptr ? column : p_.c_columns[column];
  }
  bool side_by_side(IndexRange columns) const {
    return p_.c_columns == nullptr || p_.c_columns[columns.end - 1] - p_.c_columns[columns.begin] == columns.size() - 1;
  }

  /// C itself, if store_tile() would only add the bias or what is there, or nothing if the unit's tiles are whole;
  /// otherwise `buffer`, from which store_tile() takes the tile.
  TilePlace<T> place_of(IndexRange rows, IndexRange columns, std::int64_t k, T* buffer) const {
    const double beta = k == 0 ? p_.beta : 1.0;
    const bool last = k == plan_.depth_blocks - 1, biased = last && p_.bias != nullptr;
    if (!std::same_as<Out, T> || p_.alpha != 1 || (beta != 0 && beta != 1) || (last && !finish_.nothing()) ||
        columns.size() != width || !side_by_side(columns) ||
        (Unit::whole && (rows.size() != Unit::rows || beta != 0 || biased)))
      return {.data = buffer, .stride = width};
    T* const c = static_cast<T*>(p_.c.data) + rows.begin * p_.c.row_stride + column_of_c(columns.begin);
    return {.data = c,
            .stride = p_.c.row_stride,
            .add = beta == 1,
            .bias = biased ? static_cast<const T*>(p_.bias) + columns.begin : nullptr};
  }

  /// The lines of memory in which some pieces of the private operand lie, in block k of the depth.
  Fetch fetch_of(IndexRange pieces, std::int64_t k) const {
    if (keeps_own()) return Fetch(kept_panel(pieces.begin, k), pieces.size() * plan_.panel_of_b() * Plan<Unit>::size);
    if (plan_.share_a ? p_.gathered_b != nullptr : p_.kernel_a != nullptr) return {};
    const IndexRange depth = part_of(plan_.depth, plan_.depth_blocks, k);
    const Cut& cut = plan_.own;
    const IndexRange extent = {cut.piece(pieces.begin).begin, cut.piece(pieces.end - 1).end};
    return Fetch(plan_.share_a ? p_.b.block(depth.begin, extent.begin, depth.size(), extent.size())
                               : p_.a.block(extent.begin, depth.begin, extent.size(), depth.size()));
  }

  /// Prefetches the tile's place in C while the tile is computed.
  void prefetch(IndexRange rows, IndexRange columns) const {
    constexpr std::int64_t line = 64 / static_cast<std::int64_t>(sizeof(Out));
    for (std::int64_t i = rows.begin; i < rows.end; ++i) {
      const auto* c = static_cast<const Out*>(p_.c.data) + i * p_.c.row_stride + column_of_c(columns.begin);
      for (std::int64_t j = 0; j < columns.size(); j += line) __builtin_prefetch(c + j, 1);
    }
  }

  /// Writes a finished tile to C, or adds it to the partial sums while blocks of K are still to come.
  void store_tile(IndexRange rows, IndexRange columns, T* sums, std::int64_t k, T* tile) {
    const T alpha = static_cast<T>(p_.alpha);
    const bool first = k == 0, last = k == plan_.depth_blocks - 1;
    if (plan_.partial_sums) {
      const std::int64_t count = rows.size() * width;
      if (!first) {
        for (std::int64_t i = 0; i < count; ++i) tile[i] += sums[i];
      }
      if (!last) {
        std::copy_n(tile, count, sums);
        return;
      }
    }
    const auto beta = static_cast<T>(plan_.partial_sums || first ? p_.beta : 1.0);
    const auto* bias = last && p_.bias != nullptr ? static_cast<const In*>(p_.bias) + columns.begin : nullptr;
    if (last && !finish_.nothing()) return store_finished_tile(rows, columns, tile, alpha, beta, bias);
    if (!side_by_side(columns)) return store_apart(rows, columns, tile, alpha, beta, bias);
    auto* c = static_cast<Out*>(p_.c.data) + rows.begin * p_.c.row_stride + column_of_c(columns.begin);
    if (store_if_only_rounded(rows.size(), columns, tile, alpha, beta, bias, c, p_.c.row_stride)) return;
    for (std::int64_t i = rows.begin; i < rows.end; ++i, tile += width, c += p_.c.row_stride) {
      if (columns.size() == width) {
        write_row(tile, width, alpha, beta, bias, c);
      } else {
        write_row(tile, columns.size(), alpha, beta, bias, c);
      }
    }
  }

  /// Stores a tile of which only the bias and rounding are left, with the unit's instructions for that, if it has some.
  /// Returns whether it did.
  bool store_if_only_rounded(std::int64_t rows, IndexRange columns, const T* tile, T alpha, T beta, const In* bias,
                             Out* to, std::int64_t stride) const {
    if constexpr (Unit::rounds && std::same_as<Out, bf16>) {
      if (alpha != 1 || beta != 0 || columns.size() != width) return false;
      store_rounded<Unit>(rows, tile, bias, to, stride);
      return true;
    }
    return false;
  }

  /// The last step for a tile whose columns are not side by side in C.
  void store_apart(IndexRange rows, IndexRange columns, const T* tile, T alpha, T beta, const In* bias) {
    const std::int64_t* const at = p_.c_columns + columns.begin;
    std::array<Out, width> values{};
    for (std::int64_t i = rows.begin; i < rows.end; ++i, tile += width) {
      Out* const c = static_cast<Out*>(p_.c.data) + i * p_.c.row_stride;
      for (std::int64_t j = 0; beta != 0 && j < columns.size(); ++j) values[static_cast<std::size_t>(j)] = c[at[j]];
      write_row(tile, columns.size(), alpha, beta, bias, values.data());
      for (std::int64_t j = 0; j < columns.size(); ++j) c[at[j]] = values[static_cast<std::size_t>(j)];
    }
  }

  /// The last step for a tile whose product has an epilogue.
  void store_finished_tile(IndexRange rows, IndexRange columns, const T* tile, T alpha, T beta, const In* bias) {
    const std::int64_t stride = p_.c.row_stride, n = columns.size();
    Out* const c = static_cast<Out*>(p_.c.data) + rows.begin * stride + columns.begin;
    std::array<Out, Plan<Unit>::tile> values;
    if (!store_if_only_rounded(rows.size(), columns, tile, alpha, beta, bias, values.data(), width)) {
      for (std::int64_t i = 0; i < rows.size(); ++i) {
        if (beta != 0) std::copy_n(c + i * stride, n, values.data() + i * n);
        write_row(tile + i * width, n, alpha, beta, bias, values.data() + i * n);
      }
    }
    finish_.tile(rows.size(), n, c, stride, values);
    for (std::int64_t i = 0; i < rows.size(); ++i) std::copy_n(values.data() + i * n, n, c + i * stride);
  }

  const Product& p_;
  const Plan<Unit>& plan_;
  const int member_, team_;
  const bool apart_;
  Unit unit_{};
  Finish<Out> finish_;
  Element *packed_shared_, *packed_own_, *kept_b_;
  T* sums_;
};

bool uses_dots(const Product& product) {
  return product.gathered_b == nullptr && product.kernel_a == nullptr && suits_dots(product);
}

void multiply(const Product& product, int team, std::byte* workspace) {
  if (uses_dots(product)) return dots_product.multiply(product, team, workspace);
  visit_product(product, [&](auto in, auto out) {
    using In = typename decltype(in)::type;
    using Out = typename decltype(out)::type;
    visit_unit<In>([&](auto tag) {
      using Unit = typename decltype(tag)::type;
      const Plan<Unit> plan(product);
      const int members = team_for(product, team);
      const auto part = [&](int member, int) {
        Multiplication<Unit, In, Out>(product, plan, workspace, member, members).run();
      };
      plan.packs_apart(product, members) ? parallel_parts(members, part) : parallel_team(members, part);
    });
  });
}

std::size_t workspace_bytes(const Product& product, int team) {
  if (uses_dots(product)) return dots_product.workspace_bytes(product, team);
  team = team_for(product, team);
  return visit_floating(product.a.dtype, "gemm", [&](auto in) {
    return visit_unit<typename decltype(in)::type>([&](auto tag) {
      const Plan<typename decltype(tag)::type> plan(product);
      return plan.bytes(team, plan.packs_apart(product, team));
    });
  });
}

std::size_t packed_b_bytes(const Product& product) {
  if (suits_dots(product)) return 0;
  return visit_floating(product.a.dtype, "gemm", [&](auto in) {
    return visit_unit<typename decltype(in)::type>(
        [&](auto tag) { return Plan<typename decltype(tag)::type>(product).packed_b_bytes(); });
  });
}

/// If the result stays in the caches, separate kernels are faster, because they work on long rows.
bool takes_epilogue(const Product& product) {
  constexpr std::int64_t least = 1 << 20;  // elements
  return !suits_dots(product) && product.c.rows * product.c.columns >= least;
}

}  // namespace

const ProductKernel packed_product = {multiply, workspace_bytes, packed_b_bytes, takes_epilogue};

}  // namespace trireme::cpu
