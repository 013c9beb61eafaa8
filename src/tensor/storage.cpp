#include "everyo/storage.h"

#include <new>

#include "base/thread_context.h"
#include "tensor/pool.h"

namespace everyo::inline v1 {
namespace {
constexpr std::size_t header_bytes = (sizeof(Storage) + 63) / 64 * 64;  // header and data lie in one block
}

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
