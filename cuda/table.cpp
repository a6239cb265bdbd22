// The CUDA kernel table. An adapter turns an entry's tensors into launches, or throws if no kernel takes them.
// Read next: cuda/table_arguments.h, then the adapters: table_memory.cpp, table_elementwise.cpp, table_reduce.cpp,
// table_products.cpp, table_grouped.cpp, table_attention.cpp, table_norm.cpp, table_rows.cpp,
// table_cross_entropy.cpp, table_optimizer.cpp.
#include "cuda/table.h"

#include "cuda/table_arguments.h"

namespace trireme::cuda {

const KernelTable& kernel_table() {
  static const KernelTable table = {TRIREME_EVERY_KERNEL(TRIREME_KERNEL_ENTRY)};
  return table;
}

}  // namespace trireme::cuda
