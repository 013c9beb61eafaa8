#include "everyo/data_parallel.h"

#include <fmt/format.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>

#include <algorithm>
#include <mutex>

#include "distributed.h"
#include "everyo/virtual_shards.h"

// Gradients over ranks and shards, of models that are Python's.
namespace everyo::python {
namespace {

using Parameters = std::vector<std::pair<std::string, PyTensor*>>;

StateDict named(const Parameters& parameters) {
  StateDict list;
  for (const auto& [name, parameter] : parameters) list.emplace_back(name, parameter->value);
  return list;
}

// A model's buffers: named_buffers() as tensors over the arrays' memory, the same tensor each time for one array.
class Buffers {
 public:
  explicit Buffers(nb::object model) : model_(std::move(model)) {}
  StateDict operator()() {
    const nb::gil_scoped_acquire acquire;
    StateDict found;
    for (const nb::handle entry : model_.attr("named_buffers")()) {
      Tensor tensor = as_tensor(entry[1], {}, Integers::stay);
      const auto known = std::ranges::find_if(
          tensors_, [&](const auto& old) { return old.second.bytes() == tensor.bytes() && same(old.second, tensor); });
      if (known != tensors_.end()) tensor = known->second;
      found.emplace_back(text_of(entry[0]), tensor);
    }
    tensors_ = found;
    return found;
  }
  // The model's own tensor of this memory.
  [[nodiscard]] Tensor of(const Tensor& view) const {
    for (const auto& [name, tensor] : tensors_)
      if (tensor.bytes() == view.bytes() && same(tensor, view)) return tensor;
    return view;
  }

 private:
  static bool same(const Tensor& a, const Tensor& b) { return a.dtype() == b.dtype() && a.shape() == b.shape(); }
  nb::object model_;
  StateDict tensors_;
};

// Buffers of a model: held by closures of the library that may be destroyed without the interpreter.
std::shared_ptr<Buffers> buffers_of(nb::handle model) {
  return {new Buffers(nb::borrow(model)), [](Buffers* buffers) {
            if (!nb::is_alive()) return;
            const nb::gil_scoped_acquire acquire;
            delete buffers;
          }};
}

BufferSync sync_in(std::string_view name) {
  if (name == "mean") return BufferSync::mean;
  if (name == "first") return BufferSync::first;
  if (name == "none") return BufferSync::none;
  throw ValueError(fmt::format(R"([DataParallel] buffers is "{}"; it must be "mean", "first" or "none")", name));
}

// What refers to a group, which takes it along when it closes.
template <class T>
class Bound {
 public:
  Bound(GroupHandle group, std::unique_ptr<T> value)
      : group_(std::move(group)), value_(std::make_shared<std::unique_ptr<T>>(std::move(value))) {
    group_->at_close([weak = std::weak_ptr(value_)] {
      if (const auto held = weak.lock()) held->reset();
    });
  }
  [[nodiscard]] T& get(std::string_view what) const {
    static_cast<void>(group_->get(what));
    return **value_;
  }
  /// Null once the group is closed.
  [[nodiscard]] T* find() const noexcept { return value_->get(); }
  [[nodiscard]] PyGroup& group() const noexcept { return *group_; }

 private:
  GroupHandle group_;
  std::shared_ptr<std::unique_ptr<T>> value_;
};

struct HeldParallel {
  DataParallel parallel;
  std::vector<std::unique_ptr<DataParallel::NoSync>> holds{};  // of with-blocks
};
using PyDataParallel = Bound<HeldParallel>;

void bind_parallel(nb::module_& m) {
  nb::class_<PyDataParallel>(m, "DataParallel", "Averages gradients over a group while backward runs.")
      .def(
          "__init__",
          [](PyDataParallel* self, const GroupHandle& group, const Parameters& parameters, nb::handle model,
             std::int64_t bucket_bytes, std::string_view buffers, bool broadcast_weights) {
            const DataParallelOptions options{
                .bucket_bytes = static_cast<std::size_t>(std::max<std::int64_t>(bucket_bytes, 0)),
                .buffers = sync_in(buffers),
                .broadcast_weights = broadcast_weights};
            const auto own = buffers_of(model);
            auto made = group->run("DataParallel", [&](ProcessGroup& g) {
              return std::unique_ptr<HeldParallel>(
                  new HeldParallel{.parallel{named(parameters), [own] { return (*own)(); }, g, options}});
            });
            new (self) PyDataParallel(group, std::move(made));
          },
          "group"_a, "parameters"_a, "model"_a, "bucket_bytes"_a, "buffers"_a, "broadcast_weights"_a,
          nb::sig("def __init__(self, group: ProcessGroup, parameters: list[tuple[str, Tensor]], model: typing.Any, "
                  "bucket_bytes: int, buffers: str, broadcast_weights: bool) -> None"))
      .def(
          "set_weight", [](PyDataParallel& self, double weight) { self.get("set_weight").parallel.set_weight(weight); },
          "weight"_a, "How many rows or targets the next losses are means over.")
      .def(
          "take_part",
          [](PyDataParallel& self) {
            self.group().run("take_part", [&](ProcessGroup&) { self.get("take_part").parallel.take_part(); });
          },
          "Instead of a backward, with weight zero.")
      .def(
          "hold",
          [](PyDataParallel& self) {
            HeldParallel& held = self.get("no_sync");
            held.holds.push_back(std::make_unique<DataParallel::NoSync>(held.parallel));
          },
          "Backward passes only add up here until as many release().")
      .def(
          "release",
          [](PyDataParallel& self) {
            if (HeldParallel* const held = self.find(); held != nullptr && !held->holds.empty()) held->holds.pop_back();
          },
          "Ends a hold().")
      .def_prop_ro(
          "exposed_seconds", [](const PyDataParallel& self) { return self.get("times").parallel.times().exposed; },
          "Seconds of the last exchange that backward did not hide.")
      .def_prop_ro(
          "exchanged_bytes", [](const PyDataParallel& self) { return self.get("times").parallel.times().bytes; },
          "Bytes of gradients that the last exchange took.")
      .def_prop_ro(
          "total_weight", [](const PyDataParallel& self) { return self.get("total_weight").parallel.total_weight(); },
          "The sum of the weights of the last exchange.");
}

class PyShards : public Bound<VirtualShards> {
 public:
  PyShards(GroupHandle group, std::unique_ptr<VirtualShards> shards, std::shared_ptr<Buffers> of_model)
      : Bound(std::move(group), std::move(shards)), buffers(std::move(of_model)) {}
  std::shared_ptr<Buffers> buffers;
};

// The shard's updates of buffers, each named by the model's own tensor instead of a view made for one call.
void rename_updates(const Buffers& buffers) {
  BufferUpdates& updates = *context().buffers;
  std::vector<BufferUpdates::Update> list(updates.updates().begin(), updates.updates().end());
  updates.clear();
  for (BufferUpdates::Update& update : list) {
    update.buffer = buffers.of(update.buffer);
    updates.add(std::move(update));
  }
}

void bind_shards(nb::module_& m) {
  nb::class_<PyShards>(m, "VirtualShards", "The same bits for any number of workers.")
      .def(
          "__init__",
          [](PyShards* self, const GroupHandle& group, const Parameters& parameters, nb::handle model,
             std::int64_t shards) {
            const auto own = buffers_of(model);
            auto made = group->run("VirtualShards", [&](ProcessGroup& g) {
              return std::make_unique<VirtualShards>(
                  named(parameters), [own] { return (*own)(); }, g, shards);
            });
            new (self) PyShards(group, std::move(made), own);
          },
          "group"_a, "parameters"_a, "model"_a, "shards"_a,
          nb::sig("def __init__(self, group: ProcessGroup, parameters: list[tuple[str, Tensor]], model: typing.Any, "
                  "shards: int) -> None"))
      .def_prop_ro(
          "own_shards",
          [](const PyShards& self) {
            const Block own = self.get("own_shards").own_shards();
            return nb::make_tuple(own.first, own.end);
          },
          nb::sig("def own_shards(self) -> tuple[int, int]"), "The first of this rank's, and the one after its last.")
      .def(
          "run",
          [](const PyShards& self, const nb::callable& forward_backward) {
            (*self.buffers)();
            self.group().lend("VirtualShards", [&](ProcessGroup&) {
              self.get("VirtualShards").run([&](std::int64_t shard) {
                {
                  const nb::gil_scoped_acquire acquire;
                  forward_backward(shard);
                }
                rename_updates(*self.buffers);
              });
            });
          },
          "forward_backward"_a,
          nb::sig("def run(self, forward_backward: collections.abc.Callable[[int], object]) -> None"),
          "forward_backward(shard) for each shard of this rank; gradients become the sums over all shards.")
      .def(
          "share",
          [](const PyShards& self, std::vector<double> values) {
            self.group().run("share", [&](ProcessGroup&) { self.get("share").share(values); });
            return values;
          },
          "values"_a, "The values of shards that other ranks have filled in.");
}

}  // namespace

void bind_data_parallel(nb::module_& m) {
  bind_parallel(m);
  bind_shards(m);
  m.def(
      "average_gradients",
      [](const std::vector<PyTensor*>& parameters, PyGroup& group, double weight) {
        std::vector<Tensor> list;
        for (const PyTensor* p : parameters)
          if (p->value.body()->leaf) list.push_back(p->value);  // a frozen one never had a gradient
        return group.run("average_gradients",
                         [&](ProcessGroup& g) { return average_gradients(list, g, {.weight = weight}); });
      },
      "parameters"_a, "group"_a, "weight"_a,
      nb::sig("def average_gradients(parameters: list[Tensor], group: ProcessGroup, weight: float) -> float"),
      "The weighted mean of gradients over the ranks; the sum of the weights.");
}

}  // namespace everyo::python
