// Text of a tensor, as NumPy prints arrays: rows in brackets, numbers of one width, and of large tensors only the
// first and last three indices of each dim.
//
//   f32 [2, 3]
//   [[1.0000, 2.5000, 3.0000],
//    [4.0000, 5.0000, 6.0000]]
#include <algorithm>
#include <cmath>
#include <ostream>
#include <vector>

#include "core/tensor.h"

namespace trireme {
namespace {

constexpr std::int64_t most_elements = 1000;  // of a tensor that is printed whole
constexpr std::int64_t edge = 3;              // indices shown at each end of a dim otherwise

double element_at(const Tensor& x, std::int64_t offset) {
  return visit_any(x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T value = x.data<T>()[offset];
    if constexpr (std::is_arithmetic_v<T>) {
      return static_cast<double>(value);
    } else {
      return static_cast<double>(static_cast<float>(value));
    }
  });
}

/// Walks the shown elements of a tensor in host memory: once for their texts, once to arrange these.
class Printer {
 public:
  Printer(const Tensor& x) : x_(x), shortened_(x.count() > most_elements) {}

  std::string text() {
    collect(0, 0);
    choose_format();
    std::string result;
    arrange(0, 0, result);
    return result;
  }

 private:
  /// Calls f(index, whether indices before it are left out) for each index of a dim that is shown.
  template <class F>
  void each_shown(int dim, F&& f) const {
    const std::int64_t size = x_.size(dim);
    const bool cut = shortened_ && size > 2 * edge;
    for (std::int64_t i = 0; i < size; ++i) {
      if (cut && i == edge) i = size - edge;
      f(i, cut && i == size - edge);
    }
  }

  void collect(int dim, std::int64_t offset) {
    if (dim == x_.dims()) {
      shown_.push_back(element_at(x_, offset));
    } else {
      each_shown(dim, [&](std::int64_t i, bool) { collect(dim + 1, offset + i * x_.strides()[dim]); });
    }
  }

  /// Whole numbers without decimals, others with four; with an exponent if four decimals would lose most digits.
  void choose_format() {
    double largest = 0, smallest = INFINITY;
    for (const double v : shown_) {
      if (!std::isfinite(v)) continue;
      whole_ &= v == std::trunc(v);
      largest = std::max(largest, std::abs(v));
      if (v != 0) smallest = std::min(smallest, std::abs(v));
    }
    exponent_ = is_floating(x_.dtype()) && (largest >= 1e8 || (!whole_ && (largest >= 1e5 || smallest < 1e-4)));
    for (const double v : shown_) width_ = std::max(width_, number(v).size());
  }

  std::string number(double v) const {
    if (!is_floating(x_.dtype())) return fmt::format("{:.0f}", v);
    if (std::isnan(v)) return "nan";  // whatever its sign
    if (!std::isfinite(v)) return fmt::format("{}", v);
    if (exponent_) return fmt::format("{:.4e}", v);
    return whole_ ? fmt::format("{:.0f}.", v) : fmt::format("{:.4f}", v);
  }

  void arrange(int dim, std::int64_t offset, std::string& to) {
    if (dim == x_.dims()) {
      to += fmt::format("{:>{}}", number(shown_[next_++]), width_);
      return;
    }
    const bool innermost = dim == x_.dims() - 1;
    const std::string separator = innermost ? ", "
                                            : "," + std::string(static_cast<std::size_t>(x_.dims() - 1 - dim), '\n') +
                                                  std::string(static_cast<std::size_t>(dim + 1), ' ');
    to += '[';
    each_shown(dim, [&](std::int64_t i, bool after_gap) {
      if (i > 0) to += separator;
      if (after_gap) to += "..." + separator;
      arrange(dim + 1, offset + i * x_.strides()[dim], to);
    });
    to += ']';
  }

  const Tensor& x_;
  const bool shortened_;
  bool whole_ = true, exponent_ = false;
  std::vector<double> shown_;
  std::size_t next_ = 0, width_ = 0;
};

}  // namespace

std::string to_string(const Tensor& x) {
  if (!x.defined()) return "undefined";
  std::string head = fmt::format("{} {}", name(x.dtype()), x.shape());
  if (x.device() != Device::cpu) head += fmt::format(" on {}", name(x.device()));
  if (x.requires_grad()) head += ", requires a gradient";
  if (!x.has_elements()) return head + ", released";
  if (x.count() == 0) return head + "\n[]";
  const Tensor here = x.to(Device::cpu);
  return head + "\n" + Printer(here).text();
}

std::ostream& operator<<(std::ostream& stream, const Tensor& x) { return stream << to_string(x); }

}  // namespace trireme

fmt::format_context::iterator fmt::formatter<trireme::Tensor>::format(const trireme::Tensor& x,
                                                                      fmt::format_context& context) const {
  const std::string text = trireme::to_string(x);
  return std::copy(text.begin(), text.end(), context.out());
}
