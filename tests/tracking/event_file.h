// Reads a TensorBoard event file with a decoder of its own: nothing here is shared with the code that writes the file.
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace trireme::testing {

/// CRC-32C bit by bit, as its definition says.
inline std::uint32_t slow_crc32c(std::string_view bytes) {
  std::uint32_t crc = 0xFFFFFFFF;
  for (const char c : bytes) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) crc = (crc & 1) != 0 ? (crc >> 1) ^ 0x82F63B78 : crc >> 1;
  }
  return crc ^ 0xFFFFFFFF;
}

template <class T>
T little_endian(std::string_view bytes) {
  if (bytes.size() < sizeof(T)) throw std::runtime_error("the file ends within a number");
  T value;
  std::memcpy(&value, bytes.data(), sizeof(T));
  return value;
}

/// The messages of a file of TFRecords. Throws if a length, a checksum or the end is wrong.
inline std::vector<std::string> messages_of(std::string_view file) {
  const auto check = [](std::string_view data, std::uint32_t stored) {
    const std::uint32_t crc = slow_crc32c(data), masked = ((crc >> 15) | (crc << 17)) + 0xA282EAD8;
    if (masked != stored) throw std::runtime_error("a checksum is wrong");
  };
  std::vector<std::string> messages;
  while (!file.empty()) {
    const auto length = little_endian<std::uint64_t>(file);
    check(file.substr(0, 8), little_endian<std::uint32_t>(file.substr(8)));
    if (file.size() < 16 + length) throw std::runtime_error("the file ends within a record");
    messages.emplace_back(file.substr(12, length));
    check(messages.back(), little_endian<std::uint32_t>(file.substr(12 + length)));
    file.remove_prefix(16 + length);
  }
  return messages;
}

/// The fields of a protobuf message by number: an integer's digits, or the bytes of fixed and delimited fields.
using Fields = std::multimap<int, std::string>;

inline Fields fields_of(std::string_view message) {
  std::size_t at = 0;
  const auto varint = [&] {
    std::uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      if (at >= message.size() || shift > 63) throw std::runtime_error("a varint does not end");
      const auto byte = static_cast<unsigned char>(message[at++]);
      value |= std::uint64_t{byte & 0x7FU} << shift;
      if ((byte & 0x80) == 0) return value;
    }
  };
  Fields fields;
  while (at < message.size()) {
    const std::uint64_t key = varint(), type = key & 7;
    const int number = static_cast<int>(key >> 3);
    if (type == 0) {
      fields.emplace(number, std::to_string(varint()));
      continue;
    }
    const std::uint64_t length = type == 1 ? 8 : type == 5 ? 4 : type == 2 ? varint() : 99999999;
    if (length > message.size() - at) throw std::runtime_error("a field is longer than its message");
    fields.emplace(number, message.substr(at, length));
    at += length;
  }
  return fields;
}

/// The only field of this number.
inline const std::string& one(const Fields& fields, int number) {
  if (fields.count(number) != 1) throw std::runtime_error("expected field " + std::to_string(number) + " once");
  return fields.find(number)->second;
}

struct ReadEvent {
  double wall_time = 0;
  std::int64_t step = 0;
  std::string version;
  bool restart = false;
  std::map<std::string, float> scalars;
  std::map<std::string, std::string> texts;
};

inline std::vector<ReadEvent> events_of(std::string_view file) {
  std::vector<ReadEvent> events;
  for (const std::string& message : messages_of(file)) {
    const Fields event = fields_of(message);
    ReadEvent& read = events.emplace_back();
    read.wall_time = little_endian<double>(one(event, 1));
    read.step = std::stoll(one(event, 2));
    if (event.contains(3)) read.version = one(event, 3);
    if (event.contains(7)) read.restart = one(fields_of(one(event, 7)), 1) == "1";
    if (!event.contains(5)) continue;
    const Fields summary = fields_of(one(event, 5));
    for (auto [value, end] = summary.equal_range(1); value != end; ++value) {
      const Fields fields = fields_of(value->second);
      const std::string& tag = one(fields, 1);
      if (fields.contains(2)) {
        read.scalars[tag] = little_endian<float>(one(fields, 2));
        continue;
      }
      const Fields tensor = fields_of(one(fields, 8));
      const Fields plugin = fields_of(one(fields_of(one(fields, 9)), 1));
      if (one(tensor, 1) != "7" || one(plugin, 1) != "text") throw std::runtime_error("not a text");
      read.texts[tag] = one(tensor, 8);
    }
  }
  return events;
}

}  // namespace trireme::testing
