// einsum: an expression such as "bqhd,bkhd->bhqk" as permute, sum, multiply and matmul.
//
// Operands are combined from left to right, two at a time. The letters of two operands are of four kinds:
//
//   batch        in both, and used later:       leading dims of matmul
//   contracted   in both, and not used later:   the inner dim of matmul
//   left, right  in one of them:                rows and columns of matmul
//
// A letter that only one operand has and that is not used later is summed over first. Without contracted letters the
// product is an elementwise one, and with nothing but batch and contracted letters a product and a sum.
#include <cctype>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "autograd/autocast.h"
#include "autograd/ops.h"
#include "autograd/support.h"

namespace trireme {
namespace {

constexpr const char* einsum_name = "einsum";

bool has(std::string_view letters, char letter) { return letters.find(letter) != std::string_view::npos; }

struct Expression {
  std::vector<std::string> inputs;
  std::string output;
};

/// The letters of one tensor, each once.
std::string letters_of(std::string_view term, std::string_view expression) {
  std::string letters;
  for (const char c : term) {
    if (c == ' ') continue;
    require(std::isalpha(static_cast<unsigned char>(c)) != 0, einsum_name,
            "'{}' in '{}'; expected letters, commas and at most one '->'", c, expression);
    require(!has(letters, c), einsum_name,
            "the letter '{}' twice in '{}' of '{}'; expected each letter once per tensor", c, term, expression);
    letters += c;
  }
  return letters;
}

Expression parse(std::string_view text) {
  Expression result;
  const std::size_t arrow = text.find("->");
  std::string_view left = text.substr(0, arrow);
  for (std::size_t comma = 0; comma != std::string_view::npos;) {
    comma = left.find(',');
    result.inputs.push_back(letters_of(left.substr(0, comma), text));
    if (comma != std::string_view::npos) left.remove_prefix(comma + 1);
  }
  std::map<char, int> uses;
  for (const std::string& input : result.inputs)
    for (const char letter : input) ++uses[letter];
  if (arrow == std::string_view::npos) {
    for (const auto& [letter, count] : uses)
      if (count == 1) result.output += letter;
    return result;
  }
  result.output = letters_of(text.substr(arrow + 2), text);
  for (const char letter : result.output)
    require(uses.count(letter) == 1, einsum_name, "the letter '{}' of the result of '{}' is in no operand", letter,
            text);
  return result;
}

/// A tensor and the letters of its dims.
struct LabelledTensor {
  Tensor x;
  std::string letters;

  std::int64_t size(char letter) const { return x.size(static_cast<int>(letters.find(letter))); }
  /// With its dims in the order of `wanted`, which has the same letters.
  Tensor in_order(const std::string& wanted) const {
    if (wanted == letters) return x;
    std::vector<int> dims;
    for (const char letter : wanted) dims.push_back(static_cast<int>(letters.find(letter)));
    return permute(x, dims);
  }
  /// Without the letters that are not in `used`: summed over.
  LabelledTensor summed_to(std::string_view used) const {
    std::vector<int> gone;
    std::string left;
    for (std::size_t i = 0; i < letters.size(); ++i) {
      if (has(used, letters[i])) {
        left += letters[i];
      } else {
        gone.push_back(static_cast<int>(i));
      }
    }
    return gone.empty() ? *this : LabelledTensor{sum(x, gone), left};
  }
};

/// Dims first .. first + count - 1 as one.
Tensor merged(const Tensor& x, int first, std::size_t count) {
  if (count == 0) return unsqueeze(x, first);
  return count == 1 ? x : flatten(x, first, first + static_cast<int>(count) - 1);
}

/// The elementwise product, with dims batch, left, right.
Tensor outer(const LabelledTensor& a, const LabelledTensor& b, const std::string& batch, const std::string& left,
             const std::string& right) {
  Tensor x = a.in_order(batch + left), y = b.in_order(batch + right);
  for (std::size_t i = 0; i < right.size(); ++i) x = unsqueeze(x, -1);
  for (std::size_t i = 0; i < left.size(); ++i) y = unsqueeze(y, static_cast<int>(batch.size()));
  return x * y;
}

/// The product of two operands, with the letters that are used later or in the result.
LabelledTensor product(const LabelledTensor& first, const LabelledTensor& second, const std::string& later) {
  const LabelledTensor a = first.summed_to(later + second.letters), b = second.summed_to(later + first.letters);
  std::string batch, contracted, left, right;
  for (const char letter : a.letters)
    (has(b.letters, letter) ? (has(later, letter) ? batch : contracted) : left) += letter;
  for (const char letter : b.letters)
    if (!has(a.letters, letter)) right += letter;
  const std::string kept = batch + left + right;
  if (contracted.empty()) return {outer(a, b, batch, left, right), kept};
  if (left.empty() && right.empty() && !batch.empty())
    return LabelledTensor{a.in_order(batch + contracted) * b.in_order(batch + contracted), batch + contracted}
        .summed_to(kept);
  const int at = static_cast<int>(batch.size());
  const Tensor rows = merged(merged(a.in_order(batch + left + contracted), at, left.size()), at + 1, contracted.size());
  const Tensor columns =
      merged(merged(b.in_order(batch + contracted + right), at, contracted.size()), at + 1, right.size());
  std::vector<std::int64_t> extents;
  for (const char letter : batch + left) extents.push_back(a.size(letter));
  for (const char letter : right) extents.push_back(b.size(letter));
  return {reshape(matmul(rows, columns), Shape(std::span<const std::int64_t>(extents))), kept};
}

void check_operands(std::string_view text, const Expression& e, const std::vector<Tensor>& operands) {
  require(e.inputs.size() == operands.size(), einsum_name, "'{}' has {} operands; got {} tensors", text,
          e.inputs.size(), operands.size());
  std::map<char, std::int64_t> sizes;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const Tensor& x = operands[i];
    require_floating(einsum_name, x);
    require(x.dtype() == operands[0].dtype(), einsum_name, "dtypes differ: {} and {}; cast_to one of them",
            name(operands[0].dtype()), name(x.dtype()));
    require(x.dims() == static_cast<int>(e.inputs[i].size()), einsum_name,
            "operand {} of '{}' is '{}'; expected a tensor with {} dims, got {}", i, text, e.inputs[i],
            e.inputs[i].size(), x.shape());
    for (int dim = 0; dim < x.dims(); ++dim) {
      const char letter = e.inputs[i][static_cast<std::size_t>(dim)];
      const auto [known, added] = sizes.try_emplace(letter, x.size(dim));
      require(added || known->second == x.size(dim), einsum_name,
              "the letter '{}' of '{}' has size {}, and in operand {} {} size {}; expected one size", letter, text,
              known->second, i, x.shape(), x.size(dim));
    }
  }
}

}  // namespace

Tensor einsum(std::string_view expression, const std::vector<Tensor>& given) {
  const Expression e = parse(expression);
  std::vector<Tensor> operands;
  for (const Tensor& x : given) operands.push_back(for_product(x));
  const Autocast as_given(std::nullopt);
  check_operands(expression, e, operands);
  LabelledTensor result{operands[0], e.inputs[0]};
  for (std::size_t i = 1; i < operands.size(); ++i) {
    std::string later = e.output;
    for (std::size_t j = i + 1; j < operands.size(); ++j) later += e.inputs[j];
    result = product(result, {operands[i], e.inputs[i]}, later);
  }
  return result.summed_to(e.output).in_order(e.output);
}

}  // namespace trireme
