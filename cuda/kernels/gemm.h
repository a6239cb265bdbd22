// Matrix products: c = epilogue(a b), with a [M, K], b [K, N], c [M, N], each stored row-major with a pitch; `form`
// says which operands are stored transposed. 16-bit inputs, sums in f32, one rounding at the end.
//   NN forward of a layer with weights [in, out];  NT: weights [out, in], and input gradients of NN;  TN: weight
//   gradients, a^T b.
// Work: 2 M N K FLOPs; M K + K N values read and M N written at least once. A block that computes a tile of 128 x 128
// reads 2 (128 + 128) K bytes for 2 128 128 K FLOPs: 64 FLOPs per byte from L2, and more per byte from memory.
// Read next: cuda/kernels/gemm_sm80.cu, then gemm_sm90.cu.
#pragma once

#include <cstdint>
#include <functional>
#include <type_traits>

#include "cuda/device/device.h"

namespace trireme::cuda {

enum class Form : std::uint8_t { nn, nt, tn };
enum class Activation : std::uint8_t { none, gelu_tanh, gelu, silu };

/// What happens to a sum before it is stored, in this order. A null pointer skips its step.
template <class T>
struct Epilogue {
  float alpha = 1.0F;       ///< multiplies only the sum
  const T* bias = nullptr;  ///< [N], added
  /// [M, N], pitch of c: receives the value before the activation, for its backward. The activation is computed from
  /// the stored value, so recomputing it from here gives the same bits.
  T* pre_activation = nullptr;
  Activation activation = Activation::none;
  /// Backward: multiplies by the activation's derivative at pre_activation instead, which is then read. With the
  /// weights of the layer after an activation, the product gives the gradient of the activation's input.
  bool derivative = false;
  const T* residual = nullptr;  ///< [M, N], pitch of c, added
  bool accumulate = false;      ///< adds the content of c: sums weight gradients over micro-batches
};

/// T: bf16 or f16. Out: T or float. Pitches in elements. Any sizes and alignments: operands whose pitch or address is
/// not a multiple of 16 bytes take a slower path to shared memory, with the same results.
template <class T, class Out>
struct Gemm {
  Form form;
  int m, n, k;
  const T* a;
  std::int64_t a_pitch;
  const T* b;
  std::int64_t b_pitch;
  Out* c;
  std::int64_t c_pitch;
  Epilogue<T> epilogue{};
  int batch = 1;  ///< products of one shape, this far apart:
  std::int64_t a_stride = 0, b_stride = 0, c_stride = 0;
  /// [M], or null: receives the sums of a's rows, before alpha. gemm_sm90 only; see row_sums_problem().
  float* row_sums = nullptr;
};

/// Why gemm_sm90 cannot give the row sums that a product asks for; null: it can, or they are not asked for.
template <class T, class Out>
const char* row_sums_problem(const Gemm<T, Out>& p) {
  if (p.row_sums == nullptr) return nullptr;
  if (!std::is_same_v<Out, float>) return "row sums beside a result of 16 bits; it gives them beside one in f32";
  if (p.epilogue.residual != nullptr) return "row sums beside a residual";
  if (p.form != Form::tn) return "row sums of an a that is not transposed; it gives them in form TN";
  return p.batch == 1 ? nullptr : "row sums of a batch; it gives those of one product";
}

/// The products of a mixture of experts in one launch: rows, sorted by expert, form groups of any lengths, and each
/// group has its own matrix. `product` describes them as one product over the rows of all groups; its batch is 1.
///   NT, NN: M is cut. Group g of c is group g of a times b + g b_stride: y = x w^T with w [G, out, in], dx = dy w.
///   TN: K is cut. c + g c_stride is the product of group g of a, transposed, and of b: dw [G, out, in] = dy^T x.
/// An epilogue's bias is [G, N]. NT, NN: rows of no group remain unchanged in c. TN: the c of an empty group is the
/// result of an empty sum; with accumulation, but neither bias nor residual, it is not touched.
template <class T, class Out>
struct GroupedGemm {
  Gemm<T, Out> product;
  int groups;
  const int*
      offsets;  ///< [G + 1] in device memory, rising, within the rows of `product`; group g begins at row offsets[g]
};

/// Ampere and later: cp.async into a ring of stages, ldmatrix, mma.sync.
template <class T, class Out>
void gemm_sm80(const Gemm<T, Out>& product, Stream stream = nullptr);

/// Operands of any alignment. The host does not read the offsets: a fixed number of blocks finds its own tiles.
template <class T, class Out>
void grouped_gemm_sm80(const GroupedGemm<T, Out>& products, Stream stream = nullptr);

/// Returns `floats` in device memory, contents undefined, for the kernels that are queued until gemm_sm90 returns. It
/// is called only if memory is needed.
using Workspace = std::function<float*(std::int64_t floats)>;

/// Tiles of gemm_sm90, M x N of a block; the last of a cluster of two, each of which has 256 x 192. automatic: those
/// that take the least time by the costs in gemm_cut.h. Some epilogues, and grouped products, do not exist with the
/// last two: then the largest of the others that exists takes their place.
enum class Tile90 : std::uint8_t { automatic, m64n64, m128n128, m128n256, m128n192, m256n384 };

/// Hopper (sm_90a): TMA, mbarriers, wgmma, persistent blocks. a and b must begin at multiples of 16 bytes, and their
/// pitches and batch strides must be such multiples (stride 0: one matrix for all); otherwise throws ExitCode::usage.
/// c, pre_activation and residual may lie anywhere.
/// With a workspace, tiles that would leave multiprocessors idle are divided among them; without one, never. Divided
/// sums are added in another order than whole ones, the same every time.
template <class T, class Out>
void gemm_sm90(const Gemm<T, Out>& product, Stream stream = nullptr, Tile90 tile = Tile90::automatic,
               const Workspace& workspace = nullptr);
/// As grouped_gemm_sm80, with the requirements of gemm_sm90; b_stride of NT and NN must be a multiple of 16 bytes too.
template <class T, class Out>
void grouped_gemm_sm90(const GroupedGemm<T, Out>& products, Stream stream = nullptr, Tile90 tile = Tile90::automatic);

}  // namespace trireme::cuda
