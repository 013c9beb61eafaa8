#include "everyo/storage.h"

#include <bit>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>

#include "base/thread_context.h"
#include "tensor/pool.h"

namespace everyo::inline v1 {
namespace {
constexpr std::size_t header_bytes = (sizeof(Storage) + 63) / 64 * 64;  // header and data lie in one block
static_assert(header_bytes == 64);
constinit std::mutex looking;  // views are rare: one look at a time, of any storage
}  // namespace

struct Storage::Watch {
  std::atomic<std::uint32_t> views{0};
  std::uint64_t seen = 0;  // fingerprint of all bytes at the last look
  bool always = false;     // `seen` is not kept then: every saved value has its own
};

Storage::~Storage() { delete watch_.load(std::memory_order_relaxed); }

Ref<Storage> Storage::take(std::size_t bytes, MemoryCategory category) {
  void* block = pool_take(header_bytes + bytes);
  auto* storage = new (block) Storage;
  storage->data_ = static_cast<std::byte*>(block) + header_bytes;
  storage->bytes_ = bytes;
  storage->block_ = header_bytes + bytes;
  storage->category_ = category;
  if (const ModuleScope* scope = thread_context.scope) storage->scope_ = scope->path_hash;
  pool_account(category, static_cast<std::int64_t>(bytes));
  return Ref<Storage>::adopt(storage);
}

Ref<Storage> Storage::borrow(void* data, std::size_t bytes, std::function<void()> deleter) {
  auto owned = std::make_unique<std::function<void()>>(std::move(deleter));
  auto* storage = new (pool_take(header_bytes)) Storage;
  storage->data_ = static_cast<std::byte*>(data);
  storage->bytes_ = bytes;
  storage->block_ = header_bytes;
  storage->category_ = MemoryCategory::input;
  storage->deleter_ = std::move(owned);
  return Ref<Storage>::adopt(storage);
}

void Storage::retag(MemoryCategory category) noexcept {
  if (!deleter_) {
    pool_account(category_, -static_cast<std::int64_t>(bytes_));
    pool_account(category, static_cast<std::int64_t>(bytes_));
  }
  category_ = category;
}

Storage::Watch& Storage::watch() {
  if (Watch* there = watch_.load(std::memory_order_acquire)) return *there;
  auto made = std::make_unique<Watch>();
  watch_.store(made.get(), std::memory_order_release);
  return *made.release();
}

void Storage::open_view() {
  const std::scoped_lock lock(looking);
  Watch& w = watch();
  if (!w.always && w.views.load() == 0) w.seen = fingerprint(0, bytes_);
  ++w.views;
  escaped_ = true;
}

void Storage::watch_always() {
  const std::scoped_lock lock(looking);
  Watch& w = watch();
  w.always = true;
  ++w.views;
  escaped_ = true;
}

void Storage::close_view() noexcept {
  look();
  --watch_.load(std::memory_order_acquire)->views;
}

bool Storage::watched() const noexcept {
  const Watch* w = watch_.load(std::memory_order_acquire);
  return w != nullptr && w->views.load(std::memory_order_acquire) != 0;
}

void Storage::look() noexcept {
  Watch* w = watch_.load(std::memory_order_acquire);
  if (w == nullptr || w->always) return;
  const std::scoped_lock lock(looking);
  if (const std::uint64_t now = fingerprint(0, bytes_); now != w->seen) {
    w->seen = now;
    ++version_;
  }
}

namespace {
// One-to-one in the word, so a single changed word always shows. Turn and fold carry what a product moves only upwards,
// such as a changed sign, back to where the next product spreads it.
constexpr std::uint64_t mixed(std::uint64_t chain, std::uint64_t word) noexcept {
  const std::uint64_t product = std::rotl(chain ^ word, 31) * 0x9E3779B97F4A7C15u;
  return product ^ product >> 32;
}
}  // namespace

std::uint64_t Storage::fingerprint(std::size_t offset, std::size_t bytes) const noexcept {
  const std::byte* at = data_ + offset;
  std::uint64_t a = 1, b = 2, c = 3, d = 4;  // chains that the processor runs side by side
  std::uint64_t words[4];
  for (; bytes >= sizeof words; bytes -= sizeof words, at += sizeof words) {
    std::memcpy(words, at, sizeof words);
    a = mixed(a, words[0]);
    b = mixed(b, words[1]);
    c = mixed(c, words[2]);
    d = mixed(d, words[3]);
  }
  std::memset(words, 0, sizeof words);
  if (bytes != 0) std::memcpy(words, at, bytes);
  std::uint64_t all = 0;
  for (const std::uint64_t word : {a, b, c, d, words[0], words[1], words[2], words[3]}) all = mixed(all, word);
  return all ^ all >> 29;
}

void Storage::destroy() noexcept {
  if (!deleter_)
    pool_account(category_, -static_cast<std::int64_t>(bytes_));
  else if (*deleter_)
    (*deleter_)();
  const std::size_t block = block_;
  this->~Storage();
  pool_give(this, block);
}

}  // namespace everyo::inline v1
