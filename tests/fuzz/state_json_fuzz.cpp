#include "io/state_json.h"

#include "base/json.h"
#include "fuzz/fuzz.h"

// The values of a state as JSON, beside the arrays "a", "b" and "c/d".
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace everyo;
  constexpr std::string_view name = "the state";
  const auto read = fuzz::read_or_refuse(name, [&] {
    const nlohmann::json values = base::parse_json(fuzz::text_of(data, size), name);
    std::vector<NamedTensor> arrays;
    for (const char* key : {"a", "b", "c/d"})
      if (values.dump().find(fmt::format("\"{}\"", key)) != std::string::npos)
        arrays.emplace_back(key, Tensor::from<float>({1, 2, 3, 4}, {2, 2}));
    return io::join_state(values, std::move(arrays), name);
  });
  if (!read) return 0;

  const io::SplitState parts = io::split_state(*read);
  const nlohmann::json printed = nlohmann::json::parse(parts.values.dump());
  const io::SplitState again = io::split_state(io::join_state(printed, parts.arrays, name));
  fuzz::expect(again.values == printed, "the values come back", printed.dump());
  fuzz::expect(again.arrays.size() == parts.arrays.size(), "every array comes back");
  for (std::size_t i = 0; i < parts.arrays.size(); ++i)
    fuzz::expect(
        parts.arrays[i].first == again.arrays[i].first && fuzz::same(parts.arrays[i].second, again.arrays[i].second),
        "an array comes back", parts.arrays[i].first);
  return 0;
}
