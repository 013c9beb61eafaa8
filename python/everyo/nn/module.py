"""What every layer and model is: a tree of modules with named parameters and buffers."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from everyo._core import EveryOError, EveryOSerializationError, ModuleScope, Tensor
from everyo.core.device import device as find_device
from everyo.nn.parameter import Parameter

Array = npt.NDArray[Any]
Self = TypeVar("Self", bound="Module")
ModuleClass = TypeVar("ModuleClass", bound="type[Module]")

MODULE_REGISTRY: dict[str, type[Module]] = {}


def register_module(cls: ModuleClass) -> ModuleClass:
    """Class decorator: lets files and Sequential.from_config find the class by its name."""
    MODULE_REGISTRY[cls.__name__] = cls
    return cls


def get_module_class(name: str) -> type[Module]:
    """The registered class of that name. Raises EveryOSerializationError "Unknown module type"."""
    if name not in MODULE_REGISTRY:
        raise EveryOSerializationError(
            f"[get_module_class] Unknown module type {name!r}; decorate its class with register_module"
        )
    return MODULE_REGISTRY[name]


class LoadReport(NamedTuple):
    """What a load_state_dict that was not strict passed over."""

    missing: list[str]
    unexpected: list[str]


class Module:
    """Base of layers and models: define `__init__` and `forward`.

    Attributes that are a Parameter, a Module or a list of these are part of the module, under the attribute's name;
    elements of a list are "name.0", "name.1", ... One that is found in several places counts once, under its first name.
    """

    training: bool
    _parameters: dict[str, Parameter]
    _modules: dict[str, Module]
    _buffers: dict[str, Array]
    _lists: dict[str, list[Any] | tuple[Any, ...]]
    _name: str = ""  # within the parent; keys random draws

    def __init__(self) -> None:
        own = self.__dict__
        own["_parameters"], own["_modules"], own["_buffers"], own["_lists"] = {}, {}, {}, {}
        own["_name"] = ""
        own["training"] = True

    # ---- attributes ----

    def __setattr__(self, name: str, value: Any) -> None:
        own = self.__dict__
        if "_parameters" not in own:
            listed = value if isinstance(value, (list, tuple)) else (value,)
            if any(isinstance(each, (Parameter, Module)) for each in listed):
                raise EveryOError(
                    f"[Module] {type(self).__name__}.{name} is assigned before Module.__init__; call super().__init__() first"
                )
            own[name] = value
            return
        if name in self._buffers and value is not None and not isinstance(value, (Parameter, Module)):
            value = self._buffers[name] = _buffer_array(value, self._buffers[name])
        else:
            if isinstance(value, Parameter):
                self._forget(name, self._parameters)
                self._parameters[name] = value
            elif isinstance(value, Module):
                self._forget(name, self._modules)
                if not any(value is child for _, child in self._children()):
                    value.__dict__["_name"] = name
                self._modules[name] = value
            elif isinstance(value, (list, tuple)):
                self._forget(name, self._lists)
                for i, each in enumerate(value):
                    if isinstance(each, Module) and not any(each is child for _, child in self._children()):
                        each.__dict__["_name"] = f"{name}.{i}"
                self._lists[name] = value
            else:
                if name in self._parameters and value is not None:
                    raise TypeError(
                        f"[Module] {type(self).__name__}.{name} is a parameter, a {type(value).__name__} is none; write into "
                        f"{name}.data, or assign a Parameter (None takes it away)"
                    )
                self._forget(name)
        object.__setattr__(self, name, value)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name in ("_parameters", "_modules", "_buffers", "_lists"):
                raise EveryOError(
                    f"[Module] {type(self).__name__} was made without Module.__init__; call super().__init__() in its own"
                )
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    def __delattr__(self, name: str) -> None:
        if "_parameters" in self.__dict__:
            self._forget(name)
        object.__delattr__(self, name)

    def _forget(self, name: str, but_in: dict[str, Any] | None = None) -> None:
        """Takes a name out of all registries but one, where it keeps its place in the order."""
        for registry in (self._parameters, self._modules, self._buffers, self._lists):
            if name in registry and registry is not but_in:
                del registry[name]

    def register_buffer(self, name: str, value: Any) -> None:
        """Adds state that is no parameter, an array, as an attribute: it is in state_dict() and has no gradient."""
        if "_parameters" not in self.__dict__:
            raise EveryOError(
                f"[Module] register_buffer({name!r}) came before Module.__init__; call super().__init__() first"
            )
        array = _buffer_array(value)
        object.__setattr__(self, name, array)
        self._forget(name)
        self._buffers[name] = array

    # ---- calling ----

    def forward(self, *inputs: Any, **options: Any) -> Any:
        """What the module computes; to be defined by each class."""
        raise NotImplementedError(
            f"[Module] {type(self).__name__} does not define forward; define it, with the module's inputs"
        )

    def __call__(self, *inputs: Any, **options: Any) -> Any:
        """forward, within a scope of the module's name."""
        with ModuleScope(self._name):
            return self.forward(*inputs, **options)

    # ---- the tree ----

    def _children(self) -> Iterator[tuple[str, Module]]:
        yield from self._modules.items()
        yield from self._list_items(Module)

    def _own_parameters(self) -> Iterator[tuple[str, Parameter]]:
        yield from self._parameters.items()
        yield from self._list_items(Parameter)

    def _list_items(self, kind: type[Any]) -> Iterator[tuple[str, Any]]:
        for name, values in self._lists.items():
            yield from ((f"{name}.{i}", value) for i, value in enumerate(values) if isinstance(value, kind))

    def _walk(self, prefix: str, name: str, above: tuple[Module, ...] = ()) -> Iterator[tuple[str, str, Module]]:
        """Path, name and module of all places: a module that is in two places comes twice, one that holds itself once."""
        yield prefix, name, self
        above = (*above, self)
        for child_name, child in self._children():
            if not any(child is module for module in above):
                yield from child._walk(_join(prefix, child_name), child_name, above)

    def _parameter_places(self) -> Iterator[tuple[str, Parameter]]:
        for path, _, module in self._walk("", self._name):
            yield from ((_join(path, name), parameter) for name, parameter in module._own_parameters())

    def named_modules(self, prefix: str = "") -> Iterator[tuple[str, Module]]:
        """This module under `prefix` and all below it, each once, parents first."""
        seen: set[int] = set()
        for path, name, module in self._walk(prefix, self._name):
            if id(module) not in seen:
                seen.add(id(module))
                module.__dict__["_name"] = name
                yield path, module

    def named_parameters(self, prefix: str = "") -> Iterator[tuple[str, Parameter]]:
        """Dotted names and parameters, each once: a module's own first, then its children's."""
        seen: set[int] = set()
        for path, module in self.named_modules(prefix):
            for name, parameter in module._own_parameters():
                if id(parameter) not in seen:
                    seen.add(id(parameter))
                    yield _join(path, name), parameter

    def parameters(self) -> list[Parameter]:
        """All parameters, each once, in the order of named_parameters(). Those without a name get theirs, for messages."""
        found = list(self.named_parameters())
        for name, parameter in found:
            if parameter.name is None:
                parameter.name = name
        return [parameter for _, parameter in found]

    def named_buffers(self, prefix: str = "") -> Iterator[tuple[str, Array]]:
        """Dotted names and buffers, in the order of named_modules()."""
        for path, module in self.named_modules(prefix):
            yield from ((_join(path, name), array) for name, array in module._buffers.items())

    def buffers(self) -> list[Array]:
        """All buffers, the arrays themselves."""
        return [array for _, array in self.named_buffers()]

    def num_parameters(self, trainable_only: bool = False) -> int:
        """Elements of all parameters, or of those that require gradients."""
        return sum(p.size for p in self.parameters() if p.requires_grad or not trainable_only)

    def apply(self: Self, function: Callable[[Module], Any]) -> Self:
        """Calls a function with this module and all below it, each once, parents first; returns self."""
        for _, module in list(self.named_modules()):
            function(module)
        return self

    # ---- modes ----

    def train(self: Self, mode: bool = True) -> Self:
        """Training mode, or evaluation mode, of this module and all below it; returns self."""
        for _, module in self.named_modules():
            module.training = bool(mode)
        return self

    def eval(self: Self) -> Self:
        """train(False)."""
        return self.train(False)

    def zero_grad(self) -> None:
        """Clears all gradients."""
        for parameter in self.parameters():
            parameter.zero_grad()

    def to(self: Self, device: Any) -> Self:
        """Chooses the device whose kernels run; values stay in host memory. Raises EveryODeviceError for an unknown one."""
        find_device(device)
        return self

    # ---- state ----

    def state_dict(self, prefix: str = "") -> OrderedDict[str, Array]:
        """Copies of all values by name: parameters first, then buffers."""
        state: OrderedDict[str, Array] = OrderedDict()
        for name, parameter in self.named_parameters(prefix):
            state[name] = parameter.numpy()
        for name, array in self.named_buffers(prefix):
            state[name] = array.copy()
        return state

    def load_state_dict(self, state: Mapping[str, Any], *, strict: bool = True) -> LoadReport:
        """Copies values into parameters and buffers, converting them to their dtypes.

        What is in several places takes its value under any of its names. Raises EveryOSerializationError "Missing keys" and
        "Unexpected keys" (not when `strict` is False: they are returned then), "expects shape", "Buffer", for values that are
        no numbers, and for two values for one parameter; nothing is written then.
        """
        if not isinstance(state, Mapping):
            raise EveryOSerializationError(
                f"[load_state_dict] the state is a {type(state).__name__}; it must be a mapping of names to arrays"
            )
        parameters = dict(self.named_parameters())
        buffers = dict(self.named_buffers())
        first_name = {id(parameter): name for name, parameter in parameters.items()}
        given: dict[str, Array] = {}
        unexpected: list[str] = []
        places = {name: first_name[id(parameter)] for name, parameter in self._parameter_places()}
        first_path = {id(module): path for path, module in self.named_modules()}
        for path, _, module in self._walk("", self._name):
            places.update((_join(path, name), _join(first_path[id(module)], name)) for name in module._buffers)
        for key, value in state.items():
            name = places.get(key)
            if name is None:
                unexpected.append(key)
                continue
            array = _loaded_array(key, value)
            if name in given and not np.array_equal(given[name], array, equal_nan=array.dtype.kind == "f"):
                raise EveryOSerializationError(
                    f"[load_state_dict] {key!r} and {name!r} are one and have different values"
                )
            given[name] = array
        missing = [name for name in (*parameters, *buffers) if name not in given]
        if strict and (missing or unexpected):
            faults = [
                f"{what}: {', '.join(map(repr, keys))}"
                for what, keys in (("Missing keys", missing), ("Unexpected keys", unexpected))
                if keys
            ]
            raise EveryOSerializationError(f"[load_state_dict] {'; '.join(faults)}; strict=False passes over them")
        for name, array in given.items():
            if name in parameters and array.shape != parameters[name].shape:
                raise EveryOSerializationError(
                    f"[load_state_dict] {name!r} expects shape {parameters[name].shape}, the state has {array.shape}"
                )
            if name in buffers and array.shape != buffers[name].shape:
                raise EveryOSerializationError(
                    f"[load_state_dict] Buffer {name!r} expects shape {buffers[name].shape}, the state has {array.shape}"
                )
            if name in buffers and not _holds(buffers[name], array):
                raise EveryOSerializationError(
                    f"[load_state_dict] Buffer {name!r} is {buffers[name].dtype}; the state has values that are none"
                )
        for name, array in given.items():
            if name in parameters:
                parameters[name].data = array
            else:
                buffers[name][...] = array
        return LoadReport(missing, unexpected)

    # ---- description ----

    def get_config(self) -> dict[str, Any]:
        """Arguments that make a module of the same architecture; seeds are not among them."""
        return {}

    @classmethod
    def from_config(cls: type[Self], config: Mapping[str, Any]) -> Self:
        """A new module of an architecture."""
        return cls(**config)

    def extra_repr(self) -> str:
        """What stands between the parentheses of repr, beside the children."""
        return ""

    @recursive_repr("...")
    def __repr__(self) -> str:
        name = type(self).__name__
        children = [f"({child_name}): {child!r}".replace("\n", "\n  ") for child_name, child in self._children()]
        if not children:
            return f"{name}({self.extra_repr()})"
        lines = [line for line in (self.extra_repr(), *children) if line]
        return f"{name}(\n  " + "\n  ".join(lines) + "\n)"

    def summary(self) -> str:
        """A table of the modules, their classes and how many parameters they hold themselves."""
        rows = [("Module", "Type", "Parameters")]
        counted: set[int] = set()
        for path, module in self.named_modules():
            own = {id(p): p for _, p in module._own_parameters() if id(p) not in counted}
            counted |= own.keys()
            rows.append((path or "(model)", type(module).__name__, f"{sum(p.size for p in own.values()):,}"))
        widths = [max(len(row[column]) for row in rows) for column in range(3)]
        lines = [f"{a:<{widths[0]}}  {b:<{widths[1]}}  {c:>{widths[2]}}".rstrip() for a, b, c in rows]
        line = "-" * max(map(len, lines))
        total, trainable = self.num_parameters(), self.num_parameters(trainable_only=True)
        return "\n".join(
            [lines[0], line, *lines[1:], line, f"Total parameters: {total:,}", f"Trainable parameters: {trainable:,}"]
        )


def _join(prefix: str, name: str) -> str:
    return f"{prefix}.{name}" if prefix else name


def _value_array(value: Any) -> Array:
    return value.numpy() if isinstance(value, Tensor) else np.asarray(value)


def _loaded_array(key: str, value: Any) -> Array:
    """A value of a state as an array of numbers. Raises EveryOSerializationError."""
    try:
        array = _value_array(value)
    except (EveryOError, ValueError, TypeError) as error:
        raise EveryOSerializationError(f"[load_state_dict] {key!r} holds no array: {error}") from error
    if array.dtype.kind not in "fiub":
        raise EveryOSerializationError(f"[load_state_dict] {key!r} has dtype {array.dtype}; it must hold numbers")
    return array


def _holds(buffer: Array, array: Array) -> bool:
    """Has each value one in the buffer's dtype? Floating buffers round."""
    if buffer.dtype.kind not in "iu" or not array.size:
        return True
    limits = np.iinfo(buffer.dtype)
    least, most = array.min(), array.max()
    if not (limits.min <= least and most <= limits.max):  # nor when one is NaN
        return False
    return array.dtype.kind != "f" or bool((array == np.floor(array)).all() and most < 2.0**63)


def _buffer_array(value: Any, before: Array | None = None) -> Array:
    """A buffer's own array: contiguous and writable, so that a tensor can share its memory; a floating one stays as wide."""
    array = _value_array(value)
    floating = before is not None and before.dtype.kind == array.dtype.kind == "f"
    return np.require(array, before.dtype if before is not None and floating else None, ["C", "W"])
