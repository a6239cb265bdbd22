// The records of a TensorBoard event file, as bytes. A file is a sequence of records; a record is a protobuf message
// Event in the framing of TFRecord: length, its checksum, the message, its checksum. The messages are those of
// TensorFlow's event.proto, summary.proto and tensor.proto; the source has their field numbers.
// Read next: ops/tracking/tensorboard_sink.cpp, which writes the files.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace trireme::tensorboard {

/// When and at which step something was recorded.
struct Moment {
  double wall_time = 0;  ///< seconds since 1970
  std::int64_t step = 0;
};

using Scalars = std::vector<std::pair<std::string, double>>;  ///< tag, value; the file holds values as f32

// Each function returns one whole record.

/// Must be the first record of a file.
std::string version_record(double wall_time);
/// A point in several curves. Tags with the same text before their "/" are shown together.
std::string scalars_record(Moment when, const Scalars& scalars);
/// A text for the page "Text", which shows Markdown. `text` must be UTF-8.
std::string text_record(Moment when, std::string_view tag, std::string_view text);
/// Tells readers to drop all earlier points, of this file and of older ones, whose step is at least `when.step`.
std::string restart_record(Moment when);

/// The same text as a Markdown block that is shown as it is. Control characters other than newline and tab become "·",
/// bytes that are not UTF-8 become U+FFFD.
std::string verbatim(std::string_view text);

/// CRC-32C (Castagnoli; RFC 3720, appendix B.4).
std::uint32_t crc32c(std::string_view bytes);

}  // namespace trireme::tensorboard
