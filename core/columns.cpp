#include "core/columns.h"

namespace trireme {
namespace {

[[noreturn]] void refuse_columns(const char* where, const Tensor& x, int dim) {
  const MemoryPool::Columns columns = x.columns();
  if (!columns.split())
    fail(ExitCode::usage, where,
         "dim {} of {} has {} columns, of which {} are a vocabulary and the others padding; expected columns without "
         "padding; take slice(x, {}, 0, {}), or for a loss call cross_entropy with .slice = table.slice()",
         dim, x.shape(), columns.width, columns.whole, dim, columns.whole);
  fail(ExitCode::usage, where,
       "dim {} of {} has {} columns of a vocabulary of {}, which is split over the ranks of tp; expected all "
       "{} on each rank; gather them with y = redistribute(x, *mesh, Axis::tp, placement::S({}), placement::I){}, or "
       "for a loss call cross_entropy with .slice = table.slice() and .group = &mesh.group(Axis::tp)",
       dim, x.shape(), columns.width, columns.whole, columns.whole, dim,
       columns.padded() ? fmt::format(" and take slice(y, {}, 0, {})", dim, columns.whole) : "");
}

}  // namespace

void require_no_padding(const char* where, const Tensor& x, int dim) {
  if (x.columns().padded() && columns_dim(x) == dim) refuse_columns(where, x, dim);
}

void require_all_columns(const char* where, const Tensor& x, int dim) {
  const MemoryPool::Columns columns = x.columns();
  const bool part_of_classes = columns.split() && !columns.features;
  if ((columns.padded() || part_of_classes) && columns_dim(x) == dim) refuse_columns(where, x, dim);
}

}  // namespace trireme
