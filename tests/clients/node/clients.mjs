// The JavaScript clients: reads one question per line of JSON, answers it with one line of JSON, until its input ends.

import readline from "node:readline";

import Anthropic from "@anthropic-ai/sdk";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { ChatOpenAI } from "@langchain/openai";
import { generateText, streamText } from "ai";
import OpenAI from "openai";

const MAX_TOKENS = 20_000;

async function* openai(ask) {
  const client = new OpenAI(options(ask, "/v1"));
  const request = { model: "demo", messages: messages(ask) };
  if (!ask.stream) {
    yield (await client.chat.completions.create(request)).choices[0].message.content;
    return;
  }
  for await (const chunk of await client.chat.completions.create({ ...request, stream: true })) {
    yield chunk.choices[0].delta.content ?? "";
  }
}

async function* openaiHelper(ask) {
  const client = new OpenAI(options(ask, "/v1"));
  const stream = client.chat.completions.stream({ model: "demo", messages: messages(ask) });
  if (!ask.stream) {
    yield (await stream.finalChatCompletion()).choices[0].message.content;
    return;
  }
  for await (const chunk of stream) yield chunk.choices[0].delta.content ?? "";
  await stream.finalChatCompletion();
}

async function* openaiResponses(ask) {
  const client = new OpenAI(options(ask, "/v1"));
  if (!ask.stream) {
    yield (await client.responses.create({ model: "demo", input: ask.prompt })).output_text;
    return;
  }
  for await (const event of client.responses.stream({ model: "demo", input: ask.prompt })) {
    if (event.type === "response.output_text.delta") yield event.delta;
  }
}

async function* anthropic(ask) {
  const client = new Anthropic(options(ask, ""));
  const request = { model: "demo", max_tokens: MAX_TOKENS, messages: messages(ask) };
  if (!ask.stream) {
    yield (await client.messages.create(request)).content.map((block) => block.text ?? "").join("");
    return;
  }
  for await (const event of client.messages.stream(request)) {
    if (event.type === "content_block_delta" && event.delta.type === "text_delta") yield event.delta.text;
  }
}

async function* langchain(ask) {
  const { apiKey, maxRetries, ...configuration } = options(ask, "/v1");
  const model = new ChatOpenAI({ model: "demo", apiKey, maxRetries, configuration });
  if (!ask.stream) {
    yield (await model.invoke(ask.prompt)).content;
    return;
  }
  for await (const chunk of await model.stream(ask.prompt)) yield chunk.content;
}

async function* aiSdk(ask) {
  const { baseURL, apiKey } = options(ask, "/v1");
  const headers = ask.headers;
  const provider = createOpenAICompatible({ name: "gateway", baseURL, apiKey, headers, includeUsage: true });
  const request = { model: provider("demo"), prompt: ask.prompt, maxRetries: ask.retries };
  if (!ask.stream) {
    yield (await generateText(request)).text;
    return;
  }
  for await (const part of streamText({ ...request, onError: () => {} }).fullStream) {
    if (part.type === "error") throw part.error;
    if (part.type === "text-delta") yield part.text;
  }
}

const CLIENTS = {
  openai,
  "openai .stream()": openaiHelper,
  "openai responses": openaiResponses,
  anthropic,
  langchain,
  "ai-sdk": aiSdk,
};

function options(ask, path) {
  const { root, api_key: apiKey, headers: defaultHeaders, retries: maxRetries } = ask;
  return { baseURL: root + path, apiKey, defaultHeaders, maxRetries };
}

function messages(ask) {
  return [{ role: "user", content: ask.prompt }];
}

async function outcome({ client, ask }) {
  const pieces = [];
  const times_s = [];
  try {
    for await (const piece of CLIENTS[client](ask)) {
      if (!piece) continue;
      pieces.push(piece);
      times_s.push(performance.now() / 1000);
    }
    return { pieces, times_s, failure: null };
  } catch (error) {
    return { pieces, times_s, failure: failure(error) };
  }
}

// One call of the OpenAI client by the name of its method, such as "embeddings.create"; a stream is the list of its
// chunks.
async function called({ method, argument, ask }) {
  const names = method.split(".");
  const last = names.pop();
  const resource = names.reduce((object, name) => object[name], new OpenAI(options(ask, "/v1")));
  const answer = await resource[last](argument ?? undefined);
  if (!argument?.stream) return answer;
  const chunks = [];
  for await (const chunk of answer) chunks.push(chunk);
  return chunks;
}

function failure(error) {
  const headers = error.headers ?? error.responseHeaders ?? {};
  return {
    kind: error.constructor.name,
    message: String(error.message),
    status: error.status ?? error.statusCode ?? null,
    headers: typeof headers.entries === "function" ? Object.fromEntries(headers.entries()) : headers,
  };
}

for await (const line of readline.createInterface({ input: process.stdin })) {
  const question = JSON.parse(line);
  const answer = await (question.method ? called(question) : outcome(question));
  process.stdout.write(JSON.stringify(answer) + "\n");
}
