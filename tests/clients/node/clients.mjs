// The JavaScript clients: reads one question per line of JSON, answers it with one line of JSON, until its input ends.

import readline from "node:readline";

import Anthropic from "@anthropic-ai/sdk";
import { betaTool } from "@anthropic-ai/sdk/helpers/beta/json-schema";
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { mapChatMessagesToStoredMessages, mapStoredMessagesToChatMessages, ToolMessage } from "@langchain/core/messages";
import { ChatOpenAI } from "@langchain/openai";
import { generateText, jsonSchema, stepCountIs, streamText, tool } from "ai";
import OpenAI from "openai";

import { OBJECTS } from "./objects.mjs";
import { said, SUNNY, whole } from "./responses.mjs";

const MAX_TOKENS = 20_000;

async function* openai(ask) {
  const client = new OpenAI(options(ask, "/v1"));
  const request = { model: "demo", messages: ask.messages };
  if (!ask.stream) {
    const answer = await client.chat.completions.create(request);
    yield answer.choices[0].message.content;
    yield told(answer.usage);
    return;
  }
  for await (const chunk of await client.chat.completions.create({ ...request, stream: true, ...streamOptions(ask) })) {
    if (!ask.usage) yield chunk.choices[0].delta.content ?? "";
    else for (const choice of chunk.choices) yield choice.delta.content ?? "";
    yield told(chunk.usage);
  }
}

async function* openaiHelper(ask) {
  const client = new OpenAI(options(ask, "/v1"));
  const stream = client.chat.completions.stream({ model: "demo", messages: ask.messages, ...streamOptions(ask) });
  if (!ask.stream) {
    yield (await stream.finalChatCompletion()).choices[0].message.content;
  } else {
    for await (const chunk of stream) yield chunk.choices[0]?.delta.content ?? "";
  }
  yield told((await stream.finalChatCompletion()).usage);
}

async function* openaiResponses(ask) {
  const client = new OpenAI(options(ask, "/v1"));
  if (!ask.stream) {
    yield (await client.responses.create({ model: "demo", input: ask.messages })).output_text;
    return;
  }
  for await (const event of client.responses.stream({ model: "demo", input: ask.messages })) {
    if (event.type === "response.output_text.delta") yield event.delta;
  }
}

async function* anthropic(ask) {
  const client = new Anthropic(options(ask, ""));
  const request = { model: "demo", max_tokens: MAX_TOKENS, messages: ask.messages };
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
  const model = new ChatOpenAI({ model: "demo", apiKey, maxRetries, configuration, streamUsage: ask.usage });
  for await (const message of ask.stream ? await model.stream(ask.messages) : [await model.invoke(ask.messages)]) {
    yield message.content;
    yield told(message.usage_metadata);
  }
}

async function* aiSdk(ask) {
  const { baseURL, apiKey } = options(ask, "/v1");
  const headers = ask.headers;
  const provider = createOpenAICompatible({ name: "gateway", baseURL, apiKey, headers, includeUsage: ask.usage });
  const request = { model: provider("demo"), messages: ask.messages, maxRetries: ask.retries };
  if (!ask.stream) {
    const { text, usage } = await generateText(request);
    yield text;
    yield told(usage);
    return;
  }
  for await (const part of streamText({ ...request, onError: () => {} }).fullStream) {
    if (part.type === "error") throw part.error;
    if (part.type === "text-delta") yield part.text;
    if (part.type === "finish") yield told(part.totalUsage);
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

function streamOptions(ask) {
  return ask.usage ? { stream_options: { include_usage: true } } : {};
}

// The tokens of prompt and completion, whatever the client calls them; null while it knows none.
function told(usage) {
  const prompt = usage?.prompt_tokens ?? usage?.input_tokens ?? usage?.inputTokens;
  const completion = usage?.completion_tokens ?? usage?.output_tokens ?? usage?.outputTokens;
  return prompt === undefined ? null : { usage: [prompt, completion] };
}

async function outcome({ client, ask }) {
  const pieces = [];
  const times_s = [];
  let usage = null;
  try {
    for await (const piece of CLIENTS[client](ask)) {
      if (!piece) continue;
      if (piece.usage) {
        usage = piece.usage;
        continue;
      }
      pieces.push(piece);
      times_s.push(performance.now() / 1000);
    }
    return { pieces, times_s, usage, failure: null };
  } catch (error) {
    return { pieces, times_s, usage, failure: failure(error) };
  }
}

// One call of the OpenAI client by the name of its method, such as "embeddings.create", with one argument or a list of
// them; a stream is the list of its chunks, and one that the client accumulates has its `final` response, too.
async function called({ method, argument, ask }) {
  const names = method.split(".");
  const last = names.pop();
  const resource = names.reduce((object, name) => object[name], new OpenAI(options(ask, "/v1")));
  const given = Array.isArray(argument) ? argument : [argument ?? undefined];
  const answer = await resource[last](...given);
  const accumulates = typeof answer?.finalResponse === "function";
  if (!accumulates && !given.some((each) => each?.stream)) return answer ?? null;
  const chunks = [];
  for await (const chunk of answer) chunks.push(chunk);
  return accumulates ? { chunks, final: await answer.finalResponse() } : chunks;
}

// One turn of a client with a tool of its own: its answer, and the messages that it goes on with.
const TALKS = {
  openai: (question) => openaiTalk(question, (client, request, stream) => created(client, request, stream)),
  "openai .stream()": (question) =>
    openaiTalk(question, async (client, request, stream) => {
      const running = client.chat.completions.stream(request);
      if (stream) for await (const _ of running);
      return (await running.finalChatCompletion()).choices[0].message;
    }),
  "ai-sdk": (question) => aiSdkTalk(question, createOpenAICompatible({ name: "gateway", ...address(question.ask) })),
  "ai-sdk messages": (question) => aiSdkTalk(question, createAnthropic(address(question.ask))),
  langchain: async ({ ask, messages, tool }) => {
    const { apiKey, maxRetries, ...configuration } = options(ask, "/v1");
    const model = new ChatOpenAI({ model: "demo", apiKey, maxRetries, configuration }).bindTools([tool]);
    const said = messages.map((each) => (each.role ? each : mapStoredMessagesToChatMessages([each])[0]));
    for (;;) {
      const message = ask.stream ? await whole(await model.stream(said)) : await model.invoke(said);
      said.push(message);
      if (!message.tool_calls.length) break;
      for (const call of message.tool_calls) said.push(new ToolMessage({ content: SUNNY, tool_call_id: call.id }));
    }
    const stored = said.map((each) => (each.role ? each : mapChatMessagesToStoredMessages([each])[0]));
    return { text: said.at(-1).content, messages: stored };
  },
  "anthropic runner": async ({ ask, messages, tool: { function: wanted } }) => {
    const { name, description, parameters: inputSchema } = wanted;
    const own = betaTool({ name, description, inputSchema, run: async () => SUNNY });
    const request = { model: "demo", max_tokens: MAX_TOKENS, messages, tools: [own], stream: ask.stream };
    const runner = new Anthropic(options(ask, "")).beta.messages.toolRunner(request);
    const { content } = await runner.runUntilDone();
    const said = [...runner.params.messages];
    if (said.at(-1).role !== "assistant") said.push({ role: "assistant", content });
    return { text: content.map((block) => block.text ?? "").join(""), messages: said };
  },
  anthropic: async ({ ask, messages, tool: { function: wanted } }) => {
    const client = new Anthropic(options(ask, ""));
    const tools = [{ name: wanted.name, description: wanted.description, input_schema: wanted.parameters }];
    const said = [...messages];
    for (;;) {
      const request = { model: "demo", max_tokens: MAX_TOKENS, messages: said, tools };
      const { content } = ask.stream
        ? await client.messages.stream(request).finalMessage()
        : await client.messages.create(request);
      said.push({ role: "assistant", content });
      const used = content.filter((block) => block.type === "tool_use");
      if (!used.length) return { text: content.map((block) => block.text ?? "").join(""), messages: said };
      said.push({
        role: "user",
        content: used.map(({ id }) => ({ type: "tool_result", tool_use_id: id, content: SUNNY })),
      });
    }
  },
};

function address(ask) {
  const { baseURL, apiKey } = options(ask, "/v1");
  return { baseURL, apiKey };
}

async function aiSdkTalk({ ask, messages, tool: wanted }, provider) {
  const { name, description, parameters } = wanted.function;
  const own = tool({ description, inputSchema: jsonSchema(parameters), execute: async () => SUNNY });
  const request = { model: provider("demo"), messages, tools: { [name]: own }, stopWhen: stepCountIs(5) };
  const result = ask.stream ? streamText(request) : await generateText(request);
  const text = await result.text;
  return { text, messages: [...messages, ...(await result.response).messages] };
}

async function openaiTalk({ ask, messages, tool }, message_of) {
  const client = new OpenAI(options(ask, "/v1"));
  const said = [...messages];
  for (;;) {
    const message = await message_of(client, { model: "demo", messages: said, tools: [tool] }, ask.stream);
    said.push(message);
    if (!message.tool_calls?.length) return { text: message.content, messages: said };
    for (const call of message.tool_calls) said.push({ role: "tool", tool_call_id: call.id, content: SUNNY });
  }
}

// The message of an answer; that of a stream as every tutorial assembles it.
async function created(client, request, stream) {
  if (!stream) return (await client.chat.completions.create(request)).choices[0].message;
  const message = { role: "assistant", content: null };
  for await (const chunk of await client.chat.completions.create({ ...request, stream: true })) {
    const { content, tool_calls: pieces } = chunk.choices[0].delta;
    if (content) message.content = (message.content ?? "") + content;
    for (const { index, id, function: piece } of pieces ?? []) {
      message.tool_calls ??= [];
      message.tool_calls[index] ??= { id, type: "function", function: { name: "", arguments: "" } };
      message.tool_calls[index].function.name += piece.name ?? "";
      message.tool_calls[index].function.arguments += piece.arguments ?? "";
    }
  }
  return message;
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

async function answered(question) {
  if (question.responses) return said(question);
  if (question.talk) return TALKS[question.talk](question);
  if (question.object) return OBJECTS[question.object](question.ask);
  return question.method ? called(question) : outcome(question);
}

for await (const line of readline.createInterface({ input: process.stdin })) {
  const question = JSON.parse(line);
  const answer = await answered(question).catch((error) => ({ failure: failure(error) }));
  process.stdout.write(JSON.stringify(answer) + "\n");
}
