// The kernel table's gemm: leading dims, transposes and batches become single products (gemm.h), which the selected
// implementation computes. Read next: gemm_packed.cpp.
#include "core/cpu/gemm.h"

#include "core/cpu/kernels.h"
#include "core/gemm_steps.h"
#include "core/packed_weights.h"
#include "core/parallel_for.h"

namespace trireme::cpu {

const ProductKernel& selected_product() {
  switch (selected_gemm_library()) {
    case GemmLibrary::trireme:
      return packed_product;
    case GemmLibrary::eigen:
      return eigen_product;
    case GemmLibrary::openblas:
      return openblas_product;
    case GemmLibrary::onednn:
      return onednn_product;
  }
  return packed_product;
}

namespace {

/// The last two dims of x, without its leading ones.
MatrixView last_two_dims(const Tensor& x) {
  return {x.raw(), x.dtype(), x.size(-2), x.size(-1), x.strides()[-2], x.strides()[-1]};
}

/// The leading dims of one gemm, walked in row-major order.
struct Batch {
  const Tensor &a, &b, &c;
  int dims = c.dims() - 2;
  std::int64_t count = leading_count();

  std::int64_t leading_count() const {
    std::int64_t result = 1;
    for (int dim = 0; dim < dims; ++dim) result *= c.size(dim);
    return result;
  }

  /// `product` moved to matrix `index` of the batch.
  Product at(Product product, std::int64_t index) const {
    std::int64_t a_offset = 0, b_offset = 0, c_offset = 0;
    for (int dim = dims - 1; dim >= 0; --dim) {
      const std::int64_t coordinate = index % c.size(dim);
      index /= c.size(dim);
      a_offset += coordinate * a.strides()[dim];
      b_offset += coordinate * b.strides()[dim];
      c_offset += coordinate * c.strides()[dim];
    }
    move(product.a, a_offset);
    move(product.b, b_offset);
    move(product.c, c_offset);
    return product;
  }

  static void move(MatrixView& x, std::int64_t offset) {
    x.data = static_cast<std::byte*>(x.data) + offset * static_cast<std::int64_t>(size_of(x.dtype));
  }
};

/// x @ weight for x [.., M, K] with dense leading dims is one product of [.. * M, K]: true if the rows continue.
bool rows_continue(const Tensor& x) {
  for (int dim = x.dims() - 3; dim >= 0; --dim) {
    if (x.size(dim) != 1 && x.strides()[dim] != x.strides()[dim + 1] * x.size(dim + 1)) return false;
  }
  return true;
}

bool repeats(const Tensor& x) {
  for (int dim = 0; dim < x.dims() - 2; ++dim) {
    if (x.size(dim) != 1 && x.strides()[dim] != 0) return false;
  }
  return true;
}

void run_batch(const ProductKernel& kernel, const Product& first, const Batch& batch, int team) {
  const MemoryScope scope(MemoryCategory::workspace);
  // With enough matrices, one thread computes each. Otherwise the whole team works on each in turn.
  const bool split_batch = batch.count >= team && team > 1;
  const auto bytes = static_cast<std::int64_t>((kernel.workspace_bytes(first, split_batch ? 1 : team) + 63) / 64 * 64);
  const Tensor workspace = Tensor::empty({bytes * (split_batch ? team : 1)}, DType::u8);
  auto* memory = workspace.data<std::uint8_t>();
  if (!split_batch) {
    for (std::int64_t i = 0; i < batch.count; ++i) {
      kernel.multiply(batch.at(first, i), team, reinterpret_cast<std::byte*>(memory));
    }
    return;
  }
  parallel_for(team, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t part = begin; part < end; ++part) {
      auto* own = reinterpret_cast<std::byte*>(memory + part * bytes);
      for (std::int64_t i = batch.count * part / team; i < batch.count * (part + 1) / team; ++i) {
        kernel.multiply(batch.at(first, i), 1, own);
      }
    }
  });
}

Epilogue epilogue_of(const GemmOptions& options) {
  const auto address = [](const Tensor& x) { return x.defined() ? x.raw() : nullptr; };
  return {.activation = options.activation,
          .derivative = options.derivative,
          .pre_activation = address(options.pre_activation),
          .residual = address(options.residual)};
}

/// The kept copy of b's panels; null if they are not kept.
PackedWeights::Copy* kept_panels(const ProductKernel& kernel, const Product& product, const Tensor& b) {
  PackedWeights* const weights = PackedWeights::current();
  if (weights == nullptr || kernel.packed_b_bytes == nullptr) return nullptr;
  const std::size_t bytes = kernel.packed_b_bytes(product);
  return bytes == 0 ? nullptr : &weights->of(b, static_cast<std::int64_t>(bytes));
}

}  // namespace

void gemm(const Tensor& a, const Tensor& b, Tensor& c, const GemmOptions& options) {
  if (has_epilogue(options)) check_epilogue(a, c, options);
  check_row_sums(a, options);
  if (options.row_sums.defined()) return gemm(a, b, c, row_sums_apart(kernel_table(), a, options));
  if (c.count() == 0) return;
  const ProductKernel& kernel = selected_product();
  Product product{.a = last_two_dims(a),
                  .b = last_two_dims(b),
                  .c = last_two_dims(c),
                  .alpha = options.alpha,
                  .beta = options.beta,
                  .bias = options.bias.defined() ? options.bias.raw() : nullptr};
  const Batch batch{a, b, c};
  const bool one = batch.count == 1 || (repeats(b) && rows_continue(a) && rows_continue(c));
  if (one) {
    product.a.rows *= batch.count;
    product.c.rows *= batch.count;
  }
  if (has_epilogue(options) && !(one && kernel.takes_epilogue != nullptr && kernel.takes_epilogue(product)))
    return gemm_in_steps(kernel_table(), a, b, c, options);
  if (!one) return run_batch(kernel, product, batch, threads());
  const Epilogue epilogue = epilogue_of(options);
  if (has_epilogue(options)) product.epilogue = &epilogue;
  PackedWeights::Copy* const kept = options.b_is_weight ? kept_panels(kernel, product, b) : nullptr;
  if (kept != nullptr) {
    product.packed_b = reinterpret_cast<std::byte*>(kept->panels.data<std::uint8_t>());
    product.packed_b_filled = kept->filled;
  }
  const Tensor rows = c.as_strided({product.c.rows, product.c.columns}, {product.c.row_stride, 1}, 0);
  run_batch(kernel, product, Batch{rows, rows, rows}, threads());
  if (kept != nullptr) kept->filled = true;
}

}  // namespace trireme::cpu
