"""Tools: functions that a model may call."""

from __future__ import annotations

from alpineagents.tools.base import Tool, tool
from alpineagents.tools.box import as_tool, toolbox
from alpineagents.tools.context import Progress, ToolContext
from alpineagents.tools.execute import check, execute
from alpineagents.tools.outcome import ToolResult

__all__ = ["Progress", "Tool", "ToolContext", "ToolResult", "as_tool", "check", "execute", "tool", "toolbox"]
