#pragma once
#include <functional>
#include <string>
#include <vector>

#include "everyo/nn.h"
#include "everyo/parallel.h"

namespace everyo::verify_room {

enum class Ranks { threads, processes };
/// "threads", "processes".
const char* name_of(Ranks ranks) noexcept;

/// What each of `count` ranks gives back, in rank order.
using Worker = std::function<std::vector<double>(ProcessGroup&)>;
std::vector<std::vector<double>> on_ranks(Ranks ranks, int count, const Worker& worker);

/// Its gradients, one after the other.
std::vector<double> gradients_of(ModuleBase& model);
/// The largest |a[i] - b[i]|.
double distance(const std::vector<double>& a, const std::vector<double>& b);
/// Rank 0's values, on all ranks.
std::vector<double> of_rank_0(std::vector<double> values, ProcessGroup& group);

/// A regression of linear data with noise: `rng = numpy.random.default_rng(0)`, features rng.normal(rows, features),
/// weights rng.uniform(-3, 3), targets features @ weights + rng.normal(0, noise).
struct Regression {
  Regression(std::int64_t rows, std::int64_t features, double noise);
  /// The mean squared error of a model's rows [first, end): a scalar.
  [[nodiscard]] Tensor loss(const Sequential& model, std::int64_t first, std::int64_t end) const;
  Tensor x, y;  // [rows, features], [rows, 1]
};

}  // namespace everyo::verify_room
