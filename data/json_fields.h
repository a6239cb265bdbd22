// Reads the small JSON files of figures that users write by hand: every field is known, has a range, and is named when
// it is wrong. Read next: train/options/links_file.cpp.
#pragma once

#include <fmt/format.h>

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.h"
#include "data/json.h"

namespace trireme {

/// One file, for messages.
class JsonFields {
 public:
  /// For the file `path`, which the flag `flag` names. Errors are ExitCode::usage.
  JsonFields(std::string flag, std::filesystem::path path) : flag_(std::move(flag)), path_(std::move(path)) {}

  /// The text of the file. Throws if it cannot be read.
  std::string text() const;
  nlohmann::json root(std::string_view text) const;  ///< of that text

  /// Throws, with the file and what to do.
  template <class... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> text, Args&&... args) const {
    fail(ExitCode::usage, flag_, "{}: {}; correct it, or drop {}", path_.string(),
         fmt::format(text, std::forward<Args>(args)...), flag_);
  }

  /// What to do with the value of each field.
  using Readers = std::map<std::string, std::function<void(const nlohmann::json&)>>;
  /// Calls the reader of each field of `object`, which is `what` in messages. Refuses an unknown field, and one of
  /// `needed` that is not there.
  void read(const nlohmann::json& object, const std::string& what, const Readers& readers,
            const std::vector<std::string>& needed) const;

  // Of the field `what`; they refuse other values.
  /// From `least` to `most`.
  double number(const nlohmann::json& value, const std::string& what, double least, double most) const;
  int whole(const nlohmann::json& value, const std::string& what) const;  ///< from 1 to 2^20
  /// `expected`: for the message.
  std::string text(const nlohmann::json& value, const std::string& what, const std::string& expected) const;

 private:
  std::string flag_;
  std::filesystem::path path_;
};

}  // namespace trireme
