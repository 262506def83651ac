// The JavaScript clients that want an object of a shape, each in its own way.

import Anthropic from "@anthropic-ai/sdk";
import { jsonSchemaOutputFormat } from "@anthropic-ai/sdk/helpers/json-schema";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { ChatOpenAI } from "@langchain/openai";
import { Agent, OpenAIProvider, Runner } from "@openai/agents";
import { generateText, jsonSchema, Output } from "ai";
import OpenAI from "openai";
import { zodResponseFormat } from "openai/helpers/zod";
import { z } from "zod";

const SHAPE = {
  type: "object",
  properties: { id: { type: "integer" } },
  required: ["id"],
  additionalProperties: false,
};
const NAMED = { name: "found", schema: SHAPE, strict: true };

function openai({ root, api_key: apiKey, headers: defaultHeaders }) {
  return new OpenAI({ baseURL: `${root}/v1`, apiKey, defaultHeaders, maxRetries: 0 });
}

function chat({ messages }) {
  return { model: "demo", messages, response_format: { type: "json_schema", json_schema: NAMED } };
}

function settings({ root, api_key: apiKey, headers }) {
  return { baseURL: `${root}/v1`, apiKey, headers };
}

function langchain({ root, api_key: apiKey, headers: defaultHeaders }, more = {}) {
  const configuration = { baseURL: `${root}/v1`, defaultHeaders };
  const model = new ChatOpenAI({ model: "demo", apiKey, maxRetries: 0, configuration, ...more });
  return model.withStructuredOutput(SHAPE, { name: "found", method: "jsonSchema", strict: true });
}

async function aiSdk(model, { messages }) {
  const request = { model, messages, maxRetries: 0, output: Output.object({ schema: jsonSchema(SHAPE) }) };
  return (await generateText(request)).output;
}

export const OBJECTS = {
  openai: async (ask) => (await openai(ask).chat.completions.parse(chat(ask))).choices[0].message.parsed,
  "openai .stream()": async (ask) => {
    const response_format = zodResponseFormat(z.strictObject({ id: z.int() }), NAMED.name);
    const stream = openai(ask).chat.completions.stream({ ...chat(ask), response_format });
    return (await stream.finalChatCompletion()).choices[0].message.parsed;
  },
  "openai responses": async (ask) => {
    const text = { format: { type: "json_schema", ...NAMED } };
    return (await openai(ask).responses.parse({ model: "demo", input: ask.messages, text })).output_parsed;
  },
  anthropic: async (ask) => {
    const client = new Anthropic({ baseURL: ask.root, apiKey: ask.api_key, maxRetries: 0 });
    const output_config = { format: jsonSchemaOutputFormat(SHAPE) };
    const request = { model: "demo", max_tokens: 1000, messages: ask.messages, output_config };
    return (await client.messages.parse(request)).parsed_output;
  },
  langchain: (ask) => langchain(ask).invoke(ask.messages),
  "langchain responses": (ask) => langchain(ask, { useResponsesApi: true }).invoke(ask.messages),
  "ai-sdk": (ask) => {
    const provider = createOpenAICompatible({ name: "gateway", supportsStructuredOutputs: true, ...settings(ask) });
    return aiSdk(provider("demo"), ask);
  },
  "ai-sdk responses": (ask) => aiSdk(createOpenAI(settings(ask))("demo"), ask),
  agents: async (ask) => {
    const outputType = { type: "json_schema", ...NAMED };
    const agent = new Agent({ name: "a", model: "demo", outputType });
    const runner = new Runner({ modelProvider: new OpenAIProvider({ openAIClient: openai(ask), useResponses: true }) });
    return (await runner.run(agent, ask.prompt)).finalOutput;
  },
};
