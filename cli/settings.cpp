#include "cli/settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <type_traits>

#include "base/json.h"
#include "everyo/error.h"

namespace cli {
namespace {

using nlohmann::json;

template <class T>
constexpr bool is_optional = false;
template <class T>
constexpr bool is_optional<std::optional<T>> = true;

/// f(the variable) and f(its plain type), in one.
template <class F>
decltype(auto) visit_value(const Settings::Value& value, F&& f) {
  return std::visit([&](auto* variable) -> decltype(auto) { return f(*variable); }, value);
}

/// A variable as JSON; null for one without a value.
json value_of(const Settings::Value& value) {
  return visit_value(value, []<class T>(const T& variable) -> json {
    if constexpr (is_optional<T>)
      return variable ? json(*variable) : json();
    else
      return variable;
  });
}

/// Sets a variable if the JSON is of its kind; null takes an optional one's value away.
bool assign(const Settings::Value& value, const json& from) {
  return visit_value(value, [&]<class T>(T& variable) {
    if constexpr (is_optional<T>) {
      if (from.is_null()) {
        variable.reset();
        return true;
      }
    }
    if constexpr (std::is_same_v<T, std::string>) {
      if (!from.is_string()) return false;
      variable = from.get<std::string>();
    } else if constexpr (std::is_same_v<T, std::optional<double>>) {
      if (!from.is_number()) return false;
      variable = from.get<double>();
    } else {
      if (!from.is_number_integer()) return false;
      variable = from.get<std::int64_t>();
    }
    return true;
  });
}

const char* kind_of(const Settings::Value& value) {
  return visit_value(value, []<class T>(const T&) {
    if constexpr (std::is_same_v<T, std::string>)
      return "a text";
    else
      return std::is_same_v<T, std::optional<double>> ? "a number" : "a whole number";
  });
}

std::string plain(const json& value) { return value.is_string() ? value.get<std::string>() : value.dump(); }

json json_of(const everyo::StateTree& value) {
  if (value.is<std::string>()) return value.as<std::string>();
  if (value.is<std::int64_t>()) return value.as<std::int64_t>();
  if (value.is<double>()) return value.as<double>();
  return value.as<bool>();
}

}  // namespace

CLI::Option* Settings::add(const std::string& name, Value value, const std::string& description, OnResume on_resume) {
  CLI::Option* option =
      visit_value(value, [&](auto& variable) { return app_.add_option("--" + name, variable, description); });
  std::string key = name;
  std::ranges::replace(key, '-', '_');
  settings_.push_back({name, key, value, on_resume, option});
  return option;
}

void Settings::read(const std::filesystem::path& file) {
  const std::string from = fmt::format("--config {}", file.string()), text = read_text(file, from);
  json content;
  try {
    content = everyo::base::parse_json(text, from);
  } catch (const everyo::FileError& error) {
    throw UsageError(error.what());
  }
  if (!content.is_object()) throw UsageError(fmt::format("{}: it must be one object of keys and values", from));
  std::vector<std::string> known;
  for (const Setting& setting : settings_) known.push_back(setting.key);
  for (const auto& [key, value] : content.items()) {
    const auto setting = std::ranges::find(settings_, key, &Setting::key);
    if (setting == settings_.end()) {
      const std::string close = similar(key, known);
      throw UsageError(fmt::format("{}: unknown key '{}'; known: {}{}", from, everyo::base::printable(key),
                                   fmt::join(known, ", "),
                                   close.empty() ? "" : fmt::format(". Did you mean '{}'?", close)));
    }
    if (setting->option->count() == 0) set(*setting, value, from);
  }
}

void Settings::set(const Setting& setting, const json& value, const std::string& from) const {
  if (!assign(setting.value, value) || value.is_null())
    throw UsageError(fmt::format("{}: '{}' is {}; give {}", from, setting.key, value.dump(-1, ' ', true).substr(0, 80),
                                 kind_of(setting.value)));
  try {  // the option's own check, and from here on it counts as given
    setting.option->add_result(plain(value));
    setting.option->run_callback();
  } catch (const CLI::ParseError& error) {
    const std::string what = error.what();
    throw UsageError(fmt::format("{}: {}", from, what.substr(0, what.find('\n'))));
  }
}

json Settings::to_json() const {
  json all = json::object();
  for (const Setting& setting : settings_)
    if (json value = value_of(setting.value); !value.is_null() && value != "") all[setting.key] = std::move(value);
  return all;
}

everyo::StateTree Settings::to_state() const {
  everyo::StateTree tree;
  const json all = to_json();
  for (const auto& [key, value] : all.items()) {
    if (value.is_string())
      tree[key] = value.get<std::string>();
    else if (value.is_number_integer())
      tree[key] = value.get<std::int64_t>();
    else
      tree[key] = value.get<double>();
  }
  return tree;
}

void Settings::take_over(const everyo::StateTree& saved, const std::string& run) {
  for (const Setting& setting : settings_) {
    const bool given = setting.option->count() > 0;
    if (given && setting.on_resume == OnResume::free) continue;
    const bool there = saved.contains(setting.key);
    const json own = value_of(setting.value), theirs = there ? json_of(saved.at(setting.key)) : json();
    if (given && own != theirs)
      throw UsageError(fmt::format("--{} {} is not what the run in {} was begun with{}; leave it out", setting.name,
                                   plain(own), run, there ? ", " + plain(theirs) : ""));
    if (there && !assign(setting.value, theirs))
      throw everyo::FileError(fmt::format("the checkpoint of {} has {} for '{}', which is not {}; it is damaged", run,
                                          theirs.dump(), setting.key, kind_of(setting.value)));
  }
}

}  // namespace cli
