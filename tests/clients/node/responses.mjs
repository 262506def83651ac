// Conversations of the JavaScript clients of the Responses API. Each client has a tool of its own, names tools of the
// gateway unless `label` is null, and decides as `decision` says about calls that it is asked about.

import { createOpenAI } from "@ai-sdk/openai";
import { AIMessage, HumanMessage, ToolMessage } from "@langchain/core/messages";
import { ChatOpenAI } from "@langchain/openai";
import { Agent, OpenAIProvider, Runner, RunState, hostedMcpTool, setTracingDisabled, tool as agentsTool } from "@openai/agents";
import { generateText, jsonSchema, stepCountIs, streamText, tool } from "ai";
import OpenAI from "openai";

setTracingDisabled(true);
globalThis.AI_SDK_LOG_WARNINGS = false; // they would go to where the answers go

export const SUNNY = "Sunny";

function openai(options) {
  const client = new OpenAI({ baseURL: options.base_url, apiKey: options.api_key, maxRetries: 0 });
  const input = [...options.history];
  return async (text) => {
    const told = { asked: [], calls: [] };
    input.push({ role: "user", content: text });
    for (;;) {
      const request = { model: "demo", input, tools: [...named(options), options.tool] };
      const response = options.stream
        ? await client.responses.stream(request).finalResponse()
        : await client.responses.create(request);
      input.push(...response.output);
      note(told, response.output);
      const answers = response.output.map((item) => answerTo(item, options)).filter(Boolean);
      if (!answers.length) return { ...told, text: response.output_text };
      input.push(...answers);
    }
  };
}

function answerTo(item, { decision }) {
  if (item.type === "function_call") return { type: "function_call_output", call_id: item.call_id, output: SUNNY };
  if (item.type !== "mcp_approval_request") return null;
  return { type: "mcp_approval_response", approval_request_id: item.id, ...decision };
}

function langchain(options) {
  const { type, ...described } = options.tool;
  const model = new ChatOpenAI({
    model: "demo",
    apiKey: options.api_key,
    maxRetries: 0,
    useResponsesApi: true,
    configuration: { baseURL: options.base_url },
  }).bindTools([...named(options), { type, function: described }]);
  const messages = options.history.map(({ role, content }) =>
    role === "user" ? new HumanMessage(content) : new AIMessage(content),
  );
  return async (text) => {
    const told = { asked: [], calls: [] };
    messages.push(new HumanMessage(text));
    for (;;) {
      const message = options.stream ? await whole(await model.stream(messages)) : await model.invoke(messages);
      messages.push(message);
      const items = message.additional_kwargs.tool_outputs ?? [];
      note(told, items);
      const asked = items.filter((item) => item.type === "mcp_approval_request");
      for (const call of message.tool_calls) messages.push(new ToolMessage({ content: SUNNY, tool_call_id: call.id }));
      if (asked.length) messages.push(new HumanMessage({ content: asked.map((item) => answerTo(item, options)) }));
      if (!asked.length && !message.tool_calls.length) return { ...told, text: message.text };
    }
  };
}

export async function whole(chunks) {
  let message;
  for await (const chunk of chunks) message = message ? message.concat(chunk) : chunk;
  return message;
}

// By its callback, or by `interrupted`: whoever runs the agent decides between two runs, over a state that was stored.
function agents(options, { interrupted = false } = {}) {
  const told = { asked: [], calls: [] };
  const asked = ({ name, arguments: text, reason }) => told.asked.push({ name, arguments: text, reason });
  const { approve, reason } = options.decision ?? {};
  const hosted = named(options).map(({ server_label: serverLabel, require_approval: requireApproval }) =>
    hostedMcpTool({
      serverLabel,
      requireApproval,
      onApproval: interrupted
        ? undefined
        : async (_, { rawItem }) => {
            asked(rawItem.providerData);
            return approve ? { approve } : { approve, reason };
          },
    }),
  );
  const weather = agentsTool({ ...options.tool, strict: false, execute: async () => SUNNY });
  const agent = new Agent({ name: "a", model: "demo", tools: [...hosted, weather] });
  const modelProvider = new OpenAIProvider({ baseURL: options.base_url, apiKey: options.api_key, useResponses: true });
  const runner = new Runner({ modelProvider });
  const run = async (input) => {
    const result = await runner.run(agent, input, { stream: options.stream });
    if (options.stream) for await (const _ of result);
    await result.completed;
    return result;
  };
  let history = options.history.map(({ role, content: text }) =>
    role === "user"
      ? { role, content: text }
      : { role, status: "completed", content: [{ type: "output_text", text }] },
  );
  return async (text) => {
    told.asked = [];
    let result = await run([...history, { role: "user", content: text }]);
    while (result.interruptions.length) {
      const state = await RunState.fromString(agent, result.state.toString());
      for (const interruption of state.getInterruptions()) {
        asked(interruption.rawItem.providerData);
        if (approve) state.approve(interruption);
        else state.reject(interruption, { message: reason });
      }
      result = await run(state);
    }
    history = result.history;
    for (const { rawItem } of result.newItems)
      if (rawItem.providerData?.type === "mcp_call") note(told, [{ ...rawItem.providerData, output: rawItem.output }]);
    return { ...told, calls: told.calls.splice(0), text: result.finalOutput };
  };
}

function aiSdk(options, { providerOptions } = {}) {
  const provider = createOpenAI({ baseURL: options.base_url, apiKey: options.api_key });
  const { name, description, parameters } = options.tool;
  const tools = { [name]: tool({ description, inputSchema: jsonSchema(parameters), execute: async () => SUNNY }) };
  for (const { server_label: serverLabel, require_approval: requireApproval } of named(options))
    tools.gateway = provider.tools.mcp({ serverLabel, serverUrl: serverLabel, requireApproval }); // it wants both
  const messages = [...options.history];
  return async (text) => {
    const told = { asked: [], calls: [] };
    messages.push({ role: "user", content: text });
    for (;;) {
      const more = { stopWhen: stepCountIs(5), maxRetries: 0, providerOptions };
      const request = { model: provider("demo"), messages, tools, ...more };
      const result = options.stream ? streamText({ ...request, onError: () => {} }) : await generateText(request);
      if (options.stream) for await (const part of result.fullStream) if (part.type === "error") throw part.error;
      messages.push(...(await result.response).messages);
      const content = (await result.steps).flatMap((step) => step.content);
      for (const part of content)
        if (part.type === "tool-result" && part.providerExecuted) note(told, [{ ...part.output, type: "mcp_call" }]);
      const asked = content.filter((part) => part.type === "tool-approval-request");
      if (!asked.length) return { ...told, text: await result.text };
      for (const { toolCall } of asked)
        told.asked.push({ name: toolCall.toolName.replace("mcp.", ""), arguments: JSON.stringify(toolCall.input) });
      messages.push({ role: "tool", content: asked.map(({ approvalId }) => approvalResponse(approvalId, options)) });
    }
  };
}

function approvalResponse(approvalId, { decision }) {
  const { approve: approved, reason } = decision;
  return { type: "tool-approval-response", approvalId, approved, reason, providerExecuted: true };
}

// The tools of the gateway that a request names.
function named({ label, require_approval }) {
  return label ? [{ type: "mcp", server_label: label, require_approval }] : [];
}

// The calls that were shown, and those that were asked about.
function note(told, items) {
  for (const { type, name, arguments: text, output, error } of items) {
    if (type === "mcp_approval_request") told.asked.push({ name, arguments: text });
    if (type === "mcp_call") told.calls.push({ name, arguments: text, output: output ?? null, error: error ?? null });
  }
}

const CLIENTS = {
  openai,
  langchain,
  agents,
  "agents interrupted": (options) => agents(options, { interrupted: true }),
  "ai-sdk": aiSdk,
  "ai-sdk unstored": (options) => aiSdk(options, { providerOptions: { openai: { store: false } } }),
};
const conversations = new Map();

// What the client of this conversation answers to the text; the first question brings the options.
export async function said({ responses: client, conversation, options, text }) {
  if (!conversations.has(conversation)) conversations.set(conversation, CLIENTS[client](options));
  return conversations.get(conversation)(text);
}
