#pragma once
#include <map>
#include <string>
#include <string_view>

#include "everyo/verify.h"

namespace everyo::verify_room {

/// The figures of a topic, data/verify/TOPIC.json, by name.
class Figures {
 public:
  explicit Figures(std::string_view topic);
  /// Of text in memory; `name` stands for the file in messages.
  Figures(std::string_view text, std::string name);
  /// Throws FileError for a name that is not there.
  [[nodiscard]] const verify::Figure& at(const std::string& name) const;

 private:
  void parse(std::string_view text);

  std::string name_;
  std::map<std::string, verify::Figure> figures_;
};

}  // namespace everyo::verify_room
