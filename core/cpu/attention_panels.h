// Packs heads and tiles of probabilities into panels of a unit (gemm_units.h), the operands of attention's products.
//
// Queries or keys on the right-hand side of a product come in panels of Unit::columns; keys or Dh on the left-hand side
// in pieces of at most Unit::rows. If the unit's operands have the type of its sums, probabilities are operands as they
// are, and q is scaled once. The units for bf16 take operands of bf16. There q is packed unscaled and the scores are
// scaled, because rounding scale * q would put an error into every score; probabilities and their gradients are
// rounded. Panels are padded with zeros. A unit sums 1, 2 or 32 steps at once, so a product may include keys that no
// query of the tile sees; their p is 0.
// Read next: attention.cpp.
#pragma once

#include <type_traits>

#include "core/cpu/attention_tiles.h"
#include "core/cpu/gemm_units.h"

namespace trireme::cpu {

template <class Unit>
inline constexpr bool operands_are_sums = std::is_same_v<typename Unit::Element, typename Unit::Sum>;

/// Rows of a left-hand side, cut for panels of A.
template <class Unit>
struct Pieces {
  std::int64_t rows;
  std::int64_t count() const { return divide_up(rows, Unit::rows); }
  IndexRange operator[](std::int64_t i) const {
    if (Unit::whole) return {i * Unit::rows, std::min((i + 1) * Unit::rows, rows)};
    return part_of(rows, count(), i);
  }
  /// Rows that products write.
  std::int64_t written() const { return Unit::whole ? count() * Unit::rows : rows; }
};

/// Rows [first, first + count) of a head as a panel of B: [Dh, columns], zeros beyond count.
template <class Unit, class T>
void pack_head_columns(const HeadRows<const T>& x, std::int64_t first, std::int64_t count, typename Unit::Element* to) {
  Unit::pack_b(Strip<T>{x.row(first), count, x.width, x.stride, 1}, to);
}

/// A block of keys as panels of A, [Dh, up to Unit::rows] each, for the products that give scores.
template <class Unit>
struct KeyPanels {
  using Sum = typename Unit::Sum;
  using Element = typename Unit::Element;
  static std::int64_t stride(std::int64_t width) { return Unit::panel(Unit::rows, width); }
  static std::int64_t size(std::int64_t width) { return Pieces<Unit>{key_block}.count() * stride(width); }

  template <class T>
  static void pack(const HeadRows<const T>& x, IndexRange keys, Element* to) {
    const Pieces<Unit> pieces{keys.size()};
    for (std::int64_t i = 0; i < pieces.count(); ++i) {
      const IndexRange part = pieces[i];
      Unit::pack_a(Strip<T>{x.row(keys.begin + part.begin), part.size(), x.width, x.stride, 1},
                   to + i * stride(x.width));
    }
  }

  /// result [keys, columns] = keys @ columns, at least for the first `wanted` of the block's `count` keys.
  static void multiply(std::int64_t count, std::int64_t wanted, std::int64_t width, const Element* panels,
                       const Element* columns, Sum* result) {
    const Pieces<Unit> pieces{count};
    for (std::int64_t i = 0; i < pieces.count() && pieces[i].begin < wanted; ++i) {
      const IndexRange part = pieces[i];
      Unit::multiply(part.size(), width, panels + i * stride(width), columns, result + part.begin * Unit::columns);
    }
  }
};

/// Rows of a head as panels of A, [rows, up to Unit::rows of Dh] each, for the products that sum over rows.
template <class Unit>
struct WidthPanels {
  using Sum = typename Unit::Sum;
  using Element = typename Unit::Element;
  static std::int64_t stride(std::int64_t rows) { return Unit::panel(Unit::rows, rows); }
  static std::int64_t size(std::int64_t width, std::int64_t rows) { return Pieces<Unit>{width}.count() * stride(rows); }
  /// Elements of a sum [Dh, columns].
  static std::int64_t sum_size(std::int64_t width) { return Pieces<Unit>{width}.written() * Unit::columns; }

  /// `to` has room for `room` rows.
  template <class T>
  static void pack(const HeadRows<const T>& x, IndexRange rows, std::int64_t room, Element* to) {
    const Pieces<Unit> pieces{x.width};
    for (std::int64_t i = 0; i < pieces.count(); ++i) {
      const IndexRange part = pieces[i];
      Unit::pack_a(Strip<T>{x.row(rows.begin) + part.begin, part.size(), rows.size(), 1, x.stride},
                   to + i * stride(room));
    }
  }

  /// sum [Dh, columns] += x^T @ columns over rows [first, first + depth) of the packed x, first a multiple of
  /// Unit::columns; columns [depth, columns].
  static void multiply_add(std::int64_t width, std::int64_t room, std::int64_t first, std::int64_t depth,
                           const Element* panels, const Element* columns, Sum* sum) {
    const Pieces<Unit> pieces{width};
    for (std::int64_t i = 0; i < pieces.count(); ++i) {
      const IndexRange part = pieces[i];
      Unit::multiply_add(part.size(), depth, panels + i * stride(room) + Unit::offset(part.size(), first), columns,
                         sum + part.begin * Unit::columns);
    }
  }
};

/// A tile [keys, queries] of scores for one block of keys, or of values computed from them. It is the right-hand side
/// of further products, as it is or transposed.
template <class Unit>
struct ScoreTile {
  using Sum = typename Unit::Sum;
  using Element = typename Unit::Element;
  static constexpr std::int64_t size = key_block * Unit::columns;

  Sum* sums;
  bf16* rounded = nullptr;    // [keys, queries]
  Element* packed = nullptr;  // a panel of B

  explicit ScoreTile(BumpAllocator<Sum>& allocator) : sums(allocator.take(size)) {
    if constexpr (!operands_are_sums<Unit>) {
      rounded = allocator.template take<bf16>(size);
      packed = allocator.template take<Element>(Unit::panel(Unit::columns, key_block));
    }
  }

  /// Call it when the first `keys` rows of sums are final, before panel() and transposed_panel().
  void finish(std::int64_t keys) const {
    if constexpr (!operands_are_sums<Unit>) {
      for (std::int64_t i = 0; i < keys * Unit::columns; ++i) rounded[i] = static_cast<bf16>(sums[i]);
    }
  }
  /// [keys, queries] for sums over the first `keys` keys.
  const Element* panel(std::int64_t keys) const {
    if constexpr (operands_are_sums<Unit>) {
      return sums;
    } else {
      Unit::pack_b(Strip<bf16>{rounded, Unit::columns, keys, 1, Unit::columns}, packed);
      return packed;
    }
  }
  /// The transpose [queries, columns] of `keys` keys from `first` on, zeros beyond, for sums over the first `queries`
  /// queries.
  void transposed_panel(std::int64_t first, std::int64_t keys, std::int64_t queries, Element* to) const {
    const std::int64_t from = first * Unit::columns;
    if constexpr (operands_are_sums<Unit>) {
      pack_columns(Strip<Sum>{sums + from, keys, queries, Unit::columns, 1}, to);
    } else {
      Unit::pack_b(Strip<bf16>{rounded + from, keys, queries, Unit::columns, 1}, to);
    }
  }
};

}  // namespace trireme::cpu
