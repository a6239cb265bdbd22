// Our own matrix product. 2 M N K FLOPs; reads A, B once a block, writes C once a block of K.
//
// The loops around the tile product (tile_product.h), outermost first, as in BLIS (Van Zee and van de Geijn, TOMS
// 2015):
//   columns of C   so that the packed part of B stays in the last-level cache, shared by the team;
//   K              so that a panel of A and one of B together fit a second-level cache;
//   threads        each takes a rectangle of C: rows and panels of columns;
//   rows of C      so that a thread's packed part of A stays in its second-level cache;
//   tiles          a panel of B against each panel of A.
// Block extents in K and in columns depend on the shape alone, and an element of C adds its blocks of K in order, so
// every number of threads gives the same bits. alpha, beta, bias and the conversion to C's dtype happen as a finished
// tile leaves its buffer. Read next: pack.h.
#include <algorithm>
#include <array>

#include "core/cpu/gemm_write.h"
#include "core/cpu/pack.h"
#include "core/cpu/partition.h"
#include "core/cpu/tile_product.h"
#include "core/parallel_for.h"

namespace trireme::cpu {
namespace {

constexpr std::int64_t block_depth = 1024;         // most steps of K in one block
constexpr std::int64_t block_a_bytes = 256 << 10;  // packed A of one thread
constexpr std::int64_t block_b_bytes = 4 << 20;    // packed B of the team

/// How one product is cut up. T: the type sums are kept in.
template <class T>
struct Plan {
  std::int64_t rows, columns, depth;
  std::int64_t depth_blocks, most_depth;  // blocks of K, extent of the largest
  std::int64_t panels;                    // of tile_columns<T>, over all of B
  std::int64_t column_blocks, most_panels;
  std::int64_t most_rows;  // rows of A packed at once
  bool partial_sums;       // blocks of K are summed outside C, which cannot hold them exactly

  explicit Plan(const Product& p) : rows(p.c.rows), columns(p.c.columns), depth(p.a.columns) {
    depth_blocks = std::max<std::int64_t>(1, divide_up(depth, block_depth));
    most_depth = divide_up(depth, depth_blocks);
    const std::int64_t panel_bytes = std::max<std::int64_t>(1, most_depth) * tile_columns<T> * std::int64_t{sizeof(T)};
    panels = divide_up(columns, tile_columns<T>);
    column_blocks = divide_up(panels, std::max<std::int64_t>(1, block_b_bytes / panel_bytes));
    most_panels = divide_up(panels, column_blocks);
    const std::int64_t row_bytes = std::max<std::int64_t>(1, most_depth) * std::int64_t{sizeof(T)};
    most_rows = std::clamp<std::int64_t>(block_a_bytes / row_bytes, tile_rows, rows + tile_rows);
    most_rows = most_rows / tile_rows * tile_rows;
    partial_sums = depth_blocks > 1 && p.c.dtype != dtype_of<T>;
  }

  std::int64_t panel_b() const { return panel_size<T>(tile_columns<T>, most_depth); }  // elements of a panel of B
  std::int64_t block_a() const { return most_rows / tile_rows * panel_size<T>(tile_rows, most_depth); }
  std::int64_t part_b() const { return most_panels * panel_b(); }
  std::int64_t part_sums() const { return partial_sums ? rows * most_panels * tile_columns<T> : 0; }
  std::size_t bytes(int team) const {
    return static_cast<std::size_t>(part_b() + part_sums() + round_up(block_a()) * team) * sizeof(T);
  }
  static std::int64_t round_up(std::int64_t count) { return divide_up(count, 64) * 64; }
};

int team_for(const Product& p, int team) { return useful_team(2 * p.c.rows * p.c.columns * p.a.columns, team); }

/// The team as a grid over the rows and panels of C.
struct Grid {
  std::int64_t row_parts = 1, panel_parts = 1;

  Grid(std::int64_t rows, std::int64_t panels, std::int64_t columns_per_panel, int team) {
    constexpr std::int64_t packing = 16;  // packing an element of A costs about as much as multiplying it by this many
    std::int64_t least = -1;
    for (std::int64_t parts = 1; parts <= team; ++parts) {
      if (team % parts != 0) continue;
      const std::int64_t columns = divide_up(panels, team / parts) * columns_per_panel;
      const std::int64_t cost = divide_up(rows, parts) * (columns + packing);
      if (least < 0 || cost < least) {
        least = cost;
        row_parts = parts;
        panel_parts = team / parts;
      }
    }
  }
};

/// One product, seen by one member of the team.
template <class In, class Out>
class Multiplication {
  using T = accumulate_t<In>;
  static constexpr int width = tile_columns<T>;

 public:
  Multiplication(const Product& product, const Plan<T>& plan, std::byte* workspace, int member, int team)
      : p_(product), plan_(plan), member_(member), team_(team) {
    packed_b_ = reinterpret_cast<T*>(workspace);
    sums_ = packed_b_ + plan.part_b();
    packed_a_ = sums_ + plan.part_sums() + Plan<T>::round_up(plan.block_a()) * member;
  }

  void run() {
    for (std::int64_t block = 0; block < plan_.column_blocks; ++block) {
      const Range panels = part_of(plan_.panels, plan_.column_blocks, block);
      const Grid grid(plan_.rows, panels.size(), width, team_);
      const Range rows = part_of(plan_.rows, grid.row_parts, member_ % grid.row_parts);
      const Range own = part_of(panels.size(), grid.panel_parts, member_ / grid.row_parts);
      for (std::int64_t k = 0; k < plan_.depth_blocks; ++k) {
        if (block + k > 0) team::barrier(team_);  // nobody still reads the block about to be overwritten
        const Range depth = part_of(plan_.depth, plan_.depth_blocks, k);
        pack_b(panels, depth);
        team::barrier(team_);
        for (std::int64_t row = rows.begin; row < rows.end; row += plan_.most_rows) {
          multiply_rows({row, std::min(row + plan_.most_rows, rows.end)}, panels.begin, own, k, depth);
        }
      }
    }
  }

 private:
  void pack_b(Range panels, Range depth) {
    const MatrixView& b = p_.b;
    const auto* data = static_cast<const In*>(b.data) + depth.begin * b.row_stride;
    const Range own = part_of(panels.size(), team_, member_);
    for (std::int64_t i = own.begin; i < own.end; ++i) {
      const std::int64_t column = (panels.begin + i) * width;
      const Strip<In> strip{data + column * b.column_stride, std::min<std::int64_t>(width, plan_.columns - column),
                            depth.size(), b.column_stride, b.row_stride};
      pack_columns(strip, packed_b_ + i * plan_.panel_b());
    }
  }

  /// Rows of C against the panels `own` of the packed block of B that begins at panel `first`.
  void multiply_rows(Range rows, std::int64_t first, Range own, std::int64_t k, Range depth) {
    const std::int64_t tiles = divide_up(rows.size(), tile_rows);
    const std::int64_t stride = panel_size<T>(tile_rows, plan_.most_depth);
    for (std::int64_t i = 0; i < tiles; ++i) {
      const Range tile = part_of(rows.size(), tiles, i);
      const Strip<In> strip{static_cast<const In*>(p_.a.at(rows.begin + tile.begin, depth.begin)), tile.size(),
                            depth.size(), p_.a.row_stride, p_.a.column_stride};
      pack_rows(strip, packed_a_ + i * stride);
    }
    alignas(64) std::array<T, tile_rows * width> sum;
    for (std::int64_t j = own.begin; j < own.end; ++j) {
      for (std::int64_t i = 0; i < tiles; ++i) {
        const Range tile = part_of(rows.size(), tiles, i);
        tile_product(tile.size(), depth.size(), packed_a_ + i * stride, packed_b_ + j * plan_.panel_b(), sum.data());
        leave({rows.begin + tile.begin, rows.begin + tile.end}, first + j, j, k, sum.data());
      }
    }
  }

  /// A finished tile joins C, or the partial sums while blocks of K are still to come.
  void leave(Range rows, std::int64_t panel, std::int64_t local_panel, std::int64_t k, T* tile) {
    const T alpha = static_cast<T>(p_.alpha);
    const bool first = k == 0, last = k == plan_.depth_blocks - 1;
    const std::int64_t column = panel * width, columns = std::min<std::int64_t>(width, plan_.columns - column);
    for (std::int64_t i = rows.begin; i < rows.end; ++i, tile += width) {
      if (plan_.partial_sums) {
        T* sums = sums_ + (i * plan_.most_panels + local_panel) * width;
        for (int j = 0; j < width; ++j) tile[j] += first ? T{0} : sums[j];
        if (!last) {
          std::copy_n(tile, width, sums);
          continue;
        }
      }
      const double beta = plan_.partial_sums || first ? p_.beta : 1.0;
      const auto* bias = last && p_.bias != nullptr ? static_cast<const In*>(p_.bias) + column : nullptr;
      auto* c = static_cast<Out*>(p_.c.data) + i * p_.c.row_stride + column;
      if (columns == width) {
        write_row(tile, width, alpha, static_cast<T>(beta), bias, c);
      } else {
        write_row(tile, columns, alpha, static_cast<T>(beta), bias, c);
      }
    }
  }

  const Product& p_;
  const Plan<T>& plan_;
  const int member_, team_;
  T *packed_b_, *sums_, *packed_a_;
};

void multiply(const Product& product, int team, std::byte* workspace) {
  if (suits_dots(product)) return dots_product.multiply(product, team, workspace);
  visit_product(product, [&](auto in, auto out) {
    using In = typename decltype(in)::type;
    using Out = typename decltype(out)::type;
    const Plan<accumulate_t<In>> plan(product);
    parallel_team(team_for(product, team), [&](int member, int members) {
      Multiplication<In, Out>(product, plan, workspace, member, members).run();
    });
  });
}

std::size_t workspace_bytes(const Product& product, int team) {
  if (suits_dots(product)) return dots_product.workspace_bytes(product, team);
  team = team_for(product, team);
  return product.a.dtype == DType::f64 ? Plan<double>(product).bytes(team) : Plan<float>(product).bytes(team);
}

}  // namespace

const ProductKernel packed_product = {multiply, workspace_bytes};

}  // namespace trireme::cpu
