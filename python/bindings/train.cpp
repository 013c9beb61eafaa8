#include "state.h"

// Gradient accumulation.
namespace everyo::python {
namespace {

/// How targets are counted: by a function, or as count_targets does.
TargetCount count_in(std::optional<std::int64_t> ignore_index, const nb::object& count) {
  if (count.is_none()) return {.ignore_index = ignore_index};
  return {.of_targets = [&count](const Tensor& targets) { return whole_in(count(wrap(targets)), "count"); }};
}

}  // namespace

void bind_train(nb::module_& m) {
  m.def(
      "count_targets",
      [](TensorLike targets, std::optional<std::int64_t> ignore_index) {
        return count_targets(as_targets(targets), ignore_index);
      },
      "targets"_a, "ignore_index"_a = nb::none(),
      nb::sig("def count_targets(targets: TensorLike, ignore_index: typing.Optional[int] = None) -> int"),
      "How many targets a mean over them divides by: the rows, or the whole numbers that are not ignore_index.");
  m.def(
      "micro_batches",
      [](TensorLike features, TensorLike targets, std::int64_t accumulation, std::optional<std::int64_t> ignore_index,
         const nb::object& count) {
        const Batch batch{as_tensor(features.object, {}, Integers::stay), as_targets(targets)};
        nb::list parts;
        for (const MicroBatch& part :
             MicroBatches(batch, {.accumulate = accumulation, .count = count_in(ignore_index, count)}))
          parts.append(nb::make_tuple(wrap(part.features), wrap(part.targets), part.count, part.weight, part.number));
        return parts;
      },
      "features"_a, "targets"_a, "accumulation"_a, nb::kw_only(), "ignore_index"_a = nb::none(), "count"_a = nb::none(),
      nb::sig("def micro_batches(features: TensorLike, targets: TensorLike, accumulation: int, *, ignore_index: "
              "typing.Optional[int] = None, count: typing.Optional[collections.abc.Callable[[Tensor], int]] = None) -> "
              "list[tuple[Tensor, Tensor, int, float, int]]"),
      "Features, targets, count, weight and number of each part of a batch.");
  m.def(
      "effective_batch",
      [](std::int64_t batch, std::int64_t accumulation) {
        return to_string(effective_batch({.batch = batch}, accumulation));
      },
      "batch"_a, "accumulation"_a, "A batch as micro-batch x accumulation x ranks, in words.");
  m.def(
      "get_micro_batch", [] { return context().micro_batch; }, "The micro-batch that keys this thread's draws.");
  m.def(
      "set_micro_batch", [](std::int32_t value) { context().micro_batch = value; }, "value"_a,
      "The micro-batch that keys this thread's draws.");
}

}  // namespace everyo::python
