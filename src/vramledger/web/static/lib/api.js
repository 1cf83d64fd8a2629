// What the page asks of its server.
const token = document.querySelector('meta[name="vramledger-token"]')?.getAttribute("content") ?? "";
const headers = { "x-vramledger-token": token };

/** Something the server refused, or that could not be asked; `message` is for a person. */
export class AskError extends Error {}

/** Models, devices, engines and their flags. */
export const catalogue = once(async () => (await answered(await fetch("/api/catalogue", { headers }))).json());

/**
 * Run a command: {command, sources, options, files}. Resolves to {exit_code, command, message, document};
 * `told` hears how far it is, `signal` ends it.
 *
 * @param {any} ask
 * @param {{told?: (text: string) => void, signal?: AbortSignal}} [more]
 */
export async function run(ask, { told, signal } = {}) {
  const sent = await reached(fetch("/api/run", { method: "POST", headers, body: JSON.stringify(without(ask)), signal }));
  await answered(sent);
  let found = null;
  for await (const line of lines(sent.body)) {
    const said = JSON.parse(line);
    if ("told" in said) told?.(said.told);
    else found = said;
  }
  if (found === null) throw new AskError("the answer was cut off");
  return found;
}

/** Whether a command gave no document but said why not. */
export function isRefused(answer) {
  return answer.document === null || answer.document.kind === "error";
}

/**
 * Keep files on the server (headers alone of checkpoints). Resolves to {source: "upload:ID", names, bytes}.
 *
 * @param {File[]} files
 * @param {{told?: (name: string) => void}} [more]
 */
export async function upload(files, { told } = {}) {
  let kept = null;
  for (const file of files) {
    told?.(file.name);
    const { body, size } = await header(file);
    const query = new URLSearchParams({ name: file.name });
    if (size !== null) query.set("size", String(size));
    if (kept) query.set("into", kept.id);
    kept = await (await answered(await reached(fetch(`/api/uploads?${query}`, { method: "POST", headers, body })))).json();
  }
  return { source: `upload:${kept.id}`, names: kept.names, bytes: kept.bytes };
}

/**
 * What may be looked at while it runs; with an engine's address what is measured of it now: {exit_code, command, message, document, source}.
 *
 * @param {string} [engine]
 */
export async function running(engine) {
  const sent = engine === undefined ? fetch("/api/live", { headers }) : fetch("/api/live/measure", { method: "POST", headers, body: JSON.stringify({ engine }) });
  return (await answered(await reached(sent))).json();
}

/**
 * A stream of JSON lines from any of the server's other addresses.
 *
 * @param {string} path
 * @param {{body?: unknown, signal?: AbortSignal}} [more]
 */
export async function* stream(path, { body, signal } = {}) {
  const sent = await reached(fetch(path, { method: "POST", headers, body: JSON.stringify(body ?? {}), signal }));
  await answered(sent);
  for await (const line of lines(sent.body)) yield JSON.parse(line);
}

const GGUF_HEADER_BYTES = 64 * 2 ** 20;

/** Of a checkpoint's file only the beginning, where its tensors are listed, and how large it is. */
async function header(file) {
  if (file.name.endsWith(".safetensors") && file.size >= 8) {
    const length = new DataView(await file.slice(0, 8).arrayBuffer()).getBigUint64(0, true);
    if (length < BigInt(file.size)) return { body: file.slice(0, 8 + Number(length)), size: file.size };
  }
  if (file.name.endsWith(".gguf") && file.size > GGUF_HEADER_BYTES) return { body: file.slice(0, GGUF_HEADER_BYTES), size: file.size };
  return { body: file, size: null };
}

async function reached(asked) {
  try {
    return await asked;
  } catch (problem) {
    if (problem.name === "AbortError") throw problem;
    throw new AskError("lost");
  }
}

async function answered(response) {
  if (response.ok) return response;
  const text = await response.text();
  let said = text.trim();
  try {
    said = JSON.parse(text).error ?? said;
  } catch {
    // Plain text is said as it is.
  }
  throw new AskError(said || `the server answered ${response.status}`);
}

async function* lines(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      const parts = (rest + value).split("\n");
      rest = parts.pop();
      yield* parts.filter(Boolean);
    }
  } finally {
    reader.cancel().catch(() => {});
  }
  if (rest) yield rest;
}

/** An option that is empty was not given. */
function without(ask) {
  const options = Object.entries(ask.options ?? {}).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  return { ...ask, options: Object.fromEntries(options) };
}

function once(make) {
  let made = null;
  return () => {
    made ??= make().catch((problem) => {
      made = null;
      throw problem;
    });
    return made;
  };
}
