#include "data/workers.h"

#include <fmt/format.h>
#include <unistd.h>

#include <system_error>
#include <utility>

namespace everyo::data {

Workers::Workers(int threads, Make make) : make_(std::move(make)), process_(getpid()) {
  threads_.reserve(static_cast<std::size_t>(threads));
  for (int i = 1; i <= threads; ++i) try {
      threads_.emplace_back([this](const std::stop_token& stop) { work(stop); });
    } catch (const std::system_error& error) {
      throw Error(fmt::format("[Loader] cannot start worker {} of {}: {}; use fewer workers", i, threads, error.what()),
                  ErrorKind::backend);
    }
}

Workers::~Workers() {
  forget();
  for (std::jthread& thread : threads_) thread.request_stop();
}

bool Workers::here() const noexcept { return process_ == getpid(); }

void Workers::ask(Part part) {
  auto slot = std::make_shared<Slot>();
  slot->part = std::move(part);
  {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(slot);
    slots_.push_back(std::move(slot));
  }
  changed_.notify_all();
}

Batch Workers::take() {
  const std::shared_ptr<Slot> slot = std::move(slots_.front());
  slots_.pop_front();
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return slot->done; });
  // Moved out, so that the worker, who may still hold the slot, holds nothing of the exception.
  if (const std::exception_ptr error = std::exchange(slot->error, nullptr)) std::rethrow_exception(error);
  return std::move(slot->batch);
}

void Workers::forget() noexcept {
  const std::lock_guard lock(mutex_);
  for (const std::shared_ptr<Slot>& slot : slots_) slot->cancelled = true;
  slots_.clear();
  waiting_.clear();
}

void Workers::work(const std::stop_token& stop) {
  for (;;) {
    std::shared_ptr<Slot> slot;
    {
      std::unique_lock lock(mutex_);
      if (!changed_.wait(lock, stop, [&] { return !waiting_.empty(); })) return;
      slot = std::move(waiting_.front());
      waiting_.pop_front();
    }
    Batch batch;
    std::exception_ptr error;
    try {
      batch = make_(slot->part, slot->cancelled);
    } catch (const CancelledError&) {
      continue;
    } catch (...) {
      error = std::current_exception();
    }
    {
      const std::lock_guard lock(mutex_);
      slot->batch = std::move(batch);
      slot->error = std::move(error);
      slot->done = true;
    }
    changed_.notify_all();
  }
}

}  // namespace everyo::data
