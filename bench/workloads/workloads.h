#pragma once
#include <memory>
#include <string>
#include <vector>

#include "everyo/nn.h"
#include "everyo/ops.h"
#include "everyo/optim.h"
#include "everyo/precision.h"

// The training steps that everyo and its peers are compared on. Weights and data come from the generator alone, so
// they are the peers' to the bit, and the loss after 20 steps is the same everywhere: a time counts only beside it.
namespace bench {

class Workload {
 public:
  virtual ~Workload() = default;
  /// One training step: zero gradients, forward, loss, backward, update. The loss before the update, [].
  /// In a half, forward and loss run under autocast, and float16's loss is scaled.
  virtual everyo::Tensor step() = 0;
  virtual everyo::Sequential& net() = 0;
  [[nodiscard]] virtual const everyo::Tensor& inputs() const = 0;
};

struct PeerLoss {
  const char* workload;
  double loss;  ///< PyTorch 2.13, float32, after 20 steps
};
inline constexpr int steps_to_loss = 20;
inline constexpr PeerLoss peer_losses[] = {
    {"mlp-small", 2.75126028}, {"mlp-mid", 0.00108638348}, {"cnn-digits", 2.10100102}, {"cnn-cifar", 2.54053092}};

/// "mlp-small": 64-32-10, batch 32, SGD; "mlp-mid": 784-256-128-10, batch 64, Adam; "cnn-digits": two convolutions on
/// 8x8x1, batch 64, SGD; "cnn-cifar": three with batch norm on 32x32x3, batch 64, SGD; "batch-norm": both kinds of
/// batch norm at odd sizes, batch 7, SGD. `batch` above 0 stands in for the workload's own; precision is float32 or the
/// half to train in. Throws ValueError for another name, DTypeError for another precision.
std::unique_ptr<Workload> make_workload(const std::string& name, std::int64_t batch = 0,
                                        everyo::DType precision = everyo::float32);

}  // namespace bench
