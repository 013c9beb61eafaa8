"""Writes tests/base/random_draws.inc: draws of numpy.random.default_rng for tests/base/random_test.cpp.

    python3 tests/oracle/make_random_draws.py > tests/base/random_draws.inc

A draw is stored as its bits. Long runs, which reach the rare branches, are stored as a hash of their bits.
"""
import numpy as np

SEEDS = [[0], [1], [42], [12345], [2**32 - 1], [2**32], [2**63 + 5], [1, 2, 3, 4, 5, 6]]
LONG = 100_000
BOUNDS = [(0, 1), (0, 10), (-5, 7), (0, 2**32 - 1), (0, 2**32), (0, 2**32 + 1), (-(2**62), 2**62 + 3), (-(2**63), 2**63 - 1)]


def words(seed):
    """The 32-bit words of a list of integers, as SeedSequence takes them."""
    out = []
    for value in seed:
        out.append(value & 0xFFFFFFFF)
        while value := value >> 32:
            out.append(value & 0xFFFFFFFF)
    return out


def fnv(values):
    """FNV-1a, a word of any width at a time."""
    digest = 0xCBF29CE484222325
    for word in values.tolist():
        digest = (digest ^ word) * 0x100000001B3 % 2**64
    return digest


def bits(values):
    return values.view(np.uint32 if values.dtype.itemsize == 4 else np.uint64)


def array(values):
    return "{" + ", ".join(f"{int(v):#x}u" for v in values) + "}"


def rng(seed):
    return np.random.default_rng(seed[0] if len(seed) == 1 else seed)


print(f"// Made by tests/oracle/make_random_draws.py with NumPy {np.__version__}.")
print("// clang-format off")
print(f"inline constexpr std::size_t long_run = {LONG};")
print("inline const std::vector<SeedCase> seed_cases{")
for seed in SEEDS:
    print("  {.words = " + array(words(seed)) + ",")
    print("   .raw = " + array(rng(seed).bit_generator.random_raw(3)) + ",")
    print("   .random = " + array(bits(rng(seed).random(3))) + ",")
    print("   .random_f = " + array(bits(rng(seed).random(3, dtype=np.float32))) + ",")
    print("   .uniform = " + array(bits(rng(seed).uniform(-0.125, 0.7, 3))) + ",")
    print("   .standard_normal = " + array(bits(rng(seed).standard_normal(3))) + ",")
    print("   .standard_normal_f = " + array(bits(rng(seed).standard_normal(3, dtype=np.float32))) + ",")
    print("   .normal = " + array(bits(rng(seed).normal(1.5, 0.3, 3))) + ",")
    print("   .permutation = " + array(rng(seed).permutation(10)) + ",")
    print("   .spawned = " + array([c.bit_generator.random_raw() for c in rng(seed).spawn(3)]) + ",")
    print("   .jumped = " + array([rng(seed).bit_generator.jumped(j).random_raw() for j in (1, 2, 5)]) + "},")
print("};")

long = {"random": lambda r: bits(r.random(LONG)), "random_f": lambda r: bits(r.random(LONG, dtype=np.float32)),
        "standard_normal": lambda r: bits(r.standard_normal(LONG)),
        "standard_normal_f": lambda r: bits(r.standard_normal(LONG, dtype=np.float32)),
        "permutation": lambda r: r.permutation(LONG)}
for name, draw in long.items():
    print(f"inline constexpr std::uint64_t {name}_hash = {fnv(draw(np.random.default_rng(7))):#x}u;")

print("inline const std::vector<IntegerCase> integer_cases{")
for low, high in BOUNDS:
    r = np.random.default_rng(3)
    first = np.array([r.integers(low, high) for _ in range(2)])
    rest = r.integers(low, high, 1000)
    shown = "std::numeric_limits<std::int64_t>::min()" if low == -(2**63) else str(low)
    print(f"  {{.low = {shown}, .high = {high}, .first = {array(first.view(np.uint64))}, .hash = {fnv(rest.view(np.uint64)):#x}u}},")
print("};")
print("// One generator, many kinds of draw: halves of 64-bit draws wait across other draws.")
r = np.random.default_rng(11)
mixed = [bits(np.array([r.random(dtype=np.float32)], np.float32))[0], bits(np.array([r.random()]))[0], r.integers(0, 100),
         bits(np.array([r.standard_normal(dtype=np.float32)], np.float32))[0],
         bits(np.array([r.standard_normal()]))[0], int(r.integers(-(2**40), 2**40)) % 2**64]
print("inline constexpr std::uint64_t mixed_draws[] = " + array(mixed) + ";")
print("inline const std::vector<std::int64_t> mixed_permutation = " + array(r.permutation(7)).replace("u", "") + ";")
state = r.bit_generator.state
s, i = state["state"]["state"], state["state"]["inc"]
print("inline constexpr GeneratorState mixed_state{" + f"{s >> 64:#x}u, {s % 2**64:#x}u, {i >> 64:#x}u, {i % 2**64:#x}u, "
      f"{'true' if state['has_uint32'] else 'false'}, {state['uinteger']:#x}u" + "};")
print("// clang-format on")
