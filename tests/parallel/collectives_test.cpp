#include "parallel/collectives.h"

#include <gmock/gmock.h>

#include <thread>
#include <vector>

#include "parallel/shared_transport.h"

// What collectives send is what docs/collectives.md says.
namespace everyo::parallel {
namespace {

// Passes everything on, and counts.
class RecordingTransport final : public Transport {
 public:
  explicit RecordingTransport(Transport& inner) : inner_(inner) {}
  [[nodiscard]] std::string_view name() const noexcept override { return inner_.name(); }
  [[nodiscard]] int rank() const noexcept override { return inner_.rank(); }
  [[nodiscard]] int world_size() const noexcept override { return inner_.world_size(); }
  [[nodiscard]] std::size_t piece() const noexcept override { return inner_.piece(); }
  void send(int to, const Call& call, std::span<const std::byte> data) override {
    ++messages;
    bytes += data.size();
    largest = std::max(largest, data.size());
    inner_.send(to, call, data);
  }
  std::span<const std::byte> receive(int from, const Call& call) override { return inner_.receive(from, call); }
  void release(int from) override { inner_.release(from); }
  void flush(const Call& call) override { inner_.flush(call); }
  void check(const Call& call) override { inner_.check(call); }
  void fail(int rank, std::string_view reason) noexcept override { inner_.fail(rank, reason); }

  std::size_t messages = 0, bytes = 0, largest = 0;

 private:
  Transport& inner_;
};

struct Sent {
  std::size_t messages, bytes;
  friend bool operator==(const Sent&, const Sent&) = default;
};
void PrintTo(const Sent& sent, std::ostream* out) { *out << sent.messages << " messages, " << sent.bytes << " bytes"; }

// What each rank sends in one collective.
std::vector<Sent> sent(std::size_t ranks, const std::function<void(Transport&)>& collective) {
  const auto world = SharedWorld::make(static_cast<int>(ranks), true);
  std::vector<Sent> all(ranks);
  std::vector<std::jthread> threads;
  for (std::size_t r = 0; r < ranks; ++r)
    threads.emplace_back([&, r] {
      SharedTransport transport(world, static_cast<int>(r), Timeout(60));
      RecordingTransport recording(transport);
      collective(recording);
      all[r] = {recording.messages, recording.bytes};
      EXPECT_LE(recording.largest, recording.piece());
    });
  threads.clear();
  return all;
}

constexpr std::size_t ceil_divide(std::size_t a, std::size_t b) { return (a + b - 1) / b; }

TEST(Collectives, SendWhatTheDocumentSays) {
  for (const std::size_t n : {2u, 3u, 5u}) {
    for (const std::size_t size : {4u, 8192u, 8196u, 600'000u, 3'000'000u}) {
      SCOPED_TRACE(std::to_string(n) + " ranks, " + std::to_string(size) + " bytes");
      const Call reduction{1, size, Operation::all_reduce, DType::float32, ReduceOp::sum, 0};
      const std::size_t piece = piece_bytes, others = n - 1;

      const auto all_reduced = sent(n, [&](Transport& t) {
        std::vector<std::byte> data(size);
        all_reduce(t, reduction, data);
      });
      if (size <= 8192) {
        EXPECT_THAT(all_reduced, ::testing::Each(Sent{others, others * size}));
      } else {
        std::size_t bytes = 0;
        for (const Sent& s : all_reduced) {
          EXPECT_EQ(s.messages, 2 * others * ceil_divide(size, n * piece));
          bytes += s.bytes;
        }
        EXPECT_EQ(bytes, 2 * others * size);  // over all ranks, whose parts may differ by an element
      }

      const std::size_t pieces = ceil_divide(size, piece);
      const auto part_to_all = Sent{others * pieces, others * size};
      EXPECT_THAT(sent(n,
                       [&](Transport& t) {
                         std::vector<std::byte> data(size * n), part(size);
                         reduce_scatter(t, {1, size * n, Operation::reduce_scatter, DType::float32}, data, part);
                       }),
                  ::testing::Each(part_to_all));
      EXPECT_THAT(sent(n,
                       [&](Transport& t) {
                         std::vector<std::byte> data(size * n), part(size);
                         all_gather(t, {1, size * n, Operation::all_gather}, part, data);
                       }),
                  ::testing::Each(part_to_all));

      std::vector<Sent> from_root(n, Sent{0, 0}), to_root(n, Sent{pieces, size});
      from_root[1] = part_to_all;
      to_root[1] = {0, 0};
      EXPECT_EQ(sent(n,
                     [&](Transport& t) {
                       std::vector<std::byte> data(size);
                       broadcast(t, {1, size, Operation::broadcast, DType::uint8, ReduceOp::sum, 1}, data);
                     }),
                from_root);
      EXPECT_EQ(sent(n,
                     [&](Transport& t) {
                       std::vector<std::byte> data(size * n), part(size);
                       scatter(t, {1, size, Operation::scatter, DType::uint8, ReduceOp::sum, 1}, data, part);
                     }),
                from_root);
      EXPECT_EQ(sent(n,
                     [&](Transport& t) {
                       std::vector<std::byte> data(size * n), part(size);
                       gather(t, {1, size, Operation::gather, DType::uint8, ReduceOp::sum, 1}, part, data);
                     }),
                to_root);
    }
    EXPECT_THAT(sent(n, [](Transport& t) { barrier(t, {1, 0, Operation::barrier}); }), ::testing::Each(Sent{n - 1, 0}));
  }
}

}  // namespace
}  // namespace everyo::parallel
