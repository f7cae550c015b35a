"""Read an evaluator's command: the paths that it names, and the program that it calls.

The owner wrote the command, so every file that it names belongs to the evaluator, unless the command only reads text
(:func:`only_reads`): frozen, what it reads could never make it say anything else. A script also names the program that
the mission works on. So of a script, the files that the shell *sources* belong to the evaluator; any other path does
where its name says so (``score.py``, ``expected/``) or where it stands in the script's own folder below the root. The
owner is told of the rest, and decides with ``protect``.
"""

from __future__ import annotations

import re

from omx_autoresearch.foundation.records import dataclass

_SCRIPT_SUFFIXES = (
    ".sh", ".bash", ".zsh", ".py", ".js", ".mjs", ".cjs", ".ts", ".rb", ".pl", ".php", ".lua", ".jl", ".r", ".mk",
)  # fmt: skip
_MAKEFILES = ("GNUmakefile", "makefile", "Makefile")
_OUTPUT_OPTION = re.compile(
    r"-o|--(?:out|output|junit|report|log|html|cov|coverage|coverprofile|result|save|dest)[\w-]*",
    re.IGNORECASE,
)
_WRITERS = frozenset({"tee", "rm", "touch", "mkdir", "rmdir", "mktemp", "mv"})
_FOLDER_OPTIONS = frozenset({"-C", "--prefix", "--directory", "--cwd"})
_ATTACHED_FOLDER = re.compile(r"(?<=\s)(-C|--directory|--prefix|--cwd)=?(?<=[C=])([\w./-]+)(?=\s|$)")
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_INTERPRETER = re.compile(r"(?:ba|da|z|k)?sh|python[\d.]*|node|ruby|perl|php|lua|deno|bun")
_READERS = frozenset({"[", "cat", "egrep", "fgrep", "grep", "head", "tail", "test", "wc"})
_SILENT = frozenset({"!", "cd"})
_READS_ITS_RULES = re.compile(r"-[A-Za-z]*f[A-Za-z]*|--file.*")
_SUBSTITUTION = re.compile(r"\$\(([^()]*)\)")
_OPERATORS = frozenset(";&|()<>\n")
_ENDS_COMMAND = frozenset(";&|()\n")
_EVALUATOR_WORD = re.compile(
    r"(?:^|[/_.\-])(?:check|test|spec|verif|valid|scor|eval|judg|grad|bench|expect|golden|fixture|oracle|metric|"
    r"corpus|cases?\b|snapshot|accept|baseline|ci\b)",
    re.IGNORECASE,
)
_OUTPUT_WORD = re.compile(
    r"(?:^|[/_.\-])(?:out|output|result|report|log|tmp|temp|cache|build|cov)", re.IGNORECASE
)
_GLOBBED = re.compile(r"([^\s\"'`;|&()<>,=:{}\\*?!^$\[\]]+)/[^\s/\"'`;|&()<>]*[*?\[$]")
_MODULE_CALL = re.compile(r"\bpython[\d.]*[\"']?[ \t]+(?:-[A-Za-z]+[ \t]+)*-[cm]?(?:[ \t]|$)", re.MULTILINE)
_COMMENT = re.compile(r"^\s*(?:#|//).*$", re.MULTILINE)
_SOURCED = re.compile(r"(?m)(?:^|[;&|({]|\b(?:then|do|else)\b)\s*(?:\.|source)[ \t]+([^\n;&|]+)")
_PLAIN_LINE = re.compile(
    r"(?:set|export|cd|echo|printf|:|trap|umask|readonly|local|shopt)\b|[\w.]+=|[#@]|$|exit\b"
)
_LITERAL = re.compile(r"[^\s\"'`;|&()<>,=:\[\]{}\\*?!^]+")
_OUTPUT_REDIRECT = re.compile(r">[>|&]?[ \t]*\S+|\btee[ \t]+(?:-\w+[ \t]+)*\S+")
_ANCHOR = re.compile(
    r"\"?\$(?:\([^()]*(?:\([^()]*\)[^()]*)*\)|\{[^{}]*\}|\w+)\"?/|[\"']?@?__dirname[\"']?\s*\+\s*[\"']/"
)
_VARIABLE = re.compile(r"\$\{?\w+|(?<![\w./-])\w+=(?=\S)")
_SHELL_ASSIGNED = re.compile(
    r"(?m)(?:^|[;&|(]|\b(?:export|local|readonly))[ \t]*(\w+)=(\"[^\"\n]*\"|'[^'\n]*'|[^\s;&|()]+)"
)
_LOOP = re.compile(r"\bfor[ \t]+(\w+)[ \t]+in[ \t]+([^;\n]+)")
_VALUES = 20
_RECIPE_TARGET = re.compile(r"^([^\s:#=][^:#=]*):(?!=)\s*([^\n#]*)")
_TEST_TARGET = re.compile(r"test|unit|check|verif|valid|spec|lint", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class NamedPath:
    """A word that may be a path.

    Attributes:
        word: as written, unquoted.
        folder: the folder in which the command would look for it, relative to the workspace; empty for its root.
    """

    word: str
    folder: str = ""


def is_script(path: str, start: bytes) -> bool:
    """True when a file is a text that names further files: by its first bytes, its suffix, or as a makefile."""
    name = path.rpartition("/")[2]
    return start.startswith(b"#!") or name.lower().endswith(_SCRIPT_SUFFIXES) or name in _MAKEFILES


def is_makefile(path: str) -> bool:
    """True for a makefile, by its name."""
    return path.rpartition("/")[2] in _MAKEFILES or path.endswith(".mk")


def is_shell(path: str, text: str) -> bool:
    """True for a shell script, by its suffix or first line."""
    first = text.partition("\n")[0]
    return path.endswith((".sh", ".bash", ".zsh")) or bool(re.match(r"#!.*\b(?:ba|da|z|k)?sh\b", first))


def looks_like_evaluator(path: str, script_path: str) -> bool:
    """True when a path named inside a script belongs to the evaluator rather than to the work that it judges."""
    folder, _, name = script_path.rpartition("/")
    is_beside = bool(folder) and not is_makefile(name) and path.startswith(f"{folder}/")
    return bool(_EVALUATOR_WORD.search(path)) or is_beside


def split_command(command: str) -> list[str]:
    """The words of a shell command, operators as words of their own; by white space where quotes do not close."""
    import shlex

    lexer = shlex.shlex(command, posix=True, punctuation_chars=";&|()<>\n")
    lexer.whitespace = " \t\r"
    lexer.whitespace_split = True
    lexer.commenters = ""
    try:
        return list(lexer)
    except ValueError:
        return command.split()


def only_reads(command: str) -> bool:
    """True for a command of grep, test, cat and the like alone: its text is the whole check.

    Not where a grep reads its patterns from a file, a command of the text stands in backquotes, or something is
    assigned or written.
    """
    while found := _SUBSTITUTION.search(command):
        if not only_reads(found[1]):
            return False
        command = f"{command[: found.start()]}0{command[found.end() :]}"
    programs: list[str] = []
    name = ""
    for word in split_command(command):
        if set(word) <= _ENDS_COMMAND:
            name = ""
        elif "`" in word or word[:1] == ">":
            return False
        elif not name or name == "!":
            name = word
            programs.append(word)
        elif "grep" in name and _READS_ITS_RULES.fullmatch(word):
            return False
    return bool(_READERS & set(programs)) and set(programs) <= _READERS | _SILENT


def command_paths(command: str, *, folder: str = "", depth: int = 0) -> list[NamedPath]:
    """Every word of a command that may name a file of the evaluator; what it writes to is left out.

    Words with white space in them are paths, or commands themselves (the text after ``bash -c``).
    """
    found: list[NamedPath] = []
    name, previous = "", ""
    for word in split_command(_ATTACHED_FOLDER.sub(r"\1 \2", command)):
        if word[0:1] in _ENDS_COMMAND and set(word) <= _ENDS_COMMAND:
            name, previous = "", ""
            continue
        if previous.startswith(">") or _OUTPUT_OPTION.fullmatch(previous) or name in _WRITERS:
            previous = word
            continue
        if (name == "cd" or previous in _FOLDER_OPTIONS) and not word.startswith("-"):
            folder = _joined(folder, word)
        elif word[:1] not in "<>":
            found += _paths_of_word(word, previous, folder, depth)
        if not name and "=" not in word and not word.startswith("-"):
            name = word.rpartition("/")[2]
        previous = word
    return found


def _paths_of_word(word: str, previous: str, folder: str, depth: int) -> list[NamedPath]:
    if previous == "-m" and re.fullmatch(r"[A-Za-z_][\w.]*", word):
        stem = word.replace(".", "/")
        return [NamedPath(f"{stem}.py", folder), NamedPath(f"{stem}/__main__.py", folder)]
    if any(c.isspace() for c in word) and depth < 4:
        inner = command_paths(word, folder=folder, depth=depth + 1)
        literals = [NamedPath(literal, folder) for literal in literal_paths(word)]
        return [NamedPath(word, folder), *inner, *literals]
    option, _, value = word.partition("=")
    if value:
        return [] if _OUTPUT_OPTION.fullmatch(option) else _paths_of_word(value, "", folder, depth)
    return [NamedPath(part, folder) for part in word.split("::", maxsplit=1)[0].split(",") if part]


def _joined(folder: str, word: str) -> str:
    return word.strip("/") if not folder or word.startswith("/") else f"{folder}/{word.strip('/')}"


def literal_paths(text: str) -> list[str]:
    """Words in a script that look like a path: with ``/`` or ``.`` in them. Output redirections are left out.

    What stands before a folder that only the shell knows (``$(dirname "$0")/lib.sh``) is taken off.
    """
    text = _OUTPUT_REDIRECT.sub(" ", _COMMENT.sub("", text))
    words = _LITERAL.findall(_ANCHOR.sub(" ", text))
    return list(dict.fromkeys(word.rstrip(".") for word in words if ("/" in word or "." in word.strip("."))))


def folder_words(text: str) -> list[str]:
    """Words in a command or script that may name a folder of cases: ``corpus``, ``expected/``, ``cases/a-*``.

    A check that walks a folder is emptied by emptying the folder, so such a folder belongs to it.
    """
    text = _ANCHOR.sub(" ", _OUTPUT_REDIRECT.sub(" ", _COMMENT.sub("", text)))
    text = _VARIABLE.sub("$", text)
    words = (*_GLOBBED.findall(text), *_LITERAL.findall(text))
    return [word for word in dict.fromkeys(words) if word.strip("./")]


def is_output(path: str) -> bool:
    """True for a path that a check writes to, by its name."""
    return bool(_OUTPUT_WORD.search(path))


def is_case_folder(path: str, script_path: str) -> bool:
    """True when a folder belongs to the evaluator: by its name, or beside the script; what is written to does not."""
    return looks_like_evaluator(path, script_path) and not is_output(path)


def program_words(text: str) -> frozenset[str]:
    """Words in a command or script that may be programs found on PATH."""
    return frozenset(word for word in _LITERAL.findall(_COMMENT.sub("", text)) if "/" not in word)


def imports_from_root(text: str) -> bool:
    """True where an interpreter is called so that it imports modules from the folder that it runs in."""
    return bool(_MODULE_CALL.search(text))


def sourced_paths(text: str) -> list[str]:
    """Paths that a shell script reads into itself: ``. lib.sh``, ``source lib.sh``."""
    found: list[str] = []
    for words in _SOURCED.findall(_COMMENT.sub("", text)):
        found += [word.strip("\"'") for word in _ANCHOR.sub("", words).split()[:1]]
    return [word for word in dict.fromkeys(found) if word]


def expanded(script: str) -> str:
    """A shell script, followed by itself with values in the place of variables that it assigns or loops over."""
    values: dict[str, list[str]] = {}
    for name, value in _SHELL_ASSIGNED.findall(script):
        values.setdefault(name, []).append(value.strip("\"'"))
    for name, words in _LOOP.findall(script):
        values.setdefault(name, []).extend(word.strip("\"'") for word in words.split())
    known = {name: found for name, found in values.items() if not any("$" in value for value in found)}
    texts = [script]
    for number in range(min(_VALUES, max(map(len, known.values()), default=0))):
        text = script
        for name, found in known.items():
            value = found[min(number, len(found) - 1)].replace("\\", r"\\")
            text = re.sub(rf"\$\{{{name}\}}|\${name}\b|\$\{{{name}:?-[^}}\n]*\}}", value, text)
        texts.append(text)
    return "\n".join(dict.fromkeys(texts))


def is_optional(word: str, text: str) -> bool:
    """True where a script looks whether a file is there before it reads it, and goes on without it."""
    anchor = r"(?:\./|\$\w+/|\$\{\w+\}/|\$\([^()\n]*(?:\([^()\n]*\)[^()\n]*)*\)/)?"
    path = rf"[\"']?{anchor}{re.escape(word.removeprefix('./'))}[\"']?"
    asked = re.search(rf"(?m)-[efrs][ \t]+{path}[ \t]*\]*[ \t]*(&&|;|\n|\|\|)?", text)
    if asked:
        return asked[1] != "||"
    return bool(re.search(rf"(?m)(?:\.|source)[ \t]+{path}[^\n]*(?:2>|\|\|[ \t]*(?:true|:))", text))


def single_command(text: str) -> str:
    """The command of a script or recipe that has one alone, so that its exit status is the verdict; empty otherwise."""
    lines = [line.strip() for line in text.replace("\\\n", " ").splitlines()]
    commands = [line for line in lines if not _PLAIN_LINE.match(line)]
    if len(commands) != 1 or set("|;&<>`{}") & set(commands[0]) or "$(" in commands[0]:
        return ""
    return commands[0].removeprefix("exec ").strip()


SHELL_WORDS = frozenset((
    "cd", "test", "[", "exec", "true", "false", "export", "set", "eval", ".", ":", "!", "if", "for", "while", "until",
    "case", "{", "(", "command", "umask", "ulimit",
))  # fmt: skip
"""Words that may begin a command line and belong to the shell itself, or nearly so."""


def program_of(command: str) -> tuple[str, str]:
    """The program that a command starts first, and the script that it is handed if it is an interpreter."""
    words = split_command(command)
    while words and _ASSIGNMENT.match(words[0]):
        words.pop(0)
    if not words or set(words[0]) <= _OPERATORS:
        return "", ""
    program, rest = words[0], words[1:]
    if not _INTERPRETER.fullmatch(program.rpartition("/")[2]) or not rest or rest[0].startswith("-"):
        return program, ""
    is_script = "/" in rest[0] or "." in rest[0]
    return program, rest[0] if is_script and not any(c in rest[0] for c in "$*?") else ""


def recipe_of(makefile: str, targets: list[str]) -> str:
    """The recipe lines of these targets (the first one of the file where none is named) and of their test targets."""
    recipes: dict[str, list[str]] = {}
    needs: dict[str, list[str]] = {}
    current: list[str] = []
    for line in makefile.replace("\\\n", " ").splitlines():
        if line.startswith("\t"):
            for name in current:
                recipes[name].append(line.strip().lstrip("@-+"))
        elif found := _RECIPE_TARGET.match(line):
            current = found[1].split()
            for name in current:
                recipes.setdefault(name, [])
                needs.setdefault(name, []).extend(found[2].split())
    first = next((name for name in recipes if not name.startswith(".")), "")
    waiting = [name for name in targets if name in recipes] or [first]
    lines: list[str] = []
    seen: set[str] = set()
    while waiting:
        name = waiting.pop(0)
        if name in seen or name not in recipes:
            continue
        seen.add(name)
        lines += recipes[name]
        waiting += [need for need in needs[name] if _TEST_TARGET.search(need)]
    return "\n".join(lines)
