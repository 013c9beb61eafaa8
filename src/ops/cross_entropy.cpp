#include "kernels/cross_entropy.h"

#include <fmt/format.h>

#include "kernels/index.h"
#include "ops/elementwise.h"

// cross_entropy: logits x [N, K] and targets, integer labels [N] or soft labels [N, K] -> a scalar, or [N] unreduced.
// A second output keeps what backward needs of the softmax (kernels/cross_entropy.h says what).
namespace everyo::inline v1 {
namespace {

struct CrossEntropyAttrs {
  Reduction reduction = Reduction::mean;
  bool ignores = false;
  std::int64_t ignored = 0;
};
Attributes describe(const CrossEntropyAttrs& a) {
  return {{"reduction", std::string(name_of(a.reduction))},
          {"ignore_index", a.ignores ? AttributeValue(a.ignored) : AttributeValue()}};
}

kernels::LogitRows rows_of(const Tensor& logits) {
  return {logits.dtype(), logits.bytes(), logits.shape()[0], logits.shape()[1]};
}
kernels::Labels labels_of(const Tensor& targets, const CrossEntropyAttrs& a) {
  return {targets.dtype(), targets.bytes(), a.ignores, a.ignored};
}

Specs specs_of(const Tensor& logits, const CrossEntropyAttrs& a, bool soft) {
  const std::int64_t n = logits.shape()[0], k = logits.shape()[1];
  return {Spec{logits.dtype(), a.reduction == Reduction::none ? Shape{n} : Shape{}},
          kernels::cross_entropy_kept(logits.dtype(), n, k, soft)};
}

// A softmax's five operations an element, and the row's loss.
Cost cost(const Inputs& in, const Specs& out, const CrossEntropyAttrs&) {
  const double kept = static_cast<double>(out[1].bytes());
  return {.flops = 5 * static_cast<double>(in[0].size()), .bytes = elementwise_cost(in, out, 0).bytes + kept};
}

// total / count, 0 when nothing counts.
void store_loss(const Tensor& out, double total, std::int64_t count, const CrossEntropyAttrs& a) {
  if (a.reduction == Reduction::none) return;
  const double divisor = a.reduction == Reduction::mean ? static_cast<double>(count) : 1;
  kernels::fill(out.dtype(), out.bytes(), 1, count == 0 ? 0 : total / divisor);
}

kernels::RowScale scale_of(const Tensor& g, std::int64_t count, const CrossEntropyAttrs& a) {
  if (a.reduction == Reduction::none) return {.all = 1, .row = g.bytes()};
  if (a.reduction == Reduction::sum) return {.all = g.item()};
  return {.all = count == 0 ? 0 : g.item() / static_cast<double>(count)};
}

// ---- integer labels -------------------------------------------------------------------------------------------------

void check_labels(const Shape& logits, const Tensor& targets, const CrossEntropyAttrs& a) {
  const std::int64_t classes = logits[1];
  const std::int64_t row = kernels::find_bad_label(labels_of(targets, a), logits[0], classes);
  if (row < 0) [[likely]]
    return;
  throw ValueError(
      fmt::format("[cross_entropy] label {} in row {} of the targets is out of range; {} classes take 0 to "
                  "{}, or the ignore_index{}",
                  kernels::index_at(targets.dtype(), targets.bytes(), row), row, classes, classes - 1,
                  a.ignores ? fmt::format(" {}", a.ignored) : ", which is not set"),
      ErrorKind::shape);
}

void labels_forward(const Call& c, const CrossEntropyAttrs& a) {
  const Tensor &logits = c.in[0], &targets = c.in[1], &loss = c.out[0];
  check_labels(logits.shape(), targets, a);
  const kernels::Labels labels = labels_of(targets, a);
  void* const row_loss = a.reduction == Reduction::none ? loss.bytes() : nullptr;
  const double total = kernels::cross_entropy(rows_of(logits), labels, c.out[1].bytes(), row_loss);
  store_loss(loss, total, kernels::count_labels(labels, logits.shape()[0]), a);
}

// Of few classes the kept exponentials are enough, and the logits are not saved.
template <bool few>
void labels_backward(Backward& b, const CrossEntropyAttrs& a) {
  const Tensor &targets = b.input(1), &kept = b.output(1), &g = b.grad();
  const Spec spec = b.input_spec(0);
  check_labels(spec.shape, targets, a);  // they may have been written since forward
  const kernels::Labels labels = labels_of(targets, a);
  const kernels::LogitRows rows{spec.dtype, few ? nullptr : b.input(0).bytes(), spec.shape[0], spec.shape[1]};
  const Tensor grad = Tensor::empty(spec);
  kernels::cross_entropy_backward(rows, labels, kept.bytes(), scale_of(g, kernels::count_labels(labels, rows.rows), a),
                                  grad.bytes());
  b.give(0, grad);
}

template <bool few>
constexpr Record<CrossEntropyAttrs> labels_record(const char* name) {
  return {.name = name,
          .policy = CastPolicy::keep32,
          .saves = {.inputs = {few ? InputMask{0} : for_grad_of(0), for_grad_of(0)}, .outputs = {0, for_grad_of(0)}},
          .infer = [](const Inputs& in, const CrossEntropyAttrs& a) { return specs_of(in[0], a, false); },
          .forward = labels_forward,
          .backward = labels_backward<few>,
          .cost = cost,
          .onnx = no("a loss belongs to training; export the model's output"),
          .composed = no("primitive: log_softmax rounds what this keeps unrounded"),
          .specs = true};
}
constexpr auto cross_entropy_record = labels_record<false>("cross_entropy");
constexpr auto cross_entropy_few_record = labels_record<true>("cross_entropy_few");

// ---- soft labels ----------------------------------------------------------------------------------------------------

constexpr Record<CrossEntropyAttrs> cross_entropy_soft_record{
    .name = "cross_entropy_soft",
    .policy = CastPolicy::keep32,
    .saves = {.inputs = {for_grad_of(0, 1), for_grad_of(0)}, .outputs = {0, for_grad_of(0, 1)}},
    .infer = [](const Inputs& in, const CrossEntropyAttrs& a) { return specs_of(in[0], a, true); },
    .forward =
        [](const Call& c, const CrossEntropyAttrs& a) {
          const Tensor &logits = c.in[0], &loss = c.out[0];
          void* const row_loss = a.reduction == Reduction::none ? loss.bytes() : nullptr;
          const double total =
              kernels::cross_entropy_soft(rows_of(logits), c.in[1].bytes(), c.out[1].bytes(), row_loss);
          store_loss(loss, total, logits.shape()[0], a);
        },
    .backward =
        [](Backward& b, const CrossEntropyAttrs& a) {
          const Tensor &logits = b.input(0), &targets = b.needs(0) ? b.input(1) : logits;
          const Tensor grad = b.needs(0) ? Tensor::empty(logits.spec()) : Tensor();
          const Tensor grad_targets = b.needs(1) ? Tensor::empty(logits.spec()) : Tensor();
          kernels::cross_entropy_soft_backward(
              rows_of(logits), targets.bytes(), b.output(1).bytes(), scale_of(b.grad(), logits.shape()[0], a),
              b.needs(0) ? grad.bytes() : nullptr, b.needs(1) ? grad_targets.bytes() : nullptr);
          if (b.needs(0)) b.give(0, grad);
          if (b.needs(1)) b.give(1, grad_targets);
        },
    .cost = cost,
    .onnx = no("a loss belongs to training; export the model's output"),
    .composed = no("primitive: log_softmax rounds what this keeps unrounded")};

template <const auto& record>
Tensor loss_of(const Tensor& logits, const Tensor& targets, const CrossEntropyAttrs& attrs) {
  const std::array<const Tensor*, 2> in{&logits, &targets};
  std::array<Tensor, 2> out;
  apply(op_of<record>, &attrs, in, out);
  return std::move(out[0]);
}

enum class TargetKind { labels, soft, wrong };
TargetKind kind_of(const Tensor& logits, const Tensor& targets) {
  const Shape &x = logits.shape(), &t = targets.shape();
  const bool integer = !is_floating(targets.dtype());
  if (integer && (t == Shape{x[0]} || t == Shape{x[0], 1})) return TargetKind::labels;
  return t == x ? TargetKind::soft : TargetKind::wrong;
}

}  // namespace

extern const Op *const cross_entropy_op, *const cross_entropy_few_op, *const cross_entropy_soft_op;
constinit const Op* const cross_entropy_op = &op_of<cross_entropy_record>;
constinit const Op* const cross_entropy_few_op = &op_of<cross_entropy_few_record>;
constinit const Op* const cross_entropy_soft_op = &op_of<cross_entropy_soft_record>;

Tensor cross_entropy(const Tensor& logits, const Tensor& targets, const CrossEntropyOptions& options) {
  if (logits.rank() != 2 || logits.shape()[1] == 0)
    throw ShapeError(fmt::format("[cross_entropy] logits are {}; they must be (batch, classes) with at least one class",
                                 to_string(logits.shape())));
  require_floating("cross_entropy", logits);
  const CrossEntropyAttrs attrs{options.reduction, options.ignore_index.has_value(), options.ignore_index.value_or(0)};
  const Tensor x = as_float32_under_autocast(logits);
  switch (kind_of(logits, targets)) {
    case TargetKind::labels: {
      const bool narrow = targets.dtype() != int64 && targets.dtype() != int32;
      const Tensor labels = narrow ? cast(targets, int64) : targets;
      return kernels::keeps_exponentials(x.dtype(), x.shape()[1], false)
                 ? loss_of<cross_entropy_few_record>(x, labels, attrs)
                 : loss_of<cross_entropy_record>(x, labels, attrs);
    }
    case TargetKind::soft:
      if (attrs.ignores)
        throw ValueError(
            "[cross_entropy] ignore_index needs integer labels; give soft labels of 0 to rows that should "
            "not count");
      return loss_of<cross_entropy_soft_record>(x, cast(targets, x.dtype()), attrs);
    case TargetKind::wrong: break;
  }
  throw ShapeError(
      fmt::format("[cross_entropy] targets {} of {} do not fit logits {}; they must be ({},) or ({}, 1) "
                  "integer labels, or soft labels {}",
                  to_string(targets.shape()), name_of(targets.dtype()), to_string(logits.shape()), logits.shape()[0],
                  logits.shape()[0], to_string(logits.shape())));
}

}  // namespace everyo::inline v1
