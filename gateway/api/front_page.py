"""The page that a browser gets at `/`: it introduces the gateway and its addresses.

The page is the same for all clients and shows nothing of the configuration, because it needs no key. It loads nothing:
no script, no image, no font.
"""

import base64
import hashlib
import re
from typing import Final

_STYLE: Final = """
:root { color-scheme: light dark; background: Canvas; --line: #8886; --soft: #8882; --link: #0b62c4; }
@media (prefers-color-scheme: dark) { :root { --link: #7db7ff; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 46rem; padding: 2rem 1.25rem 3rem; font: 1rem/1.55 system-ui, sans-serif;
  overflow-wrap: break-word; }
h1 { font-size: 1.7rem; margin: 0 0 .25rem; line-height: 1.2; }
h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
p { margin: .5rem 0; }
a { color: var(--link); }
code, pre { font: .92em ui-monospace, monospace; background: var(--soft); border-radius: .3rem; }
code { padding: .1em .3em; }
pre { padding: .8rem 1rem; overflow-x: auto; }
pre code { padding: 0; background: none; }
dl { display: grid; grid-template-columns: minmax(9rem, auto) 1fr; gap: 0 1.25rem; margin: 0; }
dt, dd { margin: 0; padding: .55rem 0; border-top: 1px solid var(--line); }
@media (max-width: 34rem) {
  dl { display: block; }
  dt { padding-bottom: .1rem; }
  dd { border-top: 0; padding: 0 0 .7rem; }
}
"""
_PAGE: Final = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Twolane</title>
<link rel="icon" href="data:,">
<style>{style}</style>
</head>
<body>
<main>
<h1>Twolane is running</h1>
<p>This is an OpenAI-compatible gateway. It has two base URLs, one for each lane. Set one of them in your client:</p>
<dl>
<dt><code>/v1</code></dt>
<dd>Passthrough: requests go to the upstream and back, byte for byte.</dd>
<dt><code>/context/v1</code></dt>
<dd>Context: chat completions run through the gateway's stages, with tools behind approvals.</dd>
</dl>

<h2>Try it</h2>
<pre tabindex="0" role="region" aria-label="Example request"><code>curl http://HOST/context/v1/chat/completions \\
  -H 'Content-Type: application/json' \\
  -d '{{"model": "demo", "messages":
       [{{"role": "user", "content": "Say hello"}}]}}'</code></pre>
<p>Replace <code>HOST</code> with the address of this page, and <code>demo</code> with a model of your upstream. If the
operator handed out keys, add <code>-H 'Authorization: Bearer KEY'</code>.</p>

<h2>Where to go</h2>
<dl>
<dt><a href="/console">/console</a></dt>
<dd>The console: calls that wait for you, runs, workflows, tools; at <code>admin.listen</code>, if that is set.</dd>
<dt><a href="/openapi.json">/openapi.json</a></dt>
<dd>The gateway's own API, as OpenAPI 3.1: approvals, runs, workflows, prompts, services.</dd>
<dt><a href="/health/ready">/health/ready</a></dt>
<dd>Whether the gateway takes requests; at <code>admin.listen</code>, if that is set.</dd>
<dt><a href="/metrics">/metrics</a></dt>
<dd>Metrics for Prometheus, at the same address; they may need a key.</dd>
<dt><code>gateway --help</code></dt>
<dd>The commands on the gateway's machine: approvals, runs, configuration.</dd>
</dl>
</main>
</body>
</html>
"""

_WEIGHT: Final = re.compile(r"[01](\.[0-9]{0,3})?")  # RFC 9110 section 12.4.2
_DIGEST: Final = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
FRONT_PAGE: Final = _PAGE.format(style=_STYLE).encode()
FRONT_PAGE_HEADERS: Final = {
    "Content-Type": "text/html; charset=utf-8",
    "Content-Security-Policy": f"default-src 'none'; style-src 'sha256-{_DIGEST}'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-cache",
    "Vary": "Accept",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


def wants_html(accept: str) -> bool:
    """Return whether an Accept header prefers HTML to JSON, as browsers' do. `*/*` does not."""
    weights = {"text/html": 0.0, "application/json": 0.0}
    for part in accept.lower().split(","):
        media, *parameters = (piece.strip() for piece in part.split(";"))
        if media in weights:
            given = next((text for text in parameters if text.startswith("q=")), "q=1")
            weights[media] = float(given[2:]) if _WEIGHT.fullmatch(given[2:]) else 0.0
    return weights["text/html"] > weights["application/json"]
