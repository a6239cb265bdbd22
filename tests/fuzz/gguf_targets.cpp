// The target for GGUF files.

#include "data/gguf/writer.h"
#include "tests/fuzz/targets.h"

namespace trireme::fuzz {

void gguf(std::string_view input) {
  const std::filesystem::path path = "input";
  GgufLayout layout;
  if (!accepted([&] { layout = parse_gguf(input, path); })) return;
  const auto inside = [&](std::string_view bytes) {
    return bytes.empty() ||
           (bytes.data() >= input.data() && bytes.data() + bytes.size() <= input.data() + input.size());
  };
  GgufValues values;
  for (const auto& [key, value] : layout.values) {
    expect(layout.find(key) == &value || layout.find(key)->at() == value.at(), "a key is not found");
    expect(inside(key) && inside(value.bytes()), "a value lies outside its file");
    if (value.is_number()) value.number();
    if (value.type() == GgufType::array) {
      std::uint64_t count = 0;
      value.for_each([&](const GgufValue& each) {
        expect(inside(each.bytes()), "an element lies outside its file");
        if (each.is_number()) each.number();
        ++count;
      });
      expect(count == value.count(), "an array has another number of elements");
    }
    values.add(key, value);
  }
  std::uint64_t bytes = 0;
  std::vector<GgufEntry> entries;
  for (const auto& [name, stored] : layout.tensors) {
    expect(stored.begin <= stored.end && stored.end <= input.size() && stored.begin % layout.alignment == 0,
           "a tensor lies outside its file, or is not aligned");
    expect(stored.end - stored.begin == gguf_bytes(stored.storage, static_cast<std::uint64_t>(stored.shape.count())),
           "a tensor's bytes are not what its shape says");
    bytes += stored.end - stored.begin;
    if (name.size() < gguf_longest_name) entries.push_back({name, stored.storage, stored.shape});
  }
  expect(bytes <= input.size(), "tensors overlap");
  if (layout.alignment != 32 || bytes > (1 << 20)) return;
  std::string again = gguf_header(values, entries);
  for (const GgufEntry& entry : entries)
    again.resize(again.size() +
                 (gguf_bytes(entry.storage, static_cast<std::uint64_t>(entry.shape.count())) + 31) / 32 * 32);
  const GgufLayout back = parse_gguf(again, path);
  expect(back.values.size() == layout.values.size() && back.tensors.size() == entries.size(),
         "values or tensors were lost");
  for (std::size_t i = 0; i < back.values.size(); ++i)
    expect(back.values[i].first == layout.values[i].first &&
               back.values[i].second.bytes() == layout.values[i].second.bytes() &&
               back.values[i].second.type() == layout.values[i].second.type(),
           "a value changed by being written");
  for (const GgufEntry& entry : entries) {
    const GgufLayout::Stored& stored = back.tensors.find(entry.name)->second;
    expect(stored.storage == entry.storage && stored.shape == entry.shape, "a tensor changed by being written");
  }
}

}  // namespace trireme::fuzz
