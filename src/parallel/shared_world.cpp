#include "parallel/shared_world.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <new>

#include "everyo/parallel.h"

namespace everyo::parallel {
namespace {

constexpr std::uint64_t page = 4096;
constexpr std::uint64_t round_up(std::uint64_t n, std::uint64_t to) { return (n + to - 1) / to * to; }

std::size_t headers_size(int ranks) {
  return round_up(sizeof(Header) + static_cast<std::size_t>(ranks) * sizeof(RankInfo), 64);
}
std::size_t rings_size(int ranks) {
  return static_cast<std::size_t>(ranks) * static_cast<std::size_t>(ranks) * sizeof(Ring);
}
std::size_t world_size_of(int ranks) {
  const std::size_t pairs = static_cast<std::size_t>(ranks) * static_cast<std::size_t>(ranks);
  return round_up(headers_size(ranks) + rings_size(ranks), page) + pairs * ring_depth * piece_bytes;
}

[[noreturn]] void refuse(std::string_view what) {
  throw Error(fmt::format("[ProcessGroup] the system refuses {}: {}", what, std::strerror(errno)),
              ErrorKind::distributed);
}

long futex(std::atomic<std::uint32_t>& word, int operation, std::uint32_t value, const timespec* timeout) noexcept {
  static_assert(sizeof(word) == sizeof(std::uint32_t) && std::atomic<std::uint32_t>::is_always_lock_free);
  return syscall(SYS_futex, &word, operation, value, timeout, nullptr, 0);
}

}  // namespace

MemoryFile::MemoryFile() : descriptor_(memfd_create("everyo", MFD_CLOEXEC)) {
  if (descriptor_ < 0) refuse("shared memory (memfd_create)");
}
MemoryFile::MemoryFile(int descriptor) : descriptor_(fcntl(descriptor, F_DUPFD_CLOEXEC, 0)) {
  if (descriptor_ < 0) refuse(fmt::format("the descriptor {} of the shared memory", descriptor));
}
MemoryFile::~MemoryFile() { close(descriptor_); }

std::byte* MemoryFile::map(std::uint64_t offset, std::size_t bytes) const {
  void* data = mmap(nullptr, std::max<std::size_t>(bytes, 1), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor_,
                    static_cast<off_t>(offset));
  if (data == MAP_FAILED) refuse(fmt::format("{} bytes of shared memory (mmap)", bytes));
  return static_cast<std::byte*>(data);
}
void MemoryFile::unmap(std::byte* data, std::size_t bytes) noexcept { munmap(data, std::max<std::size_t>(bytes, 1)); }

SharedWorld::SharedWorld(std::shared_ptr<MemoryFile> file, std::uint64_t offset, int ranks, bool initialise,
                         bool threads)
    : file_(std::move(file)), offset_(offset), bytes_(world_size_of(ranks)), data_(file_->map(offset, bytes_)) {
  if (initialise) {
    auto* header = new (data_) Header;
    header->world_size = static_cast<std::uint32_t>(ranks);
    header->threads = threads;
    for (int r = 0; r < ranks; ++r) new (&info(r)) RankInfo;
  }
  rings_ = data_ + headers_size(ranks);
  slots_ = data_ + round_up(headers_size(ranks) + rings_size(ranks), page);
  if (initialise)
    for (int pair = 0; pair < ranks * ranks; ++pair) new (&ring(pair / ranks, pair % ranks)) Ring;
  first_ = offset_ == 0 ? &header() : reinterpret_cast<Header*>(file_->map(0, sizeof(Header)));
  if (offset_ == 0 && initialise) header().next_free = bytes_;
}

SharedWorld::~SharedWorld() {
  for (const Region& region : regions_) MemoryFile::unmap(region.bytes.data(), region.bytes.size());
  if (offset_ != 0) MemoryFile::unmap(reinterpret_cast<std::byte*>(first_), sizeof(Header));
  MemoryFile::unmap(data_, bytes_);
}

std::shared_ptr<SharedWorld> SharedWorld::make(int ranks, bool threads) {
  auto file = std::make_shared<MemoryFile>();
  if (ftruncate(file->descriptor(), static_cast<off_t>(world_size_of(ranks))) != 0) refuse("room in shared memory");
  return std::shared_ptr<SharedWorld>(new SharedWorld(std::move(file), 0, ranks, true, threads));
}

std::shared_ptr<SharedWorld> SharedWorld::open(std::shared_ptr<MemoryFile> file, std::uint64_t offset) {
  struct stat status {};
  if (fstat(file->descriptor(), &status) != 0) refuse("the size of shared memory");
  const auto holds = [&](std::uint64_t bytes) { return static_cast<std::uint64_t>(status.st_size) >= offset + bytes; };
  std::uint32_t ranks = 0;
  bool threads = false;
  if (holds(sizeof(Header))) {
    std::byte* const head = file->map(offset, sizeof(Header));
    const auto& header = *reinterpret_cast<const Header*>(head);
    if (header.mark == header_mark) ranks = header.world_size;
    threads = header.threads;
    MemoryFile::unmap(head, sizeof(Header));
  }
  if (ranks < 1 || ranks > most_ranks || !holds(world_size_of(static_cast<int>(ranks))))
    throw Error(
        "[ProcessGroup] what EVERYO_GROUP names is no shared memory of a group; start the program with 'everyo launch'",
        ErrorKind::distributed);
  return std::shared_ptr<SharedWorld>(
      new SharedWorld(std::move(file), offset, static_cast<int>(ranks), false, threads));
}

std::uint64_t SharedWorld::make_part(int ranks) {
  const std::uint64_t offset = allocate(world_size_of(ranks));
  SharedWorld(file_, offset, ranks, true, threads());  // NOLINT: it lays out the memory, and goes
  return offset;
}
std::shared_ptr<SharedWorld> SharedWorld::open_part(std::uint64_t offset) const { return open(file_, offset); }

RankInfo& SharedWorld::info(int rank) noexcept {
  return *reinterpret_cast<RankInfo*>(data_ + sizeof(Header) + static_cast<std::size_t>(rank) * sizeof(RankInfo));
}
Ring& SharedWorld::ring(int from, int to) noexcept {
  const auto pair = static_cast<std::size_t>(from) * header().world_size + static_cast<std::size_t>(to);
  return *reinterpret_cast<Ring*>(rings_ + pair * sizeof(Ring));
}
std::byte* SharedWorld::slot(int from, int to, std::uint32_t message) noexcept {
  const auto pair = static_cast<std::size_t>(from) * header().world_size + static_cast<std::size_t>(to);
  return slots_ + (pair * ring_depth + message % ring_depth) * piece_bytes;
}

std::uint64_t SharedWorld::allocate(std::size_t bytes) {
  const std::uint64_t size = round_up(std::max<std::size_t>(bytes, 1), page);
  const std::uint64_t offset = first_->next_free.fetch_add(size);
  // A byte at the end: of ranks that allocate at once, none can make the file shorter again.
  constexpr std::byte zero{};
  if (pwrite(file_->descriptor(), &zero, 1, static_cast<off_t>(offset + size - 1)) != 1)
    refuse(fmt::format("{} bytes of shared memory", bytes));
  return offset;
}

std::byte* SharedWorld::map_region(std::uint64_t offset, std::size_t bytes) {
  std::byte* const data = file_->map(offset, bytes);
  const std::scoped_lock lock(regions_mutex_);
  regions_.push_back({offset, {data, std::max<std::size_t>(bytes, 1)}});
  return data;
}

std::uint64_t SharedWorld::reference_of(std::span<const std::byte> bytes) const noexcept {
  if (threads()) return reinterpret_cast<std::uintptr_t>(bytes.data()) + 1;
  const std::scoped_lock lock(regions_mutex_);
  for (const Region& region : regions_) {
    if (bytes.data() < region.bytes.data()) continue;
    const auto from = static_cast<std::size_t>(bytes.data() - region.bytes.data());
    if (from + bytes.size() <= region.bytes.size()) return region.offset + from + 1;
  }
  return 0;
}

std::span<const std::byte> SharedWorld::resolve(std::uint64_t reference, std::size_t bytes) const {
  const std::uint64_t at = reference - 1;
  if (threads()) return {reinterpret_cast<const std::byte*>(static_cast<std::uintptr_t>(at)), bytes};
  const std::scoped_lock lock(regions_mutex_);
  for (const Region& region : regions_)
    if (at >= region.offset && at + bytes <= region.offset + region.bytes.size())
      return region.bytes.subspan(at - region.offset, bytes);
  throw DistributedError("[ProcessGroup] another rank's shared memory is not mapped here", -1);
}

void SharedWorld::leave(int rank) noexcept {
  info(rank).presence.store(static_cast<std::uint32_t>(Presence::left));
  for (int r = 0; r < world_size(); ++r)
    if (info(r).presence.load() != static_cast<std::uint32_t>(Presence::left)) return;
  if (offset_ != 0) give_back(slots_, bytes_ - static_cast<std::size_t>(slots_ - data_));
}
void SharedWorld::give_back(std::byte* data, std::size_t bytes) noexcept { madvise(data, bytes, MADV_REMOVE); }

void SharedWorld::fail(int rank, std::string_view reason) noexcept {
  std::uint32_t none = 0;
  if (!header().failure.compare_exchange_strong(none, 1)) return;
  header().failed_rank = rank;
  const std::size_t length = std::min(reason.size(), sizeof(Header::reason) - 1);
  std::memcpy(header().reason, reason.data(), length);
  header().reason[length] = '\0';
  header().failure.store(2, std::memory_order_release);
}

namespace {
// Whoever writes the reason may have been killed while doing so.
bool reason_is_there(const Header& header) noexcept {
  for (int i = 0; i < 1000 && header.failure.load(std::memory_order_acquire) == 1; ++i) std::this_thread::yield();
  return header.failure.load(std::memory_order_acquire) == 2;
}
}  // namespace

int SharedWorld::failed_rank() const noexcept { return reason_is_there(header()) ? header().failed_rank : -1; }

void SharedWorld::raise(std::string_view operation) const {
  const Header& failed = header().failure.load(std::memory_order_acquire) != 0 ? header() : *first_;
  const bool known = reason_is_there(failed);
  throw DistributedError(fmt::format("[{}] {}", operation, known ? failed.reason : "another rank failed"),
                         known ? failed.failed_rank : -1);
}

void sleep_on(std::atomic<std::uint32_t>& word, std::uint32_t seen) noexcept {
  constexpr timespec most{.tv_sec = 0, .tv_nsec = 20'000'000};
  futex(word, FUTEX_WAIT, seen, &most);
}
void post(std::atomic<std::uint32_t>& word, std::atomic<std::uint32_t>& sleepers) noexcept {
  word.fetch_add(1);
  if (sleepers.load() != 0) futex(word, FUTEX_WAKE, INT32_MAX, nullptr);
}
void pause() noexcept {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

}  // namespace everyo::parallel
