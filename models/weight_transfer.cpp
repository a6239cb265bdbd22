#include "models/weight_transfer.h"

#include <algorithm>
#include <map>
#include <set>

#include "data/utf8.h"
#include "nn/lora.h"
#include "parallel/checkpoint/first_error.h"
#include "parallel/checkpoint/whole_tensors.h"
#include "parallel/comm/texts.h"

namespace trireme {
namespace {

using checkpoint::HeldTensor;

std::map<std::string_view, const WeightEntry*> by_name(const WeightMap& map) {
  std::map<std::string_view, const WeightEntry*> entries;
  for (const WeightEntry& entry : map) entries[entry.name] = &entry;
  return entries;
}

std::string listed(const char* what, const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += fmt::format("{}{}", text.empty() ? "" : ", ", name);
  return names.empty() ? text : fmt::format("; {}: {}", what, text);
}

// ---- reading --------------------------------------------------------------------------------------------------------

/// A rectangle: where it begins, and its extents.
struct Rectangle {
  std::vector<std::int64_t> start, extents;
};

/// The dims of `held` that are a part's rows and columns; nothing if the rank holds nothing of the part.
std::optional<Rectangle> held_of_part(const HeldTensor& held, const WeightPart& part) {
  const int leading = static_cast<int>(part.at.size());
  for (int dim = 0; dim < leading; ++dim) {
    const std::int64_t at = part.at[static_cast<std::size_t>(dim)] - held.start[dim];
    if (at < 0 || at >= held.value.size(dim)) return std::nullopt;
  }
  Rectangle rectangle;
  for (int dim = leading; dim < held.value.dims(); ++dim) {
    rectangle.start.push_back(held.start[dim]);
    rectangle.extents.push_back(held.value.size(dim));
  }
  return rectangle;
}

/// A view of this rank's elements of the part.
Tensor view_of_part(const HeldTensor& held, const WeightPart& part, const Tensor& value) {
  Tensor view = value;
  for (std::size_t i = 0; i < part.at.size(); ++i)
    view = view::select(view, 0, part.at[i] - held.start[static_cast<int>(i)]);
  return view;
}

/// Reads the part's rectangle, [rows, columns] of ours, into `ours`, which is on the host.
void read_part(const TensorSource& source, const WeightEntry& entry, const WeightPart& part, Rectangle r,
               Tensor& ours) {
  const TensorSource::Stored stored = source.find(part.name).value();
  // Heads with interleaved rows are read whole, and cut afterwards.
  const std::int64_t head_rows =
      part.interleaved_heads > 0 ? part_shape(entry, part)[0] / part.interleaved_heads : std::int64_t{1};
  const std::int64_t first = r.start[0], rows = r.extents[0];
  r.start[0] = first / head_rows * head_rows;
  r.extents[0] = (first + rows + head_rows - 1) / head_rows * head_rows - r.start[0];
  const std::int64_t skipped = first - r.start[0];
  const Shape whole_heads(std::span<const std::int64_t>(r.extents));

  r.start[0] += part.first_row;
  if (part.transposed) {
    std::swap(r.start[0], r.start[1]);
    std::swap(r.extents[0], r.extents[1]);
  }
  std::vector<std::int64_t> start = part.at_theirs, extents(part.at_theirs.size(), 1);
  start.insert(start.end(), r.start.begin(), r.start.end());
  extents.insert(extents.end(), r.extents.begin(), r.extents.end());
  const Shape begin{std::span<const std::int64_t>(start)}, shape{std::span<const std::int64_t>(extents)};
  if (!part.transposed && part.interleaved_heads == 0 && stored.dtype == ours.dtype() && ours.contiguous()) {
    Tensor in_place = view::reshape(ours, shape);
    return source.read(part.name, begin, in_place);
  }
  Tensor theirs = Tensor::empty(shape, stored.dtype);
  source.read(part.name, begin, theirs);

  if (whole_heads == ours.shape()) return copy_to_ours(part, theirs, ours, head_rows);
  Tensor heads = Tensor::empty(whole_heads, stored.dtype);
  copy_to_ours(part, theirs, heads, head_rows);
  copy(view::slice(heads, 0, skipped, rows), ours);
}

/// How many rows of a part are read at a time.
std::int64_t rows_at_once(const WeightPart& part, const Rectangle& r, DType stored, std::int64_t bytes) {
  if (part.interleaved_heads > 0) return r.extents[0];
  const std::int64_t columns = r.extents.size() > 1 ? r.extents[1] : 1;
  return std::max<std::int64_t>(1, bytes / (columns * static_cast<std::int64_t>(size_of(stored))));
}

void read_held(const TensorSource& source, const WeightEntry& entry, const HeldTensor& held,
               std::int64_t bytes_at_once) {
  if (held.value.count() == 0) return;  // padding only
  for (const WeightPart& part : entry.parts) {
    const std::optional<Rectangle> whole = held_of_part(held, part);
    if (!whole) continue;
    const Tensor place = view_of_part(held, part, held.value);
    const std::int64_t rows = whole->extents[0],
                       most = rows_at_once(part, *whole, source.find(part.name)->dtype, bytes_at_once);
    for (std::int64_t first = 0; first < rows; first += most) {
      Rectangle some = *whole;
      some.start[0] += first;
      some.extents[0] = std::min(most, rows - first);
      Tensor ours = view::slice(place, 0, first, some.extents[0]);
      if (ours.device() == Device::cpu) {
        read_part(source, entry, part, some, ours);
        continue;
      }
      Tensor on_host = Tensor::empty(ours.shape(), ours.dtype());
      read_part(source, entry, part, some, on_host);
      copy(on_host, ours);
    }
  }
}

}  // namespace

void require_fit(const TensorSource& source, const WeightMap& map, const Ignored& ignored, const char* where) {
  std::vector<std::string> missing, wrong_shape, integers, extra;
  std::set<std::string_view> used;
  for (const WeightEntry& entry : map)
    for (const WeightPart& part : entry.parts) {
      if (!used.insert(part.name).second) continue;
      const std::optional<TensorSource::Stored> stored = source.find(part.name);
      if (!stored)
        missing.push_back(in_quotes(part.name));
      else if (stored->shape != part.shape)
        wrong_shape.push_back(
            fmt::format("{} is {}, and {} in the model", in_quotes(part.name), stored->shape, part.shape));
      else if (!is_floating(stored->dtype))
        integers.push_back(in_quotes(part.name));
    }
  for (const std::string& name : source.names())
    if (!used.contains(name) && !(ignored && ignored(name))) extra.push_back(in_quotes(name));
  const std::string problems = listed("missing", missing) + listed("of another shape", wrong_shape) +
                               listed("integers instead of floating numbers", integers) +
                               listed("not used by the model", extra);
  if (problems.empty()) return;
  fail(ExitCode::data, where,
       "the tensors in {} do not fit the model that its configuration describes{}; expected the same names and shapes; "
       "nothing was loaded; take a folder whose files belong together",
       source.path(), problems);
}

void read_weights(const TensorSource& source, const WeightMap& map, const std::vector<HeldTensor>& held,
                  ProcessGroup& group, const ReadProgress& progress, std::int64_t bytes_at_once) {
  const auto entries = by_name(map);
  fail_together(group, [&] {
    std::uint64_t bytes = 0;
    for (const HeldTensor& tensor : held) {
      const auto found = entries.find(tensor.name);
      if (found == entries.end()) continue;
      const WeightEntry& entry = *found->second;
      require(tensor.global == entry.shape, "weights", "{} is {} in the map, and {} in the model", tensor.name,
              entry.shape, tensor.global);
      read_held(source, entry, tensor, bytes_at_once);
      bytes += static_cast<std::uint64_t>(tensor.value.bytes());
      if (progress) progress(bytes);
    }
    source.require_whole();
  });
}

// ---- writing --------------------------------------------------------------------------------------------------------

namespace {

/// Where a part of their tensor comes from.
struct Contribution {
  const WeightEntry* entry;
  const WeightPart* part;
};

/// Their tensors in the order in which the map names them first, each with what it is made of.
std::vector<std::pair<TheirTensor, std::vector<Contribution>>> contributions(const WeightMap& map) {
  std::vector<std::pair<TheirTensor, std::vector<Contribution>>> all;
  std::map<std::string_view, std::size_t> index;
  for (const WeightEntry& entry : map)
    for (const WeightPart& part : entry.parts) {
      const auto [found, is_new] = index.try_emplace(part.name, all.size());
      if (is_new) all.push_back({{part.name, part.shape}, {}});
      all[found->second].second.push_back({&entry, &part});
    }
  return all;
}

/// Our tensors, gathered when one of theirs needs them and dropped after the last one that does.
class Gathered {
 public:
  Gathered(checkpoint::WholeTensors& whole, const WeightMap& map, double adapter_scale)
      : whole_(whole), adapter_scale_(adapter_scale) {
    for (const WeightEntry& entry : map) uses_[entry.name] = entry.parts.size();
  }
  /// Collective. Undefined on all ranks but the first.
  Tensor get(const std::string& name) {
    const auto found = kept_.find(name);
    const Tensor tensor = found == kept_.end() ? with_adapter(name, whole_.gather(name)) : found->second;
    if (--uses_[name] > 0)
      kept_[name] = tensor;
    else
      kept_.erase(name);
    return tensor;
  }

 private:
  Tensor with_adapter(const std::string& name, const Tensor& weight) {
    const std::string layer = name.substr(0, name.rfind('.')), a = layer + ".lora_a", b = layer + ".lora_b";
    if (adapter_scale_ == 0 || !name.ends_with(".weight") || !whole_.tensors().contains(a)) return weight;
    const Tensor first = whole_.gather(a), second = whole_.gather(b);
    return whole_.first() ? nn::merged_weight(weight, first, second, adapter_scale_) : weight;
  }

  checkpoint::WholeTensors& whole_;
  double adapter_scale_;
  std::map<std::string, std::size_t> uses_;
  std::map<std::string, Tensor> kept_;
};

}  // namespace

std::vector<TheirTensor> their_tensors(const WeightMap& map) {
  std::vector<TheirTensor> tensors;
  for (auto& [tensor, made_of] : contributions(map)) tensors.push_back(tensor);
  return tensors;
}

void write_weights(const std::vector<HeldTensor>& held, const WeightMap& map, ProcessGroup& group, DType dtype,
                   const std::function<void(const std::string& name, const Tensor& whole)>& write,
                   double adapter_scale) {
  const auto entries = by_name(map);
  std::vector<HeldTensor> parts = checkpoint::owned_parts(held);
  std::erase_if(parts, [&](const HeldTensor& part) {
    return !entries.contains(part.name) && !(adapter_scale != 0 && nn::is_adapter(part.name));
  });
  checkpoint::WholeTensors whole(std::move(parts), group, "write_weights",
                                 "give each tensor of the model its own name");
  for (const auto& [name, entry] : entries) {
    const auto found = whole.tensors().find(std::string(name));
    require(found != whole.tensors().end() && found->second.shape == entry->shape, "write_weights",
            "the map has {} of {}, and the model {}", name, entry->shape,
            found == whole.tensors().end() ? "no such tensor" : fmt::format("one of {}", found->second.shape));
  }
  Gathered ours(whole, map, adapter_scale);
  checkpoint::FirstError problem;
  for (const auto& made : contributions(map)) {
    const TheirTensor& tensor = made.first;
    Tensor theirs;
    for (const Contribution& from : made.second) {
      const Tensor value = ours.get(from.entry->name);  // goes on after an error: other ranks send their parts
      if (!whole.first()) continue;
      problem.run([&] {
        if (!theirs.defined()) theirs = Tensor::empty(tensor.shape, dtype);
        copy_to_theirs(*from.entry, *from.part, value, theirs);
      });
    }
    if (whole.first()) problem.run([&] { write(tensor.name, theirs); });
  }
  fail_together(group, [&] { problem.rethrow(); });
}

}  // namespace trireme
