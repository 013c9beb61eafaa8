#include <algorithm>
#include <cmath>

#include "contract/samples.h"

// Samples of the losses. N batch, K classes.
namespace everyo_test::contract {
namespace {

using eo::Reduction;

std::vector<double> reduced(std::vector<double> losses, Reduction reduction, double count) {
  if (reduction == Reduction::none) return losses;
  double sum = 0;
  for (const double loss : losses) sum += loss;
  return {reduction == Reduction::mean ? sum / count : sum};
}

using Loss = eo::Tensor (*)(const eo::Tensor&, const eo::Tensor&, Reduction);

template <class F>
Samples pair_loss(const char* name, double each, Loss op, F f, const Input& prediction, const Input& target) {
  const auto of = [=](const eo::Shape& shape, Reduction reduction) {
    Case c{.inputs = {prediction, target},
           .run = [=](Tensors in) { return op(in[0], in[1], reduction); },
           .reference =
               [=](std::span<const Values> in) {
                 std::vector<double> losses;
                 for (std::size_t i = 0; i < in[0].v.size(); ++i) losses.push_back(f(in[0].v[i], in[1].v[i]));
                 return reduced(losses, reduction, static_cast<double>(losses.size()));
               },
           .flops = each * static_cast<double>(shape.elements())};
    for (Input& input : c.inputs) input.shape = shape;
    return c;
  };
  Samples samples{.op = name, .at = [of](std::int64_t n) { return of({n, 5}, Reduction::mean); }};
  samples.cases = {of({7, 4}, Reduction::sum), of({2, 3, 4}, Reduction::none), of({}, Reduction::mean),
                   of({131}, Reduction::mean)};
  samples.refusals = {{.run =
                           [op] {
                             op(eo::Tensor::ones({2, 3}), eo::Tensor::ones({3, 2}), Reduction::mean);
                           },
                       .text = {name, "same shape", "(2, 3)", "(3, 2)"}},
                      {.run = [op] { op(eo::Tensor::ones({2}), {}, Reduction::mean); },
                       .text = {"undefined"},
                       .kind = eo::ErrorKind::state}};
  return samples;
}

// -log softmax of one row at class k.
double negative_log_softmax(std::span<const double> row, std::size_t k) {
  const double most = *std::ranges::max_element(row);
  double sum = 0;
  for (const double v : row) sum += std::exp(v - most);
  return most + std::log(sum) - row[k];
}
std::span<const double> row_of(const Values& x, std::size_t row) {
  const auto classes = static_cast<std::size_t>(x.shape[1]);
  return std::span(x.v).subspan(row * classes, classes);
}

Case label_case(std::int64_t n, std::int64_t classes, const eo::CrossEntropyOptions& options = {}) {
  return {
      .inputs = {{.shape = {n, classes}}, labels({n}, classes)},
      .run = [options](Tensors in) { return eo::cross_entropy(in[0], in[1], options); },
      .reference =
          [options](std::span<const Values> in) {
            std::vector<double> losses;
            double count = 0;
            for (std::size_t row = 0; row < in[1].v.size(); ++row) {
              const double label = in[1].v[row];
              const bool ignored = options.ignore_index && label == static_cast<double>(*options.ignore_index);
              count += ignored ? 0 : 1;
              losses.push_back(ignored ? 0 : negative_log_softmax(row_of(in[0], row), static_cast<std::size_t>(label)));
            }
            return reduced(losses, options.reduction, std::max(count, 1.0));  // nothing counts: 0
          },
      .flops = 5.0 * static_cast<double>(n * classes)};
}

Case soft_case(std::int64_t n, std::int64_t classes, Reduction reduction = Reduction::mean) {
  return {.inputs = {{.shape = {n, classes}}, {.shape = {n, classes}, .low = 0, .high = 0.6}},
          .run = [reduction](Tensors in) { return eo::cross_entropy(in[0], in[1], {.reduction = reduction}); },
          .reference =
              [reduction](std::span<const Values> in) {
                std::vector<double> losses;
                for (std::size_t row = 0; row < static_cast<std::size_t>(in[0].shape[0]); ++row) {
                  double loss = 0;
                  for (std::size_t k = 0; k < row_of(in[1], row).size(); ++k)
                    loss += row_of(in[1], row)[k] * negative_log_softmax(row_of(in[0], row), k);
                  losses.push_back(loss);
                }
                return reduced(losses, reduction, std::max(static_cast<double>(losses.size()), 1.0));
              },
          .flops = 5.0 * static_cast<double>(n * classes)};
}

// The three records of cross_entropy: few classes, many, soft labels.
Samples cross_entropy(const char* op, std::int64_t classes) {
  Samples samples{.op = op, .at = [classes](std::int64_t n) { return label_case(n, classes); }, .large = 4001};
  samples.cases = {label_case(6, classes, {.reduction = Reduction::sum}),
                   label_case(5, classes, {.reduction = Reduction::none}),
                   label_case(4, classes, {.ignore_index = -100}), label_case(2, classes, {.ignore_index = 1})};
  samples.cases[2].name = "some ignored";
  samples.cases[2].inputs[1].values = {1, -100, 0, -100};
  samples.cases[3].name = "all ignored";
  samples.cases[3].inputs[1].values = {1, 1};
  const auto logits = [classes] { return eo::Tensor::ones({2, classes}); };
  samples.refusals = {{.run =
                           [=] {
                             eo::cross_entropy(logits(), eo::Tensor::from<std::int64_t>({0, classes}));
                           },
                       .text = {"cross_entropy", "row 1", "out of range", std::to_string(classes)},
                       .kind = eo::ErrorKind::shape},
                      {.run =
                           [=] {
                             eo::cross_entropy(logits(), eo::Tensor::from<std::int64_t>({-1, 0}));
                           },
                       .text = {"cross_entropy", "label -1", "row 0"},
                       .kind = eo::ErrorKind::shape},
                      {.run =
                           [=] {
                             eo::cross_entropy(logits(), eo::Tensor::from<std::int64_t>({0, 1, 0}));
                           },
                       .text = {"cross_entropy", "targets", "(3,)"}},
                      {.run = [] { eo::cross_entropy(eo::Tensor::ones({3}), eo::Tensor::from<std::int64_t>({0})); },
                       .text = {"cross_entropy", "(batch, classes)", "(3,)"}},
                      {.run = [] { eo::cross_entropy({}, eo::Tensor::from<std::int64_t>({0})); },
                       .text = {"undefined"},
                       .kind = eo::ErrorKind::state}};
  return samples;
}

}  // namespace

void add_loss_samples(SampleList& list) {
  const Input any{.shape = {}}, share{.shape = {}, .low = 0, .high = 1};
  list.push_back(pair_loss(
      "mse_loss", 3, eo::mse_loss, [](double x, double t) { return (x - t) * (x - t); }, any, any));
  list.push_back(pair_loss(
      "mae_loss", 3, eo::mae_loss, [](double x, double t) { return std::abs(x - t); }, any, any));
  list.push_back(pair_loss(
      "bce_with_logits_loss", 8, eo::bce_with_logits_loss,
      [](double x, double t) { return std::max(x, 0.0) - x * t + std::log1p(std::exp(-std::abs(x))); },
      {.shape = {}, .low = -4, .high = 4}, share));
  list.push_back(pair_loss(
      "bce_loss", 8, eo::bce_loss, [](double x, double t) { return -t * std::log(x) - (1 - t) * std::log(1 - x); },
      {.shape = {}, .low = 0.05, .high = 0.95}, share));
  list.back().refusals.push_back({.run =
                                      [] {
                                        eo::bce_loss(eo::Tensor::from({0.5f, 1.5f}), eo::Tensor::ones({2}));
                                      },
                                  .text = {"bce_loss", "element 1", "1.5", "probabilities"}});

  list.push_back(cross_entropy("cross_entropy", 70));
  list.push_back(cross_entropy("cross_entropy_few", 5));
  list.push_back({.op = "cross_entropy_soft", .at = [](std::int64_t n) { return soft_case(n, 5); }, .large = 4001});
  list.back().cases = {soft_case(3, 70), soft_case(6, 4, Reduction::sum), soft_case(5, 6, Reduction::none)};
  list.back().refusals = {
      {.run =
           [] {
             eo::cross_entropy(eo::Tensor::ones({2, 3}), eo::Tensor::ones({2, 4}));
           },
       .text = {"cross_entropy", "targets", "(2, 4)", "(2, 3)"}},
      {.run =
           [] {
             eo::cross_entropy(eo::Tensor::ones({2, 3}), eo::Tensor::ones({2, 3}), {.ignore_index = 0});
           },
       .text = {"cross_entropy", "ignore_index"},
       .kind = eo::ErrorKind::value}};
}

}  // namespace everyo_test::contract
