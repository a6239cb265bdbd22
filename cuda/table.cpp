// The CUDA kernel table: an adapter where a kernel exists, and a refusal that names the entry where none does.
// Read next: cuda/table_arguments.h, then the adapters: table_memory.cpp, table_elementwise.cpp, table_reduce.cpp,
// table_products.cpp, table_attention.cpp, table_norm.cpp, table_rows.cpp, table_cross_entropy.cpp,
// table_optimizer.cpp.
#include "cuda/table.h"

#include <algorithm>
#include <cstddef>
#include <iterator>

#include "cuda/runtime/open.h"
#include "cuda/table_arguments.h"

namespace trireme::cuda {
namespace {

/// The name of an entry as a template argument, so that each refusal is a function of its own.
template <std::size_t N>
struct EntryName {
  char text[N];
  constexpr EntryName(const char (&literal)[N]) { std::copy_n(literal, N, text); }  // NOLINT: from a literal
};

template <class Entry>
struct Refusal;
template <class Result, class... Args>
struct Refusal<Result (*)(Args...)> {
  template <EntryName entry>
  static Result call(Args...) {
    fail(ExitCode::usage, "device",
         "{} has no cuda kernel; expected an operation that docs/cuda.md lists; use --device cpu", entry.text);
  }
};

}  // namespace

// All entries, in the order of core/kernels.h.
#define TRIREME_KERNELS(X)                                                                                        \
  X(fill)                                                                                                         \
  X(copy)                                                                                                         \
  X(unary)                                                                                                        \
  X(unary_backward)                                                                                               \
  X(binary)                                                                                                       \
  X(axpby)                                                                                                        \
  X(dropout) X(reduce) X(sum_squares) X(gemm) X(softmax) X(softmax_backward) X(layer_norm) X(layer_norm_backward) \
      X(rms_norm) X(rms_norm_backward) X(embedding) X(embedding_backward) X(attention) X(attention_backward)      \
          X(attention_merge) X(rope) X(swiglu) X(swiglu_backward) X(cross_entropy_stats) X(cross_entropy_loss)    \
              X(cross_entropy_backward) X(adamw) X(sgd)

namespace {

KernelTable refusals() {
#define TRIREME_REFUSE(entry) .entry = Refusal<decltype(KernelTable::entry)>::call<#entry>,
  return {TRIREME_KERNELS(TRIREME_REFUSE)};
#undef TRIREME_REFUSE
}

#define TRIREME_NAME(entry) #entry,
constexpr std::string_view kNames[] = {TRIREME_KERNELS(TRIREME_NAME)};
#undef TRIREME_NAME
static_assert(sizeof(KernelTable) == std::size(kNames) * sizeof(void (*)()), "an entry is left out above");

}  // namespace

const KernelTable& kernel_table() {
  static const KernelTable table = [] {
    KernelTable t = refusals();
    t.fill = fill;
    t.copy = copy;
    t.unary = unary;
    t.unary_backward = unary_backward;
    t.binary = binary;
    t.axpby = axpby;
    t.dropout = dropout;
    t.reduce = reduce;
    t.sum_squares = sum_squares;
    t.gemm = gemm;
    t.softmax = softmax;
    t.softmax_backward = softmax_backward;
    t.layer_norm = layer_norm;
    t.layer_norm_backward = layer_norm_backward;
    t.rms_norm = rms_norm;
    t.rms_norm_backward = rms_norm_backward;
    t.embedding = embedding;
    t.embedding_backward = embedding_backward;
    t.attention = attention;
    t.attention_backward = attention_backward;
    t.attention_merge = attention_merge;
    t.rope = rope;
    t.swiglu = swiglu;
    t.swiglu_backward = swiglu_backward;
    t.cross_entropy_stats = cross_entropy_stats;
    t.cross_entropy_loss = cross_entropy_loss;
    t.cross_entropy_backward = cross_entropy_backward;
    t.adamw = adamw;
    t.sgd = sgd;
    return t;
  }();
  return table;
}

std::vector<std::string_view> missing_kernels() {
  const KernelTable none = refusals(), &table = kernel_table();
  std::vector<std::string_view> names;
#define TRIREME_COMPARE(entry) \
  if (table.entry == none.entry) names.emplace_back(#entry);
  TRIREME_KERNELS(TRIREME_COMPARE)
#undef TRIREME_COMPARE
  return names;
}

}  // namespace trireme::cuda
