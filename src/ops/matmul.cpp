#include <fmt/format.h>

#include <algorithm>

#include "everyo/ops.h"
#include "kernels/reduce.h"
#include "ops/elementwise.h"
#include "ops/product.h"

// matmul, as NumPy's: a [.., M, K] b [.., K, N] -> [.., M, N].
//   M, N rows and columns of a product, K the summed dimension, [..] leading dimensions that broadcast
// A one-dimensional a is a row [1, K], a one-dimensional b a column [K, 1]; that dimension of size 1 is then dropped.
namespace everyo::inline v1 {
namespace {

using kernels::BatchStrides;
using kernels::MatmulProblem;

// How two shapes multiply.
struct Form {
  std::int64_t m = 1, n = 1, k = 0;
  bool folded = false;  // one b for all: the leading dimensions of a are more rows, M stands for all of them
};
// What a product that is not folded has in front of its matrices.
struct Leading {
  Shape batch;  // of the result
  Shape a, b;   // operands with the same leading rank as batch, sizes of 1 where they repeat
};

[[noreturn]] void refuse(const Shape& a, const Shape& b, std::string_view what) {
  throw ShapeError(fmt::format("[matmul] {}: a {}, b {}", what, to_string(a), to_string(b)));
}

// Sizes of `shape` without its last two, with ones in front up to `rank`; the last two are rows and columns.
Shape with_leading(const Shape& shape, std::int64_t own_rank, std::int64_t rank, std::int64_t rows,
                   std::int64_t columns) {
  Shape full;
  for (std::int64_t i = own_rank; i < rank; ++i) full.push_back(1);
  for (std::int64_t i = 0; i < own_rank; ++i) full.push_back(shape[i]);
  full.push_back(rows);
  full.push_back(columns);
  return full;
}

Form form_of(const Shape& a, const Shape& b) {
  if (a.rank() == 0 || b.rank() == 0)
    refuse(a, b, "both operands need at least one dimension; multiply() scales by a scalar");
  Form f;
  f.m = a.rank() > 1 ? a[-2] : 1;
  f.n = b.rank() > 1 ? b[-1] : 1;
  f.k = a[-1];
  if (f.k != (b.rank() > 1 ? b[-2] : b[0])) {
    refuse(a, b,
           "the inner dimensions differ; the last of a must equal the last but one of b (the only one of a vector)");
  }
  if (b.rank() <= 2) {
    for (std::int64_t i = 0; i + 2 < a.rank(); ++i) f.m *= a[i];
    f.folded = true;
    return f;
  }
  return f;
}

Leading leading_of(const Shape& a, const Shape& b, const Form& f) {
  const std::int64_t leading_a = std::max<std::int64_t>(a.rank() - 2, 0), leading_b = b.rank() - 2;
  const std::int64_t leading = std::max(leading_a, leading_b);
  Leading l{.batch = {},
            .a = with_leading(a, leading_a, leading, f.m, f.k),
            .b = with_leading(b, leading_b, leading, f.k, f.n)};
  for (std::int64_t i = 0; i < leading; ++i) {
    if (l.a[i] != l.b[i] && l.a[i] != 1 && l.b[i] != 1) {
      refuse(a, b, "the leading dimensions do not broadcast; each must be equal or 1");
    }
    l.batch.push_back(l.a[i] == 1 ? l.b[i] : l.a[i]);
  }
  return l;
}

Shape result_shape(const Shape& a, const Shape& b) {
  const Form f = form_of(a, b);
  Shape out = f.folded ? Shape(a.sizes().first(static_cast<std::size_t>(std::max<std::int64_t>(a.rank() - 2, 0))))
                       : leading_of(a, b, f).batch;
  if (a.rank() > 1) out.push_back(a[-2]);
  if (b.rank() > 1) out.push_back(b[-1]);
  return out;
}

// Elements from one matrix to the next along each leading dimension of an operand; 0 where it repeats.
void fill_strides(const Shape& operand, const Shape& batch, std::int64_t* strides) {
  std::int64_t step = operand[-1] * operand[-2];
  for (std::int64_t i = batch.rank() - 1; i >= 0; --i) {
    strides[i] = operand[i] == 1 ? 0 : step;
    step *= operand[i];
  }
}
// The batch with `left` and `right` as operands, each with the batch's rank and two more.
BatchStrides batch_of(const Shape& batch, const Shape& left, const Shape& right) {
  BatchStrides b;
  b.rank = batch.rank();
  for (std::int64_t i = 0; i < b.rank; ++i) b.sizes[i] = batch[i];
  fill_strides(left, batch, b.a);
  fill_strides(right, batch, b.b);
  return b;
}

// Gives input i, which has the sizes `operand`, a batch of products: `full` before its repetitions are summed.
void give_products(Backward& b, std::size_t i, const MatmulProblem& p, const BatchStrides& batch, const Tensor& left,
                   const Tensor& right, const Shape& full, const Shape& operand) {
  const Spec spec = b.input_spec(i);
  kernels::AxisSet repeated = 0;
  for (std::int64_t axis = 0; axis < full.rank(); ++axis) {
    if (full[axis] != operand[axis]) repeated |= kernels::axis_bit(axis);
  }
  const Tensor each = Tensor::empty({spec.dtype, repeated ? full : spec.shape});
  multiply_matrices(p, batch, left, right, each);
  if (!repeated) return b.give(i, each);
  const Tensor sum = Tensor::empty(spec);
  kernels::reduce(kernels::ReduceKind::sum, kernels::reduce_layout(full, repeated), spec.dtype, each.bytes(),
                  spec.dtype, sum.bytes());
  b.give(i, sum);
}

Shape batched(const Shape& batch, std::int64_t rows, std::int64_t columns) {
  return with_leading(batch, batch.rank(), batch.rank(), rows, columns);
}

constexpr Record<> matmul_record{
    .name = "matmul",
    .policy = CastPolicy::low,
    .saves = {.inputs = {for_grad_of(1), for_grad_of(0)}},
    .infer = [](const Inputs& in, const NoAttrs&) -> Specs {
      if (in[0].dtype() != in[1].dtype() || !is_floating(in[0].dtype())) {
        throw DTypeError(
            fmt::format("[matmul] a is {}, b is {}; the operands must have one floating dtype; cast() them first",
                        name_of(in[0].dtype()), name_of(in[1].dtype())));
      }
      const Shape &a = in[0].shape(), &b = in[1].shape();
      return Spec{in[0].dtype(), result_shape(a, b)};
    },
    .forward =
        [](const Call& call, const NoAttrs&) {
          const Tensor &a = call.in[0], &b = call.in[1];
          const Form f = form_of(a.shape(), b.shape());
          if (f.folded) return multiply_matrices({f.m, f.n, f.k}, a, b, call.out[0]);
          const Leading l = leading_of(a.shape(), b.shape(), f);
          multiply_matrices({f.m, f.n, f.k}, batch_of(l.batch, l.a, l.b), a, b, call.out[0]);
        },
    .backward =
        [](Backward& b, const NoAttrs&) {
          const Tensor& g = b.grad();  // [.., M, N]
          const Spec left = b.input_spec(0), right = b.input_spec(1);
          const Form f = form_of(left.shape, right.shape);
          if (f.folded) {
            if (b.needs(0)) give_product(b, 0, left, {f.m, f.k, f.n, false, true}, g, b.input(1));
            if (b.needs(1)) give_product(b, 1, right, {f.k, f.n, f.m, true, false}, b.input(0), g);
            return;
          }
          const Leading l = leading_of(left.shape, right.shape, f);
          const Shape product = batched(l.batch, f.m, f.n);
          if (b.needs(0)) {
            give_products(b, 0, {f.m, f.k, f.n, false, true}, batch_of(l.batch, product, l.b), g, b.input(1),
                          batched(l.batch, f.m, f.k), l.a);
          }
          if (b.needs(1)) {
            give_products(b, 1, {f.k, f.n, f.m, true, false}, batch_of(l.batch, l.a, product), b.input(0), g,
                          batched(l.batch, f.k, f.n), l.b);
          }
        },
    .cost = [](const Inputs& in, const Specs& out, const NoAttrs&) -> Cost {
      const double products = static_cast<double>(out[0].shape.elements()) * static_cast<double>(in[0].shape()[-1]);
      return {.flops = 2 * products,
              .bytes = static_cast<double>(in[0].spec().bytes() + in[1].spec().bytes() + out[0].bytes())};
    },
    .onnx = [](onnx::Graph& g, const onnx::Values& in, const NoAttrs&) -> onnx::Values {
      const Shape &a = in[0].spec.shape, &b = in[1].spec.shape;
      return {g.node("MatMul", in, {in[0].spec.dtype, result_shape(a, b)})};
    },
    .composed = no("primitive"),
    .specs = true};

}  // namespace

extern const Op* const matmul_op;
constinit const Op* const matmul_op = &op_of<matmul_record>;

Tensor matmul(const Tensor& a, const Tensor& b) {
  if (context().autocast) [[unlikely]]
    return apply<matmul_record>({}, as_low(a, b), as_low(b, a));
  if (a.defined() && b.defined() && a.dtype() != b.dtype()) [[unlikely]] {
    const DType dtype = promote(a.dtype(), b.dtype());
    return apply<matmul_record>({}, cast(a, dtype), cast(b, dtype));
  }
  return apply<matmul_record>({}, a, b);
}

}  // namespace everyo::inline v1
