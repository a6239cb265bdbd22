// The header of a GGUF file, written.
#include "data/gguf/writer.h"

namespace trireme {

template <class T>
void GgufValues::put(T value) {
  bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void GgufValues::put_text(std::string_view text) {
  put(static_cast<std::uint64_t>(text.size()));
  bytes_.append(text);
}

void GgufValues::begin(std::string_view key, GgufType type) {
  require(!key.empty() && key.size() <= gguf_longest_key && keys_.emplace(key).second, "gguf",
          "the key {} is empty, too long, or added twice", key);
  put_text(key);
  put(static_cast<std::uint32_t>(type));
}

void GgufValues::begin_array(std::string_view key, GgufType type, std::size_t count) {
  begin(key, GgufType::array);
  put(static_cast<std::uint32_t>(type));
  put(static_cast<std::uint64_t>(count));
}

void GgufValues::add(std::string_view key, std::uint32_t value) { begin(key, GgufType::u32), put(value); }
void GgufValues::add(std::string_view key, std::int32_t value) { begin(key, GgufType::i32), put(value); }
void GgufValues::add(std::string_view key, float value) { begin(key, GgufType::f32), put(value); }
void GgufValues::add(std::string_view key, bool value) {
  begin(key, GgufType::boolean), put(static_cast<std::uint8_t>(value ? 1 : 0));
}
void GgufValues::add(std::string_view key, std::string_view value) { begin(key, GgufType::text), put_text(value); }
void GgufValues::add(std::string_view key, std::span<const std::string> values) {
  begin_array(key, GgufType::text, values.size());
  for (const std::string& value : values) put_text(value);
}
void GgufValues::add(std::string_view key, std::span<const std::int32_t> values) {
  begin_array(key, GgufType::i32, values.size());
  for (const std::int32_t value : values) put(value);
}
void GgufValues::add(std::string_view key, std::span<const float> values) {
  begin_array(key, GgufType::f32, values.size());
  for (const float value : values) put(value);
}
void GgufValues::add(std::string_view key, const GgufValue& value) {
  if (value.type() == GgufType::array) {
    begin_array(key, value.elements(), static_cast<std::size_t>(value.count()));
  } else {
    begin(key, value.type());
    if (value.is_text()) put(static_cast<std::uint64_t>(value.bytes().size()));
  }
  bytes_.append(value.bytes());
}

std::string gguf_header(const GgufValues& values, const std::vector<GgufEntry>& entries) {
  constexpr std::uint64_t alignment = 32;
  std::string text = "GGUF";
  const auto put = [&text](auto value) { text.append(reinterpret_cast<const char*>(&value), sizeof value); };
  put(std::uint32_t{3});
  put(static_cast<std::uint64_t>(entries.size()));
  put(static_cast<std::uint64_t>(values.count()));
  text += values.bytes();
  std::uint64_t offset = 0;
  std::set<std::string_view> names;
  for (const GgufEntry& entry : entries) {
    const int dims = entry.shape.dims();
    require(dims >= 1 && dims <= gguf_most_dims && entry.shape.count() > 0 && !entry.name.empty() &&
                entry.name.size() < gguf_longest_name && names.insert(entry.name).second &&
                (entry.storage != GgufStorage::q8_0 || entry.shape[dims - 1] % q8_0_values == 0),
            "gguf", "the tensor {} {} of {} cannot be written", entry.name, entry.shape, name(entry.storage));
    put(static_cast<std::uint64_t>(entry.name.size()));
    text += entry.name;
    put(static_cast<std::uint32_t>(dims));
    for (int dim = dims - 1; dim >= 0; --dim) put(static_cast<std::uint64_t>(entry.shape[dim]));
    put(static_cast<std::uint32_t>(entry.storage));
    put(offset);
    offset += gguf_bytes(entry.storage, static_cast<std::uint64_t>(entry.shape.count()));
    offset = (offset + alignment - 1) / alignment * alignment;
  }
  text.resize((text.size() + alignment - 1) / alignment * alignment, '\0');
  return text;
}

}  // namespace trireme
