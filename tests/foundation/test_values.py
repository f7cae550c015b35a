"""The light dataclasses behave as the stdlib's: every class of the package is held against its twin."""

from __future__ import annotations

import copy
import dataclasses
import importlib
import inspect
import pickle
import pkgutil
from typing import Any

import pydantic
import pytest

import omx_autoresearch
from omx_autoresearch.foundation.records import dataclass, field, replace, twin_of
from omx_autoresearch.missions.rules.allowances import Limits, Usage


def _light_classes() -> list[Any]:
    found: dict[str, Any] = {}
    for module in pkgutil.walk_packages(omx_autoresearch.__path__, "omx_autoresearch."):
        if ".surfaces" in module.name:
            continue
        for _, kind in inspect.getmembers(importlib.import_module(module.name), inspect.isclass):
            if hasattr(kind, "__light_fields__"):
                found[f"{kind.__module__}.{kind.__qualname__}"] = kind
    return [found[name] for name in sorted(found)]


CLASSES = _light_classes()


CHECKED: dict[str, dict[str, Any]] = {
    "AcceptanceRule": {
        "name": "median",
        "alpha": 0.05,
        "direction": "higher",
        "warmups": 2,
        "has_futility": False,
    }
}
"""Classes that refuse a value of another kind when they are made, with values that they take."""


def _arguments(kind: type) -> dict[str, Any]:
    if kind.__name__ in CHECKED:
        return {item.name: item.default for item in dataclasses.fields(kind)} | CHECKED[kind.__name__]
    return {item.name: f"value of {item.name}" for item in dataclasses.fields(kind)}


def test_there_are_classes_to_compare() -> None:
    assert len(CLASSES) > 50


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__qualname__)
def test_a_class_behaves_as_its_stdlib_twin(kind: Any) -> None:
    twin: Any = twin_of(kind)
    given = _arguments(kind)
    ours, theirs = kind(**given), twin(**given)
    assert [item.name for item in dataclasses.fields(kind)] == [
        item.name for item in dataclasses.fields(twin)
    ]
    assert kind(*given.values()) == ours
    assert ours != theirs
    assert hash(ours) == hash(kind(**given))
    if "__repr__" not in inspect.getsource(kind):
        assert repr(ours).split("(", 1)[1] == repr(theirs).split("(", 1)[1]
    assert dataclasses.replace(ours) == ours == replace(ours) == copy.copy(ours)
    for item in dataclasses.fields(twin):
        changed = replace(ours, **{item.name: 1})
        assert getattr(changed, item.name) == 1
        assert changed != ours
    with pytest.raises(dataclasses.FrozenInstanceError):
        ours.anything = 1
    assert not hasattr(ours, "__dict__")
    assert dataclasses.is_dataclass(kind)


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__qualname__)
def test_defaults_and_needed_fields_are_those_of_the_twin(kind: Any) -> None:
    twin: Any = twin_of(kind)
    needed = {
        item.name: 0
        for item in dataclasses.fields(twin)
        if item.default is dataclasses.MISSING and item.default_factory is dataclasses.MISSING
    }
    made, expected = kind(**needed), vars(twin(**needed))
    for name in kind.__slots__:  # two objects of one class where a factory makes what has no equality
        value = getattr(made, name)
        assert value == expected[name] or type(value) is type(expected[name])
    for name in needed:
        short = {key: value for key, value in needed.items() if key != name}
        with pytest.raises(TypeError):
            kind(**short)


def test_wrong_calls_are_type_errors() -> None:
    usage: Any = Usage
    for args, given in (((0,) * 11, {}), ((1,), {"refusals": 2}), ((), {"nothing": 1})):
        with pytest.raises(TypeError):
            usage(*args, **given)
    with pytest.raises(TypeError):
        replace(usage(), nothing=1)


def test_a_default_factory_makes_a_new_value_for_each_instance() -> None:
    @dataclass(frozen=True, slots=True)
    class Holder:
        items: list[int] = field(default_factory=list)

    assert Holder().items is not Holder().items


def test_a_class_may_refuse_values_when_it_is_made() -> None:
    @dataclass(frozen=True, slots=True)
    class Share:
        value: float

        def __post_init__(self) -> None:
            if self.value > 1:
                raise ValueError("more than all")

    assert Share(1).value == 1
    for given in ((2,), ()):
        with pytest.raises(ValueError, match="more than all"):
            Share(*given, **({} if given else {"value": 2}))
    with pytest.raises(ValueError, match="more than all"):
        dataclasses.replace(Share(1), value=2)


def test_a_class_inherits_the_fields_of_its_base_as_a_stdlib_dataclass_does() -> None:
    def inherited(make: Any) -> Any:
        @make(frozen=True, slots=True)
        class Named:
            name: str
            size: int = 1

            def __post_init__(self) -> None:
                if not self.name:
                    raise ValueError("it has no name")

        @make(frozen=True, slots=True)
        class Larger(Named):
            tags: tuple[str, ...] = ()
            size: int = 2

        return Larger

    ours, theirs = inherited(dataclass), inherited(dataclasses.dataclass)
    for args in (("a",), ("a", 3), ("a", 3, ("x",))):
        assert dataclasses.asdict(ours(*args)) == dataclasses.asdict(theirs(*args))
    assert repr(ours("a")) == repr(theirs("a"))
    assert replace(ours("a"), size=5) == ours("a", 5) != ours("a")
    with pytest.raises(ValueError, match="it has no name"):
        ours("")


def test_an_instance_can_be_pickled() -> None:
    assert pickle.loads(pickle.dumps(Limits(idle_refusals=5))) == Limits(idle_refusals=5)


def test_pydantic_takes_a_class_for_a_dataclass() -> None:
    adapter = pydantic.TypeAdapter(Limits)
    assert adapter.validate_python({"idle_refusals": 5}) == Limits(idle_refusals=5)
    assert adapter.json_schema()["properties"]["idle_refusals"]["default"] == 3
