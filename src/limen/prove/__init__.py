"""A prober for any MCP server over HTTP, from outside: what it promises is asked, not read."""
