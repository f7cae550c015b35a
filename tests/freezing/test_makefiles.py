"""What make reads: the makefile, what it includes, the makefiles that it is sent to, and what variables stand for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from omx_autoresearch.freezing import discovery, makefiles, pins

if TYPE_CHECKING:
    from pathlib import Path


def laid(root: Path, files: dict[str, str]) -> str:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return str(root)


SENT = {
    "an option": "check:\n\t$(MAKE) -s -C sub check\n",
    "a folder first": "check:\n\tcd sub && ${MAKE} check\n",
    "a variable": "DIR := sub\ncheck:\n\t@+$(MAKE) --directory $(DIR) check\n",
    "an include": "include rules.mk\n",
    "an option with its value": "check:\n\t$(MAKE) --directory=sub check\n",
    "a short option with its value": "check:\n\t$(MAKE) -Csub check\n",
    "a loop": "SUBS = sub other\ncheck:\n\tfor d in $(SUBS); do $(MAKE) -C $$d check || exit 1; done\n",
}


@pytest.mark.requirement("DONE-14")
@pytest.mark.parametrize("kind", SENT)
def test_the_makefile_of_a_folder_that_make_is_sent_to_is_pinned(tmp_path: Path, kind: str) -> None:
    root = laid(
        tmp_path,
        {
            "Makefile": SENT[kind],
            "rules.mk": "check:\n\t$(MAKE) -C sub check\n",
            "sub/Makefile": "check:\n\t./verify.sh main.c\n",
            "sub/verify.sh": "#!/bin/sh\n",
            "sub/main.c": "int main() {}\n",
        },
    )
    found = {pin.path for pin in discovery.find(root, commands=["make check"]).pins if pin.kind == "file"}
    assert {"Makefile", "sub/Makefile", "sub/verify.sh"} <= found
    assert "sub/main.c" not in found


@pytest.mark.requirement("DONE-14")
def test_a_file_that_the_other_makefile_of_an_option_runs_is_pinned(tmp_path: Path) -> None:
    root = laid(tmp_path, {"ci.make": "T = tools/run.sh\nall:\n\tsh $(T)\n", "tools/run.sh": ""})
    found = {pin.path for pin in discovery.find(root, commands=["make -f ci.make"]).pins}
    assert {"ci.make", "tools/run.sh"} <= found


@pytest.mark.requirement("DONE-15")
def test_a_newcomer_that_make_would_include_tampers_and_another_file_does_not(tmp_path: Path) -> None:
    makefile = (
        "-include local.mk\ninclude $(wildcard mk/*.mk)\nD = conf\n-include $(D)/site.mk\ncheck:\n\ttrue\n"
    )
    root = laid(tmp_path, {"Makefile": makefile, "mk/a.mk": "A = 1\n"})
    manifest = discovery.find(root, commands=["make check"])
    laid(tmp_path, {"mk/notes.txt": "", "other.mk": "", "conf/other.mk": ""})
    assert pins.compare(manifest, root).is_intact
    laid(tmp_path, {"local.mk": "", "mk/b.mk": "", "conf/site.mk": ""})
    assert pins.compare(manifest, root).added == ("conf/site.mk", "local.mk", "mk/b.mk")
    laid(tmp_path, {"mk/a.mk": "A = 2\n"})
    assert "mk/a.mk" in pins.compare(manifest, root).changed


@pytest.mark.requirement("DONE-15")
def test_what_a_build_makes_and_what_make_itself_makes_may_appear(tmp_path: Path) -> None:
    text = "OBJ = a.o\n-include $(OBJ:.o=.d)\n-include .depend a.d config.mk\nconfig.mk: configure\n\t./configure\n"
    root = laid(tmp_path, {"Makefile": text + "check:\n\ttrue\n"})
    assert makefiles.read(root, "Makefile", "").absent == ()


def test_a_variable_stands_for_all_its_values_and_a_loop_of_them_ends() -> None:
    values = {"A": ["x", "y"], "B": ["$(A)"], "C": ["$(C)"]}
    assert makefiles.expanded("$(B) ${C} $(wildcard $(A)) $(MAKE) $@", values) == "x y $(C) x y make $@"
