#include "train/program.h"

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <new>
#include <string_view>
#include <thread>

#include "train/launcher.h"

namespace trireme {

Error to_error(const std::exception_ptr& exception) {
  try {
    std::rethrow_exception(exception);
  } catch (const Error& error) { return error; } catch (const std::bad_alloc&) {
    return {ExitCode::internal, "memory",
            "the machine has no more memory; lower --micro-batch, --context or the model's size"};
  } catch (const std::exception& error) {
    return {ExitCode::internal, "internal", fmt::format("{}; this is a bug in Trireme", error.what())};
  }
}

std::string fatal_message(const std::exception_ptr& exception) {
  std::string place;
  try {
    std::rethrow_exception(exception);
  } catch (const PlacedError& error) { place = error.place(); } catch (...) {  // has no place
  }
  const Error error = to_error(exception);
  std::string_view what = error.what();
  constexpr std::string_view name = "trireme: ";  // FATAL[CODE] comes between it and the rest
  if (what.starts_with(name)) what.remove_prefix(name.size());
  return fmt::format("trireme: FATAL[{}] {}{}{}", static_cast<int>(error.code()), place, place.empty() ? "" : ": ",
                     what);
}

int report(const std::exception_ptr& exception) {
  if (first_to_report()) {
    const std::string line = fatal_message(exception) + "\n";
    std::fflush(stdout);
    std::fputs(line.c_str(), stderr);  // one write, so that lines of several processes do not mix
  } else {
    // A launcher ends all processes once one has ended: let the message out first.
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
  return static_cast<int>(to_error(exception).code());
}

int run_program(const std::function<int()>& body) {
  try {
    const int code = body();
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
      fail(ExitCode::io, "stdout", "the output could not be written: {}; make room, or send it elsewhere",
           std::strerror(errno));
    return code;
  } catch (...) { return report(std::current_exception()); }
}

}  // namespace trireme
