// The official TypeScript clients of MCP: one question is a whole visit to a gateway. It says which client, with which
// key, whether it can ask its user (`elicitation`, its capability) and what the user answers, and which calls it makes.
// A user who is sent to a page decides there first, if `there` says so: with a key of their own.

import { Client as Modern, StreamableHTTPClientTransport as ModernTransport } from "@modelcontextprotocol/client";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { ElicitRequestSchema } from "@modelcontextprotocol/sdk/types.js";
import readline from "node:readline";

const INFO = { name: "typescript-client", version: "1" };

const CLIENTS = {
  sdk: {
    client: (capabilities) => new Client(INFO, { capabilities }),
    transport: (...where) => new StreamableHTTPClientTransport(...where),
    asked: ElicitRequestSchema,
    call: (client, call, options) => client.callTool(call, undefined, options),
    protocol: (_, transport) => transport.protocolVersion,
  },
  ...Object.fromEntries(
    Object.entries({ "client legacy": "legacy", "client modern": { pin: "2026-07-28" } }).map(([name, mode]) => [
      name,
      {
        client: (capabilities) => new Modern(INFO, { capabilities, versionNegotiation: { mode } }),
        transport: (...where) => new ModernTransport(...where),
        asked: "elicitation/create",
        call: (client, call, options) => client.callTool(call, options),
        protocol: (client) => client.getNegotiatedProtocolVersion(),
      },
    ]),
  ),
};

async function visit({ client: name, url, key, elicitation, answer, there, calls }) {
  const kind = CLIENTS[name];
  const client = kind.client(elicitation ? { elicitation } : {});
  const asked = [];
  if (elicitation) {
    client.setRequestHandler(kind.asked, async ({ params }) => {
      asked.push(params);
      if (there) await decided(new URL(url).origin, params.url.split("/").at(-1), there);
      return answer;
    });
  }
  const headers = key === null ? {} : { Authorization: `Bearer ${key}` };
  const transport = kind.transport(new URL(url), { requestInit: { headers } });
  try {
    await client.connect(transport);
    const { tools } = await client.listTools();
    const outcomes = [];
    for (const call of calls) outcomes.push(await called(kind, client, call));
    return { protocol: kind.protocol(client, transport), tools, asked, outcomes, failure: null };
  } catch (error) {
    return { asked, failure: error.message };
  } finally {
    await client.close();
  }
}

async function decided(origin, approval, { key, ...decision }) {
  const headers = { Authorization: `Bearer ${key}`, "Content-Type": "application/json" };
  const body = JSON.stringify(decision);
  const response = await fetch(`${origin}/context/approvals/${approval}`, { method: "POST", headers, body });
  if (!response.ok) throw new Error(await response.text());
}

// One call, which is cancelled as soon as there is news of it if `cancel` says so.
async function called(kind, client, { name, arguments: given, cancel }) {
  const cancelling = new AbortController();
  const progress = [];
  const onprogress = ({ message }) => {
    progress.push(message);
    if (cancel) cancelling.abort("enough");
  };
  const options = { signal: cancelling.signal, onprogress, resetTimeoutOnProgress: true };
  try {
    return { progress, result: await kind.call(client, { name, arguments: given }, options) };
  } catch (error) {
    return { progress, failure: String(error?.message ?? error) };
  }
}

for await (const line of readline.createInterface({ input: process.stdin })) {
  process.stdout.write(JSON.stringify(await visit(JSON.parse(line))) + "\n");
}
