#include "parallel/checkpoint/whole_tensors.h"

#include <set>
#include <sstream>

#include "data/utf8.h"
#include "parallel/checkpoint/weights_text.h"
#include "parallel/comm/texts.h"

namespace trireme::checkpoint {
namespace {

constexpr std::int64_t bytes_on_the_way = std::int64_t{64} << 20;  // senders wait when they are this far ahead

/// One line for each part. The name comes last, as it may contain spaces.
std::string describe(const std::vector<HeldTensor>& parts) {
  std::string text;
  for (const HeldTensor& part : parts)
    text += fmt::format("{} {} {} {} {}\n", static_cast<int>(part.value.dtype()), numbers(part.global),
                        numbers(part.start), numbers(part.value.shape()), part.name);
  return text;
}

/// All tensors by name, from the descriptions of all ranks. The same on every rank, so all throw or none.
std::map<std::string, WholeTensor> joined(const std::vector<std::string>& descriptions, const char* where,
                                          const char* remedy) {
  std::map<std::string, WholeTensor> tensors;
  for (std::size_t rank = 0; rank < descriptions.size(); ++rank) {
    std::istringstream lines(descriptions[rank]);
    std::set<std::string> of_rank;
    for (std::string line; std::getline(lines, line);) {
      std::istringstream in(line);
      int dtype = 0;
      in >> dtype;
      const Shape global = parse_shape(in), start = parse_shape(in), shape = parse_shape(in);
      const std::string name = line.substr(static_cast<std::size_t>(in.tellg()) + 1);
      const auto [found, is_new] = tensors.try_emplace(name, WholeTensor{static_cast<DType>(dtype), global, {}});
      WholeTensor& whole = found->second;
      if (!of_rank.insert(name).second || whole.shape != global || whole.dtype != static_cast<DType>(dtype))
        fail(ExitCode::usage, where,
             "two tensors would have the name {} in the file: {} and {}; expected a name for each; {}", in_quotes(name),
             whole.shape, global, remedy);
      whole.parts.push_back({static_cast<int>(rank), start, shape});
    }
  }
  for (const auto& [name, whole] : tensors) {
    std::int64_t count = 0;
    for (const TensorPart& part : whole.parts) count += part.shape.count();
    require(count == whole.shape.count(), where,
            "the ranks hold {} of the {} elements of {}; expected all; call it on all ranks that hold a part of the "
            "module, with the same module",
            count, whole.shape.count(), name);
  }
  return tensors;
}

/// A view of `whole`.
Tensor place_of(const Tensor& whole, const TensorPart& part) {
  Tensor view = whole;
  for (int dim = 0; dim < part.shape.dims(); ++dim) view = view::slice(view, dim, part.start[dim], part.shape[dim]);
  return view;
}

}  // namespace

WholeTensors::WholeTensors(std::vector<HeldTensor> parts, ProcessGroup& group, const char* where, const char* remedy)
    : parts_(std::move(parts)),
      group_(group),
      tensors_(joined(all_gather_texts(group, describe(parts_)), where, remedy)) {
  for (const HeldTensor& part : parts_) mine_[part.name] = &part;
}

Tensor WholeTensors::gather(const std::string& name) {
  const WholeTensor& whole = tensors_.at(name);
  const auto own = mine_.find(name);
  const Tensor dense = own == mine_.end() ? Tensor() : contiguous(own->second->value.to(Device::cpu));
  Tensor complete;
  if (!first()) {
    if (dense.defined()) group_.send(dense, 0, 0).wait();
  } else if (whole.parts.size() == 1 && whole.parts.front().rank == 0) {
    complete = dense;
  } else {
    complete = Tensor::empty(whole.shape, whole.dtype);
    for (const TensorPart& part : whole.parts) {
      Tensor place = place_of(complete, part);
      Tensor arrived = part.rank == 0 ? dense : Tensor::empty(part.shape, whole.dtype);
      if (part.rank != 0) group_.recv(arrived, part.rank, 0).wait();
      copy(arrived, place);
    }
  }
  on_the_way_ += whole.shape.count() * static_cast<std::int64_t>(size_of(whole.dtype));
  if (on_the_way_ >= bytes_on_the_way) {
    group_.barrier();
    on_the_way_ = 0;
  }
  return complete;
}

}  // namespace trireme::checkpoint
