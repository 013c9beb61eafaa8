#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "everyo/data_parallel.h"
#include "everyo/ops.h"
#include "everyo/optim.h"
#include "everyo/precision.h"
#include "parallel/ranks.h"

// Small inputs that went wrong in other libraries; tests/cases.md lists them.
namespace everyo {
namespace {

using testing_parallel::drawn, testing_parallel::on_both_transports, testing_parallel::require;

using Values = std::vector<double>;

Values mean_of_ranks(const Tensor& t, ProcessGroup& group) {
  Values values = t.to_vector();
  group.all_reduce(std::span(values), ReduceOp::mean);
  return values;
}
bool near(const Values& a, const Values& b, double bound) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (!(std::abs(a[i] - b[i]) <= bound)) return false;
  return true;
}
constexpr double rounding = 2.4e-7;  // two units of the last place of what is below 2

TEST(HandedParallelCases, G07_NoSyncAroundBackwardAloneHoldsTheExchangeBack) {
  on_both_transports(2, [](ProcessGroup& group) {
    Sequential net(Linear(3, 2, {.seed = 1}));
    DataParallel parallel(net, group);
    const Tensor x = drawn({4, 3}, static_cast<std::uint64_t>(group.rank()));
    const Tensor first = mean(power(net(x), 2));  // forward outside
    {
      const auto apart = parallel.no_sync();
      first.backward();
    }
    require(parallel.times().buckets == 0, "nothing is exchanged within");
    const Values own = net.parameters()[0].grad().to_vector();
    const Values all = mean_of_ranks(net.parameters()[0].grad(), group);
    require(own != all, "within, gradients are a rank's own");
    mean(power(net(x), 2)).backward();
    require(parallel.times().buckets == 1, "one exchange a window");
    Values twice = all;
    for (double& g : twice) g *= 2;
    require(near(net.parameters()[0].grad().to_vector(), twice, rounding), "the sum of both, averaged");
  });
}

TEST(HandedParallelCases, G08_EachWrappedModelObeysItsOwnNoSync) {
  on_both_transports(2, [](ProcessGroup& group) {
    Sequential below(Linear(3, 3, {.seed = 1})), above(Linear(3, 1, {.seed = 2}));
    DataParallel first(below, group), second(above, group);
    const Tensor x = drawn({4, 3}, static_cast<std::uint64_t>(group.rank()));
    const auto differs = [&](Sequential& net) {
      const Tensor grad = net.parameters()[0].grad();
      Values rank_0 = grad.to_vector();
      group.broadcast(std::span(rank_0), 0);
      std::int64_t count[] = {rank_0 == grad.to_vector() ? 0 : 1};
      group.all_reduce(std::span(count));
      return count[0] != 0;
    };
    {
      const auto a = first.no_sync();
      const auto b = second.no_sync();
      mean(above(below(x))).backward();
    }
    require(differs(below) && differs(above), "both hold back");
    below.zero_grad();
    above.zero_grad();
    {
      const auto a = first.no_sync();
      mean(above(below(x))).backward();
    }
    require(differs(below) && !differs(above), "only the first holds back");
  });
}

TEST(HandedParallelCases, G11_FourMicroBatchesOnOneRankAreOneOnEachOfFour) {
  on_both_transports(4, [](ProcessGroup& group) {
    const Tensor x = drawn({4, 3}, 1), y = drawn({4, 2}, 2);
    Sequential one(Linear(3, 2, {.seed = 1})), other(Linear(3, 2, {.seed = 1}));
    const auto loss = [&](const Sequential& net, std::int64_t row) {
      return mse_loss(net(slice(x, {{row, row + 1}})), slice(y, {{row, row + 1}}));
    };
    for (std::int64_t row = 0; row < 4; ++row) (loss(one, row) * 0.25).backward();
    DataParallel parallel(other, group);
    loss(other, group.rank()).backward();
    for (std::size_t p = 0; p < 2; ++p)
      require(near(one.parameters()[p].grad().to_vector(), other.parameters()[p].grad().to_vector(), rounding), "same");
  });
}

TEST(HandedParallelCases, A10_AnOverflowOnRank0LowersTheScaleOfAll) {
  on_both_transports(3, [](ProcessGroup& group) {
    Sequential net(Linear(2, 1, {.seed = 1}));
    SGD optimizer(net.parameters(), {.lr = 0.1});
    AgreementOver ranks(group);
    GradScaler scaler({.init_scale = 2, .ranks = &ranks});
    const Tensor x = Tensor::full({1, 2}, group.rank() == 0 ? std::numeric_limits<double>::infinity() : 1.0);
    const Values before = net.parameters()[0].to_vector();
    scaler.backward(mean(net(x)));  // not averaged: only rank 0 has an infinity
    require(!scaler.step(optimizer), "left out");
    scaler.update();
    require(scaler.scale() == 1, "scale");
    require(net.parameters()[0].to_vector() == before, "weights");
  });
}

TEST(HandedParallelCases, D09_OtherSizesAreAnErrorOnAllRanks) {
  on_both_transports(2, [](ProcessGroup& group) {
    std::vector<float> data(group.rank() == 0 ? 20 : 10);
    try {
      group.all_reduce(std::span(data));
      require(false, "no error");
    } catch (const DistributedError& error) {
      const std::string what = error.what();
      for (const char* word : {"20 elements", "10 elements", "same sizes"}) require(what.find(word) != what.npos, what);
    }
  });
}

TEST(HandedParallelCases, D22_TheModelItselfIsTrained) {
  on_both_transports(2, [](ProcessGroup& group) {
    Sequential net(Linear(3, 2, {.seed = 1}));
    DataParallel parallel(net, group);
    SGD optimizer(net.parameters(), {.lr = 0.5});
    const Tensor weight = net.parameters()[0];
    const Values before = weight.to_vector();
    mean(power(net(drawn({4, 3}, static_cast<std::uint64_t>(group.rank()))), 2)).backward();
    const Values gradient = weight.grad().to_vector();
    require(gradient == mean_of_ranks(weight.grad(), group), "averaged");
    optimizer.step();
    Values right = before;
    for (std::size_t i = 0; i < right.size(); ++i) right[i] -= 0.5 * gradient[i];
    require(weight.to_vector() != before && near(weight.to_vector(), right, rounding), "stepped");
  });
}

TEST(HandedParallelCases, D04_D23_BuffersAreExchangedEachStepOrWhenAskedOrNever) {
  on_both_transports(2, [](ProcessGroup& group) {
    const Tensor x = drawn({6, 3}, 10 + static_cast<std::uint64_t>(group.rank()));
    // A step with some rule: this rank's own statistics, what the model has then, and after sync_buffers().
    struct Seen {
      Values own, step, asked;
      double seconds;
    };
    const auto seen = [&](const DataParallelOptions& options) {
      Sequential alone(BatchNorm1D(3)), net(BatchNorm1D(3));
      alone(x);
      DataParallel parallel(net, group, options);
      mean(power(net(x), 2)).backward();
      const auto mean_of = [](Sequential& of) { return of.named_buffers()[0].second.to_vector(); };
      Seen found{mean_of(alone), mean_of(net), {}, parallel.times().buffers};
      parallel.sync_buffers();
      found.asked = mean_of(net);
      return found;
    };
    const auto all = [&](Values values, bool first) {
      if (first)
        group.broadcast(std::span(values), 0);
      else
        group.all_reduce(std::span(values), ReduceOp::mean);
      return values;
    };
    for (const bool first : {false, true}) {
      const BufferSync rule = first ? BufferSync::first : BufferSync::mean;
      const Seen each = seen({.buffers = rule}), later = seen({.buffers = rule, .buffers_each_step = false});
      require(near(each.step, all(each.own, first), rounding) && each.seconds > 0, "each step, with its time");
      require(later.step == later.own && later.seconds == 0, "not before it is asked for");
      require(near(later.asked, all(later.own, first), rounding), "when asked");
    }
    const Seen never = seen({.buffers = BufferSync::none});
    require(never.step == never.own && never.asked == never.own, "never");
  });
}

}  // namespace
}  // namespace everyo
