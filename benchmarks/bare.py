"""The SDK's own server with one tool and no boundary: `python bare.py PORT quiet|as-it-comes`.

The tool returns what ours returns for the Easter window, ready-made, so that only the way differs.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import uvicorn
from mcp.server import MCPServer

said: dict[str, Any] = json.loads(Path(sys.argv[3]).read_text())

if sys.argv[2] == "quiet":
    server = MCPServer("bare", log_level="WARNING")

    @server.tool()
    async def rates_window(currency: str, start: str, end: str) -> dict[str, Any]:
        """Return the euro reference rates of a window."""
        return said

else:
    server = MCPServer("bare")

    @server.tool()
    def rates_window(currency: str, start: str, end: str) -> dict[str, Any]:
        """Return the euro reference rates of a window."""
        return said


if __name__ == "__main__":
    app = server.streamable_http_app(json_response=True, stateless_http=True)
    config = uvicorn.Config(
        app, port=int(sys.argv[1]), loop="uvloop", http="httptools", log_level="warning"
    )
    uvicorn.Server(config).run()
