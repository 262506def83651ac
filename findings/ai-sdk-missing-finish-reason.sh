#!/bin/sh
# ai 6.0.326 with @ai-sdk/openai 3.0.141 and @ai-sdk/openai-compatible 2.0.92.
# Expected: two providers of one SDK judge a stream that ends without a finish reason alike.
# Seen: @ai-sdk/openai takes it as whole, @ai-sdk/openai-compatible reports an error.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
trap 'exit 1' INT TERM
cd "$folder"
npm install --silent --no-audit --no-fund ai@6.0.326 @ai-sdk/openai@3.0.141 @ai-sdk/openai-compatible@2.0.92 zod@4.6.7
cat > run.mjs <<'JS'
import { createServer } from 'node:http'
import { streamText } from 'ai'
import { createOpenAI } from '@ai-sdk/openai'
import { createOpenAICompatible } from '@ai-sdk/openai-compatible'
const body = { id: 'c', object: 'chat.completion.chunk', created: 1, model: 'm' }
const choices = [{ index: 0, delta: { role: 'assistant', content: 'Hello' }, finish_reason: null }]
const server = createServer((_, answer) => {
  answer.setHeader('content-type', 'text/event-stream')
  answer.end(`data: ${JSON.stringify({ ...body, choices })}\n\ndata: [DONE]\n\n`)
})
await new Promise((done) => server.listen(0, '127.0.0.1', done))
const baseURL = `http://127.0.0.1:${server.address().port}/v1`
const read = async (model) => {
  const seen = { text: '', errors: 0, finish: [] }
  for await (const part of streamText({ model, prompt: 'Hi', maxRetries: 0, onError() {} }).fullStream) {
    if (part.type === 'text-delta') seen.text += part.text
    if (part.type === 'error') seen.errors++
    if (part.type === 'finish') seen.finish.push(part.finishReason)
  }
  return seen
}
const openai = await read(createOpenAI({ baseURL, apiKey: 'k' }).chat('m'))
const compatible = await read(createOpenAICompatible({ name: 'x', baseURL, apiKey: 'k' })('m'))
server.close()
console.log('@ai-sdk/openai', openai, '@ai-sdk/openai-compatible', compatible)
process.exitCode = openai.text === 'Hello' && openai.errors === 0 && compatible.errors > 0 ? 0 : 1
JS
node run.mjs
