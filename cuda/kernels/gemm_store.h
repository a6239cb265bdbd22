// How the products finish sums and store them. A warp works on a window at a time (gemm_window.h). Sums lie in its
// registers as mma.sync and wgmma leave them: a lane has pairs of columns, and a store of these would write 16 bytes of
// each row. So values pass through the warp's slab in shared memory after they were rounded to 16 bits: written by
// stmatrix, read by rows, 16 bytes for each lane. What an epilogue reads takes the opposite way: by cp.async, a window
// ahead, and ldmatrix. Only f32 results pass through the slab as they are.
//
// Shared memory moves 128 bytes a cycle for all warps. A window takes 16 cycles for each tensor of 16 bits that it
// writes or reads, and 32 for c in f32; if sums passed through the slab in f32, every window would take 32.
// Read next: cuda/kernels/gemm_epilogue.h, the formulas; gemm_tiles_sm90.h and gemm_tiles_sm80.h, the callers.
#pragma once

#include "cuda/kernels/gemm_epilogue.h"
#include "cuda/kernels/gemm_window.h"

namespace trireme::cuda {

/// Which kernel's epilogues the product needs: `all` if no smaller set has what it asks for. The others need rows that
/// consist of whole pieces of 16 bytes, and read at most one tensor of 16 bits. Those with an activation add neither a
/// residual nor the old c; they exist for linear layers (form nt) and, as derivatives, for gradients of inputs (nn).
template <class T, class Out>
__host__ __device__ __forceinline__ Epilogues epilogues_of(const Gemm<T, Out>& p) {
  const Epilogue<T>& e = p.epilogue;
  if (p.n % 8 != 0 || !rows_allow_vectors(p)) return Epilogues::all;
  const bool adds = e.residual != nullptr || e.accumulate;
  const bool tanh = e.activation == Activation::gelu_tanh;
  if (std::is_same_v<T, Out> && (tanh || e.activation == Activation::gelu) && !adds) {
    if (e.derivative && p.form == Form::nn) return tanh ? Epilogues::gelu_tanh_derivative : Epilogues::gelu_derivative;
    if (!e.derivative && p.form == Form::nt) return tanh ? Epilogues::gelu_tanh : Epilogues::gelu;
  }
  const bool reads_c = std::is_same_v<T, Out> && e.accumulate;
  const bool simple =
      e.activation == Activation::none && e.pre_activation == nullptr && (e.residual == nullptr || !reads_c);
  return simple ? Epilogues::simple : Epilogues::all;
}

/// A warp that finishes and stores the windows of its tiles. Stmatrix: on Hopper.
template <bool Stmatrix_, class T_, class Out>
struct Finisher {
  using T = T_;
  static constexpr bool kStmatrix = Stmatrix_, kRounds = std::is_same_v<T, Out>;
  const Gemm<T, Out>& p;
  std::byte* slab;
  bool vectors, simple;
  const T* ahead;  ///< what is read a window ahead: the only tensor of 16 bits that the epilogue reads, or null

  /// reads_ahead: false if nothing is to be read a window ahead. Without epilogues `all`, nothing is read at all then.
  __device__ __forceinline__ Finisher(const Gemm<T, Out>& product, std::byte* memory, bool reads_ahead = true)
      : p(product),
        slab(memory),
        vectors(rows_allow_vectors(product)),
        simple(epilogues_of(product) == Epilogues::simple),
        ahead(nullptr) {
    if (!reads_ahead) return;
    const Epilogue<T>& e = p.epilogue;
    const T* const before = e.derivative ? e.pre_activation : nullptr;
    const T* old = nullptr;
    if constexpr (kRounds) old = e.accumulate ? p.c : nullptr;
    const int count = (before != nullptr ? 1 : 0) + (e.residual != nullptr ? 1 : 0) + (old != nullptr ? 1 : 0);
    if (count == 1) ahead = before != nullptr ? before : e.residual != nullptr ? e.residual : old;
  }

  /// Where this warp reads window `number`: two take turns.
  __device__ std::byte* read_slab(int number) const { return slab + number % 2 * kReadBytes; }
  __device__ std::byte* write_slab() const { return slab + 2 * kReadBytes; }

  __device__ static float half(const std::uint32_t* pairs, int i) {
    return i % 2 == 0 ? low_half<T>(pairs[i / 2]) : high_half<T>(pairs[i / 2]);
  }
  __device__ static __forceinline__ void round(const float* x, std::uint32_t (&pairs)[kWindowSums / 2]) {
    TRIREME_UNROLL
    for (int i = 0; i < kWindowSums / 2; ++i) pairs[i] = pack_pair<T>(x[2 * i], x[2 * i + 1]);
  }
  /// Calls f(x[i], value) with each value that was brought for window `number`.
  template <class F>
  __device__ __forceinline__ void with_read(int number, float* x, const F& f) const {
    TRIREME_UNROLL
    for (int c = 0; c < kWindowColumns; c += 16) {
      std::uint32_t pairs[4];
      SharedTile<T, 16, kWindowColumns>{read_slab(number)}.load(pairs, 0, c);
      TRIREME_UNROLL
      for (int i = 0; i < 8; ++i) f(x[c / 2 + i], half(pairs, i));
    }
  }
  __device__ __forceinline__ void add_read(int number, float* x) const {
    with_read(number, x, [](float& sum, float value) { sum += value; });
  }
  /// x times the derivative of the activation at what was brought.
  template <Finish finish>
  __device__ __forceinline__ void multiply_by_derivative(int number, float* x) const {
    with_read(number, x, [](float& sum, float before) { sum = finished<finish, Out>(sum, before); });
  }
  /// Writes a window to the slab.
  __device__ __forceinline__ void put_pairs(const std::uint32_t (&pairs)[kWindowSums / 2]) const {
    sync_warp();  // the last window has been stored
    TRIREME_UNROLL
    for (int c = 0; c < kWindowColumns; c += 16)
      SharedTile<T, 16, kWindowColumns>{write_slab()}.template store<kStmatrix>(pairs + c / 4, 0, c);
    sync_warp();
  }
  /// Writes x to a slab of its own, and its activation to the other: of the rounded values where these are kept.
  template <Finish finish>
  __device__ __forceinline__ void put_activated(float* x) const {
    const bool keeps = p.epilogue.pre_activation != nullptr;
    sync_warp();  // the last window has been stored
    TRIREME_UNROLL
    for (int c = 0; c < kWindowColumns; c += 16) {
      std::uint32_t pairs[4];
      TRIREME_UNROLL
      for (int i = 0; i < 4; ++i) pairs[i] = pack_pair<T>(x[c / 2 + 2 * i], x[c / 2 + 2 * i + 1]);
      SharedTile<T, 16, kWindowColumns>{read_slab(0)}.template store<kStmatrix>(pairs, 0, c);
      if (keeps) {
        TRIREME_UNROLL
        for (int i = 0; i < 8; ++i) x[c / 2 + i] = half(pairs, i);
      }
      TRIREME_UNROLL
      for (int i = 0; i < 8; ++i) x[c / 2 + i] = finished<finish, Out>(x[c / 2 + i], 0);
      TRIREME_UNROLL
      for (int i = 0; i < 4; ++i) pairs[i] = pack_pair<T>(x[c / 2 + 2 * i], x[c / 2 + 2 * i + 1]);
      SharedTile<T, 16, kWindowColumns>{write_slab()}.template store<kStmatrix>(pairs, 0, c);
    }
    sync_warp();
  }
  __device__ __forceinline__ void put(const float* x) const {
    if constexpr (kRounds) {
      std::uint32_t pairs[kWindowSums / 2];
      round(x, pairs);
      put_pairs(pairs);
    } else {
      const int lane = static_cast<int>(threadIdx.x % 32);
      sync_warp();
      TRIREME_UNROLL
      for (int i = 0; i < kWindowSums; i += 2) {
        const Pack<float, 2> pair = {{x[i], x[i + 1]}};
        const int row = lane / 4 + i / 2 % 2 * 8, column = i / 4 * 8 + lane % 4 * 2;
        store_vector(write_slab() + RowLanes<float>::place(row, column), pair);
      }
      sync_warp();
    }
  }

  /// Requests a window of `ahead`, which is not null.
  __device__ __forceinline__ void request(const Window& w, int number) const {
    if (!w.empty()) bring(ahead, w, p.c_pitch, vectors, read_slab(number));
    cp_async_commit();
  }
  /// Waits for the window's values of `from` in the slab. One newer window may be on its way.
  __device__ __forceinline__ void await(const T* from, const Window& w, int number) const {
    if (from == ahead) {
      cp_async_wait<1>();
    } else {
      sync_warp();  // the last reads of the slab
      bring(from, w, p.c_pitch, vectors, read_slab(number));
      cp_async_commit();
      cp_async_wait<0>();
    }
    sync_warp();
  }

  __device__ __forceinline__ void activate(const Window& w, int number, float (&x)[kWindowSums]) const {
    const Epilogue<T>& e = p.epilogue;
    std::uint32_t before[kWindowSums / 2] = {};
    if (e.derivative) {
      await(e.pre_activation, w, number);
      TRIREME_UNROLL
      for (int c = 0; c < kWindowColumns; c += 16)
        SharedTile<T, 16, kWindowColumns>{read_slab(number)}.load(before + c / 4, 0, c);
    } else if (e.pre_activation != nullptr) {
      round(x, before);
      put_pairs(before);
      take(e.pre_activation, w, p.c_pitch, vectors, write_slab(), false);
      TRIREME_UNROLL
      for (int i = 0; i < kWindowSums; ++i) x[i] = half(before, i);
    }
    visit(finish_of(e.activation, e.derivative), [&](auto finish) {
      TRIREME_UNROLL
      for (int i = 0; i < kWindowSums; ++i) x[i] = finished<finish.value, Out>(x[i], half(before, i));
    });
  }

  /// Finishes and stores window `number`. x: sums with the bias; x[4 j + 2 h + i] is that of row lane / 4 + 8 h and of
  /// column 8 j + 2 (lane % 4) + i. All branches are taken by whole warps.
  __device__ __forceinline__ void store(const Window& w, int number, float (&x)[kWindowSums]) const {
    const Epilogue<T>& e = p.epilogue;
    if (e.pre_activation != nullptr || e.activation != Activation::none) activate(w, number, x);
    if (e.residual != nullptr) {
      await(e.residual, w, number);
      add_read(number, x);
    }
    if constexpr (kRounds)
      if (e.accumulate) {
        await(p.c, w, number);
        add_read(number, x);
      }
    put(x);
    take(p.c, w, p.c_pitch, vectors, write_slab(), !kRounds && e.accumulate);
  }
};

/// f(std::integral_constant<int, i>) for an i from First to Last - 1.
template <int First, int Last, class F>
__device__ __forceinline__ void with_constant(int i, F f) {
  constexpr int kMiddle = (First + Last) / 2;
  if constexpr (Last - First == 1)
    f(std::integral_constant<int, First>());
  else if (i < kMiddle)
    with_constant<First, kMiddle>(i, f);
  else
    with_constant<kMiddle, Last>(i, f);
}

/// How the windows of a warp's tile lie: PerRow beside each other, and RowStep rows below the next.
template <int Count, int PerRow_, int RowStep_>
struct Windows {
  static constexpr int kCount = Count, kPerRow = PerRow_, kRowStep = RowStep_, kParts = Count / kPerRow;

  template <class T>
  __device__ static Window first(const Place<T>& place, int row, int column, int columns, std::int64_t pitch) {
    return {place.offset + row * pitch + column, place.m_end - row, columns - column};
  }
  /// The one after window v, which is w.
  __device__ static __forceinline__ Window next(const Window& w, int v, std::int64_t pitch) {
    Window next = {w.at + kWindowColumns, w.rows, w.columns - kWindowColumns};
    if constexpr (kParts > 1)
      if ((v + 1) % kPerRow == 0)
        next = {next.at + kRowStep * pitch - kPerRow * kWindowColumns, w.rows - kRowStep,
                next.columns + kPerRow * kWindowColumns};
    if (v + 1 == Count) next.rows = 0;
    return next;
  }
  /// Brings what the epilogue will read into L2: a line of 128 bytes has two windows.
  template <class T>
  __device__ static __forceinline__ void prefetch(const T* from, const Window& w, std::int64_t pitch) {
    static_assert(kPerRow % 2 == 0);
    if (from == nullptr) return;
    std::uint32_t thread = threadIdx.x;
    compute_again(thread);  // for each tile: nvcc would keep the columns from the first on
    const int lane = static_cast<int>(thread % 32);
    for (int v = lane / 16 * 2; v < Count; v += 4) {
      const int row = v / kPerRow * kRowStep + lane % 16, column = v % kPerRow * kWindowColumns;
      if (row < w.rows && column < w.columns) prefetch_l2(from + w.at + row * pitch + column);
    }
  }
};

/// Finishes and stores all windows of a warp, with a simple epilogue or one activation. The code is unrolled: sums are
/// finished in their registers, and addresses differ by constants. Windows of the same columns follow each other, for
/// the bias.
template <class W, Finish finish, class F, class T, int Sums>
__device__ __forceinline__ void store_unrolled(const F& finisher, const Window& w, const T* bias, float (&sums)[Sums]) {
  constexpr bool kActivates = finish == Finish::gelu_tanh || finish == Finish::gelu;
  const auto& p = finisher.p;
  using Out = std::remove_cvref_t<decltype(*p.c)>;
  using Read = RowLanes<T>;
  using Write = RowLanes<Out>;
  const Read read(w, p.c_pitch, finisher.slab);
  const Write write(w, p.c_pitch, finisher.write_slab());
  const auto request = [&](int number) {
    if (number < W::kCount) {
      const int row = number % W::kParts * W::kRowStep, column = number / W::kParts * kWindowColumns;
      TRIREME_UNROLL
      for (int i = 0; i < Read::kCount; ++i) {
        const bool exists = row + i * Read::kStep < read.rows && column < read.columns;
        const T* const from = finisher.ahead + read.at + (row + i * Read::kStep) * p.c_pitch + column;
        cp_async_16(read.slab + number % 2 * kReadBytes + i * Read::kStepBytes, exists ? from : finisher.ahead,
                    exists ? 16 : 0);
      }
    }
    cp_async_commit();
  };
  const bool reads = !kActivates && finisher.ahead != nullptr;
  if (reads) request(0);
  std::uint32_t added[kWindowColumns / 8];
  TRIREME_UNROLL
  for (int number = 0; number < W::kCount; ++number) {
    const int part = number % W::kParts, row = part * W::kRowStep, column = number / W::kParts * kWindowColumns;
    float* const x = sums + (part * W::kPerRow + number / W::kParts) * kWindowSums;
    if (part == 0) read_bias(bias, p.n - w.columns + column, w.columns - column, added);
    TRIREME_UNROLL
    for (int i = 0; i < kWindowSums; ++i) x[i] = p.epilogue.alpha * x[i] + F::half(added, i / 4 * 2 + i % 2);
    if (reads) {
      request(number + 1);
      cp_async_wait<1>();
      sync_warp();
      if constexpr (finish == Finish::none)
        finisher.add_read(number, x);
      else
        finisher.template multiply_by_derivative<finish>(number, x);
    }
    const std::int64_t at = write.at + row * p.c_pitch + column;
    if constexpr (kActivates) {
      finisher.template put_activated<finish>(x);
      if (column < read.columns && p.epilogue.pre_activation != nullptr)
        take_pieces(read, p.epilogue.pre_activation + at, read.rows - row, p.c_pitch, false);
    } else {
      finisher.put(x);
    }
    if (column < write.columns)
      take_pieces(write, p.c + at, write.rows - row, p.c_pitch, !F::kRounds && p.epilogue.accumulate);
  }
}

/// Finishes and stores all windows of a warp. `w` is the first window; `sums` has one window's sums after the other's.
template <class W, Epilogues epilogues, class F, class T, int Sums>
__device__ __forceinline__ void store_windows(const F& finisher, Window w, const T* bias, float (&sums)[Sums]) {
  if constexpr (epilogues != Epilogues::all) {
    store_unrolled<W, finish_of(epilogues)>(finisher, w, bias, sums);
  } else {
    if (finisher.simple) return store_unrolled<W, Finish::none>(finisher, w, bias, sums);
    const auto& p = finisher.p;
    if (finisher.ahead != nullptr) finisher.request(w, 0);
    TRIREME_NO_UNROLL  // one copy of the code that finishes a window
        for (int v = 0; v < W::kCount; ++v) {
      if (finisher.ahead != nullptr) finisher.request(W::next(w, v, p.c_pitch), v + 1);
      if (!w.empty()) {
        std::uint32_t added[kWindowColumns / 8];
        read_bias(bias, p.n - w.columns, w.columns, added);
        float x[kWindowSums];
        with_constant<0, W::kCount>(v, [&](auto window) {  // registers have no addresses
          TRIREME_UNROLL
          for (int i = 0; i < kWindowSums; ++i)
            x[i] = p.epilogue.alpha * sums[window.value * kWindowSums + i] + F::half(added, i / 4 * 2 + i % 2);
        });
        finisher.store(w, v, x);
      }
      w = W::next(w, v, p.c_pitch);
    }
  }
}

}  // namespace trireme::cuda
