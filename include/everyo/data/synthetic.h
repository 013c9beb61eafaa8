#pragma once
#include <cstdint>

#include "everyo/data/dataset.h"

// Made-up data sets, each a function of its options alone: draws are those of NumPy's `default_rng(seed)`, and what
// comes out is what `everyo.datasets` gives in Python. Letters: N samples, D features, T tokens of a sequence. Features
// are float32, classes and tokens int64. All throw ValueError for counts below 1 and noise below 0.
namespace everyo::inline v1 {

struct DigitsOptions {
  std::int64_t samples_per_class = 200;
  double noise = 0.15;         ///< standard deviation of what is added to each pixel
  std::int64_t max_shift = 1;  ///< pixels that a glyph is moved, at most, each way
  bool flatten = true;         ///< features [N, 64], otherwise [N, 8, 8, 1]
  std::uint64_t seed = 0;
};
/// Glyphs of the digits 0..9 moved and with noise, within [0, 1], in random order; N = 10 samples_per_class. Python's
/// `datasets.load_digits`.
EVERYO_API ArrayDataset make_digits(const DigitsOptions& options = {});
/// The glyph of a digit 0..9: float32 [8, 8] of 0 and 1. Throws ValueError for another number.
EVERYO_API Tensor render_digit(std::int64_t digit);

struct RegressionOptions {
  std::int64_t n_samples = 200, n_features = 1;
  double noise = 0.1, bias = 0;
  std::uint64_t seed = 0;
};
/// A noisy linear relation: features [N, D] standard normal, targets [N, 1] = x w + bias + normal noise, w uniform in
/// ±3. Sums over D are rounded once, which can differ from NumPy's in the last bit.
EVERYO_API ArrayDataset make_regression(const RegressionOptions& options = {});

struct BlobsOptions {
  std::int64_t n_samples = 300, n_features = 2, centers = 3;
  double spread = 0.8;
  std::uint64_t seed = 0;
};
/// Round clouds about points that are uniform in ±5: features [N, D], the target the cloud's number.
EVERYO_API ArrayDataset make_blobs(const BlobsOptions& options = {});

struct MoonsOptions {
  std::int64_t n_samples = 300;
  double noise = 0.15;
  std::uint64_t seed = 0;
};
/// Two half circles that reach into each other: features [N, 2], targets 0 or 1.
EVERYO_API ArrayDataset make_moons(const MoonsOptions& options = {});

struct SpiralsOptions {
  std::int64_t n_samples = 300, classes = 3;
  double noise = 0.15;  ///< radians
  double turns = 1.5;
  std::uint64_t seed = 0;
};
/// Arms of a spiral that wind about each other: features [N, 2] within about ±1, the target the arm.
EVERYO_API ArrayDataset make_spirals(const SpiralsOptions& options = {});

struct XorOptions {
  std::int64_t n_samples = 400;
  double noise = 0.25;
  std::uint64_t seed = 0;
};
/// Clouds about the four corners (±1, ±1): features [N, 2], the target 1 where the signs of the corner differ.
EVERYO_API ArrayDataset make_xor(const XorOptions& options = {});

struct RecallTaskOptions {
  std::int64_t n_samples = 2000, length = 20, num_classes = 4, vocab_size = 16;
  std::uint64_t seed = 0;
};
/// Sequences whose class is their first token: features [N, T] tokens, the first in 0..num_classes-1, the others above.
/// Throws ValueError unless vocab_size is greater than num_classes.
EVERYO_API ArrayDataset make_recall_task(const RecallTaskOptions& options = {});

struct CopyTaskOptions {
  std::int64_t n_samples = 2000, length = 10, vocab_size = 8;
  std::uint64_t seed = 0;
};
/// Sequences to be given back: features [N, T] tokens in 0..vocab_size-1, targets the same.
EVERYO_API ArrayDataset make_copy_task(const CopyTaskOptions& options = {});

struct ParityTaskOptions {
  std::int64_t n_samples = 2000, length = 10;
  std::uint64_t seed = 0;
};
/// Rows of bits: features [N, T, 1] of 0 and 1, the target 1 where their number is odd.
EVERYO_API ArrayDataset make_parity_task(const ParityTaskOptions& options = {});

}  // namespace everyo::inline v1
