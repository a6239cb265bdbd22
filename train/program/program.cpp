#include "train/program/program.h"

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <new>
#include <string_view>
#include <system_error>

#include "core/io.h"
#include "data/utf8.h"
#include "train/program/launcher.h"
#include "train/program/output.h"
#include "train/program/screen.h"

namespace trireme {

namespace {

Error internal(const std::exception& error) {
  return {ExitCode::internal, "internal", fmt::format("{}; this is a bug in Trireme", error.what())};
}

bool inside_character(char byte) { return (static_cast<unsigned char>(byte) & 0xC0U) == 0x80U; }  // of UTF-8

/// `text` with its middle replaced by the number of its bytes, if it is longer than `most`: about `begin` bytes of its
/// beginning and `end` of its end are left.
std::string without_middle(std::string_view text, std::size_t most, std::size_t begin, std::size_t end) {
  if (text.size() <= most) return std::string(text);
  std::size_t tail = text.size() - end;
  while (begin > 0 && inside_character(text[begin])) --begin;
  while (tail < text.size() && inside_character(text[tail])) ++tail;
  return fmt::format("{}...({} bytes)...{}", text.substr(0, begin), text.size(), text.substr(tail));
}

/// Shortens what would fill the screen: long words, such as a value without blanks, and then the whole.
std::string shortened(std::string_view message) {
  constexpr std::size_t longest_word = 400, longest = 4000;
  std::string text;
  while (!message.empty()) {
    const std::size_t blank = std::min(message.find(' '), message.size());
    text += without_middle(message.substr(0, blank), longest_word, 160, 40);
    message.remove_prefix(blank);
    const std::size_t word = std::min(message.find_first_not_of(' '), message.size());
    text += message.substr(0, std::min<std::size_t>(word, longest_word));
    message.remove_prefix(word);
  }
  return without_middle(text, longest, 1000, 1000);
}

/// A remark for a failure that may be about a relative path, if the current folder was removed.
std::string_view without_folder(ExitCode code) {
  const bool about_files = code == ExitCode::usage || code == ExitCode::data || code == ExitCode::io;
  std::error_code error;
  if (about_files) static_cast<void>(std::filesystem::current_path(error));
  return error == std::errc::no_such_file_or_directory
             ? "; the current folder was removed, and relative paths lead nowhere: change to another folder"
             : "";
}

}  // namespace

Error to_error(const std::exception_ptr& exception) {
  try {
    std::rethrow_exception(exception);
  } catch (const Error& error) { return error; } catch (const std::bad_alloc&) {
    return {ExitCode::retryable, "memory",
            "out of host memory, asked for by something other than a tensor; expected that it suffices; free some, or "
            "give the program less at once: in training a smaller --micro-batch, --context or model, in prepare_data "
            "shorter texts or fewer --workers"};
  } catch (const std::filesystem::filesystem_error& error) {  // a name that is too long, a loop of links, no permission
    return {ExitCode::io, "io", fmt::format("cannot look at {}: {}", error.path1().string(), error.code().message())};
  } catch (const std::system_error& error) {  // thrown by threads
    if (error.code() != std::errc::resource_unavailable_try_again) return internal(error);
    return {ExitCode::retryable, "threads",
            "a thread could not be started: no memory or no threads are left for this user; lower --threads or the "
            "number of ranks, or raise the limits (ulimit -v, ulimit -u)"};
  } catch (const std::exception& error) { return internal(error); }
}

std::string fatal_message(const std::exception_ptr& exception) {
  std::string place, note;
  try {
    std::rethrow_exception(exception);
  } catch (const PlacedError& error) {
    place = error.place();
    note = error.note();
  } catch (...) {  // no place, no note
  }
  const Error error = to_error(exception);
  std::string_view what = error.what();
  constexpr std::string_view name = "trireme: ";  // FATAL[CODE] comes after this prefix
  if (what.starts_with(name)) what.remove_prefix(name.size());
  return fmt::format("trireme: FATAL[{}] {}{}{}{}{}{}", static_cast<int>(error.code()), place,
                     place.empty() ? "" : ": ", shortened(safe_line(what)), note.empty() ? "" : "; ", note,
                     without_folder(error.code()));
}

int report(const std::exception_ptr& exception) {
  if (first_to_report()) {
    Screen::of_process().last_words(fatal_message(exception));
    note_reported();
  } else {
    await_report();  // a launcher ends all processes once one has ended
  }
  return static_cast<int>(to_error(exception).code());
}

int run_program(const std::function<int()>& body) {
  if (!claim_standard_streams()) note_output_closed();
  static_cast<void>(output_is_terminal());
  // A write beyond the file size limit then returns an error (core/io.cpp) instead of ending the process.
  std::signal(SIGXFSZ, SIG_IGN);
  // If it is ignored at the start, as some job systems have it, a program could not wait for the processes it starts.
  std::signal(SIGCHLD, SIG_DFL);
  try {
    const int code = body();
    require_written();
    return code;
  } catch (...) { return report(std::current_exception()); }
}

}  // namespace trireme
