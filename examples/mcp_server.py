"""A small MCP server for `mcp_tools.py`: stock levels of a warehouse, over standard input and output."""

from __future__ import annotations

from mcp.server.fastmcp import FastMCP

server = FastMCP("warehouse", log_level="WARNING")
STOCK = {"滤网": 12, "spindle": 0}


@server.tool()
def stock(part: str) -> str:
    """Return how many pieces of a part are in the warehouse 查询零件库存."""
    return f"{part}: {STOCK.get(part, 0)}"


if __name__ == "__main__":
    server.run()
