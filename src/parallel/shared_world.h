#pragma once
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "parallel/transport.h"

// The memory that the ranks of one machine share: rings of messages, who is alive, and why the group failed. It is
// anonymous (memfd), so that nothing of it outlives the last rank.
namespace everyo::parallel {

/// A memory file, growing as it is used; every rank maps what it needs of it. Owns its descriptor.
class MemoryFile {
 public:
  /// Throws Error when the system gives none.
  MemoryFile();
  /// A copy of a descriptor that is the caller's. Throws Error unless it is one.
  explicit MemoryFile(int descriptor);
  ~MemoryFile();
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  [[nodiscard]] int descriptor() const noexcept { return descriptor_; }
  /// `bytes` from `offset` on, until unmap().
  [[nodiscard]] std::byte* map(std::uint64_t offset, std::size_t bytes) const;
  static void unmap(std::byte* data, std::size_t bytes) noexcept;

 private:
  int descriptor_;
};

using base::Clock;

inline constexpr int most_ranks = 256;
inline constexpr std::size_t ring_depth = 4;           ///< messages that a pair may have under way
inline constexpr std::size_t piece_bytes = 128 << 10;  ///< four of them stay in a second-level cache

/// One message's place. Bytes lie in the slot, or where `reference` says.
struct Slot {
  Call call;
  std::uint64_t bytes = 0;
  std::uint64_t reference = 0;  ///< an address of the process, or an offset in the file, plus 1; 0: in the slot
};
/// From one rank to another.
struct Ring {
  alignas(64) std::atomic<std::uint32_t> sent{0};
  std::atomic<std::uint32_t> sent_sleepers{0};
  alignas(64) std::atomic<std::uint32_t> released{0};
  std::atomic<std::uint32_t> released_sleepers{0};
  std::atomic<std::uint32_t> reading{0};  ///< the receiver is at bytes that lie with the sender, a thread as it is
  Slot slots[ring_depth];
};
enum class Presence : std::uint32_t { coming, here, left };
struct alignas(64) RankInfo {
  std::atomic<std::uint32_t> presence{0};
  std::atomic<std::int32_t> process{0};
};
inline constexpr std::uint64_t header_mark = 0x6576'6572'796f'3031;  ///< "everyo01"
struct alignas(64) Header {
  std::uint64_t mark = header_mark;
  std::uint32_t world_size = 0;
  bool threads = false;
  std::atomic<std::uint64_t> next_free{0};  ///< of the file, in the first world only
  std::atomic<std::uint32_t> failure{0};    ///< 0: none, 1: being written, 2: there
  std::int32_t failed_rank = -1;
  char reason[512] = {};
};

/// One group's memory as a rank sees it.
class SharedWorld {
 public:
  /// Makes the memory of a group of `ranks`. Its ranks are threads of this process, or processes that get the file.
  static std::shared_ptr<SharedWorld> make(int ranks, bool threads);
  /// The same memory in another process.
  static std::shared_ptr<SharedWorld> open(std::shared_ptr<MemoryFile> file, std::uint64_t offset = 0);
  /// A group of some of these ranks, in the same file: where it lies. The caller tells the others.
  [[nodiscard]] std::uint64_t make_part(int ranks);
  [[nodiscard]] std::shared_ptr<SharedWorld> open_part(std::uint64_t offset) const;
  ~SharedWorld();
  SharedWorld(const SharedWorld&) = delete;
  SharedWorld& operator=(const SharedWorld&) = delete;

  [[nodiscard]] int world_size() const noexcept { return static_cast<int>(header().world_size); }
  [[nodiscard]] bool threads() const noexcept { return header().threads; }
  [[nodiscard]] const std::shared_ptr<MemoryFile>& file() const noexcept { return file_; }
  [[nodiscard]] Ring& ring(int from, int to) noexcept;
  [[nodiscard]] std::byte* slot(int from, int to, std::uint32_t message) noexcept;
  [[nodiscard]] RankInfo& info(int rank) noexcept;

  /// Room for `bytes` in the file: its offset.
  [[nodiscard]] std::uint64_t allocate(std::size_t bytes);
  /// Maps such room here, to be found by reference_of(); until the world ends.
  std::byte* map_region(std::uint64_t offset, std::size_t bytes);
  /// Where another rank finds these bytes, plus 1; 0: nowhere.
  [[nodiscard]] std::uint64_t reference_of(std::span<const std::byte> bytes) const noexcept;
  /// The bytes of another rank's reference. Throws DistributedError when they lie nowhere here.
  [[nodiscard]] std::span<const std::byte> resolve(std::uint64_t reference, std::size_t bytes) const;

  /// A rank that is here leaves. The last one gives the memory of a part's messages back to the system.
  void leave(int rank) noexcept;
  /// The same for bytes of map_region() that nobody needs any more; whole pages.
  static void give_back(std::byte* data, std::size_t bytes) noexcept;

  /// Keeps the first failure; wakes nobody: who waits looks every few milliseconds.
  void fail(int rank, std::string_view reason) noexcept;
  /// This group or the whole run: a rank may die before it joins a part.
  [[nodiscard]] bool failed() const noexcept { return header().failure.load() != 0 || first_->failure.load() != 0; }
  /// The rank that is to blame; -1: not known.
  [[nodiscard]] int failed_rank() const noexcept;
  /// Throws the failure that is known, as DistributedError.
  [[noreturn]] void raise(std::string_view operation) const;

 private:
  SharedWorld(std::shared_ptr<MemoryFile> file, std::uint64_t offset, int ranks, bool initialise, bool threads);
  [[nodiscard]] Header& header() const noexcept { return *reinterpret_cast<Header*>(data_); }

  std::shared_ptr<MemoryFile> file_;
  std::uint64_t offset_;
  std::size_t bytes_ = 0;
  std::byte* data_ = nullptr;
  std::byte* rings_ = nullptr;
  std::byte* slots_ = nullptr;
  Header* first_ = nullptr;  // of the file
  struct Region {
    std::uint64_t offset;
    std::span<std::byte> bytes;
  };
  std::vector<Region> regions_;
  mutable std::mutex regions_mutex_;
};

/// Sleeps until a counter is no longer `seen`, for some milliseconds at most.
void sleep_on(std::atomic<std::uint32_t>& word, std::uint32_t seen) noexcept;
/// Counts one more, and wakes who sleeps on it.
void post(std::atomic<std::uint32_t>& word, std::atomic<std::uint32_t>& sleepers) noexcept;
void pause() noexcept;

/// How a wait begins before it sleeps: spinning; with more ranks than processors giving the processor away; beside a
/// thread that computes, not at all.
enum class Patience : std::uint8_t { spin, yield, sleep };

/// Waits until ready() is true of a counter of a ring. look() runs every few milliseconds until then, and throws when
/// there is no more sense in waiting.
template <class Ready, class Look>
void wait_for(std::atomic<std::uint32_t>& word, std::atomic<std::uint32_t>& sleepers, Patience patience, Ready&& ready,
              Look&& look) {
  // Measured on 2 cores: a message takes 0.3 us by spinning; with 4 ranks there, spinning alone takes milliseconds.
  constexpr int spins = 2000, yields = 50;
  for (int i = 0; i < (patience == Patience::spin ? spins : 20); ++i) {
    if (ready()) return;
    pause();
  }
  for (int i = 0; i < (patience == Patience::sleep ? 0 : yields); ++i) {
    if (ready()) return;
    std::this_thread::yield();
  }
  while (true) {
    sleepers.fetch_add(1);
    const std::uint32_t seen = word.load();
    const bool done = ready();
    if (!done) sleep_on(word, seen);
    sleepers.fetch_sub(1);
    if (done || ready()) return;
    look();
  }
}

}  // namespace everyo::parallel
