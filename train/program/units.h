// Numbers as a person reads them: durations, counts, bytes.
#pragma once

#include <cstdint>
#include <string>

namespace trireme {

/// 0.31 s: "0s"; 72.4 s: "1m12s"; 7384 s: "2h03m"; 190000 s: "2d04h".
std::string format_duration(double seconds);
/// How long something took: "0.4 s", "12.3 s", and from a minute on as format_duration().
std::string format_elapsed(double seconds);
/// 950: "950"; 20140: "20.1k"; 1234567: "1.2M".
std::string format_count(double count);
/// 1536: "1.5 KiB".
std::string format_bytes(double bytes);
/// 1234567: "1,234,567".
std::string thousands(std::int64_t n);

}  // namespace trireme
