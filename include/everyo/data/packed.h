#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "everyo/data/dataset.h"

// Data sets as one file that is mapped into memory. Letters: N samples.
namespace everyo::inline v1 {

/// What a packed file holds.
struct PackedInfo {
  Spec features, targets;   ///< [N, ..] each
  std::uint64_t bytes = 0;  ///< of the file
  /// SHA-256 of features and of targets, 64 hexadecimal digits each: what the file was packed from, in a record of a
  /// run.
  std::string features_digest, targets_digest;
};

/// Writes a data set as one file that PackedDataset reads; the path names the old content or all of the new, also after
/// a crash. Reads it in blocks of rows, so it may be larger than the memory. Throws ValueError without samples,
/// ShapeError when rows differ in shape or dtype or are not those asked for, FileError when the file cannot be written.
///
/// The format, all numbers little-endian: 256 bytes of header (mark, version 1, dtype, rank and sizes of both arrays,
/// their SHA-256, and that of the header before it), the features, and from the next multiple of 64 bytes the targets.
EVERYO_API PackedInfo pack(const Dataset& data, const std::string& path);

/// A data set in a file that `pack` wrote. The file is mapped: opening reads its header, and all of an array of bools;
/// rows come from the pages that hold them, and processes that read one file share its memory. rows() and range() copy
/// (category input). While it is open the file may be replaced, as `pack` does, but not changed or cut by other
/// programs. Copying shares the map.
class EVERYO_API PackedDataset : public Dataset {
 public:
  /// Throws FileError for a file that is missing, of another kind or version, damaged in its header, or longer or
  /// shorter than the header says; and for a bool in it that is neither 0 nor 1.
  explicit PackedDataset(const std::string& path);
  ~PackedDataset() override;

  [[nodiscard]] std::int64_t size() const noexcept override;
  /// Throws ShapeError for an index outside 0..N-1.
  [[nodiscard]] Batch rows(std::span<const std::int64_t> indices) const override;
  /// Throws ShapeError for rows outside 0..N-1.
  [[nodiscard]] Batch range(std::int64_t first, std::int64_t count) const override;

  [[nodiscard]] const PackedInfo& info() const noexcept;
  /// Reads all of the file and compares its checksums. Throws FileError for one that does not agree.
  void verify() const;

 private:
  struct File;
  std::shared_ptr<const File> file_;
};

}  // namespace everyo::inline v1
