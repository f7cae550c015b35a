"""Environment variables that tell where a process runs: in an agent's tool shell, in a hook, or in neither.

Captured from the clients themselves (Claude Code 2.1.332, Codex CLI 0.171.0, Gemini CLI 0.61.0, Qwen Code 0.24.4,
Copilot CLI 1.0.102). One table for all clients, so that a question about the environment imports no dialect.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

SHELL_MARKS: dict[str, tuple[str, ...]] = {
    "claude": ("CLAUDECODE", "CLAUDE_CODE_SESSION_ID"),
    "codex": ("CODEX_SESSION_ID", "CODEX_THREAD_ID", "CODEX_TOOL_CALL_ID", "CODEX_CI"),
    "gemini": ("GEMINI_CLI",),
    "qwen": ("QWEN_CODE", "QWEN_CODE_SESSION_ID"),
    "copilot": ("COPILOT_CLI", "COPILOT_AGENT_SESSION_ID"),
}
"""Set in a tool shell of the client and in no person's terminal. Clients without a dialect are known here too."""

SESSION_VARIABLES: dict[str, tuple[str, ...]] = {
    "claude": ("CLAUDE_CODE_SESSION_ID",),
    "codex": ("CODEX_SESSION_ID", "CODEX_THREAD_ID"),
    "gemini": (),
}
"""Hold the session id in a tool shell, best first. Gemini sets none there (``GEMINI_SESSION_ID`` is for hooks)."""

# Absent from the hooks of the very same client, so one of these in a hook's environment means that the call comes
# out of a tool shell. Claude's hooks carry its shell marks; only the ending of AI_AGENT tells the two apart.
_SHELL_ONLY = (
    "CODEX_SESSION_ID",
    "CODEX_THREAD_ID",
    "CODEX_TOOL_CALL_ID",
    "GEMINI_CLI",
    "QWEN_CODE",
    "COPILOT_AGENT_SESSION_ID",
)


def tool_shell_mark(environ: Mapping[str, str]) -> str:
    """Name the variable that shows a *hook* call to come out of a tool shell; empty when none does.

    Args:
        environ: the environment of the hook process.

    A hook that a client starts carries none of these, so an event with one is a forged event or comes from a client
    that an agent started. It is a fence: ``env -i`` drops every mark.
    """
    for name in _SHELL_ONLY:
        if environ.get(name):
            return name
    return "AI_AGENT" if environ.get("AI_AGENT", "").endswith("_agent") else ""
