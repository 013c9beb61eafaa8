#include "everyo/step_digest.h"

#include <fmt/format.h>

#include "base/digest.h"
#include "everyo/io.h"

namespace everyo::inline v1 {
namespace {

constexpr std::size_t short_digits = 16;

// Tensors one after the other, each with what it is.
class Collected {
 public:
  void add(const std::string& name, const std::string& kind, const Tensor& value) {
    const NamedTensor named[] = {{name, value}};
    add(name, kind, everyo::digest(named));
  }
  void add(const std::string& name, const std::string& kind, const std::string& digest) {
    all_.update(fmt::format("{}\n{}\n{}\n", name, kind, digest));
    tensors_.push_back({name, kind, digest.substr(0, short_digits)});
  }
  StepDigest finish(std::int64_t step) { return {step, all_.finish(), std::move(tensors_)}; }

 private:
  base::Sha256 all_;
  std::vector<TensorDigest> tensors_;
};

}  // namespace

StepDigest step_digest(ModuleBase& model, const Optimizer& optimizer, std::int64_t step) {
  Collected all;
  const auto parameters = model.named_parameters();
  for (const auto& [name, value] : parameters) all.add(name, "parameter", value);
  for (const auto& [name, value] : model.named_buffers()) all.add(name, "buffer", value);
  for (const auto& [name, value] : parameters)
    if (value.body()->leaf && value.body()->leaf->grad.full) all.add(name, "gradient", value.body()->leaf->grad.value);
  const StateTree state = optimizer.state();
  for (const auto& [group, entry] : state.at("groups").entries())
    all.add("group " + group, "learning_rate", base::sha256(std::as_bytes(std::span(&entry.get<double>("lr"), 1))));
  for (std::size_t i = 0; i < optimizer.parameters().size(); ++i) {
    const StateTree& entry = state.at("parameters").at(std::to_string(i));
    for (const auto& [kind, value] : entry.entries())
      if (value.is<StateArray>()) {
        const StateArray& array = value.as<StateArray>();
        all.add(entry.get<std::string>("name"), kind,
                Tensor::borrow(const_cast<std::byte*>(array.bytes.data()), array.spec));
      }
  }
  return all.finish(step);
}

}  // namespace everyo::inline v1
