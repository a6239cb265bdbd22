#include "data/prepare/csv.h"

#include "core/error.h"

namespace trireme {

void CsvReader::refuse(std::string_view what) const {
  fail(ExitCode::data, "csv", "{} line {}: {}; correct the line, or give another --format", file_, line_, what);
}

bool CsvReader::next(std::vector<std::string>& fields) {
  fields.clear();
  if (at_ == text_.size()) return false;
  record_line_ = line_;
  while (true) {
    if (fields.size() == csv_most_fields) refuse(fmt::format("more than {} fields; expected fewer", csv_most_fields));
    fields.emplace_back();
    if (at_ < text_.size() && text_[at_] == '"') {
      quoted(fields.back());
    } else {
      plain(fields.back());
    }
    if (at_ == text_.size()) return true;
    const char end = text_[at_++];
    if (end == separator_) continue;
    if (end == '\r' && (at_ == text_.size() || text_[at_++] != '\n'))
      refuse("a carriage return (0x0D) without a line feed; expected both, or the field in quotes");
    ++line_;
    return true;
  }
}

/// A field in quotes. Ends on the character behind it, or at the end of the text.
void CsvReader::quoted(std::string& field) {
  const std::int64_t begin = line_;
  ++at_;
  while (true) {
    const std::size_t quote = text_.find('"', at_);
    if (quote == std::string_view::npos) {
      line_ = begin;
      refuse("a field begins with a quote here and does not end; expected a closing quote");
    }
    const std::string_view piece = text_.substr(at_, quote - at_);
    for (const char c : piece) line_ += c == '\n' ? 1 : 0;
    field += piece;
    at_ = quote + 1;
    if (at_ == text_.size()) return;
    if (text_[at_] == '"') {
      field += '"';
      ++at_;
      continue;
    }
    if (text_[at_] != separator_ && text_[at_] != '\n' && text_[at_] != '\r')
      refuse("text behind a closing quote; expected a separator, a line end, or two quotes for one");
    return;
  }
}

void CsvReader::plain(std::string& field) {
  const std::size_t begin = at_;
  while (at_ < text_.size() && text_[at_] != separator_ && text_[at_] != '\n' && text_[at_] != '\r') {
    if (text_[at_] == '"')
      refuse("a quote inside of a field that does not begin with one; expected the field in quotes");
    ++at_;
  }
  field = text_.substr(begin, at_ - begin);
}

std::size_t CsvCutter::cut(std::string_view text, std::size_t most) {
  for (; seen_ < text.size(); ++seen_) {
    if (text[seen_] == '"') quoted_ = !quoted_;
    if (text[seen_] != '\n' || quoted_) continue;
    if (seen_ + 1 > most && best_ > 0) return best_;
    best_ = seen_ + 1;
    if (best_ >= most) return ++seen_, best_;
  }
  return 0;
}

}  // namespace trireme
