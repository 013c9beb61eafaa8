#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "common.h"

// x[key] as NumPy defines it, in ops of the library, so that gradients flow. Index arrays are prepared by NumPy.
namespace everyo::python {
namespace {

// Of NumPy's truth values, which are no Python bools.
bool is_true(nb::handle value) { return PyObject_IsTrue(value.ptr()) == 1; }

[[noreturn]] void refuse(const Tensor& x, const std::string& why) {
  throw ShapeError(fmt::format("[index] {} for a tensor of shape {}", why, to_string(x.shape())));
}

bool is_integer(nb::handle item) {
  return PyIndex_Check(item.ptr()) && !PyBool_Check(item.ptr()) && !is_tensor(item) && !nb::hasattr(item, "ndim");
}

std::int64_t integer_in(nb::handle item) { return whole_in(item, "index"); }

std::optional<std::int64_t> bound_in(nb::handle bound) {
  if (bound.is_none()) return {};
  // As Python: a bound may be of any size. No axis is as long as these.
  constexpr std::int64_t far = std::int64_t{1} << 60;
  const nb::object index = nb::steal(PyNumber_Index(bound.ptr()));
  if (!index.is_valid()) throw nb::python_error();
  int beyond = 0;
  const std::int64_t value = PyLong_AsLongLongAndOverflow(index.ptr(), &beyond);
  return beyond != 0 ? beyond * far : std::clamp(value, -far, far);
}

Slice slice_in(nb::handle item) {
  const std::optional<std::int64_t> step = bound_in(item.attr("step"));
  return {bound_in(item.attr("start")), bound_in(item.attr("stop")), step.value_or(1)};
}

// What a key says of one axis of the result before index arrays act.
struct Axis {
  bool added = false;  // None
  Slice slice{};       // a whole axis unless the key holds a slice
  std::optional<std::int64_t> at{};
  nb::object array{};  // int64 indices, an axis of a mask
  Tensor tensor{};     // whose values these are, if they came as one: what an export can follow
};

// The array of an index item: truth values or integers.
nb::object index_array(const Tensor& x, nb::handle item) {
  nb::object array = is_tensor(item) ? live_array(tensor_in(item)) : numpy("asarray")(item);
  const auto kind = nb::cast<std::string>(array.attr("dtype").attr("kind"));
  if (kind == "u" && is_true(numpy("any")(numpy("greater")(array, std::numeric_limits<std::int64_t>::max()))))
    refuse(x, "an index out of range, beyond 64 bits,");
  if (kind == "b" || kind == "i" || kind == "u") return array;
  if (nb::cast<std::int64_t>(array.attr("size")) == 0) return array.attr("astype")("int64");
  refuse(x, fmt::format("indices of dtype {}; they must be integers or truth values,", text_of(array.attr("dtype"))));
}

// How many axes of x an item uses.
std::int64_t used_axes(nb::handle item, nb::handle array) {
  if (item.is_none() || item.ptr() == Py_Ellipsis) return 0;
  if (!array.is_valid() || nb::cast<std::string>(array.attr("dtype").attr("kind")) != "b") return 1;
  return nb::cast<std::int64_t>(array.attr("ndim"));
}

// A single truth value: a new axis, of which all or nothing is chosen.
void add_truth(nb::handle truth, std::vector<Axis>& axes) {
  Axis axis;
  axis.added = true;
  axis.array = numpy("zeros")(is_true(truth) ? 1 : 0, "int64");
  axes.push_back(std::move(axis));
}

void add_mask(const Tensor& x, nb::handle mask, std::int64_t first, std::vector<Axis>& axes) {
  const Shape shape = shape_in(nb::handle(mask.attr("shape")));
  for (std::int64_t i = 0; i < shape.rank(); ++i)
    if (shape[i] != x.shape()[first + i] && shape[i] != 0)  // as NumPy: 0 chooses none of any axis
      refuse(x, fmt::format("a mask of shape {}", to_string(shape)));
  for (const nb::handle places : numpy("nonzero")(mask)) {
    Axis axis;
    axis.array = nb::borrow(places);
    axes.push_back(std::move(axis));
  }
}

std::vector<Axis> axes_of(const Tensor& x, nb::handle key) {
  std::vector<nb::object> items, arrays;
  if (PyTuple_Check(key.ptr()))
    for (const nb::handle item : key) items.push_back(nb::borrow(item));
  else
    items.push_back(nb::borrow(key));
  std::int64_t used = 0;
  std::size_t ellipses = 0;
  for (const nb::object& item : items) {
    const bool plain = item.is_none() || item.ptr() == Py_Ellipsis || PySlice_Check(item.ptr()) || is_integer(item);
    arrays.push_back(plain ? nb::object() : index_array(x, item));
    used += used_axes(item, arrays.back());
    if (item.ptr() == Py_Ellipsis) ++ellipses;
  }
  if (ellipses > 1) refuse(x, "more than one '...'");
  if (used > x.rank()) refuse(x, fmt::format("{} indices, more entries than its {} axes,", used, x.rank()));
  std::vector<Axis> axes;
  std::int64_t next = 0;
  const auto whole_axes = [&](std::int64_t count) {
    axes.resize(axes.size() + static_cast<std::size_t>(count));
    next += count;
  };
  for (std::size_t i = 0; i < items.size(); ++i) {
    const nb::object& item = items[i];
    if (item.ptr() == Py_Ellipsis) {
      whole_axes(x.rank() - used);
      continue;
    }
    const std::int64_t width = used_axes(item, arrays[i]);
    Axis axis;
    if (item.is_none()) {
      axis.added = true;
    } else if (PySlice_Check(item.ptr())) {
      axis.slice = slice_in(item);
    } else if (!arrays[i].is_valid()) {
      axis.at = integer_in(item);
    } else if (nb::cast<std::string>(arrays[i].attr("dtype").attr("kind")) == "b") {
      if (width == 0)
        add_truth(arrays[i], axes);
      else
        add_mask(x, arrays[i], next, axes);
      next += width;
      continue;
    } else {
      axis.array = arrays[i].attr("astype")("int64", "copy"_a = false);
      if (is_tensor(item) && (tensor_in(item).dtype() == int64 || tensor_in(item).dtype() == int32))
        axis.tensor = tensor_in(item);
    }
    axes.push_back(std::move(axis));
    next += width;
  }
  whole_axes(x.rank() - next);
  return axes;
}

// Slices, and with `indices` single places too, whose axes go away: one op, if any.
Tensor sliced(const Tensor& x, const std::vector<Axis>& axes, bool indices) {
  std::vector<Slice> slices;
  bool any = false;
  for (const Axis& axis : axes) {
    if (axis.added) continue;
    slices.push_back(indices && axis.at ? Slice::at(*axis.at) : axis.slice);
    const Slice& last = slices.back();
    any = any || last.drop || last.start || last.stop || last.step != 1;
  }
  return any ? slice(x, slices) : x;
}

// Integers, slices and None: views where they can be.
Tensor basic(const Tensor& x, const std::vector<Axis>& axes) {
  Tensor y = sliced(x, axes, true);
  std::int64_t at = 0;
  for (const Axis& axis : axes) {
    if (axis.at) continue;
    if (axis.added) y = expand_dims(y, at);
    ++at;
  }
  return y;
}

// Places in the joined axis that `indexed` axes of y make up, int64 [..], from arrays that broadcast.
nb::object joined_places(const Tensor& x, const Tensor& y, const std::vector<Axis>& axes,
                         const std::vector<std::int64_t>& indexed) {
  nb::list places, sizes;
  for (const std::int64_t i : indexed) {
    const Axis& axis = axes[static_cast<std::size_t>(i)];
    const std::int64_t size = y.shape()[i];
    nb::object array = axis.at ? numpy("asarray")(*axis.at, "int64") : axis.array;
    const nb::object below = numpy("less")(array, 0);
    if (is_true(numpy("any")(below))) array = numpy("where")(below, numpy("add")(array, size), array);
    const bool fits =
        is_true(numpy("all")(numpy("greater_equal")(array, 0))) && is_true(numpy("all")(numpy("less")(array, size)));
    if (!fits) refuse(x, fmt::format("an index out of range 0..{} on axis {}", size - 1, i));
    places.append(array);
    sizes.append(size);
  }
  if (indexed.size() == 1) return places[0];
  try {
    const nb::object together = nb::steal(PySequence_Tuple(numpy("broadcast_arrays")(*places).ptr()));
    return numpy("ravel_multi_index")(together, nb::steal(PySequence_Tuple(sizes.ptr())));
  } catch (nb::python_error& e) {
    refuse(x, fmt::format("index arrays that do not fit together ({})", e.what()));
  }
}

Tensor advanced(const Tensor& x, const std::vector<Axis>& axes) {
  Tensor y = sliced(x, axes, false);
  std::vector<std::int64_t> indexed, others;
  for (std::int64_t i = 0; i < std::ssize(axes); ++i) {
    const Axis& axis = axes[static_cast<std::size_t>(i)];
    if (axis.added) y = expand_dims(y, i);
    (axis.at || axis.array.is_valid() ? indexed : others).push_back(i);
  }
  Tensor places = as_tensor(joined_places(x, y, axes, indexed), int64, Integers::stay);
  if (const Tensor& given = axes[static_cast<std::size_t>(indexed[0])].tensor; indexed.size() == 1 && given.defined())
    places = given;
  if (indexed.size() == 1) return take(y, places, indexed.front());

  Axes order = indexed;
  order.insert(order.end(), others.begin(), others.end());
  if (!std::ranges::is_sorted(order)) y = transpose(y, order);
  Shape joined{1};
  std::int64_t product = 1;
  for (std::int64_t i = 0; i < y.rank(); ++i) {
    if (i < std::ssize(indexed))
      product *= y.shape()[i];
    else
      joined.push_back(y.shape()[i]);
  }
  joined.set(0, product);
  y = take(reshape(y, joined.sizes()), places, 0);
  // Neighbouring index arrays leave their axes where they stood; others bring them to the front.
  const std::int64_t first = indexed.front(), rank = places.rank();
  if (first == 0 || indexed.back() - first + 1 != std::ssize(indexed)) return y;
  Axes back(static_cast<std::size_t>(y.rank()));
  std::iota(back.begin(), back.end(), 0);
  std::rotate(back.begin(), back.begin() + rank, back.begin() + rank + first);
  return transpose(y, back);
}

}  // namespace

Tensor index(const Tensor& x, nb::handle key) {
  if (is_integer(key)) return select(x, integer_in(key));
  const std::vector<Axis> axes = axes_of(x, key);
  const bool arrays = std::ranges::any_of(axes, [](const Axis& axis) { return axis.array.is_valid(); });
  return arrays ? advanced(x, axes) : basic(x, axes);
}

}  // namespace everyo::python
