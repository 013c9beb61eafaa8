#include "fuzz/fuzz.h"
#include "onnx/messages.h"
#include "onnx/read.h"
#include "onnx/structure.h"

// An ONNX file: its message and its structure, before the runtime sees it.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace everyo;
  static const fuzz::MemoryFile file, again;
  file.write(fuzz::text_of(data, size));
  onnx_file::ModelProto model;
  const auto check = [&] {
    onnx_export::read_model(model, file.path(), file.path());
    return onnx_export::check_structure(model, file.path());
  };
  const auto external = fuzz::read_or_refuse(file.path(), check);
  if (!external) return 0;

  const std::string written = model.SerializeAsString();
  again.write(written);
  onnx_file::ModelProto back;
  onnx_export::read_model(back, again.path(), "what was written");
  fuzz::expect(back.SerializeAsString() == written, "the message comes back");
  const auto same = [](const onnx_export::ExternalData& a, const onnx_export::ExternalData& b) {
    return a.tensor == b.tensor && a.location == b.location && a.offset == b.offset && a.bytes == b.bytes;
  };
  fuzz::expect(std::ranges::equal(onnx_export::check_structure(back, "what was written"), *external, same),
               "what lies in other files comes back");
  for (const onnx_export::ExternalData& entry : *external) {
    const std::filesystem::path path = std::filesystem::path("/models") / entry.location;
    fuzz::expect(path.lexically_normal().string().starts_with("/models/"), "other files stay in the folder",
                 entry.location);
  }
  return 0;
}
