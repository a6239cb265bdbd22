#include "ops/tracking/tensorboard_records.h"

#include <array>
#include <protozero/pbf_writer.hpp>

#include "data/utf8.h"

namespace trireme::tensorboard {
namespace {

using Message = protozero::pbf_writer;  // appends fields to a string, or to a message that contains this one

// Field numbers, named MESSAGE_FIELD.
enum Field : protozero::pbf_tag_type {
  event_wall_time = 1,
  event_step = 2,
  event_file_version = 3,
  event_summary = 5,
  event_session_log = 7,
  summary_value = 1,
  value_tag = 1,
  value_simple_value = 2,
  value_tensor = 8,
  value_metadata = 9,
  metadata_plugin_data = 1,
  plugin_data_name = 1,
  tensor_dtype = 1,
  tensor_shape = 2,
  tensor_string_val = 8,
  shape_dim = 2,
  dim_size = 1,
  session_log_status = 1,
};
constexpr std::int32_t dtype_string = 7, status_start = 1;  // values of DataType and SessionLog.SessionStatus

constexpr std::array<std::uint32_t, 256> crc_table = [] {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1U) ^ ((crc & 1U) != 0 ? 0x82F63B78U : 0U);
    table[byte] = crc;
  }
  return table;
}();

/// TFRecord stores this function of the checksum, because a checksum of data that contains its own is weak.
std::uint32_t masked(std::uint32_t crc) { return ((crc >> 15U) | (crc << 17U)) + 0xA282EAD8U; }

template <class T>
void append_little_endian(std::string& bytes, T value) {
  for (std::size_t i = 0; i < sizeof(T); ++i) bytes += static_cast<char>((value >> (8 * i)) & 0xFFU);
}

std::string framed(std::string_view message) {
  std::string record;
  append_little_endian(record, std::uint64_t{message.size()});
  append_little_endian(record, masked(crc32c(record)));
  record += message;
  append_little_endian(record, masked(crc32c(message)));
  return record;
}

/// A record whose Event has this moment and what `fill` adds.
template <class Fill>
std::string event_record(Moment when, const Fill& fill) {
  std::string bytes;
  Message event(bytes);
  event.add_double(event_wall_time, when.wall_time);
  event.add_int64(event_step, when.step);
  fill(event);
  return framed(bytes);
}

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
  std::uint32_t crc = ~0U;
  for (const char c : bytes) crc = (crc >> 8U) ^ crc_table[(crc ^ static_cast<unsigned char>(c)) & 0xFFU];
  return ~crc;
}

std::string version_record(double wall_time) {
  return event_record({wall_time, 0}, [](Message& event) { event.add_string(event_file_version, "brain.Event:2"); });
}

std::string scalars_record(Moment when, const Scalars& scalars) {
  return event_record(when, [&](Message& event) {
    Message summary(event, event_summary);
    for (const auto& [tag, number] : scalars) {
      Message value(summary, summary_value);
      value.add_string(value_tag, tag);
      value.add_float(value_simple_value, static_cast<float>(number));
    }
  });
}

std::string text_record(Moment when, std::string_view tag, std::string_view text) {
  return event_record(when, [&](Message& event) {
    Message summary(event, event_summary);
    Message value(summary, summary_value);
    value.add_string(value_tag, tag.data(), tag.size());
    {
      Message tensor(value, value_tensor);  // of shape [1]
      tensor.add_enum(tensor_dtype, dtype_string);
      {
        Message shape(tensor, tensor_shape);
        Message dim(shape, shape_dim);
        dim.add_int64(dim_size, 1);
      }
      tensor.add_bytes(tensor_string_val, text.data(), text.size());
    }
    Message metadata(value, value_metadata);
    Message plugin(metadata, metadata_plugin_data);
    plugin.add_string(plugin_data_name, "text");
  });
}

std::string restart_record(Moment when) {
  return event_record(when, [](Message& event) {
    Message log(event, event_session_log);
    log.add_enum(session_log_status, status_start);
  });
}

// Markdown shows lines that begin with four blanks as they are, whatever they contain.
std::string verbatim(std::string_view text) {
  std::string shown = "    ";
  for (std::size_t at = 0; at < text.size();) {
    const auto character = decode_utf8(text, at);
    const char32_t value = character ? character->value : U'\uFFFD';
    const bool control = (value < 0x20 && value != '\n' && value != '\t') || (value >= 0x7F && value <= 0x9F);
    append_utf8(shown, control ? U'\u00B7' : value);
    if (value == '\n') shown += "    ";
    at += character ? character->bytes : 1;
  }
  return shown;
}

}  // namespace trireme::tensorboard
