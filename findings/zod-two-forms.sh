#!/bin/sh
# zod 3.25.76 with zod-to-json-schema 3.25.2, and zod 4.6.7 with its own `toJSONSchema`.
# Expected: one definition of a tool's arguments has one JSON Schema, whichever of the two reads it.
# Seen: a schema used for two properties is a `$ref` from one to the other with zod 3, and written twice with zod 4.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
trap 'exit 1' INT TERM
cd "$folder"
npm install --silent --no-audit --no-fund zod3@npm:zod@3.25.76 zod4@npm:zod@4.6.7 zod@npm:zod@3.25.76 zod-to-json-schema@3.25.2
cat > run.mjs <<'JS'
import { z as three } from 'zod3'
import { z as four } from 'zod4'
import { zodToJsonSchema } from 'zod-to-json-schema'
const define = (z) => {
  const count = z.number().int().min(1)
  return z.object({ first: count, second: count })
}
const old = zodToJsonSchema(define(three)).properties.second
const new_ = four.toJSONSchema(define(four)).properties.second
console.log('zod 3:', old, 'zod 4:', new_)
process.exitCode = old.$ref === '#/properties/first' && new_.$ref === undefined && new_.minimum === 1 ? 0 : 1
JS
node run.mjs
