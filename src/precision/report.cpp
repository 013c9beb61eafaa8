#include <fmt/format.h>

#include <algorithm>

#include "everyo/ops.h"
#include "everyo/precision.h"

namespace everyo::inline v1 {
namespace {

std::vector<DType> dtypes_of(std::span<const Tensor> tensors) {
  std::vector<DType> list;
  for (const Tensor& t : tensors) list.push_back(t.dtype());
  return list;
}

std::string names_of(std::span<const DType> dtypes) {
  std::vector<std::string_view> names;
  for (const DType dtype : dtypes) names.push_back(name_of(dtype));
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

std::vector<std::string_view> autocast_ops() {
  std::vector<std::string_view> names;
  for (const Op* op : ops())
    if (op->policy == CastPolicy::low) names.emplace_back(op->name);
  return names;
}

std::string_view name_of(CastPolicy policy) noexcept {
  switch (policy) {
    case CastPolicy::low: return "low";
    case CastPolicy::follow: return "follow";
    case CastPolicy::keep32: return "keep32";
    case CastPolicy::promote: return "promote";
    case CastPolicy::unset: break;
  }
  return "unset";
}

std::vector<PrecisionRow> precision_report(const std::function<void()>& run) {
  Tracer here;
  Tracer* const outer = context().tracer;
  {
    const Scoped<&Context::tracer> traced(&here);
    run();
  }
  std::vector<PrecisionRow> rows;
  for (Tracer::Step& step : here.steps) {
    PrecisionRow row{.module = step.module,
                     .op = step.op->name,
                     .policy = step.op->policy,
                     .operands = dtypes_of(step.in),
                     .results = dtypes_of(step.out),
                     .calls = 1};
    const auto same = [&row](const PrecisionRow& r) {
      return r.module == row.module && r.op == row.op && r.operands == row.operands && r.results == row.results;
    };
    if (const auto at = std::ranges::find_if(rows, same); at != rows.end())
      ++at->calls;
    else
      rows.push_back(std::move(row));
    if (outer) outer->steps.push_back(std::move(step));
  }
  return rows;
}

std::string to_string(std::span<const PrecisionRow> rows) {
  std::size_t module = 6, op = 2, policy = 6, operands = 8, results = 7;  // as the headings
  for (const PrecisionRow& row : rows) {
    module = std::max(module, row.module.size());
    op = std::max(op, row.op.size());
    policy = std::max(policy, name_of(row.policy).size());
    operands = std::max(operands, names_of(row.operands).size());
    results = std::max(results, names_of(row.results).size());
  }
  const auto line = [&](std::string_view m, std::string_view o, std::string_view p, std::string_view in,
                        std::string_view out, std::string_view calls) {
    return fmt::format("{:<{}}  {:<{}}  {:<{}}  {:<{}}  {:<{}}  {}\n", m, module, o, op, p, policy, in, operands, out,
                       results, calls);
  };
  std::string text = line("module", "op", "policy", "operands", "results", "calls");
  for (const PrecisionRow& row : rows)
    text += line(row.module, row.op, name_of(row.policy), names_of(row.operands), names_of(row.results),
                 fmt::format("{}", row.calls));
  return text;
}

}  // namespace everyo::inline v1
