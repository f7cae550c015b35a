"""The registry of agent CLIs: one entry each, with the facts that we need without loading the client's code.

Captured from the clients themselves (Claude Code 2.1.332, Codex CLI 0.171.0, Gemini CLI 0.61.0, Qwen Code 0.24.4,
Copilot CLI 1.0.102). The code of a client is in the folder of its name below ``agents/clients``.
"""

from __future__ import annotations

from omx_autoresearch.foundation.records import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class KnownClient:
    """One agent CLI. The first four attributes are names of environment variables.

    Attributes:
        shell_marks: set in the client's tool shells and in no person's terminal.
        shell_only: those of them that the client's hooks do not have.
        session_ids: contain the session's id in a tool shell, best first.
        session_variables: other variables of one session, which a fresh session must not inherit.
        folder: the client's settings folder in a project; empty if unknown.
        folder_variable: the environment variable that names the user's settings folder; empty for none.
        hold_settings: names in ``settings.json`` that may end a hold, for the status line: it looks closer at one.
        installed_setting: the text of such a setting that our installer writes itself.
        sandbox: the program that its sandbox starts as the first process; empty if it has no sandbox program.
        program: the name of its process, or of the script that ``node`` runs; empty if unknown.
        headless: the command line of a headless session that we show as an example; empty for none.
        reviewer: the command line that reviews what stands in the working folder and can change nothing; it reads its
            prompt on stdin. Empty if unknown.
        credentials: environment variables by which it finds its service and logs in.
        instructions: names of files, in a project or in a folder above it, that instruct or configure it.
        title: the product's name, for a client without code.
        borrower_mark: set in the hooks that it takes from another client's project settings; empty if it takes none.
        borrower_cap: the refusals in a row that it honours there.
        has_code: there is a folder of this name below ``agents/clients``.
    """

    shell_marks: tuple[str, ...]
    shell_only: tuple[str, ...] = ()
    session_ids: tuple[str, ...] = ()
    session_variables: tuple[str, ...] = ()
    folder: str = ""
    folder_variable: str = ""
    hold_settings: tuple[str, ...] = ()
    installed_setting: str = ""
    sandbox: str = ""
    program: str = ""
    headless: str = ""
    reviewer: str = ""
    credentials: tuple[str, ...] = ()
    instructions: tuple[str, ...] = ()
    title: str = ""
    borrower_mark: str = ""
    borrower_cap: int | None = None
    has_code: bool = True


KNOWN: dict[str, KnownClient] = {
    # Claude's hooks have its shell marks too; only the end of AI_AGENT distinguishes a tool shell.
    "claude": KnownClient(
        ("CLAUDECODE", "CLAUDE_CODE_SESSION_ID"),
        session_ids=("CLAUDE_CODE_SESSION_ID",),
        session_variables=(
            "CLAUDE_CODE_ENTRYPOINT",
            "CLAUDE_CODE_SESSION_ATTENDED",
            "CLAUDE_ENV_FILE",
            "CLAUDE_PID",
            "CLAUDE_PLUGIN_DATA",
            "CLAUDE_PLUGIN_ROOT",
            "CLAUDE_PROJECT_DIR",
        ),
        folder=".claude",
        folder_variable="CLAUDE_CONFIG_DIR",
        hold_settings=("disableAllHooks", "allowManagedHooksOnly", "CLAUDE_CODE_STOP_HOOK_BLOCK_CAP"),
        installed_setting='"CLAUDE_CODE_STOP_HOOK_BLOCK_CAP": "16"',
        program="claude",
        headless="claude -p --permission-mode acceptEdits",
        # A failed review is asked for again by us: ten retries of the client's own would only hold the session longer.
        reviewer=(
            "CLAUDE_CODE_MAX_RETRIES=2 claude -p --output-format json --setting-sources user --strict-mcp-config"
            " --tools Read,Grep,Glob"
        ),
        credentials=(
            *("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL", "ANTHROPIC_MODEL"),
            *("CLAUDE_CODE_OAUTH_TOKEN", "CLAUDE_CONFIG_DIR"),
        ),
        instructions=("CLAUDE.md", "CLAUDE.local.md", ".mcp.json"),
    ),
    "codex": KnownClient(
        ("CODEX_SESSION_ID", "CODEX_THREAD_ID", "CODEX_TOOL_CALL_ID", "CODEX_CI"),
        shell_only=("CODEX_SESSION_ID", "CODEX_THREAD_ID", "CODEX_TOOL_CALL_ID"),
        session_ids=("CODEX_SESSION_ID", "CODEX_THREAD_ID"),
        folder=".codex",
        sandbox="codex-linux-sandbox",
        program="codex",
        reviewer="codex exec --json --skip-git-repo-check --ignore-rules --sandbox read-only -",
        credentials=("CODEX_API_KEY", "CODEX_HOME", "OPENAI_API_KEY", "OPENAI_BASE_URL"),
        instructions=("AGENTS.md", "AGENTS.override.md", ".agents"),
    ),
    # GEMINI_SESSION_ID is for hooks; a tool shell has no session id.
    "gemini": KnownClient(
        ("GEMINI_CLI",),
        shell_only=("GEMINI_CLI",),
        program="gemini",
        session_variables=("GEMINI_CWD", "GEMINI_PLANS_DIR", "GEMINI_PROJECT_DIR", "GEMINI_SESSION_ID"),
        folder=".gemini",
        # Headless, it refuses a folder that is not trusted; a reviewer's folder is ours.
        reviewer="GEMINI_CLI_TRUST_WORKSPACE=true gemini --extensions none --output-format json",
        credentials=(
            *("GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_CLOUD_PROJECT", "GOOGLE_CLOUD_LOCATION"),
            *("GOOGLE_GEMINI_BASE_URL", "GOOGLE_GENAI_USE_VERTEXAI", "GEMINI_MODEL"),
        ),
        instructions=("GEMINI.md", ".env", ".geminiignore"),
    ),
    "qwen": KnownClient(
        ("QWEN_CODE", "QWEN_CODE_SESSION_ID"),
        shell_only=("QWEN_CODE",),
        session_variables=("QWEN_PROJECT_DIR",),
        has_code=False,
    ),
    "copilot": KnownClient(
        ("COPILOT_CLI", "COPILOT_AGENT_SESSION_ID"),
        shell_only=("COPILOT_AGENT_SESSION_ID",),
        title="Copilot CLI",
        borrower_mark="COPILOT_CLI",
        borrower_cap=8,
        has_code=False,
    ),
}
"""The registry, in the order in which we show clients."""

CLIENT_NAMES: tuple[str, ...] = tuple(name for name, client in KNOWN.items() if client.has_code)
"""Every client that `install` supports."""

EXAMPLE_AGENT: str = next(client.headless for client in KNOWN.values() if client.headless)
"""The example for options that take the command of an agent."""

INSTRUCTION_NAMES: tuple[str, ...] = tuple(
    dict.fromkeys(
        (
            *(name for known in KNOWN.values() for name in (*known.instructions, known.folder) if name),
            *("QWEN.md", ".qwen", ".github", ".cursor", ".cursorrules", ".git"),
        )
    )
)
"""Names by which an agent CLI is instructed or configured by the folder that it runs in, or by one above."""

KEPT_NAMES: tuple[str, ...] = (
    *(".git", ".agents", ".aws"),
    *(known.folder for known in KNOWN.values() if known.folder),
    *(".vscode", ".idea", ".husky", ".cargo", ".devcontainer", ".mvn"),
    *(".mcp.json", ".claude.json", ".gitconfig", ".gitmodules", ".envrc", ".ripgreprc", ".npmrc", ".yarnrc"),
    *(".profile", ".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases"),
    *(".zshrc", ".zshenv", ".zprofile", ".zlogin", ".zlogout"),
)
"""Names at the top of a workspace that other programs load: what the agent CLIs keep a sandboxed tool from changing,
all together. A program that meets an empty folder of such a name goes on."""

WATCHED_NAMES: tuple[str, ...] = (
    *(".devcontainer.json", ".pre-commit-config.yaml", "lefthook.yml", ".lefthook.yml", "lefthook.yaml"),
    *(".lefthook.yaml", ".bazelrc", ".bazelversion", ".bazeliskrc", "bunfig.toml", ".bunfig.toml"),
    *(".yarnrc.yml", ".pnpmfile.cjs", "pyrightconfig.json"),
)
"""Further ones, for which a program would stumble over an empty folder."""

SHELL_MARKS: tuple[str, ...] = tuple(mark for client in KNOWN.values() for mark in client.shell_marks)
"""Every variable that marks an agent's tool shell."""

SESSION_IDS: frozenset[str] = frozenset(name for client in KNOWN.values() for name in client.session_ids)
"""Every variable that contains a session's id in a tool shell."""


def tool_shell_mark(environ: Mapping[str, str]) -> str:
    """The variable that shows that a *hook* runs in a tool shell; empty if there is none.

    Args:
        environ: the environment of the hook process.

    A hook that a client starts has none of these variables, so an event with one is forged, or comes from a client that
    an agent started. It is only a fence: ``env -i`` drops every mark.
    """
    for client in KNOWN.values():
        for name in client.shell_only:
            if environ.get(name):
                return name
    return "AI_AGENT" if environ.get("AI_AGENT", "").endswith("_agent") else ""


def session_from_environment(environ: Mapping[str, str]) -> tuple[str, str]:
    """The (client, session id) in a tool shell's environment; ``("", "")`` if there are none or several.

    There are several if an agent started another client; the environment does not show which one is the inner one.
    """
    found = {
        client: environ[name]
        for client, known in KNOWN.items()
        for name in reversed(known.session_ids)
        if environ.get(name)
    }
    return next(iter(found.items())) if len(found) == 1 else ("", "")
