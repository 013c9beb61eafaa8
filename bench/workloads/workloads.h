#pragma once
#include <memory>
#include <string>
#include <vector>

#include "everyo/nn.h"
#include "everyo/ops.h"
#include "everyo/optim.h"

// The training steps that everyo and its peers are compared on. Weights and data come from the generator alone, so
// they are the peers' to the bit, and the loss after 20 steps is the same everywhere: a time counts only beside it.
namespace bench {

class Workload {
 public:
  virtual ~Workload() = default;
  /// One training step: zero gradients, forward, loss, backward, update. The loss before the update, [].
  virtual everyo::Tensor step() = 0;
};

struct PeerLoss {
  const char* workload;
  double loss;  ///< PyTorch 2.13, float32, after 20 steps
};
inline constexpr int steps_to_loss = 20;
inline constexpr PeerLoss peer_losses[] = {{"mlp-small", 2.75126028}, {"mlp-mid", 0.00108638348}};

/// "mlp-small": 64-32-10, batch 32, SGD; "mlp-mid": 784-256-128-10, batch 64, Adam. Throws ValueError for another name.
std::unique_ptr<Workload> make_workload(const std::string& name);

}  // namespace bench
