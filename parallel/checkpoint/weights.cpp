// Writing weights into one file. Read next: parallel/checkpoint/weights_read.cpp.
#include "parallel/checkpoint/weights.h"

#include <algorithm>

#include "data/safetensors.h"
#include "data/utf8.h"
#include "parallel/checkpoint/first_error.h"
#include "parallel/checkpoint/weights_text.h"
#include "parallel/checkpoint/whole_tensors.h"
#include "parallel/comm/texts.h"

namespace trireme::checkpoint {
namespace {

constexpr const char* where_saved = "save_weights";

/// The tensors in the order of the file.
std::vector<std::pair<std::string, WholeTensor>> in_order(const std::map<std::string, WholeTensor>& tensors) {
  std::vector<std::pair<std::string, WholeTensor>> order(tensors.begin(), tensors.end());
  std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
    return size_of(a.second.dtype) > size_of(b.second.dtype);  // so that each is aligned
  });
  return order;
}

}  // namespace

std::string numbers(const Shape& shape) {
  std::string text = std::to_string(shape.dims());
  for (const std::int64_t extent : shape) text += fmt::format(" {}", extent);
  return text;
}

Shape parse_shape(std::istream& in) {
  std::size_t dims = 0;
  in >> dims;
  std::vector<std::int64_t> extents(dims);
  for (std::int64_t& extent : extents) in >> extent;
  return Shape(std::span<const std::int64_t>(extents));
}

std::string stored_name(const HeldTensor& tensor, const NameInFile& change, const char* where) {
  std::string name = change ? change(tensor.name) : tensor.name;
  if (name.find('\n') != std::string::npos)
    fail(ExitCode::usage, where, "name_in_file gives {} the name {}; expected one without line ends", tensor.name,
         in_quotes(name));
  return name;
}

std::vector<HeldTensor> held_weights(const ParameterList& parameters, const BufferList& buffers, Units& units,
                                     const DeviceMesh& mesh, std::string_view base) {
  UnitObserver* const observer = units.observer();
  if (observer != nullptr) observer->finish_gathers();
  std::vector<StateTensor> weights;
  for (const ParameterPtr& parameter : parameters) {
    const auto piece = observer == nullptr ? nullptr : observer->kept_piece(*parameter);
    weights.push_back({"", parameter.get(), piece ? piece->weights : parameter->local.detach(), piece});
  }
  std::vector<HeldTensor> held = held_tensors(weights, buffers, mesh);
  if (!base.empty())
    for (HeldTensor& tensor : held) tensor.name = tensor.name.substr(base.size() + 1);
  return held;
}

void write_weights(const std::filesystem::path& path, const std::vector<HeldTensor>& held, ProcessGroup& group,
                   const SaveOptions& options) {
  std::vector<HeldTensor> parts;
  for (HeldTensor& part : owned_parts(held)) {
    const std::string name = stored_name(part, options.name_in_file, where_saved);
    if (name.empty()) continue;
    part.name = options.prefix + name;
    if (options.dtype && is_floating(part.value.dtype())) part.value = cast(part.value, *options.dtype);
    parts.push_back(std::move(part));
  }
  WholeTensors whole(std::move(parts), group, where_saved, "change SaveOptions::name_in_file");
  const auto tensors = in_order(whole.tensors());
  const bool writes = whole.first();
  FirstError problem;
  std::optional<SafetensorsWriter> writer;
  if (writes)
    problem.run([&] {
      std::vector<SafetensorsEntry> entries;
      for (const auto& [name, tensor] : tensors) entries.push_back({name, tensor.dtype, tensor.shape});
      writer.emplace(path, entries, options.metadata);
    });
  for (const auto& [name, tensor] : tensors) {
    const Tensor complete = whole.gather(name);
    if (writes) problem.run([&] { writer->write(complete); });
  }
  fail_together(group, [&] {
    problem.rethrow();
    if (writes) writer->commit();
  });
}

}  // namespace trireme::checkpoint
