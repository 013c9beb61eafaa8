#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <unordered_map>
#include <unordered_set>

#include "nn/collect.h"

namespace everyo::inline v1 {
namespace {

using Row = std::array<std::string, 4>;

// Notes what each module gives, while it lives.
class OutputShapes {
 public:
  explicit OutputShapes(const std::vector<std::pair<std::string, ModuleBase*>>& modules) {
    for (const auto& [path, module] : modules)
      hooks_.emplace_back(module, module->hooks().after([this](const ModuleBase& of, const Tensor* output) {
        shapes_[&of] = output ? to_string(output->shape()) : "-";
      }));
  }
  ~OutputShapes() {
    for (const auto& [module, number] : hooks_) module->hooks().remove(number);
  }
  OutputShapes(const OutputShapes&) = delete;
  OutputShapes& operator=(const OutputShapes&) = delete;
  [[nodiscard]] const std::unordered_map<const ModuleBase*, std::string>& shapes() const { return shapes_; }

 private:
  std::vector<std::pair<ModuleBase*, std::uint64_t>> hooks_;
  std::unordered_map<const ModuleBase*, std::string> shapes_;
};

// Elements of the parameters that a module owns itself and no module before it does.
struct OwnParameters : Visitor {
  std::unordered_map<const ModuleBase*, std::int64_t> count;
  std::vector<ModuleBase*> order;

 protected:
  void enter(ModuleBase& module) override {
    by_path_.emplace(path(), &module);
    order.push_back(&module);
    count[&module] = 0;
  }
  void parameter(Parameter& member) override {
    if (!seen_.insert(member.tensor().body()).second) return;
    // The owner is the deepest module on the way to the parameter.
    for (std::string at = path(); !at.empty();) {
      const std::size_t dot = at.rfind('.');
      at = dot == std::string::npos ? "" : at.substr(0, dot);
      if (const auto owner = by_path_.find(at); owner != by_path_.end()) {
        count[owner->second] += member.tensor().size();
        return;
      }
    }
  }

 private:
  std::unordered_map<std::string, ModuleBase*> by_path_;
  std::unordered_set<const Body*> seen_;
};

std::string thousands(std::int64_t number) {
  std::string text = std::to_string(number);
  for (std::size_t at = text.size(); at > 3; at -= 3) text.insert(at - 3, ",");
  return text;
}

std::string table(const std::vector<Row>& rows) {
  std::array<std::size_t, 4> width{};
  for (const Row& row : rows)
    for (std::size_t i = 0; i < row.size(); ++i) width[i] = std::max(width[i], row[i].size());
  const std::string rule(width[0] + width[1] + width[2] + width[3] + 6, '-');
  std::string text;
  for (const Row& row : rows) {
    text += fmt::format("{:<{}}  {:<{}}  {:<{}}  {:>{}}\n", row[0], width[0], row[1], width[1], row[2], width[2],
                        row[3], width[3]);
    if (&row == &rows.front()) text += rule + "\n";
  }
  return text + rule + "\n";
}

std::string summary_of(ModuleBase& module, const std::unordered_map<const ModuleBase*, std::string>& shapes) {
  Collected all;
  collect(module, all);
  OwnParameters own;
  own.walk(module);
  std::vector<Row> rows{{"Layer", "Type", "Output shape", "Parameters"}};
  for (const auto& [path, each] : all.modules) {
    const auto shape = shapes.find(each);
    rows.push_back({path.empty() ? "(model)" : path, each->type_name(), shape == shapes.end() ? "-" : shape->second,
                    thousands(own.count[each])});
  }
  return table(rows) + "Total parameters: " + thousands(module.num_parameters()) + "\n" +
         "Trainable parameters: " + thousands(module.num_parameters(true)) + "\n";
}

}  // namespace

std::string ModuleBase::summary() { return summary_of(*this, {}); }

std::string ModuleBase::summary(const Shape& input_shape, DType dtype) {
  const OutputShapes outputs(named_modules());
  {
    const MetaScope meta;
    const NoGrad no_grad;
    (void)forward_any(Tensor::meta({dtype, input_shape}));
  }
  return summary_of(*this, outputs.shapes());
}

}  // namespace everyo::inline v1
