// select_gemm() and what belongs to it; compiled once for all levels. Read next: core/cpu/gemm.cpp.
#include <fmt/ranges.h>

#include <array>
#include <atomic>

#include "core/cpu/gemm.h"

namespace trireme {
namespace {

using cpu::GemmLibrary;

struct Named {
  std::string_view name;
  GemmLibrary library;
  bool (*installed)();  // null: part of this program
  std::string_view file;
};
constexpr std::array<Named, 4> products = {
    {{"trireme", GemmLibrary::trireme, nullptr, {}},
     {"eigen", GemmLibrary::eigen, nullptr, {}},
     {"openblas", GemmLibrary::openblas, cpu::has_openblas, "libopenblas.so.0, Debian's libopenblas0"},
     {"onednn", GemmLibrary::onednn, cpu::has_onednn, "libdnnl.so.2 or .3, Debian's libdnnl2"}}};

std::atomic<const Named*> selected = products.data();

const Named& product_of(std::string_view name) {
  for (const Named& product : products) {
    if (product.name == name) return product;
  }
  fail(ExitCode::usage, "select_gemm", "unknown matrix product '{}'; expected one of: {}", name,
       fmt::join(gemm_names(), ", "));
}

}  // namespace

cpu::GemmLibrary cpu::selected_gemm_library() { return selected.load()->library; }

std::vector<std::string_view> gemm_names() {
  std::vector<std::string_view> names;
  names.reserve(products.size());
  for (const Named& product : products) names.push_back(product.name);
  return names;
}

bool gemm_installed(std::string_view name) {
  const Named& product = product_of(name);
  return product.installed == nullptr || product.installed();
}

void select_gemm(std::string_view name) {
  const Named& product = product_of(name);
  if (!gemm_installed(name)) {
    fail(ExitCode::usage, "select_gemm",
         "{} (select_gemm(), --gemm): that library is not installed (looked for: {}); install it, or put its folder "
         "into "
         "LD_LIBRARY_PATH, or select trireme or eigen, which are always there",
         name, product.file);
  }
  selected = &product;
}

std::string_view selected_gemm() { return selected.load()->name; }

}  // namespace trireme
