#pragma once
#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "common.h"
#include "everyo/parallel.h"

// What the bindings of groups share.
namespace everyo::python {

/// A rank's group. The library's own serves one thread at a time, so whoever uses it holds `busy`.
class PyGroup {
 public:
  explicit PyGroup(std::shared_ptr<ProcessGroup> group) : group_(std::move(group)) {}

  /// Throws DistributedError (closed), naming the function.
  [[nodiscard]] ProcessGroup& get(std::string_view function) const;
  /// call(group) without the interpreter, when no other thread has the group.
  template <class F>
  auto run(std::string_view function, F&& call) {
    const nb::gil_scoped_release release;
    check_not_lent(function);
    const std::scoped_lock lock(busy_);
    return call(get(function));
  }
  /// The same when the call runs functions of Python's: what they call of the group would wait for itself, and throws.
  template <class F>
  auto lend(std::string_view function, F&& call) {
    return run(function, [&](ProcessGroup& group) {
      lent_ = true;
      const std::unique_ptr<std::atomic<bool>, void (*)(std::atomic<bool>*)> ends(&lent_, [](auto* l) { *l = false; });
      return call(group);
    });
  }
  /// Throws StateError within lend().
  void check_not_lent(std::string_view function) const;
  /// Keeps what an exchange under way reads and writes.
  void keep(Work work, std::vector<Tensor> tensors);
  /// What has to end before the group does.
  void at_close(std::function<void()> call) { at_close_.push_back(std::move(call)); }
  /// Without the interpreter.
  void close() noexcept;

 private:
  std::mutex busy_;
  std::atomic<bool> lent_{false};
  std::shared_ptr<ProcessGroup> group_;
  std::vector<std::pair<Work, std::vector<Tensor>>> pending_;
  std::vector<std::function<void()>> at_close_;
};
using GroupHandle = std::shared_ptr<PyGroup>;

/// A tensor's elements, or those of an array that shares its memory.
std::span<std::byte> elements_of(const Tensor& tensor) noexcept;
/// After they were written.
void note_written(const Tensor& tensor);
ReduceOp reduce_in(std::string_view function, std::string_view name);

}  // namespace everyo::python
