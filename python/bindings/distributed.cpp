#include "distributed.h"

#include <fmt/format.h>
#include <nanobind/stl/shared_ptr.h>

#include <algorithm>
#include <cstring>

// Process groups: collectives on tensors and on arrays, whose memory the tensors made of them share.
namespace everyo::python {
namespace {

// Tensors given together are exchanged together while they are no more than this.
constexpr std::size_t packed_bytes = std::size_t{1} << 20;

std::vector<Tensor> tensors_in(nb::handle list) {
  std::vector<Tensor> tensors;
  for (const nb::handle each : list) tensors.push_back(as_tensor(each, {}, Integers::stay));
  return tensors;
}
Tensor tensor_of(nb::handle object) { return as_tensor(object, {}, Integers::stay); }
// Of a rank that has no part in it: none.
Tensor tensor_or_none(nb::handle object) { return object.is_none() ? Tensor() : tensor_of(object); }
std::span<std::byte> elements_or_none(const Tensor& tensor) noexcept {
  return tensor.defined() ? elements_of(tensor) : std::span<std::byte>();
}
std::vector<Tensor> written(const Tensor& tensor) {
  return tensor.defined() ? std::vector<Tensor>{tensor} : std::vector<Tensor>();
}

// Calls exchange(bytes, dtype) for tensors of one dtype together, as one piece of memory.
template <class F>
void exchange_packed(const std::vector<Tensor>& tensors, F&& exchange) {
  std::vector<std::byte> packed;
  for (std::size_t first = 0; first < tensors.size();) {
    const DType dtype = tensors[first].dtype();
    std::size_t end = first, bytes = 0;
    while (end < tensors.size() && tensors[end].dtype() == dtype &&
           (end == first || bytes + elements_of(tensors[end]).size() <= packed_bytes))
      bytes += elements_of(tensors[end++]).size();
    if (end - first == 1) {
      exchange(elements_of(tensors[first]), dtype);
    } else {
      packed.clear();
      for (std::size_t i = first; i < end; ++i) {
        const auto from = elements_of(tensors[i]);
        packed.insert(packed.end(), from.begin(), from.end());
      }
      exchange(std::span(packed), dtype);
      const std::byte* from = packed.data();
      for (std::size_t i = first; i < end; ++i) {
        const auto to = elements_of(tensors[i]);
        if (!to.empty()) std::memcpy(to.data(), from, to.size());
        from += to.size();
      }
    }
    for (std::size_t i = first; i < end; ++i) note_written(tensors[i]);
    first = end;
  }
}

// An exchange under way, and the tensor that it is to give.
struct PyWork {
  std::shared_ptr<Work> work;
  std::vector<Tensor> written;
};

PyWork keep(PyGroup& group, const Work& work, std::vector<Tensor> tensors, std::vector<Tensor> written) {
  group.keep(work, std::move(tensors));
  return {std::make_shared<Work>(work), std::move(written)};
}

void bind_work(nb::module_& m) {
  nb::class_<PyWork>(m, "Work", "An exchange under way.")
      .def(
          "wait",
          [](const PyWork& self) {
            const nb::gil_scoped_release release;
            Work(*self.work).wait();  // of its own: others may wait, too, and all are to see its error
            for (const Tensor& tensor : self.written) note_written(tensor);
          },
          "Returns once it is done; raises what it raised, each time.")
      .def(
          "done", [](const PyWork& self) { return self.work->done(); }, "Is it?");
}

void bind_reductions(nb::class_<PyGroup>& group) {
  group
      .def(
          "all_reduce",
          [](PyGroup& self, nb::handle list, std::string_view op) {
            const std::vector<Tensor> tensors = tensors_in(list);
            const ReduceOp reduce = reduce_in("all_reduce", op);
            self.run("all_reduce", [&](ProcessGroup& g) {
              exchange_packed(tensors, [&](auto bytes, DType dtype) { g.all_reduce(bytes, dtype, reduce); });
            });
          },
          "tensors"_a, "op"_a,
          nb::sig("def all_reduce(self, tensors: collections.abc.Sequence[TensorLike], op: str) -> None"),
          "Each element combined over the ranks, in place.")
      .def(
          "all_reduce_async",
          [](PyGroup& self, nb::handle array, std::string_view op) {
            const Tensor tensor = tensor_of(array);
            const ReduceOp reduce = reduce_in("all_reduce", op);
            return self.run("all_reduce", [&](ProcessGroup& g) {
              return keep(self, g.all_reduce_async(elements_of(tensor), tensor.dtype(), reduce), {tensor}, {tensor});
            });
          },
          "array"_a, "op"_a, nb::sig("def all_reduce_async(self, array: TensorLike, op: str) -> Work"),
          "The same for one array, while the caller goes on.")
      .def(
          "reduce_scatter",
          [](PyGroup& self, nb::handle data, nb::handle part, std::string_view op) {
            const Tensor from = tensor_of(data), to = tensor_of(part);
            const ReduceOp reduce = reduce_in("reduce_scatter", op);
            self.run("reduce_scatter", [&](ProcessGroup& g) {
              g.reduce_scatter(elements_of(from), elements_of(to), to.dtype(), reduce);
            });
            note_written(to);
          },
          "data"_a, "part"_a, "op"_a,
          nb::sig("def reduce_scatter(self, data: TensorLike, part: TensorLike, op: str) -> None"),
          "This rank's part of data, combined over the ranks.")
      .def(
          "reduce_scatter_async",
          [](PyGroup& self, nb::handle data, nb::handle part, std::string_view op) {
            const Tensor from = tensor_of(data), to = tensor_of(part);
            const ReduceOp reduce = reduce_in("reduce_scatter", op);
            return self.run("reduce_scatter", [&](ProcessGroup& g) {
              return keep(self, g.reduce_scatter_async(elements_of(from), elements_of(to), to.dtype(), reduce),
                          {from, to}, {to});
            });
          },
          "data"_a, "part"_a, "op"_a,
          nb::sig("def reduce_scatter_async(self, data: TensorLike, part: TensorLike, op: str) -> Work"),
          "The same, while the caller goes on.");
}

void bind_copies(nb::class_<PyGroup>& group) {
  group
      .def(
          "broadcast",
          [](PyGroup& self, nb::handle list, int src) {
            const std::vector<Tensor> tensors = tensors_in(list);
            self.run("broadcast", [&](ProcessGroup& g) {
              exchange_packed(tensors, [&](auto bytes, DType dtype) { g.broadcast(bytes, src, dtype); });
            });
          },
          "tensors"_a, "src"_a,
          nb::sig("def broadcast(self, tensors: collections.abc.Sequence[TensorLike], src: int) -> None"),
          "Rank src's elements, in place.")
      .def(
          "broadcast_async",
          [](PyGroup& self, nb::handle array, int src) {
            const Tensor tensor = tensor_of(array);
            return self.run("broadcast", [&](ProcessGroup& g) {
              return keep(self, g.broadcast_async(elements_of(tensor), src, tensor.dtype()), {tensor}, {tensor});
            });
          },
          "array"_a, "src"_a, nb::sig("def broadcast_async(self, array: TensorLike, src: int) -> Work"),
          "The same for one array, while the caller goes on.")
      .def(
          "all_gather",
          [](PyGroup& self, nb::handle part, nb::handle data) {
            const Tensor from = tensor_of(part), to = tensor_of(data);
            self.run("all_gather",
                     [&](ProcessGroup& g) { g.all_gather(elements_of(from), elements_of(to), from.dtype()); });
            note_written(to);
          },
          "part"_a, "data"_a, nb::sig("def all_gather(self, part: TensorLike, data: TensorLike) -> None"),
          "All ranks' parts one after the other, in data.")
      .def(
          "all_gather_async",
          [](PyGroup& self, nb::handle part, nb::handle data) {
            const Tensor from = tensor_of(part), to = tensor_of(data);
            return self.run("all_gather", [&](ProcessGroup& g) {
              return keep(self, g.all_gather_async(elements_of(from), elements_of(to), from.dtype()), {from, to}, {to});
            });
          },
          "part"_a, "data"_a, nb::sig("def all_gather_async(self, part: TensorLike, data: TensorLike) -> Work"),
          "The same, while the caller goes on.")
      .def(
          "gather",
          [](PyGroup& self, nb::handle part, nb::handle data, int dst) {
            const Tensor from = tensor_of(part), to = tensor_or_none(data);
            self.run("gather",
                     [&](ProcessGroup& g) { g.gather(elements_of(from), elements_or_none(to), dst, from.dtype()); });
            if (to.defined()) note_written(to);
          },
          "part"_a, "data"_a.none(), "dst"_a,
          nb::sig("def gather(self, part: TensorLike, data: typing.Optional[TensorLike], dst: int) -> None"),
          "All ranks' parts, in data of rank dst.")
      .def(
          "gather_async",
          [](PyGroup& self, nb::handle part, nb::handle data, int dst) {
            const Tensor from = tensor_of(part), to = tensor_or_none(data);
            return self.run("gather", [&](ProcessGroup& g) {
              return keep(self, g.gather_async(elements_of(from), elements_or_none(to), dst, from.dtype()), {from, to},
                          written(to));
            });
          },
          "part"_a, "data"_a.none(), "dst"_a,
          nb::sig("def gather_async(self, part: TensorLike, data: typing.Optional[TensorLike], dst: int) -> Work"),
          "The same, while the caller goes on.")
      .def(
          "scatter",
          [](PyGroup& self, nb::handle data, nb::handle part, int src) {
            const Tensor to = tensor_of(part), from = tensor_or_none(data);
            self.run("scatter",
                     [&](ProcessGroup& g) { g.scatter(elements_or_none(from), elements_of(to), src, to.dtype()); });
            note_written(to);
          },
          "data"_a.none(), "part"_a, "src"_a,
          nb::sig("def scatter(self, data: typing.Optional[TensorLike], part: TensorLike, src: int) -> None"),
          "This rank's part of rank src's data, in part.")
      .def(
          "scatter_async",
          [](PyGroup& self, nb::handle data, nb::handle part, int src) {
            const Tensor to = tensor_of(part), from = tensor_or_none(data);
            return self.run("scatter", [&](ProcessGroup& g) {
              return keep(self, g.scatter_async(elements_or_none(from), elements_of(to), src, to.dtype()), {from, to},
                          {to});
            });
          },
          "data"_a.none(), "part"_a, "src"_a,
          nb::sig("def scatter_async(self, data: typing.Optional[TensorLike], part: TensorLike, src: int) -> Work"),
          "The same, while the caller goes on.")
      .def(
          "send",
          [](PyGroup& self, nb::handle array, int dst) {
            const Tensor tensor = tensor_of(array);
            self.run("send", [&](ProcessGroup& g) { g.send(elements_of(tensor), dst, tensor.dtype()); });
          },
          "array"_a, "dst"_a, nb::sig("def send(self, array: TensorLike, dst: int) -> None"), "To one rank.")
      .def(
          "receive",
          [](PyGroup& self, nb::handle array, int src) {
            const Tensor tensor = tensor_of(array);
            self.run("receive", [&](ProcessGroup& g) { g.receive(elements_of(tensor), src, tensor.dtype()); });
            note_written(tensor);
          },
          "array"_a, "src"_a, nb::sig("def receive(self, array: TensorLike, src: int) -> None"),
          "From one rank, in place.");
}

}  // namespace

ProcessGroup& PyGroup::get(std::string_view function) const {
  if (!group_)
    throw DistributedError(fmt::format("[{}] the group is closed; use it before close(), and in its worker", function),
                           -1);
  return *group_;
}

void PyGroup::keep(Work work, std::vector<Tensor> tensors) {
  std::erase_if(pending_, [](const auto& entry) { return entry.first.done(); });
  pending_.emplace_back(std::move(work), std::move(tensors));
}

void PyGroup::check_not_lent(std::string_view function) const {
  if (!lent_) return;
  throw StateError(
      fmt::format("[{}] called on the group while VirtualShards.run uses it; call it before or after", function),
      ErrorKind::distributed);
}

void PyGroup::close() noexcept {
  const std::scoped_lock lock(busy_);
  for (auto& [work, tensors] : pending_) {
    if (!work.done()) group_->end(fmt::format("rank {} has left the group with exchanges under way", group_->rank()));
    try {
      work.wait();
    } catch (const Error&) {  // who wants to know waits for it
    }
  }
  for (const auto& call : at_close_) call();
  at_close_.clear();
  group_.reset();
  pending_.clear();
}

std::span<std::byte> elements_of(const Tensor& tensor) noexcept { return {tensor.bytes(), tensor.spec().bytes()}; }
void note_written(const Tensor& tensor) { tensor.body()->storage->bump_version(); }

ReduceOp reduce_in(std::string_view function, std::string_view name) {
  for (const ReduceOp op : {ReduceOp::sum, ReduceOp::mean, ReduceOp::min, ReduceOp::max})
    if (name == name_of(op)) return op;
  throw ValueError(fmt::format(R"([{}] op is "{}"; it must be "sum", "mean", "min" or "max")", function, name));
}

void bind_distributed(nb::module_& m) {
  bind_work(m);
  nb::class_<PyGroup> group(m, "ProcessGroup", "A rank's group.");
  group
      .def_prop_ro(
          "rank", [](const PyGroup& self) { return self.get("rank").rank(); }, "From 0 on.")
      .def_prop_ro(
          "world_size", [](const PyGroup& self) { return self.get("world_size").world_size(); }, "How many there are.")
      .def_prop_ro(
          "transport", [](const PyGroup& self) { return std::string(self.get("transport").transport()); },
          "\"threads\", \"shm\" or \"one\".")
      .def(
          "barrier", [](PyGroup& self) { self.run("barrier", [](ProcessGroup& g) { g.barrier(); }); },
          "Returns once every rank has called it.")
      .def(
          "barrier_async",
          [](PyGroup& self) {
            return self.run("barrier", [&](ProcessGroup& g) { return keep(self, g.barrier_async(), {}, {}); });
          },
          "The same, while the caller goes on.")
      .def(
          "split",
          [](PyGroup& self, int color, int key) -> GroupHandle {
            std::unique_ptr<ProcessGroup> part =
                self.run("split", [&](ProcessGroup& g) { return g.split(color, key); });
            return part ? std::make_shared<PyGroup>(std::move(part)) : nullptr;
          },
          "color"_a, "key"_a, nb::sig("def split(self, color: int, key: int) -> typing.Optional[ProcessGroup]"),
          "The ranks that give the same color; None below 0.")
      .def(
          "end", [](PyGroup& self, std::string_view reason) { self.get("end").end(reason); }, "reason"_a,
          "Ends the group on all ranks, for this reason.")
      .def(
          "close",
          [](PyGroup& self) {
            const nb::gil_scoped_release release;
            self.check_not_lent("close");
            self.close();
          },
          "Leaves the group.");
  bind_reductions(group);
  bind_copies(group);
  m.def(
      "init_process_group", [] { return std::make_shared<PyGroup>(init_process_group()); },
      "The group of a program that `everyo launch` started; otherwise a group of one.");
  m.def(
      "shard_indices",
      [](std::int64_t count, int rank, int world_size, bool drop_last) {
        const Block block = shard_indices(count, rank, world_size, drop_last);
        return nb::make_tuple(block.first, block.end);
      },
      "count"_a, "rank"_a, "world_size"_a, "drop_last"_a,
      nb::sig("def shard_indices(count: int, rank: int, world_size: int, drop_last: bool) -> tuple[int, int]"),
      "The first of a rank's samples, and the one after its last.");
}

}  // namespace everyo::python
