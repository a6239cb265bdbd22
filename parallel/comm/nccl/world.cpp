#include "parallel/comm/nccl/world.h"

#include <utility>

#include "core/cores.h"
#include "core/error.h"

namespace trireme::comm {
namespace {

constexpr auto interval = std::chrono::milliseconds(5);  // between two looks; deadlines are seconds

}  // namespace

NcclWorld::NcclWorld(std::shared_ptr<NcclApi> shared_api, NcclOptions shared_options)
    : api_(std::move(shared_api)), options_(std::move(shared_options)), thread_([this] { run(); }) {}

NcclWorld::~NcclWorld() {
  {
    const std::scoped_lock lock(stop_mutex_);
    stop_ = true;
  }
  stopping_.notify_all();
  thread_.join();
}

void NcclWorld::watch(Watched& group) {
  const std::scoped_lock lock(groups_mutex_);
  groups_.push_back(&group);
}

void NcclWorld::forget(Watched& group) {
  const std::scoped_lock lock(groups_mutex_);
  std::erase(groups_, &group);
}

void NcclWorld::run() {
  use_all_cores();
  std::unique_lock stop(stop_mutex_);
  while (!stopping_.wait_for(stop, interval, [this] { return stop_; })) {
    stop.unlock();
    std::exception_ptr error;
    try {
      const std::scoped_lock lock(groups_mutex_);
      for (Watched* group : groups_)
        if (!failed_) group->look();
    } catch (...) { error = std::current_exception(); }
    if (error) fail(error);
    stop.lock();
  }
}

bool NcclWorld::keep(const std::exception_ptr& error) {
  const std::scoped_lock lock(error_mutex_);
  if (failed_) return false;
  error_ = error;
  failed_ = true;
  return true;
}

void NcclWorld::abort_all() {
  const std::scoped_lock lock(groups_mutex_);
  for (Watched* group : groups_) group->abort();
}

void NcclWorld::fail(const std::exception_ptr& error) {
  if (!keep(error)) return;
  if (options_.on_failure) options_.on_failure(error);
  abort_all();
}

void NcclWorld::throw_failure() const {
  if (!failed_) return;
  const std::scoped_lock lock(error_mutex_);
  std::rethrow_exception(error_);
}

void NcclWorld::lose(ExitCode code, const char* where, const std::string& what) {
  try {
    throw Error(code, where, what);
  } catch (...) {
    keep(std::current_exception());
    abort_all();
    throw;
  }
}

}  // namespace trireme::comm
