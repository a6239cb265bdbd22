// How the tiles of a last wave that is not whole are divided among persistent blocks (Stream-K, Osama et al. 2023,
// section 4). The sum of a tile has a number of steps; the steps of all divided tiles are dealt out evenly to sharers.
//
// Sharers that work on different tiles should have the same steps at the same time: then they read the same rows of K,
// and L2 has them. If each sharer took the next steps where the one before it ended, everybody would be somewhere else,
// and the gradient of a weight [768, 3072] would read its operands from memory several times. Therefore steps are dealt
// in rounds, as in Euclid's algorithm, until none is left:
//   there are at least as many sharers as tiles: each tile is cut into as many parts of one length as there are sharers
//     for all tiles. Those sharers are done.
//   there are fewer: each takes what is left of as many tiles as there are for all sharers. Those tiles are done.
// For 96 tiles of 256 steps and 132 sharers: 96 sharers have the first 187 steps of one tile each. The other 36 have
// the last 69 steps of two tiles each, and divide those of the 24 tiles that are left: 24 of them have 49 steps of one
// tile each, and 12 have the last 20 steps of two tiles each. Which steps a sharer has depends on the numbers below
// only, so bits repeat from run to run.
// Read next: cuda/kernels/gemm_cut.h.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cuda/device/device.h"

namespace trireme::cuda::sm90 {

/// Steps [first, last) of a tile, the item `number` of a sharer's share. Empty: there is none.
struct ShareItem {
  int tile = 0, first = 0, last = 0;
  int sharer = 0, number = 0;
  __host__ __device__ bool empty() const { return first >= last; }
};

class Shares {
 public:
  Shares() = default;
  /// Up to `most` sharers. Parts have at least `least` steps, so with short sums there may be fewer sharers.
  constexpr Shares(int tiles, int steps, int most, int least) : tiles_(tiles), steps_(steps), most_(most) {
    length_ = static_cast<int>((std::int64_t{tiles} * steps + most - 1) / most);
    least_ = least;
    int before = 0;
    for (Round round(*this); !round.over(*this); round.next(*this)) {
      items_ = std::max(items_, before + (round.parts > 0 ? 1 : round.whole));
      before += round.whole;
      const int busy = round.parts > 0 ? round.parts * round.tiles : std::min(round.tiles, round.sharers);
      sharers_ = std::max(sharers_, round.sharer + busy);
    }
  }

  __host__ __device__ int tiles() const { return tiles_; }
  __host__ __device__ int steps() const { return steps_; }
  int sharers() const { return sharers_; }
  __host__ __device__ int length() const { return length_; }  ///< steps of a share
  __host__ __device__ int items() const { return items_; }    ///< of a share, at most

  /// Item 0, 1, ... of a sharer's share.
  __host__ __device__ ShareItem item(int sharer, int number) const {
    int before = 0;  // items of earlier rounds
    if (sharer >= sharers_) return {};
    for (Round round(*this); !round.over(*this); round.next(*this)) {
      const int i = sharer - round.sharer;
      if (round.parts > 0 && i < round.parts * round.tiles) {
        const int first = round.step + i / round.tiles * round.length;
        return number == before ? ShareItem{round.tile + i % round.tiles, first, first + round.length, sharer, number}
                                : ShareItem{};
      }
      for (int j = 0; j < round.whole; ++j) {
        const int tile = i + j * round.sharers;
        if (tile < round.tiles && before++ == number) return {round.tile + tile, round.step, steps_, sharer, number};
      }
    }
    return {};
  }

  /// The item that has step `step` of a tile.
  __host__ __device__ ShareItem item_with(int tile, int step) const {
    int before = 0;
    for (Round round(*this); !round.over(*this); round.next(*this)) {
      const int i = tile - round.tile, part = (step - round.step) / round.length;
      if (round.parts > 0 && part < round.parts) {
        const int first = round.step + part * round.length;
        return {tile, first, first + round.length, round.sharer + part * round.tiles + i, before};
      }
      if (i < round.whole * round.sharers)
        return {tile, round.step, steps_, round.sharer + i % round.sharers, before + i / round.sharers};
      before += round.whole;
    }
    return {};
  }

 private:
  /// What is left to deal out: steps from `step` on of tiles from `tile` on, to sharers from `sharer` on.
  struct Round {
    int tile = 0, tiles, step = 0, sharer = 0, sharers, length;
    int parts = 0, whole = 0;  // one of them is not 0: parts of each tile, or tiles of each sharer

    constexpr explicit Round(const Shares& s)
        : tiles(s.tiles_), sharers(s.most_), length(std::max(s.length_, s.least_)) {
      choose(s);
    }
    constexpr bool over(const Shares& s) const { return tiles <= 0 || step >= s.steps_; }
    constexpr void choose(const Shares& s) {
      if (over(s)) return;
      const int rest = s.steps_ - step;
      parts = std::min(sharers / tiles, rest / length);
      whole = parts > 0 ? 0 : std::max(1, tiles / sharers);
    }
    constexpr void next(const Shares& s) {
      if (parts > 0) {
        step += parts * length;
        sharer += parts * tiles;
        sharers -= parts * tiles;
      } else {
        tile += whole * sharers;
        tiles -= whole * sharers;
        length = std::max(length - whole * (s.steps_ - step), s.least_);
      }
      choose(s);
    }
  };

  int tiles_ = 0, steps_ = 0, most_ = 0, sharers_ = 0;
  int length_ = 0, least_ = 1, items_ = 0;
};

}  // namespace trireme::cuda::sm90
