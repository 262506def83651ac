#!/bin/sh
# litserve 0.2.19 beside fastmcp 4.2.3 with mcp 2.3.0, in one environment.
# Expected: a server of models that needs no MCP is imported whatever other packages are there, or pip reports that the
#           two do not go together.
# Seen: pip finds no conflict, and `import litserve` fails: it looks whether `fastmcp` is installed, and then imports a
#       module that the MCP SDK had before version 2.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
trap 'exit 1' INT TERM
cd "$folder"
python3 -m venv venv
venv/bin/pip install -q litserve==0.2.19
venv/bin/python -c 'import litserve; print("alone: imported")'
venv/bin/pip install -q fastmcp==4.2.3 mcp==2.3.0
venv/bin/pip check
cat > run.py <<'PY'
try:
    import litserve
except ModuleNotFoundError as error:
    print("beside fastmcp 4.2.3:", error)
    raise SystemExit(error.name != "mcp.server.fastmcp") from None
raise SystemExit(f"imported {litserve.__version__}")
PY
venv/bin/python run.py
