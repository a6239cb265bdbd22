// Reads and writes the directory of a .npz file. It stands at the end of the archive and says where each array is.
#include <algorithm>
#include <array>
#include <cstring>
#include <set>

#include "data/npy.h"
#include "data/npy_layout.h"
#include "data/utf8.h"

namespace trireme {
namespace {

using namespace npy_layout;

constexpr std::size_t most_comment = 0xFFFF;

template <class T>
T number_at(std::string_view bytes, std::size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

class NpzParser {
 public:
  NpzParser(std::string_view content, const std::filesystem::path& path) : content_(content), path_(path) {}

  std::vector<NpzEntry> parse() {
    const std::size_t end = find_end();
    const auto entries = number_at<std::uint16_t>(content_, end + 10);
    const auto bytes = number_at<std::uint32_t>(content_, end + 12),
               begin = number_at<std::uint32_t>(content_, end + 16);
    if (number_at<std::uint16_t>(content_, end + 4) != 0 || number_at<std::uint16_t>(content_, end + 8) != entries)
      refuse(end, "an archive of several parts; expected one");
    if (entries > npz_most_entries || begin == all_ones || bytes == all_ones)
      refuse(end, "an archive of more than 65534 arrays or 4 GiB; expected less; save the arrays as .npy files");
    if (begin > end || bytes != end - begin)
      refuse(end,
             fmt::format("the directory is said to be {} bytes from byte {}; expected it to end here", bytes, begin));
    std::size_t at = begin;
    for (int i = 0; i < entries; ++i) at = take(at, end);
    if (at != end) refuse(at, "bytes after the last entry of the directory; expected its end");
    check_overlap(begin);
    read_headers();
    return std::move(found_);
  }

 private:
  [[noreturn]] void refuse(std::size_t byte, const std::string& what) const {
    fail(ExitCode::data, "npz", "{} byte {}: {}", path_.string(), byte, what);
  }

  /// Where the end of the directory begins: 22 bytes and a comment before the end of the file.
  std::size_t find_end() const {
    const std::size_t most = std::min(content_.size(), end_bytes + most_comment);
    for (std::size_t back = end_bytes; back <= most; ++back) {
      const std::size_t at = content_.size() - back;
      if (number_at<std::uint32_t>(content_, at) == end_mark &&
          number_at<std::uint16_t>(content_, at + 20) == back - end_bytes)
        return at;
    }
    refuse(content_.size(), "no end of a ZIP archive; expected a file that np.savez wrote, whole");
  }

  /// Number `index` of an entry's extra field for large archives, which holds a size or an offset of 64 bits. numpy
  /// writes this field for each file.
  std::uint64_t large_field(std::string_view extra, int index, std::size_t at) const {
    for (std::size_t i = 0; i + 4 <= extra.size();) {
      const auto kind = number_at<std::uint16_t>(extra, i), bytes = number_at<std::uint16_t>(extra, i + 2);
      const std::size_t value = i + 4 + 8 * static_cast<std::size_t>(index);
      if (kind == 1 && value + 8 <= std::min<std::size_t>(i + 4 + bytes, extra.size()))
        return number_at<std::uint64_t>(extra, value);
      i += 4 + static_cast<std::size_t>(bytes);
    }
    refuse(at, "a size that is missing in the entry's extra field; expected it there");
  }

  /// One entry of the directory, which ends before `end`; returns where the next begins.
  std::size_t take(std::size_t at, std::size_t end) {
    if (end - at < directory_bytes || number_at<std::uint32_t>(content_, at) != directory_mark)
      refuse(at, "not an entry of a ZIP directory; expected one");
    const auto flags = number_at<std::uint16_t>(content_, at + 8), method = number_at<std::uint16_t>(content_, at + 10);
    const auto crc = number_at<std::uint32_t>(content_, at + 16);
    std::uint64_t packed = number_at<std::uint32_t>(content_, at + 20),
                  bytes = number_at<std::uint32_t>(content_, at + 24),
                  local = number_at<std::uint32_t>(content_, at + 42);
    const std::size_t name_bytes = number_at<std::uint16_t>(content_, at + 28),
                      extra_bytes = number_at<std::uint16_t>(content_, at + 30),
                      comment_bytes = number_at<std::uint16_t>(content_, at + 32);
    if (end - at - directory_bytes < name_bytes + extra_bytes + comment_bytes)
      refuse(at, "an entry of the directory that reaches beyond its end; expected it to end before");
    const std::string_view name = content_.substr(at + directory_bytes, name_bytes),
                           extra = content_.substr(at + directory_bytes + name_bytes, extra_bytes);
    int index = 0;
    if (bytes == all_ones) bytes = large_field(extra, index++, at);
    if (packed == all_ones) packed = large_field(extra, index++, at);
    if (local == all_ones) local = large_field(extra, index++, at);
    if ((flags & 1) != 0) refuse(at, fmt::format("{} is encrypted; expected it not to be", in_quotes(name)));
    if (method != 0)
      refuse(at, fmt::format("{} is compressed (method {}); expected stored arrays; write them with np.savez, not "
                             "np.savez_compressed",
                             in_quotes(name), method));
    if (packed != bytes)
      refuse(at, fmt::format("{} has two sizes, {} and {}; expected one", in_quotes(name), packed, bytes));
    add(name, at, local, bytes, crc);
    return at + directory_bytes + name_bytes + extra_bytes + comment_bytes;
  }

  void add(std::string_view name, std::size_t at, std::uint64_t local, std::uint64_t bytes, std::uint32_t crc) {
    if (!name.ends_with(suffix) || name.size() == suffix.size() || valid_utf8_prefix(name) != name.size())
      refuse(at, fmt::format("a file {}; expected names in UTF-8 that end in .npy", in_quotes(name)));
    if (local > content_.size() || content_.size() - local < local_bytes ||
        number_at<std::uint32_t>(content_, local) != local_mark)
      refuse(at, fmt::format("{} is said to begin at byte {}; expected a file there", in_quotes(name), local));
    const std::uint64_t begin = local + local_bytes + number_at<std::uint16_t>(content_, local + 26) +
                                number_at<std::uint16_t>(content_, local + 28);
    if (begin > content_.size() || bytes > content_.size() - begin)
      refuse(at, fmt::format("{} is said to have {} bytes from byte {}; expected them inside the archive",
                             in_quotes(name), bytes, begin));
    NpzEntry entry{.name = std::string(name.substr(0, name.size() - suffix.size())),
                   .begin = static_cast<std::size_t>(begin),
                   .end = static_cast<std::size_t>(begin + bytes)};
    if (!names_.insert(entry.name).second) refuse(at, fmt::format("two files {}; expected one", in_quotes(name)));
    locals_.emplace_back(local, entry.end);
    checksums_.push_back(crc);
    found_.push_back(std::move(entry));
  }

  /// Files must not share bytes: otherwise the arrays could need more memory than the archive's size.
  void check_overlap(std::size_t directory) {
    std::vector<std::pair<std::uint64_t, std::uint64_t>> ranges = locals_;
    std::sort(ranges.begin(), ranges.end());
    for (std::size_t i = 0; i < ranges.size(); ++i) {
      const std::uint64_t next = i + 1 < ranges.size() ? ranges[i + 1].first : directory;
      if (ranges[i].second > next)
        refuse(static_cast<std::size_t>(ranges[i].first),
               "a file overlaps with what comes next; expected it to end before");
    }
  }

  /// Compares the checksum of each file, and parses its .npy header.
  void read_headers() {
    for (std::size_t i = 0; i < found_.size(); ++i) {
      NpzEntry& entry = found_[i];
      const std::string_view bytes = content_.substr(entry.begin, entry.end - entry.begin);
      if (crc32(bytes) != checksums_[i])
        refuse(entry.begin, fmt::format("{} is damaged: its checksum is {:08x}; expected {:08x}", in_quotes(entry.name),
                                        crc32(bytes), checksums_[i]));
      entry.header = parse_npy(bytes, path_, entry.begin);
    }
  }

  std::string_view content_;
  const std::filesystem::path& path_;
  std::vector<NpzEntry> found_;
  std::set<std::string> names_;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> locals_;  // of each entry: its local header's begin, its end
  std::vector<std::uint32_t> checksums_;
};

/// The reflected polynomial of CRC-32, by byte.
constexpr std::array<std::uint32_t, 256> crc_table = [] {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit) value = (value & 1) != 0 ? value >> 1 ^ 0xEDB88320U : value >> 1;
    table[byte] = value;
  }
  return table;
}();

template <class T>
void append(std::string& text, T value) {
  text.append(reinterpret_cast<const char*>(&value), sizeof value);
}

/// The fields that a file's local header and its entry in the directory have in common.
std::string common_fields(const ArchivedFile& file) {
  std::string fields;
  append(fields, std::uint16_t{20});      // version of the format
  append(fields, std::uint16_t{0x0800});  // the name is UTF-8
  append(fields, std::uint16_t{0});       // stored
  append(fields, std::uint16_t{0});
  append(fields, std::uint16_t{0x0021});  // 1980-01-01, so that equal arrays give equal bytes
  append(fields, file.crc);
  append(fields, file.bytes);
  append(fields, file.bytes);
  append(fields, static_cast<std::uint16_t>(file.name.size()));
  append(fields, std::uint16_t{0});  // no extra field
  return fields;
}

}  // namespace

namespace npy_layout {

std::string local_header(const ArchivedFile& file) {
  std::string text;
  append(text, local_mark);
  return text + common_fields(file) + file.name;
}

std::string directory_entry(const ArchivedFile& file) {
  std::string text;
  append(text, directory_mark);
  append(text, std::uint16_t{20});
  text += common_fields(file) + std::string(10, '\0');  // no comment, first part, no attributes
  append(text, file.begin);
  return text + file.name;
}

std::string directory_end(std::size_t files, std::size_t bytes, std::uint32_t begin) {
  std::string text;
  append(text, end_mark);
  append(text, std::uint32_t{0});
  append(text, static_cast<std::uint16_t>(files));
  append(text, static_cast<std::uint16_t>(files));
  append(text, static_cast<std::uint32_t>(bytes));
  append(text, begin);
  append(text, std::uint16_t{0});
  return text;
}

}  // namespace npy_layout

std::uint32_t npy_layout::continue_crc(std::uint32_t crc, std::string_view bytes) {
  crc = ~crc;
  for (const char c : bytes) crc = crc_table[(crc ^ static_cast<unsigned char>(c)) & 0xFFU] ^ crc >> 8;
  return ~crc;
}

std::uint32_t crc32(std::string_view bytes) { return continue_crc(0, bytes); }

std::vector<NpzEntry> parse_npz(std::string_view content, const std::filesystem::path& path) {
  return NpzParser(content, path).parse();
}

}  // namespace trireme
