#!/bin/sh
# ai 6.0.326 with @ai-sdk/openai 3.0.141 and @ai-sdk/openai-compatible 2.0.92.
# Expected: two providers of one SDK read a streamed tool call without `index` alike.
# Seen: @ai-sdk/openai refuses the chunk, @ai-sdk/openai-compatible takes the call.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
trap 'exit 1' INT TERM
cd "$folder"
npm install --silent --no-audit --no-fund ai@6.0.326 @ai-sdk/openai@3.0.141 @ai-sdk/openai-compatible@2.0.92 zod@4.6.7
cat > run.mjs <<'JS'
import { createServer } from 'node:http'
import { streamText, tool } from 'ai'
import { createOpenAI } from '@ai-sdk/openai'
import { createOpenAICompatible } from '@ai-sdk/openai-compatible'
import { z } from 'zod'
const chunk = (delta, finish_reason = null) =>
  `data: ${JSON.stringify({ id: 'c', object: 'chat.completion.chunk', created: 1, model: 'm', choices: [{ index: 0, delta, finish_reason }] })}\n\n`
const call = { id: 'call_1', type: 'function', function: { name: 'look', arguments: '{"at":"it"}' } }
const server = createServer((_, answer) => {
  answer.setHeader('content-type', 'text/event-stream')
  answer.end(chunk({ role: 'assistant', tool_calls: [call] }) + chunk({}, 'tool_calls') + 'data: [DONE]\n\n')
})
await new Promise((done) => server.listen(0, '127.0.0.1', done))
const baseURL = `http://127.0.0.1:${server.address().port}/v1`
const read = async (model) => {
  const tools = { look: tool({ inputSchema: z.object({ at: z.string() }) }) }
  const seen = { calls: 0, errors: 0 }
  for await (const part of streamText({ model, prompt: 'Look.', tools, maxRetries: 0, onError() {} }).fullStream) {
    if (part.type === 'tool-call') seen.calls++
    if (part.type === 'error') seen.errors++
  }
  return seen
}
const openai = await read(createOpenAI({ baseURL, apiKey: 'k' }).chat('m'))
const compatible = await read(createOpenAICompatible({ name: 'x', baseURL, apiKey: 'k' })('m'))
server.close()
console.log('@ai-sdk/openai', openai, '@ai-sdk/openai-compatible', compatible)
process.exitCode = openai.calls === 0 && openai.errors > 0 && compatible.calls === 1 && compatible.errors === 0 ? 0 : 1
JS
node run.mjs
