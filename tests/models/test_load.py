"""Names, and the user's own module:Class."""

from __future__ import annotations

from pathlib import Path

import pytest

from v2m4.errors import ConfigError, MissingBackend
from v2m4.models import GENERATORS, MATTES, load


@pytest.mark.parametrize("name", sorted(GENERATORS))
def test_every_generator_loads_and_says_what_it_is(name: str) -> None:
    kind = load(GENERATORS, name)
    assert kind.name == name
    assert kind.licence and kind.description
    assert callable(kind.generate)


@pytest.mark.parametrize("name", sorted(MATTES))
def test_every_matte_loads(name: str) -> None:
    kind = load(MATTES, name)
    assert kind.name == name
    assert callable(kind.alpha)


def test_your_own_class_needs_no_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_studio_gen.py").write_text("class MyGen:\n    name = 'mine'\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert load(GENERATORS, "my_studio_gen:MyGen").name == "mine"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("inflat", "did you mean inflate"),
        ("zzz", "known: inflate, folder, reference"),
        ("no_such_module_here:Gen", "no_such_module_here"),
        ("v2m4.models.inflate:Nothing", "Nothing"),
        (":Gen", "cannot load"),
        ("v2m4.models.inflate.nothing:Gen", "nothing"),
        ("v2m4.models:GENERATORS", "not a class"),
        (".relative:Gen", "cannot load"),
    ],
)
def test_an_unknown_name_is_a_usage_error(name: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(GENERATORS, name)
    assert words in f"{caught.value.message} {caught.value.hint}"


def test_a_package_your_module_lacks_is_the_one_that_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lacking_gen.py").write_text("import no_such_package_here.part\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(MissingBackend, match="no_such_package_here, which lacking_gen:Gen imports") as caught:
        load(GENERATORS, "lacking_gen:Gen")
    assert caught.value.exit_code == 3 and "package.module:Class" not in caught.value.hint
