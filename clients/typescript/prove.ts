/**
 * Proofs from outside, against a server that `limen up --offline --frozen-clock` has started.
 *
 *     node prove.ts MANIFEST
 *
 * Prints one line a check and a count. Exits with 0 only if every check held, and if as many were
 * made as are declared.
 */
import { readFileSync } from "node:fs";
import { Client as LegacyClient } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport as LegacyTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";

const DECLARED = 68;

const MODERN = "2026-07-28";
const LEGACY = "2025-06-18";
const REFUSAL = "no tool by that name is available to this caller";
const HIDDEN = "series_catalogue";
const BAD = [
  "other_resource",
  "two_resources",
  "list_of_one",
  "no_audience",
  "expired",
  "wrong_issuer",
  "unsigned",
];
const EASTER = { currency: "USD", start: "2026-03-30", end: "2026-04-10" };
const DAY = { day: "2026-04-03" };
const MOST_CALLS = 500;

type Json = any;
type Manifest = {
  servers: Record<string, { url: string; resource: string }>;
  budget: {
    capacity: number;
    reserve_fraction: number;
    callers: string[];
    clock: string;
  };
  tokens: Record<string, Record<string, string>>;
};
type Reply = { status: number; headers: Record<string, string>; text: string; json: Json };

const manifest: Manifest = JSON.parse(readFileSync(process.argv[2], "utf8"));
const ecb = manifest.servers.ecb.url;
const desk = manifest.servers.desk.url;
const tokens = manifest.tokens.ecb;
const [greedy, quiet] = manifest.budget.callers;

let made = 0;
const failed: string[] = [];

function check(name: string, holds: boolean, came?: unknown): void {
  made += 1;
  if (!holds) failed.push(name);
  const shown = holds ? "" : `: ${typeof came === "string" ? came : JSON.stringify(came)}`;
  console.log(`${holds ? "ok    " : "FAILED"} ${name}${shown}`.slice(0, 600));
}

/** How many calls of tools each caller has made on the ECB server: each of them costs one. */
const spent: Record<string, number> = {};

function charge(caller: string): string {
  spent[caller] = (spent[caller] ?? 0) + 1;
  return tokens[caller];
}

function request(revision: string, method: string, params: Json): Json {
  const meta = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientInfo": { name: "proofs", version: "1" },
    "io.modelcontextprotocol/clientCapabilities": {},
  };
  const more = revision === MODERN ? { _meta: meta } : {};
  return { jsonrpc: "2.0", id: 1, method, params: { ...params, ...more } };
}

function headersOf(revision: string, token: string | null, method: string, name?: string) {
  const headers: Record<string, string> = {
    "content-type": "application/json",
    accept: "application/json, text/event-stream",
    "mcp-protocol-version": revision,
  };
  if (revision === MODERN) {
    headers["mcp-method"] = method;
    if (name !== undefined) headers["mcp-name"] = name;
  }
  if (token !== null) headers.authorization = `Bearer ${token}`;
  return headers;
}

async function send(url: string, headers: Record<string, string>, body: Json): Promise<Reply> {
  const answer = await fetch(url, { method: "POST", headers, body: JSON.stringify(body) });
  const text = await answer.text();
  let json: Json = {};
  try {
    json = JSON.parse(text);
  } catch {
    /* an answer without JSON is judged by its status */
  }
  return { status: answer.status, headers: Object.fromEntries(answer.headers), text, json };
}

async function ask(
  revision: string,
  token: string | null,
  method: string,
  params: Json = {},
  url = ecb,
): Promise<Reply> {
  const headers = headersOf(revision, token, method, params.name);
  return send(url, headers, request(revision, method, params));
}

function call(revision: string, caller: string, name: string, args: Json): Promise<Reply> {
  return ask(revision, charge(caller), "tools/call", { name, arguments: args });
}

function comparable(reply: Reply): string {
  const { date, ...headers } = reply.headers;
  return JSON.stringify([reply.status, headers, reply.text]);
}

async function audience(): Promise<void> {
  for (const revision of [MODERN, LEGACY]) {
    const good = await ask(revision, tokens[greedy], "tools/list");
    check(`${revision}: a good token is answered with 200`, good.status === 200, good.text);
    for (const kind of BAD) {
      const reply = await ask(revision, tokens[kind], "tools/list");
      const challenge = reply.headers["www-authenticate"] ?? "";
      check(`${revision}: ${kind} is exactly 401`, reply.status === 401, reply.status);
      check(
        `${revision}: ${kind} gets a Bearer challenge that says invalid_token`,
        challenge.startsWith("Bearer ") && challenge.includes('error="invalid_token"'),
        challenge,
      );
    }
    const nobody = await ask(revision, null, "tools/list");
    const challenge = nobody.headers["www-authenticate"] ?? "";
    check(`${revision}: no token is exactly 401`, nobody.status === 401, nobody.status);
    check(
      `${revision}: no token gets a challenge with the metadata and without an error`,
      challenge.includes("resource_metadata=") && !challenge.includes("error="),
      challenge,
    );
  }
  const bodies = new Set<string>();
  for (const kind of BAD) bodies.add((await ask(MODERN, tokens[kind], "tools/list")).text);
  check("every kind of bad token gets the same body", bodies.size === 1, [...bodies]);
  const elsewhere = await ask(MODERN, tokens[greedy], "tools/list", {}, desk);
  check("a token of one server is 401 at another", elsewhere.status === 401, elsewhere.status);
  const inQuery = await send(
    `${ecb}?access_token=${tokens[greedy]}`,
    headersOf(MODERN, null, "tools/list"),
    request(MODERN, "tools/list", {}),
  );
  check("a token in the address is 401", inQuery.status === 401, inQuery.status);
  const where = new URL(ecb);
  const metadata = await fetch(
    `${where.origin}/.well-known/oauth-protected-resource${where.pathname}`,
  );
  const named = ((await metadata.json()) as Json).resource;
  check("the metadata names exactly this resource", named === manifest.servers.ecb.resource, named);
}

async function reach(): Promise<void> {
  const owner = await ask(MODERN, tokens.owner, "tools/list");
  const owners = owner.json.result.tools.map((tool: Json) => tool.name);
  for (const revision of [MODERN, LEGACY]) {
    const listed = await ask(revision, tokens[greedy], "tools/list");
    const names: string[] = listed.json.result.tools.map((tool: Json) => tool.name);
    check(
      `${revision}: the owner's tool is in no other list`,
      owners.includes(HIDDEN) && !names.includes(HIDDEN) && names.length === owners.length - 1,
      names,
    );
    const hidden = await call(revision, greedy, HIDDEN, {});
    const madeUp = await call(revision, greedy, "no_such_tool", {});
    check(
      `${revision}: a hidden and a made-up tool are refused in identical whole responses`,
      comparable(hidden) === comparable(madeUp),
      [comparable(hidden), comparable(madeUp)],
    );
    check(
      `${revision}: the refusal is the declared text, at a status that is no failure`,
      hidden.status === 200 && hidden.json.error?.message === REFUSAL,
      hidden.text,
    );
    check(
      `${revision}: the refusal echoes no name`,
      !hidden.text.includes(HIDDEN) && !madeUp.text.includes("no_such_tool"),
      hidden.text,
    );
    const nothing = await ask(revision, tokens.no_scope, "tools/list");
    check(
      `${revision}: a token without the scope sees no tool`,
      nothing.status === 200 && nothing.json.result.tools.length === 0,
      nothing.text,
    );
  }
  const list = await ask(MODERN, tokens[greedy], "tools/list");
  check("the list is private to its caller", list.json.result.cacheScope === "private", list.text);
  check(
    "no shared cache may keep an answer",
    (list.headers["cache-control"] ?? "").includes("no-store"),
    list.headers,
  );
}

/** On the desk, whose budget is its own. */
async function headers(): Promise<void> {
  const token = manifest.tokens.desk[greedy];
  const read = { name: "docs_read", arguments: { path: "public/handbook.txt" } };
  const body = request(MODERN, "tools/call", read);
  const good = headersOf(MODERN, token, "tools/call", "docs_read");
  const wrong: Record<string, Record<string, string>> = {
    "another method": { ...good, "mcp-method": "tools/list" },
    "another name": { ...good, "mcp-name": "docs_update" },
    "another version": { ...good, "mcp-protocol-version": LEGACY },
  };
  for (const [what, tricked] of Object.entries(wrong)) {
    const reply = await send(desk, tricked, body);
    check(`headers that say ${what} are 400`, reply.status === 400, [reply.status, reply.text]);
  }
  const nothing = manifest.tokens.desk.no_scope;
  const answers = [];
  for (const name of ["docs_read", "no_such_"]) {
    const tricked = headersOf(MODERN, nothing, "tools/call", "something");
    const asked = request(MODERN, "tools/call", { name, arguments: {} });
    answers.push(comparable(await send(desk, tricked, asked)));
  }
  check("a wrong header tells no hidden tool from a made-up one", answers[0] === answers[1], answers);
  const foreign = await send(desk, { ...good, origin: "https://attacker.invalid" }, body);
  check("a foreign origin is 403", foreign.status === 403, foreign.status);
  const extra = { ...read, arguments: { ...read.arguments, more: 1 } };
  const refused = await ask(MODERN, token, "tools/call", extra, desk);
  check("an argument that the tool does not have is an error", "error" in refused.json, refused.text);
}

async function coverage(): Promise<void> {
  const reply = await call(MODERN, greedy, "rates_window", EASTER);
  const said = reply.json.result?.structuredContent ?? {};
  check(
    "the Easter window has its certificate: 12 days, 8 expected, 8 delivered, 4 closed",
    said.coverage?.requested_calendar_days === 12 &&
      said.coverage?.expected_observations === 8 &&
      said.coverage?.delivered_observations === 8 &&
      said.coverage?.absent?.target_closed === 4 &&
      said.coverage?.complete === true,
    reply.text,
  );
  check(
    "rates are JSON numbers with the printed digits, and the source is named",
    reply.text.includes('["2026-04-08",1.1706]') && said.source === "Source: ECB statistics.",
    reply.text,
  );
  const why = await call(LEGACY, greedy, "calendar_why", { day: "2026-04-06" });
  const monday = why.json.result?.structuredContent;
  check("the calendar is not a day late", monday?.closed_because === "easter-monday", why.text);
}

async function sdks(): Promise<void> {
  const requestInit = (token: string) => ({ headers: { authorization: `Bearer ${token}` } });
  const old = new LegacyClient({ name: "proofs", version: "1" });
  await old.connect(
    new LegacyTransport(new URL(ecb), { requestInit: requestInit(tokens[greedy]) }) as Json,
  );
  const oldNames = (await old.listTools()).tools.map((tool) => tool.name);
  check("SDK 1.x connects and lists", oldNames.includes("rates_window"), oldNames);
  charge(greedy);
  const window: Json = await old.callTool({ name: "rates_window", arguments: EASTER });
  check("SDK 1.x gets rates", window.structuredContent?.observations?.length === 8, window);
  await old.close();
  let refused = "it connected";
  try {
    const bad = new LegacyClient({ name: "proofs", version: "1" });
    await bad.connect(
      new LegacyTransport(new URL(ecb), {
        requestInit: requestInit(tokens.other_resource),
      }) as Json,
    );
  } catch (error) {
    refused = String(error);
  }
  check("SDK 1.x is refused with a foreign token", /401|unauthorized/i.test(refused), refused);

  const client = new Client(
    { name: "proofs", version: "1" },
    { versionNegotiation: { mode: { pin: MODERN } } },
  );
  await client.connect(
    new StreamableHTTPClientTransport(new URL(ecb), { requestInit: requestInit(tokens[greedy]) }),
  );
  const names = (await client.listTools()).tools.map((tool) => tool.name);
  check("SDK 2.x connects in the modern era and lists", !names.includes(HIDDEN), names);
  charge(greedy);
  const modern: Json = await client.callTool({ name: "rates_window", arguments: EASTER });
  check("SDK 2.x gets rates", modern.structuredContent?.coverage?.complete === true, modern);
  await client.close();
}

function isOver(reply: Reply): boolean {
  return reply.json.result?.structuredContent?.error === "over_budget";
}

/** Call until the budget refuses, and return how many calls were answered before. */
async function drain(caller: string, name: string, args: Json): Promise<number> {
  for (let answered = 0; answered < MOST_CALLS; answered += 1) {
    const reply = await ask(MODERN, tokens[caller], "tools/call", { name, arguments: args });
    if (reply.status >= 500) throw new Error(`status ${reply.status} is no refusal`);
    if (isOver(reply)) return answered;
  }
  throw new Error(`nothing refused in ${MOST_CALLS} calls`);
}

async function budget(): Promise<void> {
  const { capacity, reserve_fraction: fraction, callers, clock } = manifest.budget;
  const reserve = (capacity * fraction) / callers.length;
  const spare = capacity * (1 - fraction);
  check("the budget's clock stands still", clock === "frozen", clock);
  // Half of what is left is spent on a name that does not exist: refusals cost what answers do.
  const before = spent[greedy];
  const half = Math.floor((reserve + spare - before) / 2);
  for (let number = 0; number < half; number += 1) await call(MODERN, greedy, "no_such_tool", {});
  const rest = await drain(greedy, "calendar_why", DAY);
  const admitted = before + half + rest;
  check(
    "the greedy caller is admitted its reserve and all of the spare, refusals included",
    admitted === reserve + spare,
    { admitted, expected: reserve + spare },
  );
  const over = await ask(LEGACY, tokens[greedy], "tools/call", { name: HIDDEN, arguments: {} });
  check(
    "over budget, every name gives the same answer, with when to come back",
    isOver(over) &&
      over.json.result.isError === true &&
      over.json.result.structuredContent.retry_after_s > 0 &&
      !over.text.includes(HIDDEN),
    over.text,
  );
  const left = await drain(quiet, "calendar_why", DAY);
  check("the quiet caller still has exactly its reserve", left === reserve, { left, reserve });
}

await audience();
await reach();
await headers();
await coverage();
await sdks();
await budget();
console.log(`${made} checks made, ${DECLARED} declared, ${failed.length} failed`);
process.exit(failed.length === 0 && made === DECLARED ? 0 : 1);
